"""What each reading is called in Prometheus, in base units: every reading of a device in one row.

After https://prometheus.io/docs/practices/naming: ratios from 0 to 1, hertz, bytes, watts, joules,
seconds, degrees Celsius; what is counted ends in `_total`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gputop.output.prometheus.family import Part, Parts, plain, ratio, word
from gputop.schema.clock_events import BITS


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and how its numbers come from a reading."""

    name: str
    help: str
    parts: Parts


def _hertz(mhz: float) -> Iterator[Part]:
    yield {}, mhz * 1e6


def _each(label: str, parts: Parts) -> Parts:
    """Numbers by their place; those that are None are missing."""

    def found(values: Iterable[Any]) -> Iterator[Part]:
        for place, value in enumerate(values):
            if value is not None:
                yield from (({label: str(place), **more}, n) for more, n in parts(value))

    return found


def _by(label: str) -> Parts:
    """Numbers by their name."""

    def found(values: Mapping[str, float]) -> Iterator[Part]:
        yield from (({label: word(name)}, value) for name, value in values.items())

    return found


def _among(label: str, known: Iterable[str]) -> Parts:
    """1 for each word that holds, 0 for each other one that is known.

    Words of later drivers are there only while they hold.
    """

    def found(value: str | tuple[str, ...]) -> Iterator[Part]:
        holding = (value,) if isinstance(value, str) else value
        for name in dict.fromkeys((*known, *holding)):
            yield {label: word(name)}, float(name in holding)

    return found


# fmt: off
ACTIONS = (
    "none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain",
    "bus_reset", "system_reboot",
)
# fmt: on

_GPM = "Average since the reading before, by GPM."
_LOADED = "since the driver was loaded"
_HELPS = {
    "gpu_utilization_percent": "Share of time in which at least one kernel ran, 0 to 1.",
    "memory_utilization_percent": "Share of time in which device memory was read or written, 0 to "
    "1.",
    "encoder_utilization_percent": "Utilization of the video encoder, 0 to 1.",
    "decoder_utilization_percent": "Utilization of the video decoder, 0 to 1.",
    "jpeg_utilization_percent": "Utilization of the JPEG engine, 0 to 1.",
    "ofa_utilization_percent": "Utilization of the optical flow accelerator, 0 to 1.",
    "graphics_active_percent": "Share of time in which a compute or graphics engine worked, 0 to "
    f"1. {_GPM}",
    "sm_active_percent": f"Share of the SMs' time in which one had a warp, 0 to 1. {_GPM}",
    "sm_occupancy_percent": f"Warps on the SMs of the most they can hold, 0 to 1. {_GPM}",
    "tensor_active_percent": f"Share of time in which the tensor cores worked, 0 to 1. {_GPM}",
    "dram_active_percent": f"Bandwidth of the device memory of the most it can, 0 to 1. {_GPM}",
    "fp64_active_percent": f"Share of time with FP64 outside tensor cores, 0 to 1. {_GPM}",
    "fp32_active_percent": f"Share of time with FP32 outside tensor cores, 0 to 1. {_GPM}",
    "fp16_active_percent": f"Share of time with FP16 outside tensor cores, 0 to 1. {_GPM}",
    "memory_used_bytes": "Device memory in use, with the reserved part where that has no metric.",
    "memory_total_bytes": "Device memory there is.",
    "memory_free_bytes": "Device memory that is free.",
    "memory_reserved_bytes": "Device memory that driver and firmware keep.",
    "memory_attributed_bytes": "Device memory that the listed processes hold.",
    "memory_unattributed_bytes": "Device memory in use that no listed process holds.",
    "bar1_used_bytes": "BAR1 memory in use.",
    "temperature_celsius": "Temperature of the GPU.",
    "temperature_margin_celsius": "Degrees left until the GPU slows itself down.",
    "memory_temperature_celsius": "Temperature of the device memory.",
    "fan_percent": "Speed the fans are to have, 1 is their nominal maximum.",
    "fans_percent": "Speed each fan is to have, 1 is its nominal maximum.",
    "power_watts": "Power draw; on most devices since Ampere the average of a second.",
    "power_average_watts": "Power draw, over a second.",
    "power_instant_watts": "Power draw at the moment.",
    "power_limit_watts": "Power limit that is enforced.",
    "power_limit_requested_watts": "Power limit that was set; others can be lower.",
    "energy_joules": f"Energy used {_LOADED}.",
    "sm_clock_mhz": "Clock of the SMs.",
    "memory_clock_mhz": "Clock of the device memory.",
    "video_clock_mhz": "Clock of the video engines.",
    "performance_state": "Performance state, 0 (P0, the fastest) to 15.",
    "clock_event_reasons": "Whether that reason holds the clocks back now: 1 or 0.",
    "clock_event_seconds": f"Time in which that reason held the clocks back, {_LOADED}.",
    "pcie_generation": "Generation of the PCIe link now; lower while idle.",
    "pcie_width": "Lanes of the PCIe link now.",
    "pcie_rx_bytes_per_second": "What the device receives over PCIe.",
    "pcie_tx_bytes_per_second": "What the device sends over PCIe.",
    "pcie_replays": f"PCIe packets sent again {_LOADED}.",
    "nvlink_rx_bytes_per_second": "What the device receives over all NVLinks.",
    "nvlink_tx_bytes_per_second": "What the device sends over all NVLinks.",
    "nvlink_link_rx_bytes_per_second": "What the device receives over each NVLink that is up.",
    "nvlink_link_tx_bytes_per_second": "What the device sends over each NVLink that is up.",
    "ecc_corrected": f"Corrected memory errors {_LOADED}.",
    "ecc_uncorrected": f"Uncorrected memory errors {_LOADED}.",
    "ecc_corrected_lifetime": "Corrected memory errors in the device's life.",
    "ecc_uncorrected_lifetime": "Uncorrected memory errors in the device's life.",
    "remapped_rows": "Rows of memory replaced by spare ones in the device's life.",
    "remapped_rows_uncorrected": "Rows of memory replaced after an uncorrected error in the "
    "device's life.",
    "remap_pending": "Whether a row of memory is replaced at the next reset: 1 or 0.",
    "remap_failed": "Whether there was no spare row of memory left: 1 or 0.",
    "recovery_action": "What the driver wants done: 1 for that action, 0 for the others.",
}
_PROCESS_HELPS = {
    "memory_used_bytes": "Device memory that the process holds.",
    "sm_utilization_percent": "Share of time in which its kernels ran, 0 to 1.",
    "memory_utilization_percent": "Share of time in which it read or wrote device memory, 0 to 1.",
    "encoder_utilization_percent": "Its use of the video encoder, 0 to 1.",
    "decoder_utilization_percent": "Its use of the video decoder, 0 to 1.",
}
_UNITS: Mapping[str, tuple[str, Parts]] = {
    "_percent": ("_ratio", ratio),
    "_mhz": ("_hertz", _hertz),
}
"""Units that Prometheus has others for: how the metric ends, and its numbers."""
_COUNTED = ("energy_joules", "pcie_replays", "remapped_rows", "remapped_rows_uncorrected")
_NAMES: Mapping[str, str] = {
    "fan_percent": "fan_speed_ratio",
    "fans_percent": "each_fan_speed_ratio",
    "clock_event_reasons": "clock_event_active",
    "clock_event_seconds": "clock_event_seconds_total",
    "pcie_width": "pcie_width_lanes",
    "ecc_corrected": "ecc_corrected_errors_total",
    "ecc_uncorrected": "ecc_uncorrected_errors_total",
    "ecc_corrected_lifetime": "ecc_corrected_errors_lifetime_total",
    "ecc_uncorrected_lifetime": "ecc_uncorrected_errors_lifetime_total",
    **{name: f"{name}_total" for name in _COUNTED},
}
"""Names that the reading's own and its unit do not give."""
_PARTS: Mapping[str, Parts] = {
    "fans_percent": _each("fan", ratio),
    "clock_event_reasons": _among("reason", BITS),
    "clock_event_seconds": _by("reason"),
    "nvlink_link_rx_bytes_per_second": _each("link", plain),
    "nvlink_link_tx_bytes_per_second": _each("link", plain),
    "recovery_action": _among("action", ACTIONS),
}
"""Numbers of readings that are more than one number."""


def _metrics(helps: Mapping[str, str], prefix: str = "") -> Mapping[str, Metric]:
    """Return the metrics by reading: name and numbers follow from its unit, unless stated above."""
    found = {}
    for reading, about in helps.items():
        unit = next((unit for unit in _UNITS if reading.endswith(unit)), "")
        ending, parts = _UNITS.get(unit, ("", plain))
        name = _NAMES.get(reading) or reading.removesuffix(unit) + ending
        found[reading] = Metric(prefix + name, about, _PARTS.get(reading, parts))
    return found


METRICS = _metrics(_HELPS)
"""By reading; `gputop_` goes before each name."""
PROCESS_METRICS = _metrics(_PROCESS_HELPS, "process_")
"""By field of a process; what it takes of the host, other exporters say."""
