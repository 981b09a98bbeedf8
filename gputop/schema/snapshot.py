"""The schema of the stream: one line of JSON an `Inventory` or a `Sample`.

Numbers are in the unit that their name ends in; times are Unix seconds. Devices are keyed by UUID.
A reading that is missing is `None` (`null`), with the reason under its name in `absent`: zero never
stands for unknown.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from gputop.bounds import DEVICES, EVENTS, PROCESSES
from gputop.frozen import dataclass
from gputop.problem import Problem
from gputop.schema.codec import DecodeError, from_json, to_json
from gputop.text import visible

SCHEMA = 1
"""Raised when a field changes its meaning or goes; a new field alone does not raise it."""


class NewerSchemaError(DecodeError):
    """The stream is of a later gputop, and may mean something else by the same words."""


class Absence(StrEnum):
    """Why a reading is missing."""

    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    LOST = "lost"
    TIMED_OUT = "timed_out"
    NO_DATA_YET = "no_data_yet"
    DISABLED = "disabled"
    UNREACHABLE = "unreachable"
    """The machine that it is on is away."""
    NOT_SCRAPED = "not_scraped"
    """Prometheus has it of no exporter there."""
    ERROR = "error"

    @classmethod
    def _missing_(cls, value: object) -> Absence:  # noqa: ARG003
        """A reason of a later gputop: missing all the same."""
        return cls.ERROR


class DeviceState(StrEnum):
    """Whether a device answers."""

    OK = "ok"
    NOT_RESPONDING = "not_responding"
    LOST = "lost"
    NEEDS_RESET = "needs_reset"


class DriverState(StrEnum):
    """Whether the driver answers: `starting` until it did for the first time."""

    STARTING = "starting"
    OK = "ok"
    UNAVAILABLE = "unavailable"


def silence_limit(interval_seconds: float) -> float:
    """Seconds without an answer after which a device, or a stream, counts as not responding."""
    return max(3 * interval_seconds, 3.0)


def old_after(interval_seconds: float) -> float:
    """Return the age in seconds beyond which a reading has missed a tick.

    A tick that is late by a moment is none that was missed: two of them take a little less than
    two intervals.
    """
    return 1.9 * interval_seconds


def is_old(age_seconds: float | None, interval_seconds: float) -> bool:
    """Return True if a reading is older than one missed tick explains."""
    return age_seconds is not None and age_seconds > old_after(interval_seconds)


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


THIS_MACHINE = "localhost"
"""The name of the machine that gputop runs on, among others."""


@dataclass(frozen=True, slots=True)
class Device:
    """What does not change about a device. `uuid` is its key; `index` is NVML's order.

    A MIG instance is a device of its own, with the `index` of the GPU that it is a part of.
    """

    index: int
    uuid: str
    name: str
    parent_uuid: str | None = None
    """Of a MIG instance: the GPU."""
    mig_index: int | None = None
    """Of a MIG instance: its number on that GPU."""
    mig_gpu_instance: int | None = None
    mig_compute_instance: int | None = None
    pci_bus_id: str | None = None
    pci_device_id: str | None = None
    """Four hexadecimal digits, such as `2330` for an H100 SXM."""
    memory_total_bytes: int | None = None
    compute_capability: str | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    video_clock_max_mhz: int | None = None
    power_limit_default_watts: float | None = None
    power_limit_min_watts: float | None = None
    """With the maximum: between which the limit can be set."""
    power_limit_max_watts: float | None = None
    temperature_slowdown_celsius: int | None = None
    """From where the device slows itself down."""
    temperature_shutdown_celsius: int | None = None
    memory_temperature_max_celsius: int | None = None
    """From where the device slows down for its memory."""
    temperature_shutdown_margin_celsius: int | None = None
    """This and the next three are thresholds on the scale of `temperature_margin_celsius`, which
    replace the ones above since Ada: here, where the device may shut down."""
    temperature_slowdown_margin_celsius: int | None = None
    """Where the hardware may begin to slow down."""
    memory_temperature_max_margin_celsius: int | None = None
    """Where software may begin to slow down for the memory."""
    temperature_max_margin_celsius: int | None = None
    """Where the device may be throttled below its base clock."""
    pcie_generation_max: int | None = None
    """What device and slot can do together, as is the width."""
    pcie_width_max: int | None = None
    bar1_total_bytes: int | None = None
    architecture: str | None = None
    """In lower case: `ampere`, `hopper`; `unknown_N` where this gputop has no word for it."""
    sm_count: int | None = None
    minor_number: int | None = None
    """The device is `/dev/nvidia` and this number."""
    compute_mode: str | None = None
    """`default`, `exclusive_process`, `prohibited`; modes can be changed while it runs."""
    persistence_mode: str | None = None
    """`enabled` or `disabled`, as is `mig_mode`."""
    mig_mode: str | None = None
    ecc_enabled: bool | None = None
    virtualization: str | None = None
    """`none`, `passthrough`, `vgpu` in a guest; `host_vgpu`, `host_vsga` on its host."""
    memory_is_shared: bool | None = None
    """Whether it has no memory of its own: the host's is its memory (GB10, Jetson)."""
    machine: str | None = None
    """Where a stream has several machines: the one that it is in, and then also in `uuid`."""
    absent: Mapping[str, Absence] = field(default_factory=dict)

    @property
    def number(self) -> str:
        """How it is called on its machine: `3`, and `3:1` for the MIG instance 1 on it."""
        return f"{self.index}" if self.mig_index is None else f"{self.index}:{self.mig_index}"

    @property
    def label(self) -> str:
        """How it is called on screen: its number, after its machine where there are several."""
        if self.machine is None:
            return self.number
        return f"{visible(self.machine)}:{self.number}"

    @property
    def is_here(self) -> bool:
        """Whether it is in the machine that gputop runs on."""
        return self.machine in (None, THIS_MACHINE)

    @property
    def own(self) -> Device:
        """The same as its machine knows it: without the machine's name, in its UUIDs either."""
        if self.machine is None:
            return self
        start = qualified(self.machine, "")
        parent = self.parent_uuid
        return dataclasses.replace(
            self,
            machine=None,
            uuid=self.uuid.removeprefix(start),
            parent_uuid=None if parent is None else parent.removeprefix(start),
        )


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


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """A device's readings, `age_seconds` old when they were sent.

    Until a device stops responding its last readings are repeated with their growing age.
    """

    uuid: str
    state: DeviceState = DeviceState.OK
    age_seconds: float | None = None
    """None where there has been no reading yet; since the start where one is overdue."""
    gpu_utilization_percent: int | None = None
    """Share of time in which at least one kernel ran, 0 to 100: shown as *busy*."""
    gpu_utilization_samples_percent: tuple[int, ...] | None = None
    """The same as the driver has sampled it since the sample before, oldest first.

    None is left out or there twice; `()` is that there was none, as with some drivers while idle.
    """
    gpu_utilization_samples_seconds: float | None = None
    """From one of these to the next, by the driver's clock."""
    memory_utilization_percent: int | None = None
    """Share of time in which device memory was read or written."""
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    jpeg_utilization_percent: int | None = None
    ofa_utilization_percent: int | None = None
    """Of the optical flow accelerator."""
    graphics_active_percent: float | None = None
    """Share of time in which a compute or graphics engine worked.

    This and the next ones are GPM's averages.
    """
    sm_active_percent: float | None = None
    """Share of the SMs' time in which one had a warp.

    `disabled` where nobody asked for GPM.
    """
    sm_occupancy_percent: float | None = None
    """Warps on the SMs, of the most that they can hold."""
    tensor_active_percent: float | None = None
    """Share of the time in which the tensor cores worked."""
    dram_active_percent: float | None = None
    """Bandwidth of the device memory, of the most that it can."""
    fp64_active_percent: float | None = None
    fp32_active_percent: float | None = None
    fp16_active_percent: float | None = None
    """Outside of the tensor cores, as are the other two."""
    memory_used_bytes: int | None = None
    """Memory that processes and the driver's contexts use. The reserved part is in it only where
    `memory_reserved_bytes` is missing: a driver before 510 does not report it apart."""
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    """What driver and firmware keep for themselves (ECC bits, page tables)."""
    memory_attributed_bytes: int | None = None
    """What the listed processes hold together."""
    memory_unattributed_bytes: int | None = None
    """What is in use and no listed process holds: those of another pid namespace, or gone ones."""
    bar1_used_bytes: int | None = None
    temperature_celsius: int | None = None
    temperature_margin_celsius: int | None = None
    """How much warmer it may become before it slows itself down."""
    memory_temperature_celsius: int | None = None
    fan_percent: int | None = None
    fans_percent: tuple[int, ...] | None = None
    """Each fan."""
    power_watts: float | None = None
    """What the driver calls the usage: on most devices since Ampere, the average over a second."""
    power_average_watts: float | None = None
    """Over a second."""
    power_instant_watts: float | None = None
    power_limit_watts: float | None = None
    """The enforced limit: the lowest of all that limit the device."""
    power_limit_requested_watts: float | None = None
    """The limit that an administrator set, or the default."""
    energy_joules: float | None = None
    """Since the driver was loaded, as all that is counted unless it says otherwise."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    video_clock_mhz: int | None = None
    performance_state: int | None = None
    """0 (fastest) to 15: P0 to P15."""
    clock_event_reasons: tuple[str, ...] | None = None
    """Why the clocks are not higher, such as `idle`, `sw_power_cap`, `hw_thermal`; none is `()`.

    A reason that this gputop has no word for is `bit_0x...`.
    """
    clock_event_seconds: Mapping[str, float] | None = None
    """For how long in all, by cause: those causes that the device counts."""
    pcie_generation: int | None = None
    """As it is now: a link slows down when it is idle."""
    pcie_width: int | None = None
    pcie_rx_bytes_per_second: int | None = None
    """What the device receives."""
    pcie_tx_bytes_per_second: int | None = None
    pcie_replays: int | None = None
    nvlink_rx_bytes_per_second: int | None = None
    """Over all links."""
    nvlink_tx_bytes_per_second: int | None = None
    nvlink_link_rx_bytes_per_second: tuple[int | None, ...] | None = None
    """Over each link; None for one that is down."""
    nvlink_link_tx_bytes_per_second: tuple[int | None, ...] | None = None
    ecc_corrected: int | None = None
    """Memory errors since the driver was loaded, which NVML calls volatile."""
    ecc_uncorrected: int | None = None
    ecc_corrected_lifetime: int | None = None
    """Memory errors in the device's life, which NVML calls aggregate."""
    ecc_uncorrected_lifetime: int | None = None
    remapped_rows: int | None = None
    """Rows of memory replaced by spare ones in the device's life."""
    remapped_rows_uncorrected: int | None = None
    """Those of them that had an uncorrected error."""
    remap_pending: bool | None = None
    """Whether a row is replaced at the next reset."""
    remap_failed: bool | None = None
    """Whether there was no spare row left."""
    recovery_action: str | None = None
    """What the driver wants done: `none`, `gpu_reset`, `node_reboot`, `drain_and_reset`, ...."""
    absent: Mapping[str, Absence] = field(default_factory=dict)
    """Reason by field name; `processes` stands for the device's process list."""


READINGS: tuple[str, ...] = tuple(
    f.name
    for f in dataclasses.fields(DeviceSample)
    if f.name not in ("uuid", "state", "age_seconds", "absent")
)
"""The names of what a device can be asked for at every tick."""
SERIES_READINGS = ("gpu_utilization_samples_percent", "gpu_utilization_samples_seconds")
"""Those that are a piece of a series: for the stream and the history, and in no table."""
GPM_READINGS: tuple[str, ...] = tuple(name for name in READINGS if name.endswith("_active_percent"))
GPM_READINGS += ("sm_occupancy_percent",)
"""Those that GPM has, which is asked only where somebody looks."""


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


def qualified(machine: str | None, uuid: str) -> str:
    """A device's key among those of several machines; this machine's own stay as they are."""
    return uuid if machine in (None, THIS_MACHINE) else f"{machine}/{uuid}"


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
