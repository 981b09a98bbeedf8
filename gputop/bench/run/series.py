"""Series over time: bounded lists of items, means, and counters of a device. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

MOST_ITEMS = 4000
"""Most items of a series: more than can be drawn."""

Item = TypeVar("Item")


class MergedSeries(Generic[Item]):
    """Items in order of time. Beyond `most` of them, `merge` joins neighbours."""

    def __init__(
        self,
        merge: Callable[[Sequence[Item]], Item],
        most: int = MOST_ITEMS,
        items: Iterable[Item] = (),
    ) -> None:
        self._merge, self._most = merge, most
        self._kept: list[Item] = []
        self._waiting: list[Item] = []
        """Items to be joined with the next ones."""
        self._together = 1
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """Append an item."""
        self._waiting.append(item)
        if len(self._waiting) < self._together:
            return
        self._kept.append(self._merge(self._waiting))
        self._waiting = []
        if len(self._kept) >= self._most:
            self._kept = [
                self._merge(self._kept[n : n + 2]) for n in range(0, len(self._kept), 2)
            ]
            self._together *= 2

    @property
    def items(self) -> list[Item]:
        """All items, up to the newest."""
        return [*self._kept, *([self._merge(self._waiting)] if self._waiting else [])]


@dataclass(slots=True)
class Mean:
    """A mean over time."""

    total: float = 0.0
    seconds: float = 0.0

    def add(self, value: float | None, seconds: float) -> None:
        """Count a value for that long; an absent one does not count."""
        if value is not None:
            self.total += value * seconds
            self.seconds += seconds

    @property
    def value(self) -> float | None:
        """Mean so far, or None before the first value."""
        return self.total / self.seconds if self.seconds else None


class Timed(Protocol):
    """Readings that stand for some time."""

    @property
    def window_seconds(self) -> float:
        """Length of that time."""


def mean_over_time(items: Sequence[Timed], reading: str) -> float | None:
    """Return the mean of a reading of windows or moments, or None if none has it."""
    mean = Mean()
    for each in items:
        mean.add(getattr(each, reading), each.window_seconds)
    return mean.value


@dataclass(slots=True)
class DeviceCounter:
    """A counter of the device. Times are Unix seconds."""

    first: tuple[float, float]
    last: tuple[float, float]
    fastest: float = math.inf
    """Largest plausible increase per second."""
    broken: bool = False
    """True after a reset or a leap: the increase is unknown then."""

    def add(self, at: float, value: float) -> None:
        """Add a reading."""
        most = self.fastest * max(1.0, at - self.last[0])
        self.broken = self.broken or not 0 <= value - self.last[1] <= most
        self.last = (at, value)

    @property
    def increase(self) -> float | None:
        """Increase since the first reading, or None if unknown."""
        return None if self.broken else self.last[1] - self.first[1]

    @property
    def seconds(self) -> float:
        """Time between the first and the last reading."""
        return self.last[0] - self.first[0]
