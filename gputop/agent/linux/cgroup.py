"""Container, pod and Slurm job of a process, from its control groups."""

from __future__ import annotations

import re
from typing import NamedTuple

ID_DIGITS = 12
"""Digits of a container's id that container tools show."""


class Cgroup(NamedTuple):
    """Container, pod and Slurm job of a process; None if it is in none."""

    container: str | None = None
    """First digits of the id, or the name if the containers have no id (LXC, systemd-nspawn)."""
    pod: str | None = None
    """Uid of the Kubernetes pod, with dashes if the uid has them."""
    slurm_job: str | None = None


# The id stands alone (cgroupfs driver) or after the runtime's name (systemd
# driver; with colons if kubelet and containerd use different drivers). conmon
# and lxc.monitor watch a container from outside. qemu is a machine, not a
# container.
_CONTAINER = (
    r"/(?:(?![^/]*conmon)[^/]*[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)"
    r"|/(?:lxc/|lxc\.payload[./])(?P<lxc>[^/]+)"
    r"|/machine-(?!qemu)(?P<scope>[^/]+)\.scope(?=/|$)"
    r"|/systemd-nspawn@(?P<service>[^/]+)\.service(?=/|$)"
)
# The uid of a static pod is a digest, without dashes.
_POD = r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
# If one machine runs several slurmd, the node's name stands before or after
# the name of the folder.
_JOB = r"/(?:slurm(?:_[^/]*)?|(?:[^/]*_)?slurmstepd\.scope)/(?:uid_[0-9]+/)?job_([0-9]+)(?=/|$)"


def parse_cgroup(cgroup: str) -> Cgroup:
    """Parse the text of `/proc/PID/cgroup`, of version 1, version 2 or both.

    For nested containers, return the innermost. Never raises; names are not made safe to show.
    """
    container = pod = slurm_job = None
    for line in cgroup.split("\n"):
        # Lines are `hierarchy:controllers:path`. In version 1, not every
        # hierarchy names the container.
        path = line.split(":", 2)[-1].removesuffix(" (deleted)")
        container = container or _container(path)
        pod = pod or _pod(path)
        slurm_job = slurm_job or _slurm_job(path)
    return Cgroup(container, pod, slurm_job)


def _container(path: str) -> str | None:
    matches = list(re.finditer(_CONTAINER, path))
    if not matches:
        return None
    innermost = matches[-1]
    if innermost["id"]:
        return innermost["id"][:ID_DIGITS]
    name = innermost["lxc"] or innermost["scope"] or innermost["service"]
    if innermost["lxc"]:
        return name
    # systemd escapes dashes. No other character that it escapes can be in a
    # machine's name.
    return name.replace("\\x2d", "-")


def _pod(path: str) -> str | None:
    if "kubepods" not in path:
        return None
    uids: list[str] = re.findall(_POD, path)
    if not uids:
        return None
    return uids[-1].replace("_", "-")


def _slurm_job(path: str) -> str | None:
    found = re.search(_JOB, path)
    if found is None:
        return None
    return found[1]
