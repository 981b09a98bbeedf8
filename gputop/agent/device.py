"""A device: what does not change about it, and its readings.

Numbers are in the unit that their name ends in; times are Unix seconds. A reading that is missing
is `None` (`null`), with the reason under its name in `absent`: zero never stands for unknown.
`schema.catalogue` says what each field is and how it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum


class Word(str, Enum):
    """An enumeration of texts, each of which is its value. Python 3.9 has no `StrEnum`."""

    __str__ = str.__str__


class Absence(Word):
    """Why a reading is missing."""

    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    LOST = "lost"
    TIMED_OUT = "timed_out"
    NO_DATA_YET = "no_data_yet"
    DISABLED = "disabled"
    UNREACHABLE = "unreachable"
    """Its machine cannot be reached."""
    NOT_SCRAPED = "not_scraped"
    """No exporter in Prometheus has it."""
    ERROR = "error"

    @classmethod
    def _missing_(cls, value: object) -> Absence:  # noqa: ARG003
        """Read a reason of a later gputop as an error."""
        return cls.ERROR


class DeviceState(Word):
    """How a device answers."""

    OK = "ok"
    NOT_RESPONDING = "not_responding"
    LOST = "lost"
    NEEDS_RESET = "needs_reset"


THIS_MACHINE = "localhost"
"""Name of the machine that gputop runs on, among others."""


def qualified(machine: str | None, uuid: str) -> str:
    """Return a device's key among several machines. This machine's own keys do not change."""
    return uuid if machine in (None, THIS_MACHINE) else f"{machine}/{uuid}"


@dataclass(frozen=True)
class Device:
    """Facts about a device that do not change. `uuid` is its key; `index` is NVML's order.

    A MIG instance is a device of its own, with the `index` of its GPU.
    """

    index: int
    uuid: str
    name: str
    parent_uuid: str | None = None
    mig_index: int | None = None
    """Number of a MIG instance on its GPU."""
    mig_gpu_instance: int | None = None
    mig_compute_instance: int | None = None
    pci_bus_id: str | None = None
    pci_device_id: str | None = None
    """Four hexadecimal digits: `2330` is an H100 SXM."""
    memory_total_bytes: int | None = None
    compute_capability: str | None = None
    sm_clock_max_mhz: int | None = None
    graphics_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    video_clock_max_mhz: int | None = None
    power_limit_default_watts: float | None = None
    power_limit_min_watts: float | None = None
    power_limit_max_watts: float | None = None
    temperature_slowdown_celsius: int | None = None
    """Temperature from which the device slows down."""
    temperature_shutdown_celsius: int | None = None
    memory_temperature_max_celsius: int | None = None
    """Temperature of the memory from which the device slows down."""
    temperature_shutdown_margin_celsius: int | None = None
    """Margin at which the device may shut down. This and the next three are thresholds on the scale
    of `temperature_margin_celsius`; since Ada they replace the absolute ones above."""
    temperature_slowdown_margin_celsius: int | None = None
    """Margin at which the hardware may slow down."""
    memory_temperature_max_margin_celsius: int | None = None
    """Margin at which software may slow down because of the memory."""
    temperature_max_margin_celsius: int | None = None
    """Margin at which the device may be throttled below its base clock."""
    pcie_generation_max: int | None = None
    """Maximum of device and slot together, as for the width."""
    pcie_width_max: int | None = None
    bar1_total_bytes: int | None = None
    architecture: str | None = None
    """Lower case, such as `hopper`; `unknown_N` if this gputop has no word for it."""
    sm_count: int | None = None
    minor_number: int | None = None
    """Number of its file `/dev/nvidia0`."""
    compute_mode: str | None = None
    """`default`, `exclusive_process` or `prohibited`. Modes can change while it runs."""
    persistence_mode: str | None = None
    """`enabled` or `disabled`, as for `mig_mode`."""
    mig_mode: str | None = None
    ecc_enabled: bool | None = None
    virtualization: str | None = None
    """`none`; `passthrough` or `vgpu` in a guest; `host_vgpu` or `host_vsga` on its host."""
    memory_is_shared: bool | None = None
    """True if it uses the host's memory and has none of its own (GB10, Jetson)."""
    machine: str | None = None
    """Name of its machine in a stream of several, and then also a part of `uuid`."""
    absent: Mapping[str, Absence] = field(default_factory=dict)

    @property
    def number(self) -> str:
        """Name on its machine: `3`, and `3:1` for the MIG instance 1 on it."""
        return (
            f"{self.index}"
            if self.mig_index is None
            else f"{self.index}:{self.mig_index}"
        )

    @property
    def is_here(self) -> bool:
        """True if it is in the machine that gputop runs on."""
        return self.machine in (None, THIS_MACHINE)

    @property
    def own(self) -> Device:
        """The device as its machine knows it: no machine's name, in its UUIDs either."""
        if self.machine is None:
            return self
        start = qualified(self.machine, "")
        parent = self.parent_uuid
        return replace(
            self,
            machine=None,
            uuid=self.uuid.removeprefix(start),
            parent_uuid=None if parent is None else parent.removeprefix(start),
        )


@dataclass(frozen=True)
class DeviceSample:
    """Readings of a device, `age_seconds` old when they were sent, or up to `slow_age_seconds`.

    The catalogue explains each of them; here is what a program needs to know besides. The last
    readings are repeated with their growing age until a device stops responding.
    """

    uuid: str
    state: DeviceState = DeviceState.OK
    age_seconds: float | None = None
    """None before the first reading. If that is overdue, the time since the start."""
    slow_age_seconds: float | None = None
    """Age of the oldest of the readings that the driver is asked for every second or every 10 s,
    and the process list; None if it is `age_seconds`."""
    gpu_utilization_percent: int | None = None
    """Shown as *busy*."""
    gpu_utilization_samples_percent: tuple[int, ...] | None = None
    """Utilization as the driver sampled it since the sample before, oldest first.

    No sample is left out or sent twice. `()` means that there was none: some drivers take none
    while the device is idle.
    """
    gpu_utilization_samples_seconds: float | None = None
    """Time from one of these samples to the next, by the driver's clock."""
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    jpeg_utilization_percent: int | None = None
    ofa_utilization_percent: int | None = None
    graphics_active_percent: float | None = None
    """An average of GPM, as are the next ones; `disabled` where nobody asked for GPM."""
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    fp64_active_percent: float | None = None
    fp32_active_percent: float | None = None
    fp16_active_percent: float | None = None
    memory_used_bytes: int | None = None
    """Includes the reserved part only where `memory_reserved_bytes` is missing: a driver before 510
    does not report it separately."""
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_attributed_bytes: int | None = None
    memory_unattributed_bytes: int | None = None
    bar1_used_bytes: int | None = None
    temperature_celsius: int | None = None
    temperature_margin_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    fan_percent: int | None = None
    fans_percent: tuple[int, ...] | None = None
    power_watts: float | None = None
    """The driver's "usage": on most devices since Ampere the average over a second."""
    power_average_watts: float | None = None
    power_instant_watts: float | None = None
    power_limit_watts: float | None = None
    """Enforced limit: the lowest of all limits of the device."""
    power_limit_requested_watts: float | None = None
    """Limit that an administrator set, or the default."""
    energy_joules: float | None = None
    """Counted since the driver was loaded, as all counters are unless they say otherwise."""
    sm_clock_mhz: int | None = None
    graphics_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    video_clock_mhz: int | None = None
    performance_state: int | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    """Words of `clock_events`; `bit_0x...` for a bit without a word. `()` if there is no reason."""
    clock_event_seconds: Mapping[str, float] | None = None
    """Total time by cause, for the causes that the device counts."""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_rx_bytes_per_second: int | None = None
    pcie_tx_bytes_per_second: int | None = None
    pcie_replays: int | None = None
    nvlink_rx_bytes_per_second: int | None = None
    nvlink_tx_bytes_per_second: int | None = None
    nvlink_link_rx_bytes_per_second: tuple[int | None, ...] | None = None
    """Rate of each link; None for a link that is down."""
    nvlink_link_tx_bytes_per_second: tuple[int | None, ...] | None = None
    ecc_corrected: int | None = None
    """NVML's volatile errors: since the driver was loaded."""
    ecc_uncorrected: int | None = None
    ecc_corrected_lifetime: int | None = None
    """NVML's aggregate errors: in the device's life."""
    ecc_uncorrected_lifetime: int | None = None
    remapped_rows: int | None = None
    remapped_rows_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: str | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)
    """Reason by field name; `processes` stands for the device's process list."""

    def aged(self, seconds: float) -> DeviceSample:
        """Return the sample as it is that much later."""
        age, slow_age = self.age_seconds or 0.0, self.slow_age_seconds
        if slow_age is not None:
            slow_age = round(slow_age + seconds, 3)
        return replace(
            self,
            age_seconds=round(age + seconds, 3),
            slow_age_seconds=slow_age,
        )


READINGS: tuple[str, ...] = tuple(
    f.name
    for f in fields(DeviceSample)
    if f.name
    not in ("uuid", "state", "age_seconds", "slow_age_seconds", "absent")
)
SERIES_READINGS = (
    "gpu_utilization_samples_percent",
    "gpu_utilization_samples_seconds",
)
"""Readings that are pieces of a series: for the stream and the history, and in no table."""
GPM_READINGS: tuple[str, ...] = tuple(
    name for name in READINGS if name.endswith("_active_percent")
)
GPM_READINGS += ("sm_occupancy_percent",)
"""Readings of GPM, which is sampled only if somebody looks at them."""


def without_readings(
    uuid: str,
    state: DeviceState,
    reason: Absence,
    age_seconds: float | None,
) -> DeviceSample:
    """Return the sample of a device that has no reading, for that reason."""
    absent = dict.fromkeys((*READINGS, "processes"), reason)
    return DeviceSample(uuid, state, age_seconds, absent=absent)
