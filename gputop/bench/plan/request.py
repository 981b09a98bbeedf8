"""What to run: data types, targets, requests, and the memory that they need."""

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

from gputop.problem import Problem
from gputop.sources.linux.procfs import cpu_name
from gputop.text import size as sized
from gputop.text import visible


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type of the products."""

    name: str
    operand_bits: int
    """Bits of an element of A or B."""
    result_bytes: int
    """Bytes of an element of C."""
    capability: tuple[int, int]
    """CUDA compute capability from which a stress test makes sense."""
    on_cpu: bool
    why_missing: str = ""
    """Reason why it is not offered below that capability, or on a CPU."""
    multiple: int = 1
    """Divisor of every size on a GPU."""
    least: int = 1
    """Smallest size on a GPU."""
    auto_size: int = 8192
    """Largest size that a soak chooses: beyond it throughput does not grow."""
    cpu_library_bytes: int = 0
    """Measured bytes per element that a CPU library needs for wider copies."""


def _since(capability: str, what: str) -> str:
    return f"{what} exists on GPUs of compute capability {capability} and later"


DTYPES: dict[str, DataType] = {
    dtype.name: dtype
    for dtype in (
        DataType("float32", 32, 4, (0, 0), True),
        DataType("tf32", 32, 4, (8, 0), False, _since("8.0", "TF32")),
        DataType("float16", 16, 2, (5, 3), True, _since("5.3", "float16 arithmetic")),
        DataType(
            "float16_acc16",
            16,
            2,
            (7, 0),
            False,
            _since("7.0", "a choice of float16 sums, where float32 is usual,"),
        ),
        DataType(
            "bfloat16",
            16,
            2,
            (8, 0),
            True,
            _since("8.0", "bfloat16 arithmetic") + "; before, it is emulated",
        ),
        DataType("float64", 64, 8, (0, 0), True),
        DataType(
            "float8_e4m3", 8, 2, (8, 9), True, _since("8.9", "float8 arithmetic"), 16, 16, 16384, 20
        ),
        DataType(
            "float8_mixed",
            8,
            2,
            (8, 9),
            True,
            _since("8.9", "float8 arithmetic"),
            16,
            16,
            16384,
            20,
        ),
        # torch wants more than 16 rows, and multiples of 8
        DataType("int8", 8, 4, (7, 5), True, _since("7.5", "int8 on tensor cores"), 8, 24),
        DataType(
            "float4", 4, 2, (10, 0), False, _since("10.0", "float4 arithmetic"), 32, 128, 16384
        ),
    )
}
"""Data types by name, in the order in which they are shown.

`float16_acc16` is float16 summed in float16; `float8_mixed` is e5m2 times e4m3. Results of float8
and float4 are bfloat16, those of int8 are int32.
"""


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Parse data types separated by commas; raise `ValueError` for an unknown one."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    for name in names:
        if name not in DTYPES:
            raise ValueError(f"{name!r} is not a data type. Choose from {', '.join(DTYPES)}.")
    return names


DeviceKind = Literal["cpu", "cuda"]

KINDS = {
    "soak": "one shape for a duration",
    "sweep": "square products of every size",
    "latency": "small products, and what launching and waiting cost",
    "peak": "search for the fastest shape",
    "copy": "bandwidth of memory",
    "pairs": "the same work on each device alone, and then on all at once",
}
"""Kinds of run in a few words each. `pairs` needs two devices."""

MIB = 1 << 20
SIZE_STEP = 64
SMALLEST_SIZE, LARGEST_SIZE = 64, 1 << 20
SHORTEST_SECONDS, LONGEST_SECONDS = 0.5, 7 * 24 * 3600.0
DEFAULT_SECONDS = 60.0
DEFAULT_MEMORY_SHARE = 0.9
"""Share of the free memory that a run may use. The rest is for other processes."""

CONTEXT_BYTES = 512 * MIB
"""A CUDA context with its modules: 416 MiB on an RTX 4090, 439 MiB on an H100, and a margin."""
WORKSPACE_BYTES = 64 * MIB
"""Up to 32 MiB for cuBLAS, and the rounding of torch's allocator."""
PROCESS_BYTES = 384 * MIB
"""Python with torch on the CPU, and the panels that the BLAS library packs."""
CHECKED_ROWS = 64
"""Rows compared in float64 at a time."""
ROW_COPIES = 8
"""Most temporaries of that many rows."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device to test. `uuid` and `index` (NVML's) are None for the CPU.

    A MIG instance is one, with the `index` of its GPU.
    """

    kind: DeviceKind
    uuid: str | None
    index: int | None
    name: str
    compute_capability: str | None
    memory_free_bytes: int | None
    parent_uuid: str | None = None
    """UUID of a MIG instance's GPU."""
    mig_index: int | None = None
    """Number of a MIG instance on its GPU."""
    memory_share: float = DEFAULT_MEMORY_SHARE
    """Share of the free memory that a run may use, above 0 and up to 1."""
    host: str | None = None
    """Name of another machine, or None for this one. A CPU there has the `index` of the GPU that it
    replaces."""

    @property
    def memory_allowed_bytes(self) -> int | None:
        """Memory that a run may use, or None if the free memory is unknown."""
        free = self.memory_free_bytes
        return None if free is None else int(self.memory_share * free)

    @property
    def number(self) -> str | None:
        """Number that `--device` takes: `3`, `3:1` for a MIG instance, None for the CPU."""
        if self.index is None:
            return None
        return f"{self.index}" if self.mig_index is None else f"{self.index}:{self.mig_index}"

    @property
    def label(self) -> str:
        """Label for people, behind the name of another host: `GPU 0, NVIDIA H200`."""
        name = visible(self.name)
        if self.host is None:
            return name if self.kind == "cpu" else f"GPU {self.number}, {name}"
        return f"{visible(self.host)}, {self.place}, {name}"

    @property
    def place(self) -> str:
        """Short label on its host: `GPU 3`, `CPU`, `CPU 3` if several tests run there."""
        if self.kind == "cpu":
            return "CPU" if self.index is None else f"CPU {self.index}"
        return f"GPU {self.number}"

    @property
    def gpu_uuid(self) -> str | None:
        """UUID of the whole GPU, which alone has a temperature and a power."""
        return self.parent_uuid or self.uuid


@dataclass(frozen=True, slots=True)
class Request:
    """A requested stress test. With a `size` of None the worker chooses one."""

    target: Target
    dtype: str
    size: int | None
    seconds: float
    python: str | None = None
    kind: str = "soak"
    """One of `KINDS`."""
    further_dtypes: tuple[str, ...] = ()
    """Data types of a sweep after `dtype`."""
    peer: Target | None = None
    """Another GPU that `copy` copies to."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """All data types."""
        return (self.dtype, *self.further_dtypes)


def cpu_target() -> Target:
    """Return the CPU of this machine."""
    return Target("cpu", None, None, _cpu_name(), None, _available_bytes())


def offered_dtypes(target: Target) -> tuple[str, ...]:
    """Return the data types that a device has."""
    return tuple(name for name, dtype in DTYPES.items() if why_missing(dtype, target) is None)


def why_missing(dtype: DataType, target: Target) -> str | None:
    """Return why a device does not have a data type, or None if it has."""
    if target.kind == "cpu":
        return None if dtype.on_cpu else dtype.why_missing
    capability = _capability(target)
    return dtype.why_missing if capability is not None and capability < dtype.capability else None


def _capability(target: Target) -> tuple[int, int] | None:
    if target.compute_capability is None:
        return None
    major, _, minor = target.compute_capability.partition(".")
    return int(major), int(minor or 0)


def default_dtype(target: Target) -> str:
    """Return the usual training type: the fastest floating-point type in hardware."""
    capability = _capability(target)
    if target.kind == "cpu" or capability is None or capability < (7, 0):
        return "float32"
    return "bfloat16" if capability >= (8, 0) else "float16"


def bytes_per_element(dtype: str) -> int:
    """Return the bytes per element of N²: A, B, C, the first product, and a mask."""
    known = DTYPES[dtype]
    return 2 * known.operand_bits // 8 + 2 * known.result_bytes + 1


def library_bytes(dtype: str, device: DeviceKind) -> int:
    """Return the CPU library's bytes per element of N². A GPU's library has a workspace."""
    return DTYPES[dtype].cpu_library_bytes if device == "cpu" else 0


def bytes_per_row() -> int:
    """Return the bytes per row of N: temporaries of the comparison in float64."""
    return ROW_COPIES * CHECKED_ROWS * 8


def fixed_bytes(device: DeviceKind) -> int:
    """Return the bytes of a run of any size: context and workspace, or the process."""
    return CONTEXT_BYTES + WORKSPACE_BYTES if device == "cuda" else PROCESS_BYTES


def memory_needed(n: int, dtype: str, device: DeviceKind) -> int:
    """Return the peak bytes on the device for products of N x N."""
    by_element = bytes_per_element(dtype) + library_bytes(dtype, device)
    return fixed_bytes(device) + n * n * by_element + n * bytes_per_row()


def largest_size(free_bytes: int, dtype: str, device: DeviceKind) -> int:
    """Return the largest multiple of 64 that fits, or 0: the inverse of `memory_needed`."""
    room = free_bytes - fixed_bytes(device)
    if room <= 0:
        return 0
    # a·n² + b·n = room, solved without the cancellation of the textbook formula
    a, b = bytes_per_element(dtype) + library_bytes(dtype, device), bytes_per_row()
    n = int(2 * room / (b + math.sqrt(b * b + 4 * a * room))) // SIZE_STEP * SIZE_STEP
    n = min(n + SIZE_STEP, LARGEST_SIZE)  # floating point may have rounded down across a step
    return n if memory_needed(n, dtype, device) <= free_bytes else n - SIZE_STEP


def largest_fitting_size(target: Target, dtype: str) -> int:
    """Return the largest size that fits, 0 if none does, or a guess.

    The worker looks again at what is free then.
    """
    if target.memory_allowed_bytes is None:
        return 2 * DTYPES[dtype].auto_size
    return largest_size(target.memory_allowed_bytes, dtype, target.kind)


def auto_limit(target: Target, dtype: str) -> int:
    """Return the largest size that `auto` chooses on this device, 0 if nothing fits."""
    return min(DTYPES[dtype].auto_size, largest_fitting_size(target, dtype))


def check_request(request: Request) -> Problem | None:
    """Return why the request cannot be run, or None."""
    problems = (_check(request, dtype) for dtype in request.dtypes)
    return next((problem for problem in problems if problem is not None), None)


def check_pairs(requests: Sequence[Request]) -> Problem | None:
    """Return why devices cannot be run alone and then together, or None."""
    what = "There are no pairs to run"
    if len(requests) < 2:
        named = f"{requests[0].target.label} is the only device" if requests else "there is none"
        why = f"pairs needs two devices, but {named}"
        return Problem(what, why, "Name two with --device, such as 0,1 or cpu,0")
    least = SHORTEST_SECONDS * (len(requests) + 1)
    if requests[0].seconds < least:
        why = f"{len(requests)} runs alone and one together take {least:g} s at least"
        return Problem(what, why, f"Choose --seconds {least:g} or more")
    return None


def _check(request: Request, name: str) -> Problem | None:
    target, dtype = request.target, DTYPES[name]
    reason = why_missing(dtype, target)
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
    """Parse a share above 0 and up to 1; raise `ValueError` with the remedy."""
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
    """Parse a size N, or `auto` as None; raise `ValueError` with the remedy."""
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
    """Parse the seconds of a run; raise `ValueError` with the remedy."""
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
    """Parse an interpreter by path or by name on the PATH; raise `ValueError`."""
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
    """Return the memory available without swapping, to the machine and this control group."""
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
