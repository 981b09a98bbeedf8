"""The driver's own samples of how busy a device was, and the waves in a row of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.insight.thresholds import FINE_CROSSING, FINE_PERIOD, FINE_SAW_TOOTH

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fine(NamedTuple):
    """What the driver has sampled by itself in a window, oldest first: even, and without gaps."""

    numbers: Sequence[int]
    step: float
    """Seconds from one to the next."""

    @property
    def mean(self) -> float:
        return sum(self.numbers) / len(self.numbers)

    @property
    def period(self) -> float | None:
        """Seconds from one rise to the next; None where there are no such waves to be seen."""
        low, high = min(self.numbers), max(self.numbers)
        if high - low < FINE_SAW_TOOTH:
            return None
        margin = FINE_CROSSING * (high - low)
        between = between_rises(self.numbers, self.mean - margin, self.mean + margin)
        return None if between is None or between < FINE_PERIOD else between * self.step


def between_rises(numbers: Sequence[float], low: float, high: float) -> float | None:
    """Places from one rise from the lower to the upper number to the next; None below three."""
    rises, down = [], False
    for place, value in enumerate(numbers):
        if value <= low:
            down = True
        elif down and value >= high:
            rises.append(place)
            down = False
    return (rises[-1] - rises[0]) / (len(rises) - 1) if len(rises) >= 3 else None
