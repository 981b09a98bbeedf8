"""What is to be run, and whether it can be: devices, data types, sizes, memory, before a start."""

from __future__ import annotations

import math
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gputop.bench.dtypes import DTYPES, DataType
from gputop.telemetry.cpu import cpu_name
from gputop.telemetry.snapshot import DeviceState, Problem, ProcessKind
from gputop.text import size as sized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.telemetry.snapshot import Inventory, Process, Sample

DeviceKind = Literal["cpu", "cuda"]

KINDS = {
    "soak": "one shape for a duration",
    "sweep": "square products of every size",
    "latency": "small products, and what launching and waiting cost",
    "peak": "search for the fastest shape",
    "copy": "bandwidth of memory",
}
"""What one device can be asked for, in a few words each."""

MIB = 1 << 20
SIZE_STEP = 64
SMALLEST_SIZE, LARGEST_SIZE = 64, 1 << 20
SHORTEST_SECONDS, LONGEST_SECONDS = 0.5, 7 * 24 * 3600.0
DEFAULT_SECONDS = 60.0

CONTEXT_BYTES = 512 * MIB
"""A CUDA context with its modules: 416 MiB on an RTX 4090, 439 MiB on an H100, and some room."""
WORKSPACE_BYTES = 64 * MIB
"""cuBLAS asks for up to 32 MiB; the rest is the rounding of torch's allocator."""
PROCESS_BYTES = 384 * MIB
"""Python with torch on the CPU, and the panels that the BLAS library packs."""
CHECKED_ROWS = 64
"""Rows that are compared in float64 at a time."""
ROW_COPIES = 8
"""Temporaries of that many rows, at most."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device that can be put under stress. `uuid` and `index` (NVML's) are None for the CPU."""

    kind: DeviceKind
    uuid: str | None
    index: int | None
    name: str
    compute_capability: str | None
    memory_free_bytes: int | None

    @property
    def label(self) -> str:
        """What people call it: `GPU 0, NVIDIA H200`."""
        return self.name if self.kind == "cpu" else f"GPU {self.index}, {self.name}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A data type on one device: `reason` says why it is not to be had, None where it is."""

    dtype: str
    reason: str | None = None

    @property
    def available(self) -> bool:
        """Whether a stress test can run it."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Request:
    """A stress test as it was asked for; `size` None lets the worker measure one."""

    target: Target
    dtype: str
    size: int | None
    seconds: float
    python: str | None = None
    kind: str = "soak"
    """One of `events.KINDS`."""
    further_dtypes: tuple[str, ...] = ()
    """Of a sweep, behind `dtype`."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """All of them."""
        return (self.dtype, *self.further_dtypes)


def cpu_target() -> Target:
    """The CPU of this machine."""
    return Target("cpu", None, None, _cpu_name(), None, _available_bytes())


def targets(inventory: Inventory, sample: Sample | None) -> tuple[Target, ...]:
    """Every device of a stream in its order, and the CPU behind them."""
    gpus = []
    for device in inventory.devices:
        readings = sample.device(device.uuid) if sample else None
        gpus.append(
            Target(
                "cuda",
                device.uuid,
                device.index,
                device.name,
                device.compute_capability,
                readings.memory_free_bytes if readings else None,
            )
        )
    return (*gpus, cpu_target())


def choose(among: Sequence[Target], device: str | None) -> Target:
    """The target that `device` (of `parse_device`) names; None is the first, a GPU if there is one.

    Raises `ValueError` where there is none, or more than one.
    """
    if device is None:
        return among[0]
    if device == "cpu":
        return next(target for target in among if target.kind == "cpu")
    if device.isdigit():
        found = [target for target in among if target.index == int(device)]
    else:
        found = [t for t in among if t.uuid and t.uuid.lower().startswith(device.lower())]
    if len(found) == 1:
        return found[0]
    names = ", ".join("cpu" if t.kind == "cpu" else f"{t.index} ({t.uuid})" for t in among)
    why = f"{len(found)} devices match it" if found else "this machine has no such device"
    raise ValueError(f"Device {device!r} cannot be used: {why}. There are: {names}.")


def offered(target: Target) -> tuple[Offer, ...]:
    """Every data type, with the reason where this device does not have it."""
    return tuple(Offer(dtype.name, _missing(dtype, target)) for dtype in DTYPES.values())


def _missing(dtype: DataType, target: Target) -> str | None:
    if target.kind == "cpu":
        return None if dtype.on_cpu else dtype.missing
    capability = _capability(target)
    return dtype.missing if capability is not None and capability < dtype.capability else None


def _capability(target: Target) -> tuple[int, int] | None:
    if target.compute_capability is None:
        return None
    major, _, minor = target.compute_capability.partition(".")
    return int(major), int(minor or 0)


def default_dtype(target: Target) -> str:
    """What people train with on this device: the fastest floating-point type it has in hardware."""
    capability = _capability(target)
    if target.kind == "cpu" or capability is None or capability < (7, 0):
        return "float32"
    return "bfloat16" if capability >= (8, 0) else "float16"


def bytes_per_element(dtype: str) -> int:
    """Of each of the N² places: A, B, C, the first product to compare with, and a mask."""
    known = DTYPES[dtype]
    return 2 * known.operand_bits // 8 + 2 * known.result_bytes + 1


def library_bytes(dtype: str, device: DeviceKind) -> int:
    """Of each of the N² places, what the library takes on the way; a GPU's has a workspace."""
    return DTYPES[dtype].cpu_library_bytes if device == "cpu" else 0


def bytes_per_row() -> int:
    """Of each of the N rows: the temporaries of the comparison in float64."""
    return ROW_COPIES * CHECKED_ROWS * 8


def fixed_bytes(device: DeviceKind) -> int:
    """What a run takes whatever its size: the context and the workspace, or the process."""
    return CONTEXT_BYTES + WORKSPACE_BYTES if device == "cuda" else PROCESS_BYTES


def memory_needed(n: int, dtype: str, device: DeviceKind) -> int:
    """Bytes on the device for products of N x N, at their peak."""
    by_element = bytes_per_element(dtype) + library_bytes(dtype, device)
    return fixed_bytes(device) + n * n * by_element + n * bytes_per_row()


def largest_size(free_bytes: int, dtype: str, device: DeviceKind) -> int:
    """The largest multiple of 64 that fits, 0 where none does: the inverse of `memory_needed`."""
    room = free_bytes - fixed_bytes(device)
    if room <= 0:
        return 0
    # a·n² + b·n = room, solved without the cancellation of the textbook formula
    a, b = bytes_per_element(dtype) + library_bytes(dtype, device), bytes_per_row()
    n = int(2 * room / (b + math.sqrt(b * b + 4 * a * room))) // SIZE_STEP * SIZE_STEP
    n = min(n + SIZE_STEP, LARGEST_SIZE)  # floating point may have rounded down across a step
    return n if memory_needed(n, dtype, device) <= free_bytes else n - SIZE_STEP


def fitting(target: Target, dtype: str) -> int:
    """The largest size that fits on this device, 0 where none does; a guess where that is unknown.

    The worker looks again, at what is free then.
    """
    if target.memory_free_bytes is None:
        return 2 * DTYPES[dtype].auto_size
    return largest_size(target.memory_free_bytes, dtype, target.kind)


def auto_limit(target: Target, dtype: str) -> int:
    """The size that `auto` does not go beyond on this device, 0 where nothing fits."""
    return min(DTYPES[dtype].auto_size, fitting(target, dtype))


def check(request: Request) -> Problem | None:
    """Why the request cannot be run, before anything is started; None where it can."""
    problems = (_check(request, dtype) for dtype in request.dtypes)
    return next((problem for problem in problems if problem is not None), None)


def _check(request: Request, name: str) -> Problem | None:
    target, dtype = request.target, DTYPES[name]
    reason = _missing(dtype, target)
    if reason is not None:
        names = ", ".join(offer.dtype for offer in offered(target) if offer.available)
        return Problem(f"{name} cannot be run on {target.label}", reason, f"Choose one of {names}")
    if request.kind == "soak" and request.size and target.kind == "cuda":
        unusable = _unusable_size(dtype, request.size)
        if unusable is not None:
            return unusable
    free = target.memory_free_bytes
    if free is None:
        return None
    n = request.size or SMALLEST_SIZE
    need = memory_needed(n, name, target.kind)
    if need <= free:
        return None
    largest = largest_size(free, name, target.kind)
    return Problem(
        f"Products of size {n} in {name} do not fit on {target.label}",
        f"they need {sized(need)} and {sized(free)} are free",
        f"Choose --size {largest} or smaller, or --size auto"
        if largest
        else "End what holds the memory, or choose another device",
    )


def _unusable_size(dtype: DataType, n: int) -> Problem | None:
    usable = max(dtype.least, -(-n // dtype.multiple) * dtype.multiple)
    if usable == n:
        return None
    why = f"sizes are multiples of {dtype.multiple}, from {max(dtype.least, dtype.multiple)} on"
    return Problem(
        f"There are no {dtype.name} products of size {n}", why, f"Choose --size {usable}"
    )


def parse_size(text: str) -> int | None:
    """`auto` is None, otherwise N; raises `ValueError` with what, why and the remedy."""
    if text.strip().lower() == "auto":
        return None
    # ASCII digits alone: int() also takes "4_096", " 7" and other scripts' digits
    if not re.fullmatch(r"[0-9]{1,9}", text) or not SMALLEST_SIZE <= int(text) <= LARGEST_SIZE:
        raise ValueError(
            f"{text!r} is not a size: it is N of an N x N product, "
            f"from {SMALLEST_SIZE} to {LARGEST_SIZE}. Give a whole number such as 4096, or auto."
        )
    return int(text)


def parse_seconds(text: str) -> float:
    """Seconds of a run; raises `ValueError` with what, why and the remedy."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise ValueError(
            f"{text!r} is not a duration: it is in seconds, from {SHORTEST_SECONDS:g} "
            f"to {LONGEST_SECONDS:.0f}. Give a number such as 30."
        )
    return seconds


def parse_device(text: str) -> str:
    """`cpu`, an index (`cuda:1` is `1`) or the start of a UUID; raises `ValueError`."""
    device = text.strip()
    if device.lower() == "cpu":
        return "cpu"
    index = re.fullmatch(r"(?:cuda:|gpu:)?([0-9]{1,4})", device, re.IGNORECASE)
    if index:
        return str(int(index[1]))
    if re.fullmatch(r"(?:GPU|MIG)-[0-9a-fA-F-]*", device, re.IGNORECASE):
        return device
    raise ValueError(
        f"{text!r} is not a device: it is cpu, an index, or the start of a UUID. "
        "Give one such as cpu, 0 or GPU-4f2a; `gputop status` lists them."
    )


def parse_python(text: str) -> str:
    """An interpreter, by path or by name on the PATH, as a path; raises `ValueError`."""
    path = Path(text if os.sep in text else shutil.which(text) or text)
    if not path.is_file():
        why = "it is a directory" if path.is_dir() else "there is no such file"
        raise ValueError(
            f"{text!r} is not an interpreter: {why}. "
            "Give the path of a Python that has torch, such as ~/venv/bin/python."
        )
    return str(path.absolute())  # not resolved: it may be the link of an environment


def holders(sample: Sample | None, target: Target) -> list[Process] | None:
    """Whom a stress test would disturb: those that compute on the device; None if unknown."""
    if target.kind == "cpu":
        return []
    readings = sample.device(target.uuid or "") if sample else None
    if sample is None or readings is None or "processes" in readings.absent:
        return None
    return [
        process
        for process in sample.processes
        if process.device_uuid == target.uuid and process.kind is not ProcessKind.GRAPHICS
    ]


def unusable(sample: Sample | None, target: Target) -> Problem | None:
    """Why no stress test is started on a device that does not answer; None for one that does."""
    if target.kind == "cpu":
        return None
    readings = sample.device(target.uuid or "") if sample else None
    what = f"{target.label} cannot be put under stress"
    remedy = "Look for Xid errors in `dmesg`; `nvidia-smi` may reset it"
    if readings is None or (readings.state is DeviceState.OK and readings.age_seconds is None):
        return Problem(what, "it has not answered yet", remedy)
    if readings.state is not DeviceState.OK:
        return Problem(what, f"its state is {readings.state.replace('_', ' ')}", remedy)
    return None


def _cpu_name() -> str:
    return cpu_name() or os.uname().machine


def _available_bytes() -> int | None:
    """What a new process can take without swapping, of the machine and of this control group."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    try:
        # Inside a container this is the container's own group.
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        found.append(max(0, limit - used))
    except (OSError, ValueError):  # no such group, or "max"
        pass
    return min(found) if found else None
