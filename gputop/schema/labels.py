"""How readings are called and written for people: every field of a device, in exactly one row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputop.schema.absences import absence_text
from gputop.schema.snapshot import READINGS, Absence, Device, DeviceSample
from gputop.schema.values import CAUSES, span_text, value_text
from gputop.text import ABSENT, UNITS, in_unit_of

if TYPE_CHECKING:
    from gputop.schema.snapshot import Host
    from gputop.schema.values import Statistics


@dataclass(frozen=True, slots=True)
class Row:
    """A line about a device: its label, and the fields of the schema that it shows."""

    label: str
    names: tuple[str, ...]
    template: str = "{}"
    """With a place for each name's text."""
    terms: tuple[str, ...] = ()
    """What each name is called where the row has more than one."""
    optional: bool = False
    """Whether it says nothing about most devices: left out where it has no value and no reason."""

    def applies(self, device: Device, sample: DeviceSample) -> bool:
        """Whether there is anything to say."""
        known = {*device.absent, *sample.absent}
        return not self.optional or any(
            name in known or not isinstance(value_of(name, device, sample), Absence)
            for name in self.names
        )

    def text(self, device: Device, sample: DeviceSample) -> str:
        """The values with their units; `–` where there is none at all."""
        values = [value_of(name, device, sample) for name in self.names]
        if all(isinstance(value, Absence) for value in values):
            return ABSENT
        texts = [
            ABSENT if isinstance(value, Absence) else value_text(name, value)
            for name, value in zip(self.names, values, strict=True)
        ]
        if self.template == OF:  # "50.0 of 80.0 GiB": one unit is enough
            first, _, unit = texts[0].rpartition(" ")
            if unit in UNITS and texts[0] == texts[1]:
                texts[0] = in_unit_of(*values)  # which tells almost all from all
            elif first and unit == texts[1].rpartition(" ")[2]:
                texts[0] = first
        return self.template.format(*texts)

    def reason(self, device: Device, sample: DeviceSample, host: Host | None = None) -> str:
        """Why values are missing, and the remedy; empty where none is."""
        reasons: dict[str, list[str]] = {}
        for name, term in zip(self.names, self.terms or self.names, strict=True):
            value = value_of(name, device, sample)
            if isinstance(value, Absence):
                reasons.setdefault(absence_text(name, value, device, host), []).append(term)
        if len(reasons) == 1 and self.is_missing(device, sample):
            return next(iter(reasons))
        return "; ".join(f"{', '.join(terms)}: {text}" for text, terms in reasons.items())

    def is_missing(self, device: Device, sample: DeviceSample) -> bool:
        """Whether what the label stands for has no value; its maximum may still have."""
        return isinstance(value_of(self.names[0], device, sample), Absence)


_FIELDS = {
    DeviceSample: {*READINGS},
    Device: {f.name for f in dataclasses.fields(Device)} - {"absent"},
}


def value_of(name: str, device: Device, sample: DeviceSample) -> Any:
    """The value of a field of either, or the `Absence` that says why there is none."""
    reason = None
    for record in (sample, device):
        if name not in _FIELDS[type(record)]:
            continue
        value = getattr(record, name)
        if value is not None and name not in record.absent:
            return value
        reason = reason or record.absent.get(name)
    return reason or Absence.NO_DATA_YET


OF = "{} of {}"


def _rows(*rows: tuple[str, str] | Row) -> tuple[Row, ...]:
    return tuple(row if isinstance(row, Row) else Row(row[0], (row[1],)) for row in rows)


def _with_maximum(label: str, name: str, maximum: str) -> Row:
    return Row(label, (name, maximum), OF, ("now", "maximum"))


GROUPS: Mapping[str, tuple[Row, ...]] = {
    "Activity": _rows(
        ("busy", "gpu_utilization_percent"),
        Row("engine active", ("graphics_active_percent",), optional=True),
        ("SM active", "sm_active_percent"),
        ("SM occupancy", "sm_occupancy_percent"),
        ("tensor active", "tensor_active_percent"),
        ("DRAM active", "dram_active_percent"),
        ("FP64 active", "fp64_active_percent"),
        ("FP32 active", "fp32_active_percent"),
        ("FP16 active", "fp16_active_percent"),
        ("memory busy", "memory_utilization_percent"),
        ("encoder", "encoder_utilization_percent"),
        ("decoder", "decoder_utilization_percent"),
        ("JPEG", "jpeg_utilization_percent"),
        ("optical flow", "ofa_utilization_percent"),
    ),
    "Memory": _rows(
        Row("used", ("memory_used_bytes", "memory_total_bytes"), OF, ("used", "total")),
        ("free", "memory_free_bytes"),
        ("reserved", "memory_reserved_bytes"),
        ("attributed", "memory_attributed_bytes"),
        ("unattributed", "memory_unattributed_bytes"),
        Row("BAR1 used", ("bar1_used_bytes", "bar1_total_bytes"), OF, ("used", "total")),
        ("memory is", "memory_is_shared"),
    ),
    "Power and temperature": _rows(
        ("power", "power_watts"),
        ("power average", "power_average_watts"),
        ("power instant", "power_instant_watts"),
        Row(
            "power limit",
            ("power_limit_watts", "power_limit_default_watts"),
            "{}, default {}",
            ("limit", "default"),
        ),
        # A recording of gputop 0.1 does not have it.
        Row("limit set to", ("power_limit_requested_watts",), optional=True),
        Row(
            "limit can be",
            ("power_limit_min_watts", "power_limit_max_watts"),
            "{} to {}",
            ("minimum", "maximum"),
        ),
        ("energy", "energy_joules"),
        ("temperature", "temperature_celsius"),
        ("margin", "temperature_margin_celsius"),
        ("slowdown at", "temperature_slowdown_celsius"),
        ("shutdown at", "temperature_shutdown_celsius"),
        # As nvidia-smi calls it. Devices have this scale or the absolute thresholds above.
        Row(
            "T.Limit",
            ("temperature_slowdown_margin_celsius", "temperature_shutdown_margin_celsius"),
            "slowdown {}, shutdown {}",
            ("slowdown", "shutdown"),
            optional=True,
        ),
        Row(
            "T.Limit max",
            ("temperature_max_margin_celsius", "memory_temperature_max_margin_celsius"),
            "{}, of the memory {}",
            ("GPU", "memory"),
            optional=True,
        ),
        _with_maximum(
            "memory temp.", "memory_temperature_celsius", "memory_temperature_max_celsius"
        ),
        ("fan", "fan_percent"),
        ("each fan", "fans_percent"),
    ),
    "Clocks": _rows(
        _with_maximum("SM clock", "sm_clock_mhz", "sm_clock_max_mhz"),
        _with_maximum("memory clock", "memory_clock_mhz", "memory_clock_max_mhz"),
        _with_maximum("video clock", "video_clock_mhz", "video_clock_max_mhz"),
        ("P-state", "performance_state"),
        ("held back by", "clock_event_reasons"),
        ("held back for", "clock_event_seconds"),
    ),
    "Links": _rows(
        Row(
            "PCIe link",
            ("pcie_generation", "pcie_width", "pcie_generation_max", "pcie_width_max"),
            "gen {} {} of gen {} {}",
            ("generation", "width", "maximum generation", "maximum width"),
        ),
        ("PCIe rx", "pcie_rx_bytes_per_second"),
        ("PCIe tx", "pcie_tx_bytes_per_second"),
        ("PCIe replays", "pcie_replays"),
        ("NVLink rx", "nvlink_rx_bytes_per_second"),
        ("NVLink tx", "nvlink_tx_bytes_per_second"),
        ("each link rx", "nvlink_link_rx_bytes_per_second"),
        ("each link tx", "nvlink_link_tx_bytes_per_second"),
    ),
    "Health": _rows(
        ("ECC", "ecc_enabled"),
        ("ECC corrected", "ecc_corrected"),
        ("ECC uncorr.", "ecc_uncorrected"),
        ("ever corr.", "ecc_corrected_lifetime"),
        ("ever uncorr.", "ecc_uncorrected_lifetime"),
        ("remapped rows", "remapped_rows"),
        Row("uncorr. rows", ("remapped_rows_uncorrected",), optional=True),
        ("remap pending", "remap_pending"),
        ("remap failed", "remap_failed"),
        ("to recover", "recovery_action"),
    ),
    "Identity": _rows(
        ("name", "name"),
        ("index", "index"),
        Row("host", ("machine",), optional=True),
        Row(
            "MIG instance",
            ("mig_index", "mig_gpu_instance", "mig_compute_instance"),
            "{}, GPU instance {}, compute {}",
            ("index", "GPU instance", "compute instance"),
            optional=True,
        ),
        Row("part of", ("parent_uuid",), optional=True),
        ("UUID", "uuid"),
        ("PCI bus id", "pci_bus_id"),
        ("PCI device id", "pci_device_id"),
        ("device file", "minor_number"),
        ("architecture", "architecture"),
        ("compute cap.", "compute_capability"),
        ("SMs", "sm_count"),
        ("compute mode", "compute_mode"),
        ("persistence", "persistence_mode"),
        ("MIG mode", "mig_mode"),
        ("virtualized", "virtualization"),
    ),
}
"""The rows in the order in which somebody in a hurry reads them."""
ROWS: tuple[Row, ...] = tuple(row for rows in GROUPS.values() for row in rows)


# fmt: off
COUNTERS = (
    "energy_joules", "pcie_replays", "remapped_rows", "remapped_rows_uncorrected", "ecc_corrected",
    "ecc_uncorrected", "ecc_corrected_lifetime", "ecc_uncorrected_lifetime",
)
# fmt: on
"""Of these the increase is told; a mean of what only grows says nothing."""
_WITHOUT = ("performance_state", "pcie_generation", "pcie_width", "memory_total_bytes")
"""Numbers of which a mean is none."""


def since_start(name: str, of: Callable[[str], Statistics | None]) -> tuple[str, ...]:
    """A reading's minimum, mean and maximum; of a counter its increase alone; nothing of words.

    `of` gives the statistics by name.
    """
    if name == "clock_event_seconds":
        return tuple(filter(None, [", ".join(_increases(of))]))
    statistics = of(name)
    if statistics is None or name in _WITHOUT:
        return ()
    if name in COUNTERS:
        return (f"+{value_text(name, _whole(statistics.increase))}",)
    figures = (_whole(statistics.minimum), statistics.mean, _whole(statistics.maximum))
    # Beside the value itself, a rate needs no "/s".
    return tuple(value_text(name, figure).removesuffix("/s") for figure in figures)


def _increases(of: Callable[[str], Statistics | None]) -> Iterator[str]:
    for cause, term in CAUSES.items():
        statistics = of(f"clock_event_seconds.{cause}")
        if statistics is not None and statistics.increase > 0:
            yield f"{term} +{span_text(statistics.increase)}"


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


LEGEND: Mapping[str, str] = {
    "busy": "share of time in which at least one kernel ran; 100 % may be one SM of 132: look at "
    "SM active",
    "SM active": "share of the SMs' time in which they had work: what busy does not tell",
    "SM occupancy": "warps on the SMs, of the most that they can hold; half is often enough",
    "tensor active": "share of time in which the tensor cores worked: where matmuls should be",
    "DRAM active": "memory bandwidth in use, of the most that there is",
    "FP64/32/16 active": "share of time in which these units, outside the tensor cores, worked",
    "memory busy": "share of time in which device memory was read or written, not how much of it",
    "used": "memory of processes and of the driver's contexts; a driver before 510 adds the "
    "reserved part",
    "reserved": "memory that driver and firmware keep: page tables, ECC",
    "attributed": "memory that the listed processes hold together",
    "unattributed": "memory in use that no listed process holds: those of another pid namespace, "
    "or gone",
    "BAR1": "the window through which the host and other devices reach its memory",
    "power": "on most devices since Ampere an average over a second; instant is the moment",
    "margin": "how much warmer it may get before it slows itself down",
    "P-state": "P0 is the fastest, P15 the slowest",
    "held back by": "why clocks are not higher; a power cap is normal at full load, heat is not",
    "PCIe link": "as it is now: it slows down when there is nothing to send",
    "PCIe rx, tx": "what the device receives and sends",
    "replays": "packets that had to be sent again: many of them mean a bad slot or riser",
    "ECC corrected": "memory errors since the driver was loaded that were put right; uncorrected "
    "ones end what they hit; `ever` is in the device's life",
    "remapped rows": "rows of memory replaced by spare ones",
    "Xid": "an error that the driver reports by number",
}
"""A sentence for each term that does not explain itself."""
