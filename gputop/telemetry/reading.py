"""What a driver gives the sampler: the seam between NVML, or a simulation, and the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Absence, Device, DeviceSample, Problem, ProcessKind


class DriverError(Exception):
    """The driver cannot be used; `problem` says it to the user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process as the driver lists it: `absence` says why its memory is None."""

    pid: int
    kind: ProcessKind
    memory_used_bytes: int | None
    absence: Absence | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One device at one moment."""

    sample: DeviceSample
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a process is, as far as it can be seen; `absence` says why not."""

    user: str | None = None
    command: str | None = None
    start_time: float | None = None
    absence: Absence | None = None


class OwnersOf(Protocol):
    """Knows who processes are; one for each reader, used by its thread alone."""

    def of(self, pid: int) -> Owner:
        """Who that process is now. May block."""
        ...

    def keep(self, pids: set[int]) -> None:
        """Forgets all others."""
        ...


class Reader(Protocol):
    """One device, read by one thread. `device` may change with a read: compare it."""

    device: Device

    def read(self) -> Reading:
        """The device now. May block; never raises for what the driver says."""
        ...


class Driver(Protocol):
    """A started driver."""

    @property
    def driver_version(self) -> str | None: ...

    @property
    def cuda_version(self) -> str | None: ...

    def readers(self) -> tuple[Reader, ...]:
        """One for each device, in the driver's order; touches no device."""
        ...
