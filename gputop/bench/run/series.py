"""Series over time of a run: windows of its worker and readings of its device. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from gputop.bench.events import Progress

JOINED_SHARE = 1 / 1000
"""Share of a run up to which neighbouring items are joined: more of them than can be drawn."""
MOST_ITEMS = 8000
"""Most windows, and most moments, of a document."""
KEPT_ITEMS = 256
"""Most windows, and most moments, that are kept with a result."""
READINGS = ("power_watts", "sm_clock_mhz", "temperature_celsius")
"""Readings that have a curve, in the order in which they are drawn."""

Curve = Sequence[tuple[float, float]]


class Timed(Protocol):
    """An item of a series."""

    @property
    def window_seconds(self) -> float:
        """Length of the time that it stands for."""


Item = TypeVar("Item", bound=Timed)
Merge = Callable[[Sequence[Item]], Item]


def append_joined(
    items: list[Item], item: Item, elapsed: float, merge: Merge[Item]
) -> None:
    """Append an item of a run that has taken `elapsed` seconds, or join it with the last one.

    So of windows of 0.2 s a run of an hour keeps 4,400, and a run of a day 7,600.
    """
    if items:
        together = items[-1].window_seconds + item.window_seconds
        if together <= JOINED_SHARE * elapsed:
            items[-1] = merge((items[-1], item))
            return
    items.append(item)


def thinned(
    items: Sequence[Item], most: int, merge: Merge[Item]
) -> list[Item]:
    """Return at most `most` items, each of equally many neighbours."""
    together = max(1, math.ceil(len(items) / most))
    starts = range(0, len(items), together)
    return [merge(items[n : n + together]) for n in starts]


@dataclass(slots=True)
class Mean:
    """A mean over time."""

    total: float = 0.0
    seconds: float = 0.0

    def add(self, value: float | None, seconds: float) -> None:
        """Add a value that held for `seconds`. None is ignored."""
        if value is not None:
            self.total += value * seconds
            self.seconds += seconds

    @property
    def value(self) -> float | None:
        """Mean so far, or None before the first value."""
        return self.total / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class Moment:
    """Readings for the time from `since` to `seconds` on the run's time axis."""

    since: float
    seconds: float
    power_watts: float | None = None
    sm_clock_mhz: float | None = None
    """SM clock, or the core clock of a CPU."""
    temperature_celsius: float | None = None
    reasons: tuple[str, ...] | None = None
    """Clock event reasons that held, or None if the device does not report any."""
    reported: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which each of these reasons held."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """The same, by the counters of the device where it has them."""
    energy_watts: float | None = None
    """Mean power by the device's counter of energy."""

    @property
    def window_seconds(self) -> float:
        """Length of that time."""
        return self.seconds - self.since


@dataclass(frozen=True, slots=True)
class RunCurves:
    """A run over time for a report, in seconds since its first timed product."""

    progress: tuple[Progress, ...] = ()
    readings: Mapping[str, Curve] = field(default_factory=dict)
    """(seconds, value) by the reading's name, such as `power_watts`."""
    reasons: Mapping[str, Curve] = field(default_factory=dict)
    """Intervals (from, to) in which each clock event reason held."""


@dataclass(frozen=True, slots=True)
class KeptCurves:
    """Curves from which the chart of a run is drawn."""

    windows: tuple[Progress, ...] = ()
    moments: tuple[Moment, ...] = ()


def mean_over_time(
    items: Sequence[Progress] | Sequence[Moment], reading: str
) -> float | None:
    """Return the mean of a reading of windows or moments, or None if none has it."""
    mean = Mean()
    for each in items:
        mean.add(getattr(each, reading), each.window_seconds)
    return mean.value


def merge_windows(windows: Sequence[Progress]) -> Progress:
    """Return consecutive windows as one, with rates as means over time."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    return replace(
        last,
        window_seconds=sum(each.window_seconds for each in windows),
        tflops=mean_over_time(windows, "tflops") or 0.0,
        tflops_device=mean_over_time(windows, "tflops_device"),
        bytes_per_second=mean_over_time(windows, "bytes_per_second"),
    )


def merge_moments(moments: Sequence[Moment]) -> Moment:
    """Return neighbours as one: means over time, sums, and every reason that held."""
    last = moments[-1]
    if len(moments) == 1:
        return last
    reasons: dict[str, None] = {}
    known = False
    for moment in moments:
        known = known or moment.reasons is not None
        reasons |= dict.fromkeys(moment.reasons or ())
    return Moment(
        moments[0].since,
        last.seconds,
        mean_over_time(moments, "power_watts"),
        mean_over_time(moments, "sm_clock_mhz"),
        mean_over_time(moments, "temperature_celsius"),
        tuple(reasons) if known else None,
        total_by_name(moment.reported for moment in moments),
        total_by_name(moment.counted for moment in moments),
        mean_over_time(moments, "energy_watts"),
    )


def total_by_name(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of seconds by name."""
    total: defaultdict[str, float] = defaultdict(float)
    for seconds in each:
        for name, value in seconds.items():
            total[name] += value
    return dict(total)
