"""A device: its fixed properties and its readings.

Each name ends in its unit; times are Unix seconds. A missing reading is `None` (`null`) and has a
reason under its name in `absent`. Zero never stands for unknown. `schema.catalogue` says what each
field is and how it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from enum import Enum


class Word(str, Enum):
    """An enumeration of texts. Python 3.9 has no `StrEnum`."""

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
    """The machine that has the device cannot be reached."""
    ERROR = "error"

    @classmethod
    def _missing_(cls, value: object) -> Absence:  # noqa: ARG003
        """Read an unknown reason, sent by a newer gputop, as an error."""
        return cls.ERROR


class DeviceState(Word):
    """State of the connection to a device."""

    OK = "ok"
    NOT_RESPONDING = "not_responding"
    LOST = "lost"
    NEEDS_RESET = "needs_reset"


THIS_MACHINE = "localhost"
"""Name that means the machine that gputop runs on, in a list of machines."""


def qualified(machine: str | None, uuid: str) -> str:
    """Return a device's key among several machines. Keys of this machine stay as they are."""
    return uuid if machine in (None, THIS_MACHINE) else f"{machine}/{uuid}"


@dataclass(frozen=True)
class Device:
    """Fixed properties of a device. `uuid` is its key; `index` is NVML's order.

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
    """Temperature at which the device starts to slow down."""
    temperature_shutdown_celsius: int | None = None
    memory_temperature_max_celsius: int | None = None
    """Temperature of the memory at which the device starts to slow down."""
    temperature_shutdown_margin_celsius: int | None = None
    """Margin at which the device may shut down. This threshold and the next three are on the scale
    of `temperature_margin_celsius`. Since Ada they replace the absolute temperatures above."""
    temperature_slowdown_margin_celsius: int | None = None
    """Margin at which the hardware may reduce clocks."""
    memory_temperature_max_margin_celsius: int | None = None
    """Margin at which software may reduce clocks because of the memory temperature."""
    temperature_max_margin_celsius: int | None = None
    """Margin at which the device may be throttled below its base clock."""
    pcie_generation_max: int | None = None
    """Maximum that both device and slot support, as for the width."""
    pcie_width_max: int | None = None
    bar1_total_bytes: int | None = None
    architecture: str | None = None
    """Lower case, such as `hopper`; `unknown_N` if this gputop has no name for it."""
    sm_count: int | None = None
    minor_number: int | None = None
    """Number in the name of its device file, as in `/dev/nvidia0`."""
    compute_mode: str | None = None
    """`default`, `exclusive_process` or `prohibited`. It can change while the device runs."""
    persistence_mode: str | None = None
    """`enabled` or `disabled`, as for `mig_mode`."""
    mig_mode: str | None = None
    ecc_enabled: bool | None = None
    virtualization: str | None = None
    """`none`; `passthrough` or `vgpu` in a guest; `host_vgpu` or `host_vsga` on its host."""
    memory_is_shared: bool | None = None
    """True if it has no memory of its own and uses the host's (GB10, Jetson)."""
    machine: str | None = None
    """Name of the device's machine in a stream of several machines. It is then a part of `uuid`,
    too."""
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
        """True if the device is in the machine that gputop runs on."""
        return self.machine in (None, THIS_MACHINE)

    @property
    def own(self) -> Device:
        """The device as its own machine reports it: no machine name, also not in its UUIDs."""
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

    The catalogue explains each reading. The notes here are for programs. While a device does not
    answer, its last readings are repeated with a growing age, until it counts as not responding.
    """

    uuid: str
    state: DeviceState = DeviceState.OK
    age_seconds: float | None = None
    """None before the first reading. If that is overdue, the time since the start."""
    slow_age_seconds: float | None = None
    """Age of the oldest reading with an interval of 1 s or 10 s, or of the process list. None if it
    equals `age_seconds`."""
    gpu_utilization_percent: int | None = None
    """Shown as *busy*."""
    gpu_utilization_samples_percent: tuple[int, ...] | None = None
    """The driver's utilization samples since the previous sample, oldest first.

    No sample is left out or sent twice. `()` means that there was none: some drivers take none
    while the device is idle.
    """
    gpu_utilization_samples_seconds: float | None = None
    """Interval between two of these samples, by the driver's clock."""
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    jpeg_utilization_percent: int | None = None
    ofa_utilization_percent: int | None = None
    graphics_active_percent: float | None = None
    """An average by GPM, like the fields after it. `disabled` if GPM was not requested."""
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    fp64_active_percent: float | None = None
    fp32_active_percent: float | None = None
    fp16_active_percent: float | None = None
    memory_used_bytes: int | None = None
    """Includes the reserved part only if `memory_reserved_bytes` is missing: drivers before 510 do
    not report it separately."""
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
    """The driver's "usage": on most devices since Ampere, the average over a second."""
    power_average_watts: float | None = None
    power_instant_watts: float | None = None
    power_limit_watts: float | None = None
    """Enforced limit: the lowest of all limits of the device."""
    power_limit_requested_watts: float | None = None
    """Limit that an administrator set, or the default."""
    energy_joules: float | None = None
    """Counted since the driver was loaded. All counters are, unless they say otherwise."""
    sm_clock_mhz: int | None = None
    graphics_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    video_clock_mhz: int | None = None
    performance_state: int | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    """Words for `clock_events`; `bit_0x...` for a bit without a name. `()` if there is no reason.
    """
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
    """NVML's volatile errors, counted since the driver was loaded."""
    ecc_uncorrected: int | None = None
    ecc_corrected_lifetime: int | None = None
    """NVML's aggregate errors, counted over the device's lifetime."""
    ecc_uncorrected_lifetime: int | None = None
    remapped_rows: int | None = None
    remapped_rows_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: str | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)
    """Reasons by field name; `processes` stands for the device's process list."""

    def aged(self, seconds: float) -> DeviceSample:
        """Return the sample with its ages increased by this many seconds."""
        age, slow_age = self.age_seconds or 0.0, self.slow_age_seconds
        if slow_age is not None:
            slow_age = round(slow_age + seconds, 3)
        # `replace` takes ten times as long for this many fields.
        older = copy(self)
        object.__setattr__(older, "age_seconds", round(age + seconds, 3))
        object.__setattr__(older, "slow_age_seconds", slow_age)
        return older


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
"""Readings that are pieces of a series. They are in the stream and the history, and in no table."""
GPM_READINGS: tuple[str, ...] = tuple(
    name for name in READINGS if name.endswith("_active_percent")
)
GPM_READINGS += ("sm_occupancy_percent",)
"""Readings of GPM, which is sampled only on request."""


def without_readings(
    uuid: str,
    state: DeviceState,
    reason: Absence,
    age_seconds: float | None,
) -> DeviceSample:
    """Return a sample for a device that has no readings, with that reason."""
    absent = dict.fromkeys((*READINGS, "processes"), reason)
    return DeviceSample(uuid, state, age_seconds, absent=absent)
