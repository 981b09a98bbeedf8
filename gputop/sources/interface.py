"""The interface between a driver, NVML or simulated, and the sampler that reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gputop.problem import Problem, ProblemError
from gputop.schema.device import Absence, Device, DeviceSample
from gputop.schema.snapshot import Event, Process


class DriverError(ProblemError):
    """The driver cannot be used.

    A `mismatch` is between the library that this process has loaded and the kernel module.
    """

    def __init__(self, problem: Problem, *, mismatch: bool = False) -> None:
        super().__init__(problem)
        self.mismatch = mismatch


class ReplacedError(Exception):
    """The driver was replaced: only a new process can load the library that fits it."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """Values of one device at one moment: a GPU, or a MIG instance on it."""

    device: Device
    sample: DeviceSample
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """A process as the host knows it: who runs it, and what it uses, as far as it can be seen."""

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
    absent: Mapping[str, Absence] = field(default_factory=dict)


OWNER_FIELDS = tuple(
    f.name for f in dataclasses.fields(Owner) if f.name not in ("unmasked", "absent")
)
UTILIZATIONS = tuple(f.name for f in dataclasses.fields(Process) if "_utilization_" in f.name)


def unseen(reason: Absence) -> Owner:
    """Return the owner of a process of which nothing can be seen."""
    return Owner(absent=dict.fromkeys(OWNER_FIELDS, reason))


def joined_process(listed: Process, owner: Owner) -> Process:
    """Return what the driver and the host say of a process, as one record."""
    known: dict[str, Any] = {name: getattr(owner, name) for name in (*OWNER_FIELDS, "unmasked")}
    return dataclasses.replace(listed, **known, absent={**owner.absent, **listed.absent})


def unanswered_process(process: Process) -> Process:
    """Return a process of a device that hangs, without the driver's numbers: whom to ask."""
    nothing: dict[str, Any] = dict.fromkeys(("memory_used_bytes", *UTILIZATIONS))
    absent = {**process.absent, **dict.fromkeys(nothing, Absence.TIMED_OUT)}
    return dataclasses.replace(process, **nothing, absent=absent)


class OwnerLookup(Protocol):
    """Finds the owners of processes. Each reader has one, used by its thread alone."""

    def find(self, pid: int) -> Owner:
        """Return the owner of that process now. May block."""

    def forget_others(self, pids: set[int]) -> None:
        """Forget all processes but these."""


class Reader(Protocol):
    """One GPU, read by one thread."""

    @property
    def heard_at(self) -> float:
        """Monotonic time of its last answer to a question of `read`, or 0."""

    @property
    def device(self) -> Device:
        """The device, or a placeholder until it was read for the first time."""

    def read(self, *, gpm: bool, smi: tuple[str, ...] = ()) -> tuple[DeviceReading, ...]:
        """Read the GPU, then its MIG instances; with GPM if `gpm`.

        `smi` are nvidia-smi's names of values that are no readings, and are read, too.

        May block. Raises `DriverError` if the driver itself is gone or was replaced, never for
        what the driver says of the device.
        """

    def look_ahead(self, seconds: float) -> None:
        """Ask now what takes long and is due within that time, so that `read` need not."""


class Driver(Protocol):
    """A started driver."""

    @property
    def driver_version(self) -> str | None: ...

    @property
    def cuda_version(self) -> str | None: ...

    def readers(self) -> tuple[Reader, ...]:
        """Return one reader for each GPU, in the driver's order, without touching a device."""

    def events(self) -> tuple[Event, ...]:
        """Return the events since the last call; wait for some up to a second, in one thread."""

    def close(self) -> None:
        """Release the driver once it is gone; may block."""
