"""What each reading is called in Prometheus, in base units: every reading of a device in one row.

After https://prometheus.io/docs/practices/naming: ratios from 0 to 1, hertz, bytes, watts, joules,
seconds, degrees Celsius; what is counted ends in `_total`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gputop.output.family import Kind, Part, Parts, plain, ratio, word
from gputop.telemetry.clock_events import BITS


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and how its numbers come from a reading."""

    name: str
    help: str
    parts: Parts
    kind: Kind = "gauge"


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
METRICS: Mapping[str, Metric] = {
    "gpu_utilization_percent": Metric(
        "gpu_utilization_ratio", "Share of time in which at least one kernel ran, 0 to 1.", ratio
    ),
    "memory_utilization_percent": Metric(
        "memory_utilization_ratio",
        "Share of time in which device memory was read or written, 0 to 1.",
        ratio,
    ),
    "encoder_utilization_percent": Metric(
        "encoder_utilization_ratio", "Utilization of the video encoder, 0 to 1.", ratio
    ),
    "decoder_utilization_percent": Metric(
        "decoder_utilization_ratio", "Utilization of the video decoder, 0 to 1.", ratio
    ),
    "jpeg_utilization_percent": Metric(
        "jpeg_utilization_ratio", "Utilization of the JPEG engine, 0 to 1.", ratio
    ),
    "ofa_utilization_percent": Metric(
        "ofa_utilization_ratio", "Utilization of the optical flow accelerator, 0 to 1.", ratio
    ),
    "graphics_active_percent": Metric(
        "graphics_active_ratio",
        f"Share of time in which a compute or graphics engine worked, 0 to 1. {_GPM}",
        ratio,
    ),
    "sm_active_percent": Metric(
        "sm_active_ratio", f"Share of the SMs' time in which one had a warp, 0 to 1. {_GPM}", ratio
    ),
    "sm_occupancy_percent": Metric(
        "sm_occupancy_ratio", f"Warps on the SMs of the most they can hold, 0 to 1. {_GPM}", ratio
    ),
    "tensor_active_percent": Metric(
        "tensor_active_ratio",
        f"Share of time in which the tensor cores worked, 0 to 1. {_GPM}",
        ratio,
    ),
    "dram_active_percent": Metric(
        "dram_active_ratio",
        f"Bandwidth of the device memory of the most it can, 0 to 1. {_GPM}",
        ratio,
    ),
    "fp64_active_percent": Metric(
        "fp64_active_ratio", f"Share of time with FP64 outside tensor cores, 0 to 1. {_GPM}", ratio
    ),
    "fp32_active_percent": Metric(
        "fp32_active_ratio", f"Share of time with FP32 outside tensor cores, 0 to 1. {_GPM}", ratio
    ),
    "fp16_active_percent": Metric(
        "fp16_active_ratio", f"Share of time with FP16 outside tensor cores, 0 to 1. {_GPM}", ratio
    ),
    "memory_used_bytes": Metric(
        "memory_used_bytes",
        "Device memory in use, with the reserved part where that has no metric.",
        plain,
    ),
    "memory_total_bytes": Metric("memory_total_bytes", "Device memory there is.", plain),
    "memory_free_bytes": Metric("memory_free_bytes", "Device memory that is free.", plain),
    "memory_reserved_bytes": Metric(
        "memory_reserved_bytes", "Device memory that driver and firmware keep.", plain
    ),
    "memory_attributed_bytes": Metric(
        "memory_attributed_bytes", "Device memory that the listed processes hold.", plain
    ),
    "memory_unattributed_bytes": Metric(
        "memory_unattributed_bytes", "Device memory in use that no listed process holds.", plain
    ),
    "bar1_used_bytes": Metric("bar1_used_bytes", "BAR1 memory in use.", plain),
    "temperature_celsius": Metric("temperature_celsius", "Temperature of the GPU.", plain),
    "temperature_margin_celsius": Metric(
        "temperature_margin_celsius", "Degrees left until the GPU slows itself down.", plain
    ),
    "memory_temperature_celsius": Metric(
        "memory_temperature_celsius", "Temperature of the device memory.", plain
    ),
    "fan_percent": Metric(
        "fan_speed_ratio", "Speed the fans are to have, 1 is their nominal maximum.", ratio
    ),
    "fans_percent": Metric(
        "each_fan_speed_ratio",
        "Speed each fan is to have, 1 is its nominal maximum.",
        _each("fan", ratio),
    ),
    "power_watts": Metric(
        "power_watts", "Power draw; on most devices since Ampere the average of a second.", plain
    ),
    "power_average_watts": Metric("power_average_watts", "Power draw, over a second.", plain),
    "power_instant_watts": Metric("power_instant_watts", "Power draw at the moment.", plain),
    "power_limit_watts": Metric("power_limit_watts", "Power limit that is enforced.", plain),
    "power_limit_requested_watts": Metric(
        "power_limit_requested_watts", "Power limit that was set; others can be lower.", plain
    ),
    "energy_joules": Metric("energy_joules_total", f"Energy used {_LOADED}.", plain, "counter"),
    "sm_clock_mhz": Metric("sm_clock_hertz", "Clock of the SMs.", _hertz),
    "memory_clock_mhz": Metric("memory_clock_hertz", "Clock of the device memory.", _hertz),
    "video_clock_mhz": Metric("video_clock_hertz", "Clock of the video engines.", _hertz),
    "performance_state": Metric(
        "performance_state", "Performance state, 0 (P0, the fastest) to 15.", plain
    ),
    "clock_event_reasons": Metric(
        "clock_event_active",
        "Whether that reason holds the clocks back now: 1 or 0.",
        _among("reason", BITS),
    ),
    "clock_event_seconds": Metric(
        "clock_event_seconds_total",
        f"Time in which that reason held the clocks back, {_LOADED}.",
        _by("reason"),
        "counter",
    ),
    "pcie_generation": Metric(
        "pcie_generation", "Generation of the PCIe link now; lower while idle.", plain
    ),
    "pcie_width": Metric("pcie_width_lanes", "Lanes of the PCIe link now.", plain),
    "pcie_rx_bytes_per_second": Metric(
        "pcie_rx_bytes_per_second", "What the device receives over PCIe.", plain
    ),
    "pcie_tx_bytes_per_second": Metric(
        "pcie_tx_bytes_per_second", "What the device sends over PCIe.", plain
    ),
    "pcie_replays": Metric(
        "pcie_replays_total", f"PCIe packets sent again {_LOADED}.", plain, "counter"
    ),
    "nvlink_rx_bytes_per_second": Metric(
        "nvlink_rx_bytes_per_second", "What the device receives over all NVLinks.", plain
    ),
    "nvlink_tx_bytes_per_second": Metric(
        "nvlink_tx_bytes_per_second", "What the device sends over all NVLinks.", plain
    ),
    "nvlink_link_rx_bytes_per_second": Metric(
        "nvlink_link_rx_bytes_per_second",
        "What the device receives over each NVLink that is up.",
        _each("link", plain),
    ),
    "nvlink_link_tx_bytes_per_second": Metric(
        "nvlink_link_tx_bytes_per_second",
        "What the device sends over each NVLink that is up.",
        _each("link", plain),
    ),
    "ecc_corrected": Metric(
        "ecc_corrected_errors_total", f"Corrected memory errors {_LOADED}.", plain, "counter"
    ),
    "ecc_uncorrected": Metric(
        "ecc_uncorrected_errors_total", f"Uncorrected memory errors {_LOADED}.", plain, "counter"
    ),
    "ecc_corrected_lifetime": Metric(
        "ecc_corrected_errors_lifetime_total",
        "Corrected memory errors in the device's life.",
        plain,
        "counter",
    ),
    "ecc_uncorrected_lifetime": Metric(
        "ecc_uncorrected_errors_lifetime_total",
        "Uncorrected memory errors in the device's life.",
        plain,
        "counter",
    ),
    "remapped_rows": Metric(
        "remapped_rows_total",
        "Rows of memory replaced by spare ones in the device's life.",
        plain,
        "counter",
    ),
    "remapped_rows_uncorrected": Metric(
        "remapped_rows_uncorrected_total",
        "Rows of memory replaced after an uncorrected error in the device's life.",
        plain,
        "counter",
    ),
    "remap_pending": Metric(
        "remap_pending", "Whether a row of memory is replaced at the next reset: 1 or 0.", plain
    ),
    "remap_failed": Metric(
        "remap_failed", "Whether there was no spare row of memory left: 1 or 0.", plain
    ),
    "recovery_action": Metric(
        "recovery_action",
        "What the driver wants done: 1 for that action, 0 for the others.",
        _among("action", ACTIONS),
    ),
}
"""By reading; `gputop_` goes before each name."""

PROCESS_METRICS: Mapping[str, Metric] = {
    "memory_used_bytes": Metric(
        "process_memory_used_bytes", "Device memory that the process holds.", plain
    ),
    "sm_utilization_percent": Metric(
        "process_sm_utilization_ratio", "Share of time in which its kernels ran, 0 to 1.", ratio
    ),
    "memory_utilization_percent": Metric(
        "process_memory_utilization_ratio",
        "Share of time in which it read or wrote device memory, 0 to 1.",
        ratio,
    ),
    "encoder_utilization_percent": Metric(
        "process_encoder_utilization_ratio", "Its use of the video encoder, 0 to 1.", ratio
    ),
    "decoder_utilization_percent": Metric(
        "process_decoder_utilization_ratio", "Its use of the video decoder, 0 to 1.", ratio
    ),
}
"""By field of a process; what it takes of the host, other exporters say."""
