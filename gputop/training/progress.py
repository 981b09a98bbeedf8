"""Progress of a training over time: steps, steps per second and logged values."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gputop.training.steps import OTHER_BAR, StepReading

POINTS = 20_000
"""Most points kept of a counter or a value. Older ones are dropped."""
RATE_SECONDS = 30.0
"""Steps per second are the mean of this time."""
FEWEST_STEPS = 3
"""Fewest steps in a rate. Slow steps are counted over a longer time."""
MOST_BEHIND = 8
"""Most steps between ranks that draw the same bar. They meet in each step."""
LIVE_SECONDS = 60.0
"""A counter at its end that has no step for this long is no longer the main one."""
STALLED_SECONDS = 600.0
"""The same for a counter that is not at its end: an evaluation may take long."""


class Point(NamedTuple):
    """A number and its time."""

    time: float
    value: float


class Counter:
    """Count of steps, which continues when a bar starts again at each epoch.

    Several ranks may draw the same bar: steps that are a little behind, or far ahead, are those of
    a slower rank, and do not count.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.step: int | None = None
        self.total: int | None = None
        self.points: deque[Point] = deque(maxlen=POINTS)
        """Times of steps, each with the number of steps since the first one read."""
        self.seconds = 0.0
        """Time spent on steps, without the steps of other counters."""
        self.seen_at = 0.0
        """Time of the last line."""
        self._done = 0

    def add(self, step: int, total: int | None, time: float) -> None:
        """Add the step of a line."""
        self.seen_at = time
        if total is not None:
            self.total = total
        if step == self.step:
            return
        if self.step is not None:
            steps = step - self.step
            if steps < 0:
                is_far = -steps > MOST_BEHIND or self.step == self.total
                restarts = 2 * step < self.step and is_far
                if not restarts and time - self.last_time < RATE_SECONDS:
                    return  # a slower rank
                steps = step  # the bar of the next epoch
            elif self.total is not None and 2 * steps > self.total > 2:
                steps = 0  # a rank that is still in the last epoch, or a checkpoint
            self._done += steps
        self.points.append(Point(time, self._done))
        self.step = step

    def is_open(self, now: float) -> bool:
        """Return True if more steps may come."""
        silent = now - self.last_time
        if self.step is None or self.total is None or self.step >= self.total:
            return silent <= LIVE_SECONDS
        return silent <= STALLED_SECONDS

    @property
    def last_time(self) -> float:
        """Time of the last step."""
        return self.points[-1].time

    def rate(self, now: float, seconds: float = RATE_SECONDS) -> float | None:
        """Return the steps per second up to the last step, or None if too few are known.

        The rate falls while a step takes longer than usual.
        """
        points = self.points
        if len(points) < 2:
            return None
        recent = bisect_left(
            points,
            now - seconds,
            key=lambda point: point.time,
        )
        first = min(recent, len(points) - 2)
        last = points[-1]
        while first > 0 and last.value - points[first].value < FEWEST_STEPS:
            first -= 1
        start = points[first]
        steps, elapsed = last.value - start.value, last.time - start.time
        if steps <= 0 or elapsed <= 0:
            return None
        waiting = now - last.time
        if waiting > 2 * elapsed / steps and waiting > 2.0:
            return steps / (elapsed + waiting)
        return steps / elapsed


class Progress:
    """Progress read from the output so far."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}
        self.values: dict[str, deque[Point]] = {}
        self.moved_at = 0.0
        """Time of the last line with a step, or of another bar, such as that of an evaluation."""
        self._last: Counter | None = None
        """Counter of the last step."""

    def add(self, reading: StepReading, time: float) -> None:
        """Add the reading of a line."""
        if reading.step is not None or reading == OTHER_BAR:
            self.moved_at = time
        if reading.step is not None:
            counter = self.counters.setdefault(
                reading.counter,
                Counter(reading.counter),
            )
            if counter is self._last:
                counter.seconds += time - counter.seen_at
            counter.add(reading.step, reading.total, time)
            self._last = counter
        values = dict(reading.values)
        if reading.loss is not None:
            values["loss"] = reading.loss
        for name, value in values.items():
            points = self.values.setdefault(name, deque(maxlen=POINTS))
            if (
                not points
                or points[-1].value != value
                or time - points[-1].time > 1.0
            ):
                points.append(Point(time, value))

    def main(self, now: float) -> Counter | None:
        """Return the main counter: the one whose steps took most of the time.

        The bar of an evaluation takes less time, and a bar of epochs only moves between the steps
        of another one. A counter that has come to its end is main only if no other one moves.
        """
        return max(
            self.counters.values(),
            key=lambda counter: (counter.is_open(now), counter.seconds),
            default=None,
        )

    def latest(self, name: str) -> float | None:
        """Return the newest value of that name, or None."""
        points = self.values.get(name)
        return points[-1].value if points else None


def rates(
    points: Sequence[Point],
    edges: Iterable[float],
) -> list[float | None]:
    """Return the steps per second between neighbouring `edges`, which are times.

    The steps between two points are spread evenly over their time. The rate is None before the
    first and after the last point.
    """
    counts = [_count_at(points, edge) for edge in edges]
    times = list(edges)
    found: list[float | None] = []
    for place in range(1, len(counts)):
        before, after = counts[place - 1], counts[place]
        if before is None or after is None:
            found.append(None)
        else:
            found.append((after - before) / (times[place] - times[place - 1]))
    return found


def _count_at(points: Sequence[Point], time: float) -> float | None:
    """Return the number of steps done at a time, interpolated between points."""
    place = bisect_left(points, time, key=lambda point: point.time)
    if place == len(points):
        return None
    after = points[place]
    if place == 0:
        return after.value if after.time == time else None
    before = points[place - 1]
    share = (time - before.time) / (after.time - before.time)
    return before.value + share * (after.value - before.value)
