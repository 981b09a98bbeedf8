import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputop.agent.linux.driver_files import (
    BrokenLibrary,
    PciGpu,
    inspect_system,
    loaded_stub,
    unlisted_gpus,
)
from tests.fake_root import (
    BUILT,
    DEVICES,
    DOCKER,
    FOLDER,
    LIBRARY,
    LINK,
    LOADED,
    NOT_BUILT,
    NOUVEAU,
    WSL,
    WSL_LIBRARY,
    fake_root,
    gpu,
)

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

NAMED = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
DANGLING = {NAMED: f"{LINK}libnvidia-ml.so.535.54.03"}
GONE = "links to libnvidia-ml.so.535.54.03, which is missing"
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
    ({"/run/systemd/container": f"{'lxc' * 20}\n"}, {"container": f"{'lxc' * 13}l"}),
    ({"/proc/self/cgroup": f"0::/docker/{'0d' * 32}\n"}, {"container": "container"}),
    ({"/proc/self/cgroup": "0::/user.slice/user-1000.slice\n"}, {"container": None}),
    (WSL, {"wsl": True}),
    (LIBRARY, {"library": NAMED, "library_version": "580.95.05", "library_aside": False}),
    (WSL_LIBRARY, {"library": "/usr/lib/wsl/lib/libnvidia-ml.so.1", "library_aside": True}),
    ({**WSL_LIBRARY, **LIBRARY}, {"library_aside": False}),
    (DANGLING, {"library": None, "broken_library": BrokenLibrary(NAMED, GONE)}),
    ({NAMED: ""}, {"library": None, "broken_library": BrokenLibrary(NAMED, "is empty")}),
    ({NAMED: FOLDER}, {"library": None, "broken_library": BrokenLibrary(NAMED, "is a directory")}),
    (
        {**DANGLING, "/usr/lib64/libnvidia-ml.so.1": "\x7fELF"},
        {"library": "/usr/lib64/libnvidia-ml.so.1", "broken_library": None},
    ),
]


@pytest.mark.parametrize(("files", "seen"), MACHINES)
def test_what_is_seen_of_a_machine(
    tmp_path: Path, files: Mapping[str, str], seen: Mapping[str, object]
) -> None:
    found = inspect_system(fake_root(tmp_path, files), {})
    assert {name: getattr(found, name) for name in seen} == seen


def test_folders_of_the_environment_are_searched(tmp_path: Path) -> None:
    folders = {"LD_LIBRARY_PATH": "/opt:/usr/lib/wsl/lib/"}
    found = inspect_system(fake_root(tmp_path, WSL_LIBRARY), folders)
    assert (found.library, found.library_aside) == ("/usr/lib/wsl/lib/libnvidia-ml.so.1", False)


def test_a_device_file_that_is_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, really_open = os.access, os.open
    opened: list[str] = []

    def open_(path: Path, flags: int) -> int:
        opened.append(path.name)
        return really_open(path, flags)

    monkeypatch.setattr(
        os, "access", lambda path, mode: path.name != "nvidia1" and allowed(path, mode)
    )
    monkeypatch.setattr(os, "open", open_)
    root = fake_root(tmp_path, {**DEVICES, "/dev/nvidia1": ""})
    (refusal,) = inspect_system(root, {}).refusals
    assert (refusal.file, refusal.why) == ("/dev/nvidia1", "permission denied")
    assert opened == ["nvidiactl"]


MAPS = """\
7f0a1c000000-7f0a1c021000 r-xp 00000000 08:01 131 /usr/lib/x86_64-linux-gnu/libc.so.6
7f0a1c200000-7f0a1c221000 r-xp 00000000 08:01 132 {}
"""
WARNING = (
    "NVIDIA Display Driver.\nlibnvidia-ml.so in GDK package is a stub library that is attached"
)


@pytest.mark.parametrize("content", ["ELF", f"ELF {WARNING}"])
def test_a_stub_is_told_by_its_warning(tmp_path: Path, content: str) -> None:
    root = fake_root(tmp_path, {"/proc/self/maps": MAPS.format(NAMED), NAMED: content})
    assert loaded_stub(root) == (NAMED if WARNING in content else None)


def test_gpus_that_the_driver_should_list(tmp_path: Path) -> None:
    told = "Model: NVIDIA L4\nGPU Excluded:\t Yes\n"
    files = gpu(0) | gpu(1, None) | gpu(2, "vfio-pci") | gpu(3)
    files |= {"/proc/driver/nvidia/gpus/0000:47:00.0/information": told}
    system = inspect_system(fake_root(tmp_path, files), {})
    assert system.usable_gpus == ("0000:17:00.0", "0000:27:00.0")
    # A container or a scheduler's job may have been given some of them only.
    assert system._replace(container="docker").usable_gpus == ()
    (tmp_path / "job").mkdir()
    in_job = inspect_system(fake_root(tmp_path / "job", files), {"SLURM_JOB_ID": "7"})
    assert in_job.usable_gpus == ()


def test_gpus_that_the_driver_does_not_list() -> None:
    plugged = ("0000:17:00.0", "0000:27:00.0")
    assert unlisted_gpus(plugged, ("00000000:17:00.0",)) == ("0000:27:00.0",)
    assert unlisted_gpus(plugged, ("00000000:17:00.0", "00000000:27:00.0")) == ()
    assert unlisted_gpus(plugged, ("00000000:17:00.0", None)) == ()  # which may be that one
