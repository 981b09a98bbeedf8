"""Requests: targets, kinds and options of a run, and the memory that it needs."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gputop.agent.linux.machine import cpu_name
from gputop.agent.problem import Problem
from gputop.bench.plan.kinds import (
    DEFAULT_KIND,
    DTYPES,
    KINDS,
    DataType,
    DeviceKind,
    is_turing_without_tensor_cores,
)
from gputop.bench.worker.host_memory import available_bytes
from gputop.bench.worker.needs import (
    MIB,
    PROCESS_BYTES,
    fixed_bytes,
    product_bytes,
)
from gputop.console import COULD_NOT_RUN
from gputop.text import size as sized
from gputop.text import visible

SIZE_STEP = 64
SMALLEST_SIZE, LARGEST_SIZE = 64, 1 << 20
SHORTEST_SECONDS, LONGEST_SECONDS = 0.5, 7 * 24 * 3600.0
DEFAULT_SECONDS = 60.0
LOWEST_HERTZ, HIGHEST_HERTZ, DEFAULT_HERTZ = 0.1, 20.0, 1.0
DEFAULT_MEMORY_SHARE, CPU_MEMORY_SHARE = 0.9, 0.5
"""Shares of the free memory that a run may use. A run on the CPU leaves more to other processes."""
DEFAULT_MIN_PERCENT_OF_PEAK, DEFAULT_TOLERANCE_PERCENT = 50.0, 10.0
"""Limits of the verdict: least share of the datasheet's peak, and largest distance under the median
of like devices."""

LEAST_HOST_BYTES = PROCESS_BYTES + 4 * MIB
"""Host memory for the smallest copies of a GPU, with up to four buffers of 1 MiB."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device to test. `uuid` and NVML's `index` are None for the CPU.

    A MIG instance is a device with the `index` of its GPU.
    """

    kind: DeviceKind
    uuid: str | None
    index: int | None
    name: str
    compute_capability: str | None
    memory_free_bytes: int | None
    parent_uuid: str | None = None
    mig_index: int | None = None
    """Number of a MIG instance on its GPU."""
    memory_share: float = DEFAULT_MEMORY_SHARE
    """Share of the free memory that a run may use, above 0 and up to 1."""
    host: str | None = None
    """Name of another machine, or None for this machine. A CPU of another machine has the `index`
    of the GPU that it replaces."""
    torch: str | None = None
    """Version of torch on another machine."""
    pci_bus_id: str | None = None
    simulated: bool = False
    """True for a simulated device. A test of it is simulated, too."""
    compute_mode: str | None = None
    """NVML's name of the mode: `default`, `exclusive_process`, `prohibited`; None if unknown."""

    @property
    def memory_allowed_bytes(self) -> int | None:
        """Memory that a run may use, or None if the free memory is unknown."""
        free = self.memory_free_bytes
        return None if free is None else int(self.memory_share * free)

    @property
    def is_exclusive(self) -> bool:
        """True if its compute mode does not allow several processes."""
        return self.compute_mode not in (None, "default")

    @property
    def number(self) -> str | None:
        """Number that `--device` takes: `3`, `3:1` for a MIG instance, None for the CPU."""
        if self.index is None:
            return None
        if self.mig_index is None:
            return str(self.index)
        return f"{self.index}:{self.mig_index}"

    @property
    def label(self) -> str:
        """Label on the screen, such as `GPU 0, NVIDIA H200`, after the name of another host."""
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
    def has_history(self) -> bool:
        """True if its results are stored.

        Those of simulated devices and of other hosts' CPUs, which may share a name, are not.
        """
        is_remote_cpu = self.uuid is None and self.host is not None
        return not self.simulated and not is_remote_cpu

    @property
    def gpu_uuid(self) -> str | None:
        """UUID of the whole GPU. MIG instances have no temperature and power of their own."""
        return self.parent_uuid or self.uuid


@dataclass(frozen=True, slots=True)
class Request:
    """A requested stress test. If `size` is None, the worker chooses the size."""

    target: Target
    dtype: str
    size: int | None
    seconds: float
    python: str | None = None
    kind: str = DEFAULT_KIND
    further_dtypes: tuple[str, ...] = ()
    verify_all: bool = False
    """True to verify every product, False to verify only so many that it costs little time."""
    host_bytes: int | None = None
    """Host memory that copies may use, or None if it is not limited."""
    hertz: float = DEFAULT_HERTZ
    ranks: tuple[Target, ...] = ()
    """All devices of `collective`, or all GPUs between which `copy` copies, by rank."""
    rendezvous: str | None = None
    """Path of a file or HOST:PORT, by which the ranks find each other or take turns."""

    @property
    def peers(self) -> tuple[Target, ...]:
        """Other devices of a run on several devices, starting with the next rank.

        `copy` needs a context on its peers, so peers in an exclusive compute mode are left out.
        """
        if self.kind != "copy":
            return self._others
        return tuple(each for each in self._others if not each.is_exclusive)

    @property
    def exclusive_peers(self) -> tuple[Target, ...]:
        """Other GPUs to which `copy` cannot copy because of their compute mode."""
        if self.kind != "copy":
            return ()
        return tuple(each for each in self._others if each.is_exclusive)

    @property
    def _others(self) -> tuple[Target, ...]:
        if not self.ranks:
            return ()
        at = self.ranks.index(self.target)
        return (*self.ranks[at + 1 :], *self.ranks[:at])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """All data types."""
        return (self.dtype, *self.further_dtypes)


def short_labels(targets: Sequence[Target]) -> str:
    """Return short labels of the devices: `GPU 0, 2`, `GPU 1, CPU`."""
    gpus, cpus = [], []
    for target in targets:
        if target.number is None:
            cpus.append("CPU")
        else:
            gpus.append(target.number)
    if gpus:
        gpus[0] = f"GPU {gpus[0]}"
    return ", ".join(gpus + cpus)


class RunRefusedError(Exception):
    """A run that does not start: one line for the user, and the exit status."""

    def __init__(self, message: str, status: int = COULD_NOT_RUN) -> None:
        super().__init__(message)
        self.status = status


def cpu_target() -> Target:
    """Return the CPU of this machine."""
    name, free = cpu_name() or os.uname().machine, available_bytes()
    return Target(
        "cpu",
        None,
        None,
        name,
        None,
        free,
        memory_share=CPU_MEMORY_SHARE,
    )


def cpu_ranks(
    ranks: int | None, memory_share: float = CPU_MEMORY_SHARE
) -> list[Target]:
    """Return the CPU as `ranks` ranks that share its memory. None is 2 to 4 ranks, by its cores."""
    cpu, count = cpu_target(), ranks or min(4, max(2, os.cpu_count() or 2))
    free = cpu.memory_free_bytes and cpu.memory_free_bytes // count
    each = replace(cpu, memory_free_bytes=free, memory_share=memory_share)
    return [
        replace(each, index=rank, name=f"{cpu.name}, rank {rank}")
        for rank in range(count)
    ]


def offered_dtypes(target: Target) -> tuple[str, ...]:
    """Return the data types that a device supports."""
    return tuple(
        name
        for name, dtype in DTYPES.items()
        if why_missing(dtype, target) is None
    )


def why_missing(dtype: DataType, target: Target) -> str | None:
    """Return why a device does not support a data type, or None if it does."""
    has_it = dtype.on_cpu
    if target.kind == "cuda":
        capability = _capability(target)
        has_it = capability is None or capability >= dtype.capability
    return None if has_it else dtype.why_missing


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
    if is_turing_without_tensor_cores(target.compute_capability, target.name):
        return "float32"
    if capability < (8, 0):
        return "float16"
    return "bfloat16"


def memory_needed(
    n: int,
    dtype: str,
    device: DeviceKind,
) -> int:
    """Return the peak bytes on the device for products of N x N."""
    known = DTYPES[dtype]
    library = known.library_bytes(device)
    return fixed_bytes(device) + product_bytes(
        (n, n, n), known.operand_bits, known.result_bytes, library
    )


def largest_size(
    free_bytes: int,
    dtype: str,
    device: DeviceKind,
) -> int:
    """Return the largest multiple of 64 that fits, or 0. This is the inverse of `memory_needed`."""
    sizes = range(SIZE_STEP, LARGEST_SIZE + 1, SIZE_STEP)
    fitting = bisect_right(
        sizes, free_bytes, key=lambda n: memory_needed(n, dtype, device)
    )
    return fitting * SIZE_STEP


def largest_fitting_size(target: Target, dtype: str) -> int:
    """Return the largest size that fits, 0 if none does, or a guess if the free memory is unknown.

    The worker reads the free memory again before the run.
    """
    if target.memory_allowed_bytes is None:
        return 2 * DTYPES[dtype].auto_size
    return largest_size(target.memory_allowed_bytes, dtype, target.kind)


def auto_limit(
    target: Target,
    dtype: str,
    times: int = 1,
) -> int:
    """Return the largest size that `auto` chooses on this device, or 0 if no size fits.

    It is at most `times` times the data type's usual size.
    """
    return min(
        times * DTYPES[dtype].auto_size, largest_fitting_size(target, dtype)
    )


def check_request(request: Request) -> Problem | None:
    """Return why the request cannot be run, or None."""
    for dtype in request.dtypes:
        problem = _check(request, dtype)
        if problem is not None:
            return problem
    return None


def check_together(requests: Sequence[Request]) -> Problem | None:
    """Return why `collective` cannot be run on these devices, or None. Other kinds always can."""
    if not KINDS[requests[0].kind].several_devices:
        return None
    sorts = {(each.target.kind, each.target.parent_uuid) for each in requests}
    if len(requests) > 1 and sorts in ({("cpu", None)}, {("cuda", None)}):
        return None
    why = "it runs between whole GPUs, or between ranks of the CPU"
    if len(requests) == 1:
        why = f"{requests[0].target.label} is the only device"
    remedy = (
        "Name GPUs with --device, such as 0,1, or type --device cpu --ranks 4"
    )
    if requests[0].target.host is not None:
        remedy = "Ask for two GPUs or more with --devices"
    return Problem("There is no collective to run", why, remedy)


def _check(request: Request, name: str) -> Problem | None:
    target, dtype, host = request.target, DTYPES[name], request.host_bytes
    if host is not None and host < LEAST_HOST_BYTES:
        why = f"a GPU needs {sized(LEAST_HOST_BYTES)} of it, and {sized(host)} are left for each"
        remedy = (
            "End processes that use the memory, or test fewer GPUs at a time"
        )
        return Problem(
            "The copies do not fit in the host's memory", why, remedy
        )
    reason = why_missing(dtype, target)
    if reason is not None:
        names = ", ".join(offered_dtypes(target))
        return Problem(
            f"{name} cannot be run on {target.label}",
            reason,
            f"Choose one of {names}",
        )
    if (
        not KINDS[request.kind].has_rows
        and request.size
        and target.kind == "cuda"
    ):
        usable = max(
            dtype.least, -(-request.size // dtype.multiple) * dtype.multiple
        )
        if usable != request.size:
            what = f"There are no {name} products of size {request.size}"
            least = max(dtype.least, dtype.multiple)
            why = f"sizes are multiples of {dtype.multiple}, from {least} on"
            return Problem(what, why, f"Choose --size {usable}")
    free, allowed = target.memory_free_bytes, target.memory_allowed_bytes
    if free is None or allowed is None:
        return None
    n = request.size or SMALLEST_SIZE
    need = memory_needed(n, name, target.kind)
    if need <= allowed:
        return None
    remedy = "End processes that use the memory, or choose another device"
    if largest := largest_size(allowed, name, target.kind):
        remedy = f"Choose --size {largest} or smaller, or --size auto"
    kind, what = (
        KINDS[request.kind],
        f"Products of size {n} in {name} do not fit",
    )
    if not kind.has_size:
        what = f"The buffers of {kind.name} do not fit"
        remedy = "End processes that use the memory, or raise --memory-share"
    return Problem(
        f"{what} on {target.label}",
        f"they need {sized(need)}, {sized(free)} are free, "
        f"{100 * target.memory_share:.3g} % of that may be used",
        remedy,
    )


def _parse_number(
    what: str, least: float, most: float, example: str, text: str
) -> float:
    """Parse a number within these limits; raise `ValueError` with the remedy."""
    with contextlib.suppress(ValueError):
        if least <= (number := float(text)) <= most:
            return number
    raise ValueError(
        f"{text!r} is not {what}. Give a number such as {example}."
    )


_SHARE = "a share of the free memory: it is above 0, up to 1"
_DURATION = f"a duration: it is in seconds, from {SHORTEST_SECONDS:g} to {LONGEST_SECONDS:.0f}"
_FREQUENCY = (
    f"a frequency: it is from {LOWEST_HERTZ:g} to {HIGHEST_HERTZ:g} Hz"
)
parse_share = partial(_parse_number, _SHARE, math.ulp(0), 1, "0.5")
parse_percent = partial(
    _parse_number, "a percentage: it is from 0 to 100", 0, 100, "20"
)
parse_seconds = partial(
    _parse_number, _DURATION, SHORTEST_SECONDS, LONGEST_SECONDS, "30"
)
parse_hertz = partial(
    _parse_number, _FREQUENCY, LOWEST_HERTZ, HIGHEST_HERTZ, "2"
)


def parse_size(text: str) -> int | None:
    """Parse a size N, or `auto` as None; raise `ValueError` with the remedy."""
    if text.strip().lower() == "auto":
        return None
    # Accept ASCII digits only. int() also accepts "4_096", " 7" and digits of
    # other scripts.
    if (
        not re.fullmatch(r"[0-9]{1,9}", text)
        or not SMALLEST_SIZE <= int(text) <= LARGEST_SIZE
    ):
        raise ValueError(
            f"{text!r} is not a size: it is N of an N x N product, "
            f"from {SMALLEST_SIZE} to {LARGEST_SIZE}. Give a whole number such as 4096, or auto."
        )
    return int(text)


def parse_python(text: str) -> str:
    """Parse an interpreter by path or by name on the PATH; raise `ValueError`."""
    path = shutil.which(text)
    if path is None:
        is_directory = os.path.isdir(text)  # noqa: PTH112 - False without permission
        why = (
            "it is a directory" if is_directory else "there is no such program"
        )
        raise ValueError(
            f"{text!r} is not an interpreter: {why}. "
            "Give the path of a Python that has torch, such as ~/venv/bin/python."
        )
    return str(
        Path(path).absolute()
    )  # not resolved, since it may be the link of an environment
