"""Series over time of a run: windows of its worker and readings of its device. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from gputop.bench.events import Progress

MOST_ITEMS = 4000
"""Most items of a series: more than can be drawn."""
KEPT_ITEMS = 256
"""Most windows, and most moments, that are kept with a result."""
READINGS = ("power_watts", "sm_clock_mhz", "temperature_celsius")
"""Readings that have a curve, in the order in which they are drawn."""

Curve = Sequence[tuple[float, float]]
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
            pairs = range(0, len(self._kept), 2)
            self._kept = [self._merge(self._kept[n : n + 2]) for n in pairs]
            self._together *= 2

    @property
    def items(self) -> list[Item]:
        """All items, up to the newest."""
        if not self._waiting:
            return [*self._kept]
        return [*self._kept, self._merge(self._waiting)]


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
    power_cap_seconds: float | None = None
    """The device's counter of time with a power cap, at `seconds`."""

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
    """Return neighbours as one: means over time, and every reason that held."""
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
        last.power_cap_seconds,
    )
