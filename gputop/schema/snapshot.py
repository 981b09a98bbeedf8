"""The schema of the stream: one line of JSON an `Inventory` or a `Sample`.

Numbers are in the unit that their name ends in; times are Unix seconds. Devices are keyed by UUID.
A reading that is missing is `None` (`null`), with the reason under its name in `absent`: zero never
stands for unknown.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Any

from gputop.bounds import DEVICES, EVENTS, PROCESSES
from gputop.frozen import dataclass
from gputop.problem import Problem
from gputop.schema.clock_events import BITS
from gputop.schema.codec import DecodeError, from_json, to_json
from gputop.schema.device import THIS_MACHINE, Absence, Device, DeviceSample

SCHEMA = 1
"""Raised when a field changes its meaning or goes; a new field alone does not raise it."""


class NewerSchemaError(DecodeError):
    """The stream is of a later gputop, and may mean something else by the same words."""


class DriverState(StrEnum):
    """Whether the driver answers: `starting` until it did for the first time."""

    STARTING = "starting"
    OK = "ok"
    UNAVAILABLE = "unavailable"


class MachineState(StrEnum):
    """Whether another machine sends what it has: `connecting` until it did for the first time."""

    CONNECTING = "connecting"
    OK = "ok"
    AWAY = "away"


class Source(StrEnum):
    """Where the numbers come from; simulated ones are marked wherever they are shown."""

    NVML = "nvml"
    SIMULATED = "simulated"
    SCRAPED = "scraped"
    """From a server that asked the machine's exporter: it is not the one that gputop runs on."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The first line of a stream, and again whenever it changes."""

    time: float
    hostname: str
    source: Source
    driver_state: DriverState
    interval_seconds: float
    cpu_name: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    problem: Problem | None = None
    devices: tuple[Device, ...] = ()
    gputop_version: str = ""
    schema: int = SCHEMA

    def device(self, uuid: str) -> Device | None:
        """The device of that UUID, or None where it has gone."""
        return next((device for device in self.devices if device.uuid == uuid), None)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine around the devices; percentages are of the time since the sample before."""

    cpu_percent: float | None = None
    cpu_core_percent: tuple[float, ...] = ()
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    load_average: tuple[float, ...] = ()
    """Over 1, 5 and 15 minutes."""
    cpu_clock_mhz: float | None = None
    cpu_temperature_celsius: float | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)


class ProcessKind(StrEnum):
    """What a process does on a device."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    BOTH = "compute+graphics"
    MPS = "mps"
    """Compute, through the Multi-Process Service."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process on one device: one with contexts on two devices is two of these."""

    pid: int
    device_uuid: str
    kind: ProcessKind
    memory_used_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    """The command line, arguments joined by spaces, as the process gives it: not to be trusted.
    What looks like a secret is masked."""
    unmasked: str | None = None
    """The command line with its secrets, for the screen alone and where these are asked for."""
    start_time: float | None = None
    """With the pid, the identity of a process: pids are used again."""
    sm_utilization_percent: int | None = None
    """Share of the time in which its kernels ran, by the driver: the next three, too."""
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    cpu_percent: float | None = None
    """Of one core: a process with many threads has more than 100."""
    memory_resident_bytes: int | None = None
    """What it holds of the host's memory."""
    parent_pid: int | None = None
    container: str | None = None
    """The first twelve digits of the container's id, from the cgroup.

    This, the pod and the job are None without a reason for a process that is in none.
    """
    pod: str | None = None
    """The uid of the Kubernetes pod."""
    slurm_job: str | None = None
    io_wait: bool | None = None
    """Whether it, or one of its child processes, waited for storage at this moment: uninterrupted
    sleep, in which a driver call can be, too."""
    children: int | None = None
    """Its child processes, such as the workers of a data loader; of many, the first ones."""
    children_cpu_percent: float | None = None
    """Of one core, all of them together."""
    children_cpu_most_percent: float | None = None
    """Of one core, the one that takes most."""
    machine: str | None = None
    """As that of its device."""
    absent: Mapping[str, Absence] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether it runs on the machine that gputop runs on."""
        return self.machine in (None, THIS_MACHINE)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the driver reported, such as an Xid."""

    time: float
    device_uuid: str | None
    """None where the driver does not say which."""
    kind: str
    """`xid`; others may come."""
    code: int | None = None
    """The Xid's number."""
    machine: str | None = None
    """As that of its device, also where the driver does not say which."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One of several machines in one stream, by the name that it was asked for."""

    name: str
    state: MachineState = MachineState.CONNECTING
    age_seconds: float | None = None
    """Since its newest sample was made, not since it arrived; before any, since it was asked."""
    retry_seconds: float | None = None
    """Of one that is away: until it is tried again."""
    problem: Problem | None = None
    """Why it is away, or what is wrong with its driver."""
    time: float | None = None
    """Of its newest sample, by its own clock."""
    hostname: str | None = None
    """What it calls itself."""
    source: Source | None = None
    driver_state: DriverState | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    gputop_version: str | None = None
    host: Host = field(default_factory=Host)


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment."""

    time: float
    host: Host
    devices: tuple[DeviceSample, ...] = ()
    processes: tuple[Process, ...] = ()
    events: tuple[Event, ...] = ()
    """What came since the sample before."""
    machines: tuple[Machine, ...] = ()
    """Of a stream of several; `host` is then the machine that puts them together, if known."""
    uptime_seconds: float | None = None
    """The same moment as `time`, by a clock that nobody sets: what lies between two samples."""
    echo_seconds: float | None = None
    """The same by the clock of a reader that acknowledges, less the way of an acknowledgement."""
    problem: Problem | None = None
    """What was left out of it, and why."""

    def device(self, uuid: str) -> DeviceSample | None:
        """The readings of that device, or None where it has none in this sample."""
        return next((device for device in self.devices if device.uuid == uuid), None)

    def with_secrets(self, *, shown: bool) -> Sample:
        """Return it with command lines as they are where that is known, or without what it says."""
        if not any(process.unmasked for process in self.processes):
            return self
        processes = (
            dataclasses.replace(p, command=(shown and p.unmasked) or p.command, unmasked=None)
            for p in self.processes
        )
        return dataclasses.replace(self, processes=tuple(processes))


MOST_WAITING = 256
"""Utilization samples that wait for a late device to be sent: the newest ones."""


def without_samples(readings: DeviceSample) -> DeviceSample:
    """Return the readings as they are sent again: the driver's samples are sent only once."""
    if not readings.gpu_utilization_samples_percent:
        return readings
    return dataclasses.replace(readings, gpu_utilization_samples_percent=())


def carry_samples(
    unsent: Sequence[DeviceSample], newer: Sequence[DeviceSample]
) -> Iterator[DeviceSample]:
    """Yield the newer readings of each device, after the utilization samples of unsent ones."""
    waiting = {each.uuid: each.gpu_utilization_samples_percent for each in unsent}
    for readings in newer:
        before, after = waiting.get(readings.uuid), readings.gpu_utilization_samples_percent
        if before and after is not None:
            both = (before + after)[-MOST_WAITING:]
            yield dataclasses.replace(readings, gpu_utilization_samples_percent=both)
        else:
            yield readings


def merge_samples(unsent: Sample, newer: Sample) -> Sample:
    """Return the newer sample with the events and utilization samples of the one before it."""
    return dataclasses.replace(
        newer,
        devices=tuple(carry_samples(unsent.devices, newer.devices)),
        events=(unsent.events + newer.events)[-EVENTS:],
    )


PROCESS_COUNT = "process_count"
"""Number of processes that the driver lists on the device."""
PROCESS_CPU = "process_cpu_percent"
"""Percent of one core: the busiest of its processes and of their child processes."""
PROCESS_IO_WAIT = "process_io_wait"
"""1 if one of its processes waited for storage at that moment, else 0."""
HOST_CPU = "host_cpu_percent"
"""Percent of all cores of the host."""
SLOWDOWN_BITS = "slowdown_bits"
"""Clock event reasons as a sum of `clock_events.BITS` and `OTHER_SLOWDOWN`."""
DERIVED = (PROCESS_COUNT, PROCESS_CPU, PROCESS_IO_WAIT, HOST_CPU, SLOWDOWN_BITS)
"""Numbers of a device that are computed from a sample, and kept over time like its readings."""
OTHER_SLOWDOWN = 1 << 32
"""Bit for all reasons that have none in nvml.h. A float holds it beside the others."""


def derive(sample: Sample) -> dict[str, dict[str, float | None]]:
    """Return the numbers of `DERIVED` by device."""
    found: dict[str, dict[str, float | None]] = {}
    for readings in sample.devices:
        bits = None
        if readings.clock_event_reasons is not None:
            each = (BITS.get(reason, OTHER_SLOWDOWN) for reason in readings.clock_event_reasons)
            bits = reduce(or_, each, 0)
        found[readings.uuid] = {
            PROCESS_COUNT: None if "processes" in readings.absent else 0,
            PROCESS_CPU: None,
            PROCESS_IO_WAIT: None,
            HOST_CPU: sample.host.cpu_percent,
            SLOWDOWN_BITS: bits,
        }
    for process in sample.processes:
        numbers = found.get(process.device_uuid)
        if numbers is None:
            continue
        numbers[PROCESS_COUNT] = (numbers[PROCESS_COUNT] or 0) + 1
        for name, value in (
            (PROCESS_CPU, process.cpu_percent),
            (PROCESS_CPU, process.children_cpu_most_percent),
            (PROCESS_IO_WAIT, process.io_wait),
        ):
            before = numbers[name]
            if value is not None and (before is None or value > before):
                numbers[name] = value
    return found


Record = Inventory | Sample
_TYPES: dict[str, type[Record]] = {"inventory": Inventory, "sample": Sample}
_NAMES = {cls: name for name, cls in _TYPES.items()}


def encode(record: Record) -> str:
    """One line of JSON, without the newline."""
    document = {"type": _NAMES[type(record)], **to_json(record)}
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def decode(line: str | bytes) -> Record:
    """The record of one line. Unknown fields are ignored; raises `DecodeError` on all else."""
    try:
        document = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DecodeError("not a JSON object")
    cls = _TYPES.get(str(document.get("type")))
    if cls is None:
        raise DecodeError(f"unknown type {document.get('type')!r}")
    schema = document.get("schema", SCHEMA)
    if cls is Inventory and isinstance(schema, int) and schema > SCHEMA:
        raise NewerSchemaError(
            f"the stream has schema {schema}, this gputop reads up to {SCHEMA}: upgrade this gputop"
        )
    problem = _cut(document)
    record = from_json(cls, document)
    if problem is None or (cls is Inventory and record.problem is not None):
        return record  # why there is no driver matters more
    return dataclasses.replace(record, problem=problem)


_BOUNDS = {"devices": DEVICES, "machines": DEVICES, "processes": PROCESSES, "events": EVENTS}


def _cut(document: dict[str, Any]) -> Problem | None:
    """Leave out what is over the bounds, the oldest of events; return a problem that says so."""
    over = []
    for name, most in _BOUNDS.items():
        items = document.get(name)
        if isinstance(items, list) and len(items) > most:
            over.append(f"{len(items):,} {name} where {most:,} are taken")
            document[name] = items[-most:] if name == "events" else items[:most]
    if not over:
        return None
    remedy = "Check what runs there: no machine is known to have as many"
    return Problem("Not everything is shown", f"it sends {' and '.join(over)}", remedy)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")
