"""Metrics of the GPUs of a fleet: value, level, and median. Pure functions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median

from gputop.fleet.model import Gpu, devices
from gputop.text import percentage, quantity

UNKNOWN = -1
"""Level of a GPU whose value is not scraped."""


@dataclass(frozen=True)
class MapMetric:
    """A value of a GPU, and the edges between its levels, of which the lowest is 0."""

    name: str
    unit: str
    edges: tuple[float, ...]
    reading: str
    """Field of a GPU."""
    value: Callable[[Gpu], float | None]
    of_device: bool = False
    """True for a reading of the whole GPU. Each of its MIG instances reports the same value."""

    def text(self, value: float | None) -> str:
        """Return the value with its unit, in at most five cells."""
        if self.unit == "%":
            return percentage(value, "%")
        return quantity(value, self.unit)

    def level(self, gpu: Gpu) -> int:
        """Return the level of a GPU."""
        value = self.value(gpu)
        return UNKNOWN if value is None else bisect_right(self.edges, value)


SHARES = (5, 35, 65, 95)
BUSY = MapMetric(
    "busy",
    "%",
    SHARES,
    "gpu_utilization_percent",
    attrgetter("gpu_utilization_percent"),
)
MEMORY = MapMetric(
    "memory",
    "%",
    SHARES,
    "memory_used_bytes",
    attrgetter("memory_used_percent"),
)
TEMPERATURE = MapMetric(
    "temp",
    "°C",
    (40, 55, 70, 80),
    "temperature_celsius",
    attrgetter("temperature_celsius"),
    of_device=True,
)
POWER = MapMetric(
    "power",
    "W",
    (150, 300, 500, 700),
    "power_watts",
    attrgetter("power_watts"),
    of_device=True,
)
METRICS = (BUSY, MEMORY, TEMPERATURE, POWER)


def median_of(gpus: Sequence[Gpu], metric: MapMetric) -> float | None:
    """Return the median of the known values, or None if none is known.

    A reading of a whole GPU counts once, not once per instance.
    """
    known = []
    for gpu in devices(gpus) if metric.of_device else gpus:
        value = metric.value(gpu)
        if value is not None:
            known.append(value)
    return median(known) if known else None
