"""The schema of the stream: each line of JSON is an `Inventory` or a `Sample`.

Devices are keyed by UUID; see `agent.device` for their fields.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Union

from gputop.agent.device import (
    THIS_MACHINE,
    Absence,
    Device,
    DeviceSample,
    Word,
)
from gputop.agent.problem import Problem

EVENTS = 1000
"""Most events in one sample, because a failing device can report thousands per second. The newest
are kept."""
SCHEMA = 1
"""Version of the schema. It rises when a field is removed or changes its meaning, not for a new
field."""


class DriverState(Word):
    """State of the connection to the driver: `starting` until its first answer."""

    STARTING = "starting"
    OK = "ok"
    UNAVAILABLE = "unavailable"


class MachineState(Word):
    """State of the connection to another machine: `connecting` until its first sample."""

    CONNECTING = "connecting"
    OK = "ok"
    AWAY = "away"


class Source(Word):
    """Source of the numbers. Simulated ones are marked wherever they are shown."""

    NVML = "nvml"
    SIMULATED = "simulated"


@dataclass(frozen=True)
class Inventory:
    """Machine and devices: the first line of a stream, sent again whenever it changes."""

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
    devices_left_out: int | None = None
    """Number of GPUs that `--id` or `--only-visible` left out."""
    unlisted_gpus: tuple[str, ...] = ()
    """PCI addresses of GPUs that are on the bus and that the driver does not list."""

    def device(self, uuid: str) -> Device | None:
        """Return the device with that UUID, or None."""
        return next(
            (device for device in self.devices if device.uuid == uuid), None
        )


@dataclass(frozen=True)
class Host:
    """The machine around the devices. Percentages cover the time since the previous sample."""

    cpu_percent: float | None = None
    cpu_core_percent: tuple[float, ...] = ()
    cpu_samples_percent: tuple[float, ...] = ()
    """`cpu_percent` in equal parts of the time since the previous sample, about a second each,
    oldest first. This and the next field are empty if there is only one part."""
    cpu_core_max_samples_percent: tuple[float, ...] = ()
    """Percent of the busiest core in each part."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    load_average: tuple[float, ...] = ()
    """Load averages over 1, 5 and 15 minutes."""
    cpu_clock_mhz: float | None = None
    cpu_temperature_celsius: float | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)


class ProcessKind(Word):
    """Kind of a process's work on a device."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    BOTH = "compute+graphics"
    MPS = "mps"
    """Compute through the Multi-Process Service."""


@dataclass(frozen=True)
class Process:
    """A process on one device. A process with contexts on two devices is listed twice."""

    pid: int
    device_uuid: str
    kind: ProcessKind
    memory_used_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    """Command line as the process reports it, joined by spaces: untrusted. Secrets are masked."""
    unmasked: str | None = None
    """Command line with its secrets, for the screen only, and only on request."""
    start_time: float | None = None
    """Identifies a process together with its pid, because pids are reused."""
    sm_utilization_percent: int | None = None
    """Counted by the driver, as are the next three fields."""
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    cpu_percent: float | None = None
    """Percent of one core: more than 100 for a process with many busy threads."""
    memory_resident_bytes: int | None = None
    parent_pid: int | None = None
    parent_command: str | None = None
    """Command line of the parent, masked like `command`: often a launcher, such as torchrun. This
    and the next field are None without a reason if the parent cannot be read."""
    parent_start_time: float | None = None
    container: str | None = None
    """Name of the container, or the first twelve digits of its id. Container, pod and job are None
    without a reason if the process has none."""
    pod: str | None = None
    """Name of the Kubernetes pod, or its uid."""
    slurm_job: str | None = None
    rank: int | None = None
    """Rank in a parallel job that a launcher started, such as torchrun or mpirun. This and the next
    two fields are None without a reason if the process has none."""
    world_size: int | None = None
    """Number of ranks of that job."""
    job_id: str | None = None
    """Identifies that job: the same for its ranks on all machines, such as `node01:29500`."""
    io_wait: bool | None = None
    """True if the process or a child was waiting for storage: uninterruptible sleep, which a driver
    call can also cause."""
    children: int | None = None
    """Number of child processes that were read, such as the workers of a data loader."""
    children_cpu_percent: float | None = None
    """Percent of one core, summed over the child processes."""
    children_cpu_most_percent: float | None = None
    """Percent of one core, of the busiest child process."""
    machine: str | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """True if the process runs on the machine that gputop runs on."""
        return self.machine in (None, THIS_MACHINE)


@dataclass(frozen=True)
class Event:
    """An event that the driver reported, such as an Xid."""

    time: float
    device_uuid: str | None
    """None if the driver does not name the device."""
    kind: str
    code: int | None = None
    machine: str | None = None
    """Name of its machine, even if the event has no device."""


@dataclass(frozen=True)
class Machine:
    """One of several machines in a stream, by its name on the command line."""

    name: str
    state: MachineState = MachineState.CONNECTING
    age_seconds: float | None = None
    """Time since its newest sample was made (not since it arrived), or since it was requested."""
    retry_seconds: float | None = None
    """Time until the next attempt to reach an unreachable machine."""
    problem: Problem | None = None
    """Reason why it is unreachable, or the problem with its driver."""
    time: float | None = None
    """Time of its newest sample, by the machine's own clock."""
    hostname: str | None = None
    source: Source | None = None
    driver_state: DriverState | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    gputop_version: str | None = None
    host: Host = field(default_factory=Host)
    unlisted_gpus: tuple[str, ...] = ()
    """As in `Inventory`."""


@dataclass(frozen=True)
class Sample:
    """Readings, processes and events at one moment."""

    time: float
    host: Host
    devices: tuple[DeviceSample, ...] = ()
    processes: tuple[Process, ...] = ()
    events: tuple[Event, ...] = ()
    machines: tuple[Machine, ...] = ()
    """Machines of a stream of several machines. `host` is then the machine that merges them,
    if known."""
    uptime_seconds: float | None = None
    """`time` by a clock that is never set. Use it for the time between two samples."""
    waited_seconds: float | None = None
    """Time from the request for this sample to `time`, if the reader requests each sample."""
    problem: Problem | None = None
    """Parts that were left out of the sample, with the reason."""

    def device(self, uuid: str) -> DeviceSample | None:
        """Return the readings of that device, or None if the sample has none."""
        return next(
            (device for device in self.devices if device.uuid == uuid), None
        )

    def host_of(self, device: Device) -> Host:
        """Return the machine that has the device."""
        for machine in self.machines:
            if machine.name == device.machine:
                return machine.host
        return self.host

    def processes_by_device(self) -> defaultdict[str, list[Process]]:
        """Return the processes by their device's UUID. A device without processes has no key."""
        found: defaultdict[str, list[Process]] = defaultdict(list)
        for process in self.processes:
            found[process.device_uuid].append(process)
        return found

    def with_secrets(self, *, shown: bool) -> Sample:
        """Return the sample with unmasked command lines if known, or with masked ones only."""
        if not any(process.unmasked for process in self.processes):
            return self
        processes = (
            replace(
                p, command=(shown and p.unmasked) or p.command, unmasked=None
            )
            for p in self.processes
        )
        return replace(self, processes=tuple(processes))


Record = Union[Inventory, Sample]
"""A line of the stream."""

MOST_WAITING = 256
"""Most utilization samples kept for a device that is sent late: the newest ones."""


def without_samples(readings: DeviceSample) -> DeviceSample:
    """Return the readings for a repetition: the driver's samples are sent only once."""
    if not readings.gpu_utilization_samples_percent:
        return readings
    return replace(readings, gpu_utilization_samples_percent=())


def carry_samples(
    unsent: Sequence[DeviceSample], newer: Sequence[DeviceSample]
) -> Iterator[DeviceSample]:
    """Yield each device's newer readings, with its unsent utilization samples first."""
    waiting = {
        each.uuid: each.gpu_utilization_samples_percent for each in unsent
    }
    for readings in newer:
        before, after = (
            waiting.get(readings.uuid),
            readings.gpu_utilization_samples_percent,
        )
        if before and after is not None:
            both = (before + after)[-MOST_WAITING:]
            yield replace(readings, gpu_utilization_samples_percent=both)
        else:
            yield readings


def carry_cpu_samples(unsent: Host, newer: Host) -> Host:
    """Return the newer host, with the unsent CPU samples before its own."""
    means: tuple[float, ...] = ()
    busiest: tuple[float, ...] = ()
    for host in (unsent, newer):
        if host.cpu_percent is None or not host.cpu_core_percent:
            return newer
        means += host.cpu_samples_percent or (host.cpu_percent,)
        busiest += host.cpu_core_max_samples_percent or (
            max(host.cpu_core_percent),
        )
    return replace(
        newer,
        cpu_samples_percent=means[-MOST_WAITING:],
        cpu_core_max_samples_percent=busiest[-MOST_WAITING:],
    )


def merge_samples(unsent: Sample, newer: Sample) -> Sample:
    """Return the newer sample, with the events and utilization samples of the unsent one."""
    return replace(
        newer,
        host=carry_cpu_samples(unsent.host, newer.host),
        devices=tuple(carry_samples(unsent.devices, newer.devices)),
        events=(unsent.events + newer.events)[-EVENTS:],
    )
