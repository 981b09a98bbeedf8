"""What is to be run, and whether it fits: data types, sizes, memory, before a start."""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gputop.bench.plan.dtypes import DTYPES, DataType
from gputop.problem import Problem
from gputop.sources.linux.procfs import cpu_name
from gputop.text import size as sized
from gputop.text import visible

DeviceKind = Literal["cpu", "cuda"]

KINDS = {
    "soak": "one shape for a duration",
    "sweep": "square products of every size",
    "latency": "small products, and what launching and waiting cost",
    "peak": "search for the fastest shape",
    "copy": "bandwidth of memory",
    "pairs": "the same work on each device alone, and then on all at once",
}
"""What devices can be asked for, in a few words each; pairs are of two or more."""

MIB = 1 << 20
SIZE_STEP = 64
SMALLEST_SIZE, LARGEST_SIZE = 64, 1 << 20
SHORTEST_SECONDS, LONGEST_SECONDS = 0.5, 7 * 24 * 3600.0
DEFAULT_SECONDS = 60.0
DEFAULT_MEMORY_SHARE = 0.9
"""Of the free memory: the rest is for what others ask for meanwhile."""

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
    """A device that can be put under stress. `uuid` and `index` (NVML's) are None for the CPU.

    A MIG instance is one, with the `index` of its GPU.
    """

    kind: DeviceKind
    uuid: str | None
    index: int | None
    name: str
    compute_capability: str | None
    memory_free_bytes: int | None
    parent_uuid: str | None = None
    """Of a MIG instance: the GPU."""
    mig_index: int | None = None
    """Of a MIG instance: its number on that GPU."""
    memory_share: float = DEFAULT_MEMORY_SHARE
    """Of its free memory, how much a run may take: above 0, up to 1."""
    host: str | None = None
    """The machine that it is in, where that is another one. A CPU there has the `index` of the GPU
    in whose place it is."""

    @property
    def memory_allowed_bytes(self) -> int | None:
        """What a run may take; None where it is not known what is free."""
        free = self.memory_free_bytes
        return None if free is None else int(self.memory_share * free)

    @property
    def number(self) -> str | None:
        """As `--device` takes it: `3`, `3:1` for a MIG instance, None for the CPU."""
        if self.index is None:
            return None
        return f"{self.index}" if self.mig_index is None else f"{self.index}:{self.mig_index}"

    @property
    def label(self) -> str:
        """What people call it: `GPU 0, NVIDIA H200`, behind its host where that is another one."""
        name = visible(self.name)
        if self.host is None:
            return name if self.kind == "cpu" else f"GPU {self.number}, {name}"
        return f"{visible(self.host)}, {self.place}, {name}"

    @property
    def place(self) -> str:
        """Which one it is on its host, in short: `GPU 3`, `CPU`, `CPU 3` of several tests of it."""
        if self.kind == "cpu":
            return "CPU" if self.index is None else f"CPU {self.index}"
        return f"GPU {self.number}"

    @property
    def gpu_uuid(self) -> str | None:
        """Of the whole GPU, which alone has a temperature and a power."""
        return self.parent_uuid or self.uuid


@dataclass(frozen=True, slots=True)
class Request:
    """A stress test as it was asked for; `size` None lets the worker measure one."""

    target: Target
    dtype: str
    size: int | None
    seconds: float
    python: str | None = None
    kind: str = "soak"
    """One of `KINDS`."""
    further_dtypes: tuple[str, ...] = ()
    """Of a sweep, behind `dtype`."""
    peer: Target | None = None
    """Of `copy`: another GPU that it copies to."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """All of them."""
        return (self.dtype, *self.further_dtypes)


def cpu_target() -> Target:
    """The CPU of this machine."""
    return Target("cpu", None, None, _cpu_name(), None, _available_bytes())


def offered_dtypes(target: Target) -> tuple[str, ...]:
    """The data types that a device has."""
    return tuple(name for name, dtype in DTYPES.items() if missing(dtype, target) is None)


def missing(dtype: DataType, target: Target) -> str | None:
    """Why a device does not have a data type, or None where it has."""
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
    if target.memory_allowed_bytes is None:
        return 2 * DTYPES[dtype].auto_size
    return largest_size(target.memory_allowed_bytes, dtype, target.kind)


def auto_limit(target: Target, dtype: str) -> int:
    """The size that `auto` does not go beyond on this device, 0 where nothing fits."""
    return min(DTYPES[dtype].auto_size, fitting(target, dtype))


def check(request: Request) -> Problem | None:
    """Why the request cannot be run, before anything is started; None where it can."""
    problems = (_check(request, dtype) for dtype in request.dtypes)
    return next((problem for problem in problems if problem is not None), None)


def check_pairs(requests: Sequence[Request]) -> Problem | None:
    """Why devices cannot be run alone and then at once; None where they can."""
    what = "There are no pairs to run"
    if len(requests) < 2:
        named = f"{requests[0].target.label} is the only device" if requests else "there is none"
        why = f"pairs needs two devices, and {named}"
        return Problem(what, why, "Name two with --device, such as 0,1 or cpu,0")
    least = SHORTEST_SECONDS * (len(requests) + 1)
    if requests[0].seconds < least:
        why = f"{len(requests)} runs alone and one together take {least:g} s at least"
        return Problem(what, why, f"Choose --seconds {least:g} or more")
    return None


def _check(request: Request, name: str) -> Problem | None:
    target, dtype = request.target, DTYPES[name]
    reason = missing(dtype, target)
    if reason is not None:
        names = ", ".join(offered_dtypes(target))
        return Problem(f"{name} cannot be run on {target.label}", reason, f"Choose one of {names}")
    if request.kind == "soak" and request.size and target.kind == "cuda":
        unusable = _unusable_size(dtype, request.size)
        if unusable is not None:
            return unusable
    free, allowed = target.memory_free_bytes, target.memory_allowed_bytes
    if free is None or allowed is None:
        return None
    n = request.size or SMALLEST_SIZE
    need = memory_needed(n, name, target.kind)
    if need <= allowed:
        return None
    largest = largest_size(allowed, name, target.kind)
    return Problem(
        f"Products of size {n} in {name} do not fit on {target.label}",
        f"they need {sized(need)}, {sized(free)} are free, {_share(target)} of that may be used",
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


def _share(target: Target) -> str:
    return f"{100 * target.memory_share:.3g} %"


def parse_share(text: str) -> float:
    """A share, above 0 and up to 1; raises `ValueError` with what, why and the remedy."""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ValueError(
            f"{text!r} is not a share of the free memory: it is above 0, up to 1. "
            "Give a number such as 0.5."
        )
    return share


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


def parse_python(text: str) -> str:
    """An interpreter, by path or by name on the PATH, as a path; raises `ValueError`."""
    path = Path(text if os.sep in text else shutil.which(text) or text)
    try:
        mode = path.stat().st_mode
        why = "" if stat.S_ISREG(mode) else "it is a directory" if stat.S_ISDIR(mode) else "no file"
    except (FileNotFoundError, NotADirectoryError, ValueError):
        why = "there is no such file"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise ValueError(
            f"{text!r} is not an interpreter: {why}. "
            "Give the path of a Python that has torch, such as ~/venv/bin/python."
        )
    return str(path.absolute())  # not resolved: it may be the link of an environment


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
