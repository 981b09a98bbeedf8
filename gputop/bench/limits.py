"""When a run has to end before its time: the device is too hot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.bench.plan import Target
    from gputop.telemetry.snapshot import Device, Inventory, Sample

MARGIN_CELSIUS = 3
"""Below the slowdown threshold, so that the test ends before the device throttles for long."""
UNKNOWN_LIMIT_CELSIUS = 87
"""Where the driver names no threshold: 3 under 90, the lowest that data-centre GPUs name."""


def temperature_limit(device: Device) -> int:
    """Degrees Celsius of the core at which a stress test is ended."""
    if device.temperature_slowdown_celsius is None:
        return UNKNOWN_LIMIT_CELSIUS
    return device.temperature_slowdown_celsius - MARGIN_CELSIUS


def reached(target: Target, inventory: Inventory | None, sample: Sample | None) -> str | None:
    """Which limit the device has reached, in words; None where none, as for a CPU.

    Of a MIG instance it is the temperature of the GPU that it is a part of.
    """
    if target.gpu_uuid is None or inventory is None or sample is None:
        return None
    gpu, readings = inventory.device(target.gpu_uuid), sample.device(target.gpu_uuid)
    if gpu is None or readings is None or readings.temperature_celsius is None:
        return None
    limit = temperature_limit(gpu)
    if readings.temperature_celsius < limit:
        return None
    what = "it" if target.parent_uuid is None else f"GPU {gpu.label}"
    return f"{what} reached {readings.temperature_celsius}°C, and its limit is {limit}°C"
