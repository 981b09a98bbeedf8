"""How a reading is spread over a fleet. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Of those GPUs that have it."""

    count: int
    low: float
    """The 5th percentile: one in twenty has less."""
    median: float
    high: float
    """The 95th percentile."""
    total: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """The spread of those that are there; None where none is."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    low, middle, high = (_at(found, share) for share in (0.05, 0.5, 0.95))
    return Spread(len(found), low, middle, high, sum(found))


def _at(values: list[float], share: float) -> float:
    """Between two values, the share of the way from one to the other."""
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])
