"""What the map is coloured by: a value of each GPU, the few steps it is shown in, its spread."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gputop.fleet.model import Health
from gputop.text import ABSENT, duration, percentage, quantity
from gputop.ui.drawing.palette import DIM, FAULT, WARN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gputop.fleet.model import Gpu

UNKNOWN = -1
"""The level of a GPU whose value nobody has scraped."""
MARGIN = 0.2
"""Of a step, by which a value has to be past its edge before the level changes: noise at an edge
would have cells sent again and again."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A value, and the edges between the levels that it is shown in; the lowest level is 0."""

    name: str
    unit: str
    edges: tuple[float, ...]
    value: Callable[[Gpu], float | None]
    reading: str = ""
    """Name of the field of a GPU that it shows."""

    def text(self, value: float | None) -> str:
        """The value with its unit, in five cells at most."""
        if value is None:
            return ABSENT
        if self is AGE:
            return duration(value).replace(" ", "") if value < HOUR else f"{value / HOUR:.0f}h"
        return percentage(value, "%") if self.unit == "%" else quantity(value, self.unit)

    def level(self, value: float) -> int:
        """Of a value: how many of the edges it has reached."""
        return bisect_right(self.edges, value)

    def levels(self, gpus: Iterable[Gpu], before: Sequence[int | None]) -> list[int]:
        """The level of each; `before` are those that are shown, which values near an edge keep."""
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
        """Around an edge: of the smaller of the two steps that it is between."""
        edges = (0.0, *self.edges)
        return MARGIN * min(b - a for a, b in pairwise(edges[edge : edge + 3]))


HOUR = 3600
BUSY = Metric(
    "busy", "%", (5, 35, 65, 95), lambda gpu: gpu.gpu_utilization_percent, "gpu_utilization_percent"
)
MEMORY = Metric(
    "memory", "%", (5, 35, 65, 95), lambda gpu: gpu.memory_used_percent, "memory_used_bytes"
)
TEMPERATURE = Metric(
    "temperature", "°", (40, 55, 70, 80), lambda gpu: gpu.temperature_celsius, "temperature_celsius"
)
POWER = Metric("power", "W", (150, 300, 500, 700), lambda gpu: gpu.power_watts, "power_watts")
HEALTH = Metric("health", "", (), lambda _: 0.0)
"""Has no scale: what is wrong is signed in any of them, and here nothing else is."""
AGE = Metric("age of readings", "s", (20, 60, 120, 300), lambda gpu: gpu.age_seconds)
METRICS = (BUSY, MEMORY, TEMPERATURE, POWER, HEALTH, AGE)
SUMMARISED = (BUSY, MEMORY, TEMPERATURE, POWER)
"""Those whose distribution is always on screen."""

SIGNS = {Health.WARNING: "▲", Health.FAULT: "!", Health.STALE: "?"}
"""In the cell of what is wrong; in ASCII they are `^`, `!` and `?`."""
SIGN_STYLES = {Health.WARNING: WARN, Health.FAULT: FAULT, Health.STALE: DIM}
GRAVEST_FIRST = (Health.FAULT, Health.WARNING, Health.STALE)
WORDS = {
    Health.FAULT: ("fault", "faults"),
    Health.WARNING: ("warning", "warnings"),
    Health.STALE: ("stale", "stale"),
}
"""One of them, and several."""


def counted(count: int, health: Health) -> str:
    """`1 fault`, `3 warnings`."""
    return f"{count} {WORDS[health][count != 1]}"


BARS = "▁▂▃▄▅▆▇█"


class Distribution(NamedTuple):
    """Percentiles of those that are known, each one of their values; None where none is."""

    p5: float | None
    median: float | None
    p95: float | None
    bars: str
    """One for each level, as high as it is common; a blank where no GPU is at it."""


def distribution(gpus: Iterable[Gpu], metric: Metric) -> Distribution:
    """Of a metric over those GPUs."""
    known = sorted([value for value in map(metric.value, gpus) if value is not None])
    ends = [0, *(bisect_left(known, edge) for edge in metric.edges), len(known)]
    bars = shares([end - start for start, end in pairwise(ends)])
    if not known:
        return Distribution(None, None, None, bars)
    last = len(known) - 1
    p5, median, p95 = (known[round(last * share)] for share in (0.05, 0.5, 0.95))
    return Distribution(p5, median, p95, bars)


def shares(counts: Sequence[int]) -> str:
    """A bar for each level that so many GPUs are at, as high as it is common."""
    most = max(counts, default=0)
    return "".join(BARS[round((len(BARS) - 1) * n / most)] if n else " " for n in counts)
