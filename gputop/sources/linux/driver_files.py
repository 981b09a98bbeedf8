"""The NVIDIA driver as files and the kernel's log show it, without a call to NVML.

Nothing here opens a GPU, which can take seconds or block: only the driver's control file is opened.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gputop.sources.linux.procfs import parse_cgroup

LIBRARY = "libnvidia-ml.so.1"
CONTROL_FILE = "/dev/nvidiactl"
WSL_FOLDER = "/usr/lib/wsl/lib"
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)
OTHER_FOLDERS = (WSL_FOLDER, "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")
"""Folders in WSL, Kubernetes nodes and NixOS, which the loader does not search by default."""
NVIDIA, DISPLAY = "0x10de", ("0x0300", "0x0302")
"""PCI vendor, and classes of VGA and 3D controllers."""
_VERSION = r"\d{3}\.\d+(?:\.\d+)?"


class PciGpu(NamedTuple):
    """An NVIDIA GPU on the PCI bus, and the kernel driver that has it: `nvidia`, `nouveau`, …."""

    address: str
    driver: str | None = None
    excluded: bool = False
    """True if an administrator told the driver to leave it alone (NVreg_ExcludedGpus)."""


class Refusal(NamedTuple):
    """A device file that this process may not open."""

    file: str
    why: str
    group: str | None = None
    """Group that may open it, unless it is root's."""


class BrokenLibrary(NamedTuple):
    """A file with the library's name that cannot be loaded, and why: it `links to ...`."""

    file: str
    why: str


class System(NamedTuple):
    """Parts of the driver that a machine has; by default none."""

    kernel: str | None = None
    """Release of the kernel, such as `6.8.0-45-generic`."""
    module_version: str | None = None
    """Version of NVIDIA's kernel module, if it is loaded: in a container, the host's."""
    module_is_built: bool | None = None
    """True if it is built for this kernel; None if unknown, as in a container."""
    nouveau: bool = False
    gpus: tuple[PciGpu, ...] | None = None
    """NVIDIA GPUs on the PCI bus; None if no bus is shown."""
    device_files: tuple[str, ...] = ()
    """`CONTROL_FILE`, which comes before any GPU, and the files of the GPUs."""
    refusals: tuple[Refusal, ...] = ()
    container: str | None = None
    """Kind of container, such as `docker`; `container` if unknown."""
    batch_job: bool = False
    """True in a job of a cluster's scheduler, which may withhold GPUs."""
    wsl: bool = False
    library: str | None = None
    library_version: str | None = None
    library_aside: bool = False
    """True if it is in one of `OTHER_FOLDERS`, and the loader does not search there."""
    broken_library: BrokenLibrary | None = None
    """Set if there is no other library."""

    def held_by(self, driver: str) -> tuple[str, ...]:
        """Return the addresses of the GPUs that this kernel driver has."""
        return tuple(gpu.address for gpu in self.gpus or () if gpu.driver == driver)

    @property
    def usable_gpus(self) -> tuple[str, ...]:
        """Addresses of the GPUs that the driver should list; none where some may be withheld."""
        if self.container or self.batch_job:
            return ()
        return tuple(
            gpu.address
            for gpu in self.gpus or ()
            if gpu.driver in (None, "nvidia") and not gpu.excluded
        )


def inspect_system(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> System:
    """Return the parts of the driver under that root; unreadable files count as missing."""
    kernel = _text(root / "proc/sys/kernel/osrelease") or None
    library, aside, broken = _library(root, environment)
    version = (
        re.search(_VERSION, Path(os.path.realpath(root / library[1:])).name) if library else None
    )
    files = tuple(
        f"/dev/{name}" for name in _names(root / "dev") if re.fullmatch(r"nvidia(ctl|\d+)", name)
    )
    return System(
        kernel=kernel,
        module_version=_module_version(root),
        module_is_built=_is_built(root, kernel),
        nouveau=(root / "sys/module/nouveau").exists(),
        gpus=_gpus(root),
        device_files=files,
        refusals=tuple(_refusals(root, files)),
        container=_container(root, environment),
        batch_job=any(environment.get(name) for name in _JOBS),
        wsl="microsoft" in (kernel or "").lower() or (root / "dev/dxg").exists(),
        library=library,
        library_version=version and version[0],
        library_aside=aside,
        broken_library=broken,
    )


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(path.name for path in folder.iterdir())
    return []


def _module_version(root: Path) -> str | None:
    for file in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        if found := re.search(_VERSION, _text(root / file)):
            return found[0]
    return None


def _is_built(root: Path, kernel: str | None) -> bool | None:
    listed = _text(root / "lib/modules" / (kernel or "?") / "modules.dep")
    return bool(re.search(r"^\S*/nvidia\.ko\S*:", listed, re.MULTILINE)) if listed else None


def _gpus(root: Path) -> tuple[PciGpu, ...] | None:
    bus = root / "sys/bus/pci/devices"
    if not bus.is_dir():
        return None
    found = []
    for name in _names(bus):
        vendor, kind = _text(bus / name / "vendor"), _text(bus / name / "class")
        if vendor == NVIDIA and kind.startswith(DISPLAY):
            told = _text(root / "proc/driver/nvidia/gpus" / name / "information")
            excluded = re.search(r"Excluded:\s*Yes", told) is not None
            found.append(PciGpu(name, _driver_of(bus / name), excluded))
    return tuple(found)


def _driver_of(device: Path) -> str | None:
    with contextlib.suppress(OSError):
        return (device / "driver").readlink().name
    return None


def _refusals(root: Path, files: tuple[str, ...]) -> Iterator[Refusal]:
    for file in files:
        path = root / file[1:]
        if file == CONTROL_FILE:
            why = _refused(path)
        else:
            why = None if os.access(path, os.R_OK | os.W_OK) else "permission denied"
        if why:
            yield Refusal(file, why, _group(path))


def _refused(path: Path) -> str | None:
    # Opened, since what control groups refuse is in no mode bit.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        without_module = error.errno in (errno.ENXIO, errno.ENODEV)
        return None if without_module else (error.strerror or str(error)).lower()
    return None


def _group(path: Path) -> str | None:
    with contextlib.suppress(KeyError, OSError):
        return path.group() if path.stat().st_gid else None
    return None


_MARKS = {".dockerenv": "docker", "run/.containerenv": "podman", ".singularity.d": "apptainer"}
_VARIABLES = {"KUBERNETES_SERVICE_HOST": "kubernetes", "APPTAINER_CONTAINER": "apptainer"}


_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
"""Variables of Slurm, PBS and LSF."""


def _container(root: Path, environment: Mapping[str, str]) -> str | None:
    known = [kind for variable, kind in _VARIABLES.items() if environment.get(variable)]
    known += [kind for mark, kind in _MARKS.items() if (root / mark).exists()]
    if known:
        return known[0]
    inside = parse_cgroup(_text(root / "proc/self/cgroup")).container
    return _text(root / "run/systemd/container")[:40] or ("container" if inside else None)


def _library(
    root: Path, environment: Mapping[str, str]
) -> tuple[str | None, bool, BrokenLibrary | None]:
    """Return the library's path and True if the loader does not search there, or a broken one.

    The version is in the name of the file that it links to: `libnvidia-ml.so.580.95.05`.
    """
    named = environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    searched = [os.path.normpath(name) for name in named if name.startswith("/")]
    searched += [*_configured_folders(root), *LIBRARY_FOLDERS]
    broken = None
    for folder in (*searched, *OTHER_FOLDERS):
        file = f"{folder}/{LIBRARY}"
        why = _why_broken(root, file)
        if why is None and (root / file[1:]).exists():
            return file, folder not in searched, None
        if why is not None and broken is None:
            broken = BrokenLibrary(file, why)
    return None, False, broken


def _why_broken(root: Path, file: str) -> str | None:
    """Return why a file cannot be a library, or None if it may be one, or is not there."""
    path = root / file[1:]
    if path.is_symlink() and not path.exists():
        missing: Path | str = path.readlink()
        if (path.parent / missing).is_symlink():  # a link to a link: name the last
            missing = f"/{os.path.relpath(os.path.realpath(path), os.path.realpath(root))}"
        return f"links to {missing}, which is missing"
    with contextlib.suppress(OSError):
        if path.is_dir():  # Docker makes one for a file to mount that is not there
            return "is a directory"
        if path.stat().st_size == 0:
            return "is empty"
    return None


def _configured_folders(root: Path) -> Iterator[str]:
    """Yield the folders that ldconfig is told of."""
    patterns = ["/etc/ld.so.conf"]
    for pattern in patterns:
        for file in sorted(root.glob(pattern.lstrip("/"))):
            for line in _text(file).splitlines():
                word, *more = line.partition("#")[0].split() or [""]
                if word == "include":
                    patterns += [str(Path("/etc", name)) for name in more]
                elif word.startswith("/"):
                    yield os.path.normpath(word)


_STUB_TEXT = b"is a stub library"
"""Words of the warning in the stub of NVML, which comes with the CUDA toolkit to build against."""
_STUB_BYTES = 1 << 20
"""Bytes read of a library: stubs are much smaller."""


def loaded_stub(root: Path = Path("/")) -> str | None:
    """Return the stub of NVML that this process has loaded in place of the driver's library."""
    maps = _text(root / "proc/self/maps")
    for file in dict.fromkeys(re.findall(r"(/\S*libnvidia-ml\.so\S*)", maps)):
        if Path(file).parent.name == "stubs":
            return str(file)
        with contextlib.suppress(OSError), (root / file[1:]).open("rb") as library:
            if _STUB_TEXT in library.read(_STUB_BYTES):
                return str(file)
    return None


_MOST_RECORDS = 100_000
_RECORD_BYTES = 1 << 13
_XID = r"^\d+,\d+,(?P<at>\d+),[^;]*;NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<code>\d+)"
"""A record of /dev/kmsg, with the time in microseconds since boot; see the kernel's
Documentation/ABI/testing/dev-kmsg. Source of the text: https://docs.nvidia.com/deploy/xid-errors/."""


class LoggedXid(NamedTuple):
    """An Xid in the kernel's log, with the device's PCI address as the driver writes it."""

    address: str
    code: int
    age_seconds: float


class KernelLog(NamedTuple):
    """Xids in the kernel's log, oldest first; `refused` is the reason that it cannot be read."""

    xids: tuple[LoggedXid, ...] = ()
    refused: str | None = None


def read_kernel_log(
    root: Path = Path("/"), clock: Callable[[], float] = time.monotonic
) -> KernelLog:
    """Return the Xids in the kernel's log now, never waiting for more."""
    try:
        descriptor = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            text = b"".join(_records(descriptor)).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError as error:
        return KernelLog(refused=(error.strerror or str(error)).lower())
    return KernelLog(tuple(_xids(text, clock())))


def _records(descriptor: int) -> Iterator[bytes]:
    """Yield the log's records: one read is one record; overwritten ones are skipped."""
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            continue
        if not record:
            return
        yield record


def _xids(text: str, now: float) -> Iterator[LoggedXid]:
    for line in text.splitlines():
        if found := re.match(_XID, line):
            age = max(0.0, now - int(found["at"]) / 1e6)
            yield LoggedXid(found["address"], int(found["code"]), age)


_ADDRESS = r"(?i)([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)(?:\..*)?"


def same_address(one: str, other: str) -> bool:
    """Return True if two PCI addresses name one device: `0000:17:00` and `00000000:17:00.0`."""
    first, second = (
        found and [int(number, 16) for number in found.groups()]
        for found in (re.fullmatch(_ADDRESS, address) for address in (one, other))
    )
    return first is not None and first == second


@functools.lru_cache(maxsize=8)
def unlisted_gpus(plugged: tuple[str, ...], listed: tuple[str | None, ...]) -> tuple[str, ...]:
    """Return the PCI addresses that are plugged in and not listed.

    Empty if the address of a listed device is unknown: it may be any of them.
    """
    if None in listed:
        return ()
    return tuple(
        address
        for address in plugged
        if not any(same_address(address, each or "") for each in listed)
    )
