"""What a machine shows of its driver: whole machines as files, and what is made of them."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from gputop.sources.linux.driver_files import PciGpu, System, inspect_system
from tests.fake_root import (
    BUILT,
    DEVICES,
    DOCKER,
    LIBRARY,
    LOADED,
    NOT_BUILT,
    NOUVEAU,
    REFUSED,
    WSL,
    WSL_LIBRARY,
    fake_root,
    gpu,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ADDRESS = "0000:17:00.0"
PROC_VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\n"
    "GCC version:  gcc version 13.2.0\n"
)
NOT_GPUS = {
    "/sys/bus/pci/devices/0000:17:00.1/vendor": "0x10de\n",  # its sound
    "/sys/bus/pci/devices/0000:17:00.1/class": "0x040300\n",
    "/sys/bus/pci/devices/0000:00:02.0/vendor": "0x8086\n",
    "/sys/bus/pci/devices/0000:00:02.0/class": "0x030000\n",
}

MACHINES: list[tuple[dict[str, str], dict[str, object]]] = [
    ({}, {}),
    (LOADED, {"module_version": "550.54.14"}),
    ({"/proc/driver/nvidia/version": PROC_VERSION}, {"module_version": "580.95.05"}),
    (NOT_BUILT, {"kernel": "6.8.0-45-generic", "module_is_built": False}),
    (BUILT, {"kernel": "6.8.0-45-generic", "module_is_built": True}),
    (NOUVEAU, {"nouveau": True, "gpus": (PciGpu(ADDRESS, "nouveau"),)}),
    ({**gpu(0), **NOT_GPUS}, {"gpus": (PciGpu(ADDRESS, "nvidia"),)}),
    (gpu(0, None), {"gpus": (PciGpu(ADDRESS, None),)}),
    (NOT_GPUS, {"gpus": ()}),
    (DEVICES, {"device_files": ("/dev/nvidia0", "/dev/nvidiactl")}),
    ({"/dev/nvidia-uvm": ""}, {"device_files": ()}),
    (DOCKER, {"container": "docker"}),
    ({"/run/.containerenv": ""}, {"container": "podman"}),
    ({"/run/systemd/container": "lxc\n"}, {"container": "lxc"}),
    ({"/proc/self/cgroup": f"0::/docker/{'0d' * 32}\n"}, {"container": "container"}),
    ({"/proc/self/cgroup": "0::/user.slice/user-1000.slice\n"}, {"container": None}),
    (WSL, {"wsl": True}),
    (
        LIBRARY,
        {
            "library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
            "library_version": "580.95.05",
            "library_aside": False,
        },
    ),
    (WSL_LIBRARY, {"library": "/usr/lib/wsl/lib/libnvidia-ml.so.1", "library_aside": True}),
    ({**WSL_LIBRARY, **LIBRARY}, {"library_aside": False}),
]


@pytest.mark.parametrize(("files", "seen"), MACHINES)
def test_what_is_seen_of_a_machine(
    tmp_path: Path, files: Mapping[str, str], seen: Mapping[str, object]
) -> None:
    found = inspect_system(fake_root(tmp_path, files), {})
    assert {name: getattr(found, name) for name in seen} == seen


def test_a_machine_that_has_nothing(tmp_path: Path) -> None:
    assert inspect_system(fake_root(tmp_path, {}), {}) == System()


@pytest.mark.parametrize(
    ("variable", "kind"),
    [("KUBERNETES_SERVICE_HOST", "kubernetes"), ("APPTAINER_CONTAINER", "apptainer")],
)
def test_a_container_by_its_environment(tmp_path: Path, variable: str, kind: str) -> None:
    assert inspect_system(fake_root(tmp_path, DOCKER), {variable: "10.0.0.1"}).container == kind


def test_a_folder_that_the_loader_is_told_of_is_not_aside(tmp_path: Path) -> None:
    told = {"LD_LIBRARY_PATH": "relative::/opt:/usr/lib/wsl/lib/"}
    found = inspect_system(fake_root(tmp_path, WSL_LIBRARY), told)
    assert found.library == "/usr/lib/wsl/lib/libnvidia-ml.so.1"
    assert not found.library_aside


def test_a_control_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """Opened, and not only its mode looked at: control groups refuse what the mode allows."""
    (refusal,) = inspect_system(fake_root(tmp_path, {**REFUSED, "/dev/nvidia0": ""}), {}).refusals
    assert (refusal.file, refusal.why) == ("/dev/nvidiactl", "is a directory")


def test_a_control_file_without_its_module_is_not_refused(tmp_path: Path) -> None:
    root = fake_root(tmp_path, {})
    (root / "dev").mkdir(exist_ok=True)
    with socket.socket(
        socket.AF_UNIX
    ) as listening:  # opening it fails as a node without a module does
        listening.bind(str(root / "dev/nvidiactl"))
        found = inspect_system(root, {})
    assert found.device_files == ("/dev/nvidiactl",)
    assert found.refusals == ()


def test_a_device_file_that_is_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs themselves are not opened: that could wake one, or block."""
    allowed = os.access
    opened: list[str] = []
    really_open = os.open

    def access(path: Path, mode: int) -> bool:
        return path.name != "nvidia1" and allowed(path, mode)

    def open_(path: Path, flags: int) -> int:
        opened.append(path.name)
        return really_open(path, flags)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr(os, "open", open_)
    root = fake_root(tmp_path, {**DEVICES, "/dev/nvidia1": ""})
    (refusal,) = inspect_system(root, {}).refusals
    assert (refusal.file, refusal.why) == ("/dev/nvidia1", "permission denied")
    assert opened == ["nvidiactl"]
