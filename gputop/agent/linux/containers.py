"""Names of containers and pods, from the files of their runtimes.

Most of these files are readable by root only. Files of a rootless container are in its user's home,
and that user can read them, too. Everyone can read the names of the kubelet's log folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gputop.agent.linux.cgroup import parse_cgroup
from gputop.agent.linux.files import paths

FILE_BYTES = 4 << 20
"""Most bytes read of a file: Podman lists all containers in one file."""
NAME_LENGTH = 128

KUBELET = "var/log/containers/*_*_*-{}*.log"
"""Link to a log: `POD_NAMESPACE_CONTAINER-ID.log`. None of the names can contain a `_`."""
KUBELET_POD = "var/log/pods/*_*_{}"
"""Folder of a pod's logs: `NAMESPACE_POD_UID`."""
DOCKER_FOLDERS = ("var/lib/docker", "var/snap/docker/common/var-lib-docker")
DOCKER_SETTINGS = "etc/docker/daemon.json"
OCI = (
    "run/containerd/io.containerd.runtime.v2.task/*/{}*/config.json",
    "run/k3s/containerd/io.containerd.runtime.v2.task/*/{}*/config.json",
    "run/containers/storage/overlay-containers/{}*/userdata/config.json",
)
OCI_NAMES = (
    "nerdctl/name",
    "io.kubernetes.cri.container-name",
    "io.kubernetes.container.name",
)
"""Annotations with a container's name."""
PODMAN = "containers/storage/overlay-containers/containers.json"


def container_names(cgroup: str, root: Path = Path("/")) -> dict[str, str]:
    """Return the names of a process's `container` and `pod`, if they can be read.

    `cgroup` is the text of its control groups. May block: a home may be on a network file system.
    """
    container, pod, _ = parse_cgroup(cgroup)
    names: dict[str, Any] = {}
    if pod:
        for folder in paths(root, KUBELET_POD.format(pod)):
            names["pod"] = folder.name.split("_")[1]
    if container and re.fullmatch("[0-9a-f]{12}", container):
        for link in paths(root, KUBELET.format(container)):
            names["pod"], _, rest = link.name.split("_", 2)
            names["container"] = rest.rpartition("-")[0]
            return names
        # The file may have another form.
        with contextlib.suppress(AttributeError, TypeError):
            for name in _names(container, root, _homes(cgroup, root)):
                if name:
                    names["container"] = name.lstrip("/")[:NAME_LENGTH]
                    break
    return names


def _homes(cgroup: str, root: Path) -> list[Path]:
    """Return the home of the user who runs the container, unless the user is root."""
    user = re.search(r"/user-(\d+)\.slice/", cgroup)
    if user:
        with contextlib.suppress(KeyError, OverflowError):
            home = pwd.getpwuid(int(user[1])).pw_dir
            return [root / home.lstrip("/")]
    return []


def _names(
    container: str,
    root: Path,
    homes: list[Path],
) -> Iterator[Any]:
    """Yield possible names of the container whose id begins like this."""
    for folder in _docker_folders(root, homes):
        for file in paths(folder, f"containers/{container}*/config.v2.json"):
            yield _load(file).get("Name")
    for pattern in OCI:
        for file in paths(root, pattern.format(container)):
            annotations = _load(file).get("annotations", {})
            for name in OCI_NAMES:
                yield annotations.get(name)
    for folder in (
        root / "var/lib",
        *(home / ".local/share" for home in homes),
    ):
        for each in _load(folder / PODMAN):
            if each["id"].startswith(container):
                yield from each.get("names", ())


def _docker_folders(root: Path, homes: list[Path]) -> Iterator[Path]:
    for folder in DOCKER_FOLDERS:
        yield root / folder
    moved = _load(root / DOCKER_SETTINGS).get("data-root")
    if moved:
        yield root / moved.lstrip("/")
    for home in homes:
        yield home / ".local/share/docker"


def _load(file: Path) -> Any:
    """Return the JSON of a regular file of at most `FILE_BYTES`, or an empty object."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        descriptor = os.open(file, flags)
    except (OSError, ValueError):
        return {}
    with open(descriptor, "rb") as opened:  # noqa: PTH123 - a descriptor, not a path
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                return json.loads(opened.read(FILE_BYTES))
    return {}
