"""The state of the NVIDIA driver from files, without a call to NVML.

Nothing here opens a GPU, because that can take seconds or block. Only the driver's control file is
opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gputop.agent.linux.cgroup import parse_cgroup
from gputop.agent.linux.files import paths, text_of

LIBRARY = "libnvidia-ml.so.1"
CONTROL_FILE = "/dev/nvidiactl"
WSL_FOLDER = "/usr/lib/wsl/lib"
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)
OTHER_FOLDERS = (
    WSL_FOLDER,
    "/usr/local/nvidia/lib64",  # nodes of Kubernetes
    "/run/opengl-driver/lib",  # NixOS
)
"""Folders that the loader does not search by default."""
NVIDIA = "0x10de"
"""PCI vendor."""
DISPLAY = ("0x0300", "0x0302")
"""PCI classes of VGA and 3D controllers."""
_VERSION = r"\d{3}\.\d+(?:\.\d+)?"


class PciGpu(NamedTuple):
    """An NVIDIA GPU on the PCI bus, and its kernel driver: `nvidia`, `nouveau`, …."""

    address: str
    driver: str | None = None
    excluded: bool = False
    """True if an administrator excluded the GPU from the driver (NVreg_ExcludedGpus)."""


class Refusal(NamedTuple):
    """A device file that this process may not open, and why."""

    file: str
    why: str
    group: str | None = None
    """Group that may open it, unless that is root's group."""


class BrokenLibrary(NamedTuple):
    """A file with the library's name that cannot be loaded, and why, such as `links to ...`."""

    file: str
    why: str


class System(NamedTuple):
    """Parts of the driver that a machine has. The defaults mean none."""

    kernel: str | None = None
    """Release of the kernel, such as `6.8.0-45-generic`."""
    module_version: str | None = None
    """Version of NVIDIA's kernel module if it is loaded. In a container, this is the host's module.
    """
    module_is_built: bool | None = None
    """True if the module was built for this kernel; None if unknown, as in a container."""
    nouveau: bool = False
    gpus: tuple[PciGpu, ...] | None = None
    """NVIDIA GPUs on the PCI bus; None if no bus is visible."""
    device_files: tuple[str, ...] = ()
    """Device files in the order of use: `CONTROL_FILE`, then the files of the GPUs."""
    refusals: tuple[Refusal, ...] = ()
    container: str | None = None
    """Kind of container, such as `docker`; `container` if unknown."""
    batch_job: bool = False
    """True in a job of a cluster's scheduler, which may hide some GPUs."""
    wsl: bool = False
    library: str | None = None
    library_version: str | None = None
    library_aside: bool = False
    """True if the library is in one of `OTHER_FOLDERS`, where the loader does not search."""
    broken_library: BrokenLibrary | None = None
    """A library that cannot be loaded. Set only if there is no other library."""

    def held_by(self, driver: str) -> tuple[str, ...]:
        """Return the addresses of the GPUs that this kernel driver controls."""
        return tuple(
            gpu.address for gpu in self.gpus or () if gpu.driver == driver
        )

    @property
    def usable_gpus(self) -> tuple[str, ...]:
        """Addresses of the GPUs that the driver should list. Empty if some may be hidden on
        purpose."""
        if self.container or self.batch_job:
            return ()
        return tuple(
            gpu.address
            for gpu in self.gpus or ()
            if gpu.driver in (None, "nvidia") and not gpu.excluded
        )


def inspect_system(
    root: Path = Path("/"),
    environment: Mapping[str, str] = os.environ,
) -> System:
    """Return the parts of the driver under that root. Unreadable files count as missing."""
    kernel = text_of(root / "proc/sys/kernel/osrelease") or None
    library, aside, broken = _library(root, environment)
    files = [
        file
        for file in paths(root, "dev/nvidia*")
        if re.fullmatch(r"nvidia(ctl|\d+)", file.name)
    ]
    return System(
        kernel=kernel,
        module_version=_module_version(root),
        module_is_built=_is_built(root, kernel),
        nouveau=(root / "sys/module/nouveau").exists(),
        gpus=_gpus(root),
        device_files=tuple(f"/dev/{file.name}" for file in files),
        refusals=tuple(_refusals(files)),
        container=_container(root, environment),
        batch_job=any(environment.get(variable) for variable in JOB_VARIABLES),
        wsl="microsoft" in (kernel or "").lower()
        or (root / "dev/dxg").exists(),
        library=library,
        library_version=_library_version(root, library),
        library_aside=aside,
        broken_library=broken,
    )


def _module_version(root: Path) -> str | None:
    for file in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        found = re.search(_VERSION, text_of(root / file))
        if found:
            return found[0]
    return None


def _is_built(root: Path, kernel: str | None) -> bool | None:
    if kernel is None:
        return None
    modules = text_of(root / "lib/modules" / kernel / "modules.dep")
    if not modules:
        return None
    return re.search(r"^\S*/nvidia\.ko\S*:", modules, re.MULTILINE) is not None


def _gpus(root: Path) -> tuple[PciGpu, ...] | None:
    bus = root / "sys/bus/pci/devices"
    if not bus.is_dir():
        return None
    gpus = []
    for device in paths(bus, "*"):
        is_display = text_of(device / "class").startswith(DISPLAY)
        if is_display and text_of(device / "vendor") == NVIDIA:
            driver = None
            with contextlib.suppress(OSError):
                driver = (device / "driver").readlink().name
            about = (
                root / "proc/driver/nvidia/gpus" / device.name / "information"
            )
            excluded = (
                re.search(r"Excluded:\s*Yes", text_of(about)) is not None
            )
            gpus.append(PciGpu(device.name, driver, excluded))
    return tuple(gpus)


def _refusals(files: Sequence[Path]) -> Iterator[Refusal]:
    for path in files:
        why = _why_refused(path)
        if why:
            group = None
            with contextlib.suppress(KeyError, OSError):
                if path.stat().st_gid:
                    group = path.group()
            yield Refusal(f"/dev/{path.name}", why, group)


def _why_refused(path: Path) -> str | None:
    if path.name != Path(CONTROL_FILE).name:
        if os.access(path, os.R_OK | os.W_OK):
            return None
        return "permission denied"
    # Control groups may refuse the file whatever its mode bits say.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENODEV):
            return (error.strerror or str(error)).lower()
        # ENXIO or ENODEV: the kernel module is not loaded.
    return None


CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "apptainer",
}
CONTAINER_FILES = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    ".singularity.d": "apptainer",
}
JOB_VARIABLES = (
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",  # LSF
)


def _container(root: Path, environment: Mapping[str, str]) -> str | None:
    for variable, kind in CONTAINER_VARIABLES.items():
        if environment.get(variable):
            return kind
    for file, kind in CONTAINER_FILES.items():
        if (root / file).exists():
            return kind
    systemd = text_of(root / "run/systemd/container")[:40]
    if systemd:
        return systemd
    if parse_cgroup(text_of(root / "proc/self/cgroup")).container:
        return "container"
    return None


def _library(
    root: Path,
    environment: Mapping[str, str],
) -> tuple[str | None, bool, BrokenLibrary | None]:
    """Return the library's path and True if the loader does not search there, or a broken one."""
    searched = []
    for folder in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder.startswith("/"):
            searched.append(os.path.normpath(folder))
    searched += LIBRARY_FOLDERS
    broken = None
    for folder in (*searched, *OTHER_FOLDERS):
        file = f"{folder}/{LIBRARY}"
        why = _why_broken(root, file)
        if why is None and (root / file[1:]).exists():
            return file, folder not in searched, None
        if why is not None and broken is None:
            broken = BrokenLibrary(file, why)
    return None, False, broken


def _library_version(root: Path, library: str | None) -> str | None:
    """Return the version in the name of the file that the library links to.

    Such a name is `libnvidia-ml.so.580.95.05`.
    """
    if library is None:
        return None
    file = os.path.realpath(root / library[1:])
    found = re.search(_VERSION, Path(file).name)
    return found[0] if found else None


def _why_broken(root: Path, file: str) -> str | None:
    """Return why a file cannot be a library. None if it may be a library or does not exist."""
    path = root / file[1:]
    if path.is_symlink() and not path.exists():
        return f"links to {path.readlink()}, which is missing"
    with contextlib.suppress(OSError):
        # Docker creates a directory if the file to mount is missing.
        if path.is_dir():
            return "is a directory"
        if path.stat().st_size == 0:
            return "is empty"
    return None


_STUB_TEXT = b"is a stub library"
"""Part of the warning in the CUDA toolkit's stub of NVML, which exists for linking."""
_STUB_BYTES = 1 << 20
"""Most bytes of a library to read. Stubs are much smaller."""


def loaded_stub(root: Path = Path("/")) -> str | None:
    """Return NVML's stub if this process has loaded it instead of the driver's library."""
    maps = text_of(root / "proc/self/maps")
    for file in dict.fromkeys(re.findall(r"(/\S*libnvidia-ml\.so\S*)", maps)):
        with (
            contextlib.suppress(OSError),
            (root / file[1:]).open("rb") as library,
        ):
            if _STUB_TEXT in library.read(_STUB_BYTES):
                return str(file)
    return None


_ADDRESS = r"(?i)([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)(?:\..*)?"
"""Domain, bus and device of a PCI address, with or without a function."""


def same_address(one: str, other: str) -> bool:
    """Return True if two PCI addresses name one device: `0000:17:00` and `00000000:17:00.0`."""
    numbers = _address_numbers(one)
    return numbers is not None and numbers == _address_numbers(other)


def _address_numbers(address: str) -> list[int] | None:
    found = re.fullmatch(_ADDRESS, address)
    if found is None:
        return None
    return [int(number, 16) for number in found.groups()]


def unlisted_gpus(
    plugged: tuple[str, ...], listed: tuple[str | None, ...]
) -> tuple[str, ...]:
    """Return the PCI addresses of GPUs that are on the bus and not listed.

    Empty if the address of a listed device is unknown, because it may be any of them.
    """
    if None in listed:
        return ()
    known = [_address_numbers(address or "") for address in listed]
    return tuple(
        address
        for address in plugged
        if _address_numbers(address) not in known
    )
