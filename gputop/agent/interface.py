"""The interface between a driver (NVML or simulated) and the sampler that reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gputop.agent.device import Absence, Device, DeviceSample
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Event, Process


class DriverError(ProblemError):
    """The driver cannot be used.

    `mismatch` means that the loaded library does not fit the kernel module.
    """

    def __init__(self, problem: Problem, *, mismatch: bool = False) -> None:
        super().__init__(problem)
        self.mismatch = mismatch


class ReplacedError(Exception):
    """The driver was replaced, and only a new process can load the matching library."""


@dataclass(frozen=True)
class DeviceReading:
    """Values of one device at one moment: a GPU, or a MIG instance on it."""

    device: Device
    sample: DeviceSample
    processes: tuple[Process, ...] = ()


UTILIZATIONS = tuple(
    f.name for f in dataclasses.fields(Process) if "_utilization_" in f.name
)
_LISTED = {"pid", "device_uuid", "kind", "memory_used_bytes", *UTILIZATIONS}
OWNER_FIELDS = tuple(
    f.name
    for f in dataclasses.fields(Process)
    if f.name not in {*_LISTED, "unmasked", "absent"}
)
"""Fields of a process that come from the host, not from the driver: owner and resources."""


Facts = Mapping[str, Any]
"""Values of `OWNER_FIELDS` by name. An `Absence` is the reason why a value is missing."""
LookUp = Callable[[Iterable[int]], Iterator[tuple[int, Facts]]]
"""Function that yields each of these pids with the host's facts about the process. May block."""


def unseen(reason: Absence) -> Facts:
    """Return the facts of a process that the host does not show."""
    return dict.fromkeys(OWNER_FIELDS, reason)


LONGEST_FACT = 4096
"""Most characters of a text about a process, because others choose names of users and containers.
"""


def with_facts(listed: Process, facts: Facts) -> Process:
    """Return a process from the driver's list, with the facts that the host reports."""
    known = dict(vars(listed))
    absent = dict(listed.absent)
    for name, fact in facts.items():
        if isinstance(fact, Absence):
            absent.setdefault(name, fact)
        elif isinstance(fact, str):
            known[name] = fact[:LONGEST_FACT]
        else:
            known[name] = fact
    known["absent"] = absent
    return Process(**known)


def unanswered_process(process: Process) -> Process:
    """Return a process of a hung device with its owner, and without the driver's numbers."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("memory_used_bytes", *UTILIZATIONS)
    )
    absent = {**process.absent, **dict.fromkeys(nothing, Absence.TIMED_OUT)}
    return replace(process, **nothing, absent=absent)


class Reader(Protocol):
    """One GPU, read by one thread at a time."""

    @property
    def heard_at(self) -> float:
        """Monotonic time of its last answer during `read`, or 0."""

    @property
    def device(self) -> Device:
        """The device, or a placeholder before the first read."""

    def read(self, *, gpm: bool) -> tuple[DeviceReading, ...]:
        """Read the GPU, then its MIG instances; with GPM if `gpm`.

        May block. Raises `DriverError` if the driver itself is gone or was replaced, never for an
        error of the device.
        """


class Driver(Protocol):
    """A started driver."""

    @property
    def driver_version(self) -> str | None: ...

    @property
    def cuda_version(self) -> str | None: ...

    def readers(self) -> tuple[Reader, ...]:
        """Return one reader for each GPU, in the driver's order, without touching a device."""

    def unlisted_gpus(self) -> tuple[str, ...]:
        """Return the PCI addresses of GPUs on the bus that have no reader.

        Empty until all readers' devices have been identified.
        """

    def events(self) -> tuple[Event, ...]:
        """Return the events since the last call. Wait for events for up to a second. For one
        thread."""

    def close(self) -> None:
        """Release the driver when it is gone. May block."""
