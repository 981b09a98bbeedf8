"""A device: what does not change about it, and its readings.

Numbers are in the unit that their name ends in; times are Unix seconds. A reading that is missing
is `None` (`null`), with the reason under its name in `absent`: zero never stands for unknown.
`schema.catalogue` says what each field is and how it is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from gputop.frozen import dataclass
from gputop.text import visible


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


THIS_MACHINE = "localhost"
"""The name of the machine that gputop runs on, among others."""


def qualified(machine: str | None, uuid: str) -> str:
    """A device's key among those of several machines; this machine's own stay as they are."""
    return uuid if machine in (None, THIS_MACHINE) else f"{machine}/{uuid}"


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
