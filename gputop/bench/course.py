"""A run over time: its throughput by window, and what its device said meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputop.bench.events import Event, Progress

MOST_WINDOWS = 4000
"""A run of days has more than can be drawn: beyond that, neighbours become one."""

READINGS = ("power_watts", "sm_clock_mhz", "temperature_celsius")
"""What is drawn under the throughput, in this order."""

Series = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Course:
    """On the run's own axis: seconds since its first timed product."""

    progress: tuple[Progress, ...] = ()
    readings: Mapping[str, Series] = field(default_factory=dict)
    """(seconds, value) by the reading's name, such as `power_watts`."""
    reasons: Mapping[str, Series] = field(default_factory=dict)
    """By clock event reason, the intervals (from, to) in which it held."""


class Recorder:
    """Keeps the windows of a run as they come."""

    def __init__(self, most: int = MOST_WINDOWS) -> None:
        self._most = most
        self._kept: list[Progress] = []
        self._waiting: list[Progress] = []
        self._each = 1

    def take(self, event: Event) -> None:
        """Remembers what is a window, and nothing else."""
        if not isinstance(event, Progress):
            return
        self._waiting.append(event)
        if len(self._waiting) < self._each:
            return
        self._kept.append(merged(self._waiting))
        self._waiting = []
        if len(self._kept) >= self._most:
            pairs = (self._kept[n : n + 2] for n in range(0, len(self._kept), 2))
            self._kept = [merged(pair) for pair in pairs]
            self._each *= 2

    def course(
        self,
        readings: Mapping[str, Series] | None = None,
        reasons: Mapping[str, Series] | None = None,
    ) -> Course:
        """The run so far, with what is known of its device."""
        rest = [merged(self._waiting)] if self._waiting else []
        return Course((*self._kept, *rest), readings or {}, reasons or {})


def readings(moments: Iterable[Any]) -> dict[str, Series]:
    """Of anything with `seconds` and the names of `READINGS`: a line of each that is known."""
    found: dict[str, list[tuple[float, float]]] = {}
    for moment in moments:
        for name in READINGS:
            value = getattr(moment, name)
            if value is not None:
                found.setdefault(name, []).append((moment.seconds, value))
    return {name: found[name] for name in READINGS if name in found}


def merged(windows: Sequence[Progress]) -> Progress:
    """Windows that follow each other as one: rates are means over time."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    return Progress(
        elapsed_seconds=last.elapsed_seconds,
        window_seconds=sum(window.window_seconds for window in windows),
        iterations=last.iterations,
        tflops=_mean([(w.tflops, w.window_seconds) for w in windows]),
        tflops_device=None
        if any(w.tflops_device is None for w in windows)
        else _mean([(w.tflops_device or 0.0, w.window_seconds) for w in windows]),
    )


def _mean(weighted: Sequence[tuple[float, float]]) -> float:
    weights = sum(weight for _, weight in weighted)
    if not weights:
        return weighted[-1][0]
    return sum(value * weight for value, weight in weighted) / weights
