"""What a driver gives the sampler: the seam between NVML, or a simulation, and the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from gputop.frozen import dataclass

if TYPE_CHECKING:
    from gputop.problem import Problem
    from gputop.schema.device import Absence, Device, DeviceSample
    from gputop.schema.snapshot import Event, ProcessKind


class DriverError(Exception):
    """The driver cannot be used; `problem` says it to the user.

    A `mismatch` is one of the library that this process has loaded with the kernel's module.
    """

    def __init__(self, problem: Problem, *, mismatch: bool = False) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.mismatch = mismatch


class ReplacedError(Exception):
    """The driver is another one now: only a new process can load the library that fits it."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process as the driver lists it: `absence` says why its memory is None."""

    pid: int
    kind: ProcessKind
    memory_used_bytes: int | None
    absence: Absence | None = None
    sm_utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    utilization_absence: Absence | None = None
    """Why these four are None."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One device at one moment: a GPU, or a MIG instance on it."""

    device: Device
    sample: DeviceSample
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a process is and what it takes of the host, as far as it can be seen.

    `absence` says why nothing can; `absent` why one of the others is None, as in `Process`.
    """

    user: str | None = None
    command: str | None = None
    start_time: float | None = None
    cpu_percent: float | None = None
    memory_resident_bytes: int | None = None
    parent_pid: int | None = None
    container: str | None = None
    pod: str | None = None
    slurm_job: str | None = None
    io_wait: bool | None = None
    children: int | None = None
    children_cpu_percent: float | None = None
    children_cpu_most_percent: float | None = None
    unmasked: str | None = None
    absence: Absence | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)


class OwnersOf(Protocol):
    """Knows who processes are; one for each reader, used by its thread alone."""

    def of(self, pid: int) -> Owner:
        """Who that process is now. May block."""
        ...

    def keep(self, pids: set[int]) -> None:
        """Forgets all others."""
        ...


class Reader(Protocol):
    """One GPU, read by one thread."""

    @property
    def heard_at(self) -> float:
        """Monotonic time at which it last answered one of the questions of a `read`, if ever."""
        ...

    @property
    def device(self) -> Device:
        """What stands for it until it was read for the first time."""
        ...

    def read(self, *, gpm: bool) -> tuple[Reading, ...]:
        """The GPU now, and after it its MIG instances; with GPM's readings where `gpm`.

        May block. Raises `DriverError` where the driver itself is gone, be it replaced by another
        or not; never for what the driver says of the device.
        """
        ...

    def look_ahead(self, seconds: float) -> None:
        """Asks what takes long and is due within that time: the next `read` need not. As `read`."""
        ...


class Driver(Protocol):
    """A started driver."""

    @property
    def driver_version(self) -> str | None: ...

    @property
    def cuda_version(self) -> str | None: ...

    def readers(self) -> tuple[Reader, ...]:
        """One for each GPU, in the driver's order; touches no device."""
        ...

    def events(self) -> tuple[Event, ...]:
        """What was reported since the last call; waits for it up to a second, from one thread."""
        ...

    def close(self) -> None:
        """Lets go of it, once it is gone; may block."""
        ...
