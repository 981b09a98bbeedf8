"""How a value is spread over many GPUs: percentiles, and how common each level is."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputop.fleet.model import Gpu
    from gputop.ui.fleet.metrics import Metric

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
