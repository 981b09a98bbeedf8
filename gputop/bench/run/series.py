"""Figures that accumulate over a run: means, counters, and series that stay small. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

MOST_ITEMS = 4000
"""More than can be drawn of a series."""

Item = TypeVar("Item")


class Series(Generic[Item]):
    """Items in order of time; beyond `most` of them, neighbours become one by `merge`."""

    def __init__(self, merge: Callable[[Sequence[Item]], Item], most: int = MOST_ITEMS) -> None:
        self._merge, self._most = merge, most
        self._kept: list[Item] = []
        self._waiting: list[Item] = []
        """Those that become one with the next ones."""
        self._together = 1

    def add(self, item: Item) -> None:
        """Append an item."""
        self._waiting.append(item)
        if len(self._waiting) < self._together:
            return
        self._kept.append(self._merge(self._waiting))
        self._waiting = []
        if len(self._kept) >= self._most:
            self._kept = [self._merge(self._kept[n : n + 2]) for n in range(0, len(self._kept), 2)]
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
        """The mean so far, or None before the first value."""
        return self.total / self.seconds if self.seconds else None


@dataclass(slots=True)
class Counter:
    """A counter of the device, read now and then; times are Unix seconds."""

    first: tuple[float, float]
    last: tuple[float, float]
    fastest: float = math.inf
    """The most that it counts in a second."""
    broken: bool = False
    """True once it started anew or leapt: what it counted is not known then."""

    def add(self, at: float, value: float) -> None:
        """Take in a reading."""
        most = self.fastest * max(1.0, at - self.last[0])
        self.broken = self.broken or not 0 <= value - self.last[1] <= most
        self.last = (at, value)

    @property
    def increase(self) -> float | None:
        """How far it has counted since the first reading, or None if that is not known."""
        return None if self.broken else self.last[1] - self.first[1]

    @property
    def seconds(self) -> float:
        """Time between the first and the last reading."""
        return self.last[0] - self.first[0]
