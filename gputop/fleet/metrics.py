"""Metrics of the GPUs of a fleet: the value of each, its level, and their distribution. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gputop.bench.results.statistics import percentile
from gputop.fleet.model import Gpu, devices
from gputop.text import percentage, quantity

UNKNOWN = -1
"""Level of a GPU whose value is not scraped."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class MapMetric:
    """A value of a GPU, and the edges between its levels, of which the lowest is 0."""

    name: str
    unit: str
    edges: tuple[float, ...]
    reading: str
    """Field of a GPU that it shows."""
    value: Callable[[Gpu], float | None]
    of_device: bool = False
    """True for a reading of a whole GPU, which each of its MIG instances reports."""

    def text(self, value: float | None) -> str:
        """Return the value with its unit, in five cells at most."""
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
    "memory", "%", SHARES, "memory_used_bytes", attrgetter("memory_used_percent")
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


@dataclass(frozen=True)
class Distribution:
    """Known values of a metric, and a bar for each of its levels."""

    metric: MapMetric
    known: Sequence[float]
    """Known values, ascending."""
    bars: str
    """One bar for each level, as high as it is common; a blank if no GPU has it."""

    def percentile(self, percent: int) -> float | None:
        """Return a percentile, linear between two values; None if none is known."""
        return percentile(self.known, percent) if self.known else None


def distribution(gpus: Sequence[Gpu], metric: MapMetric) -> Distribution:
    """Return the distribution; a reading of a whole GPU counts once, not for each instance."""
    values = map(metric.value, devices(gpus) if metric.of_device else gpus)
    known = sorted(value for value in values if value is not None)
    counts = Counter(bisect_right(metric.edges, value) for value in known)
    most = max(counts.values(), default=1)
    bars = ""
    for level in range(len(metric.edges) + 1):
        height = round((len(BARS) - 1) * counts[level] / most)
        bars += BARS[height] if counts[level] else " "
    return Distribution(metric, known, bars)
