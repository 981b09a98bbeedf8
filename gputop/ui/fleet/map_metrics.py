"""Metrics that the map is coloured by: a value of each GPU, its levels, and its distribution."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gputop.health.findings import Severity
from gputop.text import ABSENT, duration, percentage, quantity
from gputop.ui.drawing.palette import DIM, FAULT, WARN

if TYPE_CHECKING:
    from gputop.fleet.model import Gpu

UNKNOWN = -1
"""Level of a GPU whose value is not scraped."""
MARGIN = 0.2
"""Share of a step that a value must be past an edge before the level changes. Noise at an edge
would otherwise send cells again and again."""


@dataclass(frozen=True, slots=True)
class MapMetric:
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
            return duration(value).replace(" ", "") if value < HOUR else f"{value / HOUR:.0f}h"
        return percentage(value, "%") if self.unit == "%" else quantity(value, self.unit)

    def levels(self, gpus: Iterable[Gpu], before: Sequence[int | None]) -> list[int]:
        """Return the level of each; values near an edge keep the level they had `before`."""
        edges, value_of = self.edges, self.value
        made = []
        for gpu, was in zip(gpus, before, strict=True):
            value = value_of(gpu)
            level = UNKNOWN if value is None else bisect_right(edges, value)
            if was is not None and level != was and abs(level - was) == 1 and was != UNKNOWN:
                assert value is not None
                if abs(value - edges[min(level, was)]) < self._margin(min(level, was)):
                    level = was
            made.append(level)
        return made

    def _margin(self, edge: int) -> float:
        """Return the margin around an edge: a share of the smaller of its two steps."""
        edges = (0.0, *self.edges)
        return MARGIN * min(b - a for a, b in pairwise(edges[edge : edge + 3]))


HOUR = 3600
BUSY = MapMetric(
    "busy", "%", (5, 35, 65, 95), lambda gpu: gpu.gpu_utilization_percent, "gpu_utilization_percent"
)
MEMORY = MapMetric(
    "memory", "%", (5, 35, 65, 95), lambda gpu: gpu.memory_used_percent, "memory_used_bytes"
)
TEMPERATURE = MapMetric(
    "temperature", "°C", (40, 55, 70, 80), lambda g: g.temperature_celsius, "temperature_celsius"
)
POWER = MapMetric("power", "W", (150, 300, 500, 700), lambda gpu: gpu.power_watts, "power_watts")
HEALTH = MapMetric("health", "", (), lambda _: 0.0)
"""Metric without a scale: problems have signs in every metric, and here nothing else has one."""
AGE = MapMetric("age of readings", "s", (20, 60, 120, 300), lambda gpu: gpu.age_seconds)
METRICS = (BUSY, MEMORY, TEMPERATURE, POWER, HEALTH, AGE)
SUMMARISED = (BUSY, MEMORY, TEMPERATURE, POWER)
"""Metrics whose distribution is always on screen."""

SIGNS = {Severity.WARNING: "▲", Severity.FAULT: "!", Severity.STALE: "?"}
"""Sign in the cell of a GPU with a problem; in ASCII they are `^`, `!` and `?`."""
SIGN_STYLES = {Severity.WARNING: WARN, Severity.FAULT: FAULT, Severity.STALE: DIM}
GRAVEST_FIRST = (Severity.FAULT, Severity.WARNING, Severity.STALE)

BARS = "▁▂▃▄▅▆▇█"


class MetricDistribution(NamedTuple):
    """Percentiles of the known values, each one of them; None if none is known."""

    p5: float | None
    median: float | None
    p95: float | None
    bars: str
    """One bar for each level, as high as it is common; a blank if no GPU has it."""


def distribution(gpus: Iterable[Gpu], metric: MapMetric) -> MetricDistribution:
    known = sorted([value for value in map(metric.value, gpus) if value is not None])
    ends = [0, *(bisect_left(known, edge) for edge in metric.edges), len(known)]
    bars = shares([end - start for start, end in pairwise(ends)])
    if not known:
        return MetricDistribution(None, None, None, bars)
    last = len(known) - 1
    p5, median, p95 = (known[round(last * share)] for share in (0.05, 0.5, 0.95))
    return MetricDistribution(p5, median, p95, bars)


def shares(counts: Sequence[int]) -> str:
    """Return a bar for each level, as high as its number of GPUs is large."""
    most = max(counts, default=0)
    return "".join(BARS[round((len(BARS) - 1) * n / most)] if n else " " for n in counts)
