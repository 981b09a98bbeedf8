"""Metrics of the GPUs of a fleet: the value of each, its level, and their distribution. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from gputop.bench.results.statistics import percentile
from gputop.fleet.model import OF_DEVICE, Gpu, devices
from gputop.text import ABSENT, duration, percentage, quantity

UNKNOWN = -1
"""Level of a GPU whose value is not scraped."""


class MapMetric(NamedTuple):
    """A value of a GPU, and the edges between its levels, of which the lowest is 0."""

    name: str
    unit: str
    edges: tuple[float, ...]
    value: Callable[[Gpu], float | None]
    reading: str = ""
    """Field of a GPU that it shows."""

    def text(self, value: float | None) -> str:
        """Return the value with its unit, in five cells at most."""
        if value is None:
            return ABSENT
        if self is AGE:
            return (
                duration(value).replace(" ", "")
                if value < HOUR
                else f"{value / HOUR:.0f}h"
            )
        return (
            percentage(value, "%") if self.unit == "%" else quantity(value, self.unit)
        )

    def levels(self, gpus: Iterable[Gpu]) -> list[int]:
        """Return the level of each."""
        values = map(self.value, gpus)
        return [
            UNKNOWN if each is None else bisect_right(self.edges, each)
            for each in values
        ]


HOUR = 3600
BUSY = MapMetric(
    "busy",
    "%",
    (5, 35, 65, 95),
    attrgetter("gpu_utilization_percent"),
    "gpu_utilization_percent",
)
MEMORY = MapMetric(
    "memory",
    "%",
    (5, 35, 65, 95),
    attrgetter("memory_used_percent"),
    "memory_used_bytes",
)
TEMPERATURE = MapMetric(
    "temperature",
    "°C",
    (40, 55, 70, 80),
    attrgetter("temperature_celsius"),
    "temperature_celsius",
)
POWER = MapMetric(
    "power", "W", (150, 300, 500, 700), attrgetter("power_watts"), "power_watts"
)
HEALTH = MapMetric("health", "", (), lambda _: 0.0)
"""Metric without a scale: problems have signs in every metric, and here nothing else has one."""
AGE = MapMetric("age of readings", "s", (20, 60, 120, 300), attrgetter("age_seconds"))
SUMMARISED = (BUSY, MEMORY, TEMPERATURE, POWER)
"""Metrics whose distribution is always shown."""
METRICS = (*SUMMARISED, HEALTH, AGE)

BARS = "▁▂▃▄▅▆▇█"


class MetricDistribution(NamedTuple):
    """Percentiles of the known values, linear between two; None if none is known."""

    p5: float | None
    median: float | None
    p95: float | None
    bars: str
    """One bar for each level, as high as it is common; a blank if no GPU has it."""
    known: Sequence[float] = ()


def distribution(gpus: Iterable[Gpu], metric: MapMetric) -> MetricDistribution:
    known = sorted([value for value in map(metric.value, gpus) if value is not None])
    ends = [0, *(bisect_left(known, edge) for edge in metric.edges), len(known)]
    bars = shares([end - start for start, end in pairwise(ends)])
    p5, median, p95 = (percentile(known, n) if known else None for n in (5, 50, 95))
    return MetricDistribution(p5, median, p95, bars, known)


def distributions(
    gpus: Sequence[Gpu],
) -> Iterator[tuple[MapMetric, MetricDistribution]]:
    """Yield the distributions; a reading of a whole GPU counts once, not for each instance."""
    physical = devices(gpus)
    for metric in SUMMARISED:
        yield (
            metric,
            distribution(physical if metric.reading in OF_DEVICE else gpus, metric),
        )


def shares(counts: Sequence[int]) -> str:
    """Return a bar for each level, as high as its number of GPUs is large."""
    most = max(counts, default=0)
    return "".join(
        BARS[round((len(BARS) - 1) * n / most)] if n else " " for n in counts
    )
