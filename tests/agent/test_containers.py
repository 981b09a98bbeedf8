import json
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.agent.linux.containers import container_names
from tests.fake_root import LINK, fake_root

ID = "4f1c0ab2d9e7" + "8635" * 13
OTHER = "4f1c0ab2d9e8" + "8635" * 13
UID = "2b7c1f30-5a4e-4d1b-9c7e-0f6a8b9c0d1e"
DOCKER = f"0::/system.slice/docker-{ID}.scope\n"
PODMAN = f"0::/machine.slice/libpod-{ID}.scope/container\n"
ROOTLESS = f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n"
POD = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope\n"
CONFIG = f"/var/lib/docker/containers/{ID}/config.v2.json"
PODMAN_LIST = "/containers/storage/overlay-containers/containers.json"
TASKS = "/run/containerd/io.containerd.runtime.v2.task"
CRI_O = "/run/containers/storage/overlay-containers"
LOG = f"/var/log/containers/train-0_research_main-{ID}.log"


def docker(name: Any) -> str:
    return json.dumps({"ID": ID, "Name": name, "Config": {"Env": ["TOKEN=x"]}})


def podman(*names: tuple[str, list[str]]) -> str:
    return json.dumps([{"id": number, "names": name} for number, name in names])


def oci(annotation: str, name: str) -> str:
    return json.dumps({"process": {"env": ["TOKEN=x"]}, "annotations": {annotation: name}})


CASES: dict[str, tuple[str, dict[str, str]]] = {
    "docker": (DOCKER, {CONFIG: docker("/trainer")}),
    "docker, with another folder": (
        DOCKER,
        {
            "/etc/docker/daemon.json": '{"data-root": "/data/{docker}"}',
            f"/data/{{docker}}/containers/{ID}/config.v2.json": docker("/trainer"),
        },
    ),
    "another container": (DOCKER, {CONFIG.replace(ID, OTHER): docker("/other")}),
    "nerdctl": (
        f"0::/system.slice/nerdctl-{ID}.scope\n",
        {f"{TASKS}/default/{ID}/config.json": oci("nerdctl/name", "trainer")},
    ),
    "podman": (PODMAN, {f"/var/lib{PODMAN_LIST}": podman((OTHER, ["other"]), (ID, ["trainer"]))}),
    "docker, without root": (
        ROOTLESS.replace("libpod", "docker"),
        {f"/home/ada/.local/share/docker/containers/{ID}/config.v2.json": docker("/mine")},
    ),
    "kubernetes": (POD, {LOG: f"{LINK}/gone"}),
    "kubernetes, logs of the pod only": (
        POD,
        {f"/var/log/pods/research_train-0_{UID}/main/0.log": ""},
    ),
    "containerd": (
        POD,
        {f"{TASKS}/k8s.io/{ID}/config.json": oci("io.kubernetes.cri.container-name", "main")},
    ),
    "cri-o": (
        POD,
        {f"{CRI_O}/{ID}/userdata/config.json": oci("io.kubernetes.container.name", "main")},
    ),
    "a long name": (DOCKER, {CONFIG: docker("/" + "x" * 10_000)}),
    "a large file": (DOCKER, {CONFIG: " " * (4 << 20) + docker("/trainer")}),
    "nothing can be read": (DOCKER, {}),
    "a name that is no text": (DOCKER, {CONFIG: docker(["x"])}),
    "no JSON": (DOCKER, {CONFIG: "{"}),
    "deep": (DOCKER, {CONFIG: "[" * 100_000}),
    "a folder that cannot be": (DOCKER, {"/etc/docker/daemon.json": '{"data-root": "\\u0000"}'}),
    "a link to another file": (
        DOCKER,
        {CONFIG: f"{LINK}../../../../../other", "/other": docker("/x")},
    ),
    "a name of its own": ("0::/lxc.payload.a*\n", {CONFIG: docker("/trainer")}),
}


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    def getpwuid(uid: int) -> SimpleNamespace:
        if uid != 1000:
            raise KeyError(uid)
        return SimpleNamespace(pw_dir="/home/ada")

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)


def test_names(tmp_path: Path, snapshot: Any) -> None:
    found = ""
    for case, (cgroup, files) in CASES.items():
        (tmp_path / case).mkdir()
        found += f"{case}: {container_names(cgroup, fake_root(tmp_path / case, files))}\n"
    assert found == snapshot
