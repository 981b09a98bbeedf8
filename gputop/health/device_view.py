"""What a rule sees: one device at one moment, with its past. Each mean is computed once a tick."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.health.findings import Evidence, unit_of
from gputop.health.thresholds import (
    ENOUGH_OF_WINDOW,
    FEWEST_SAMPLES,
    FINE_CROSSING,
    FINE_PERIOD,
    FINE_SAW_TOOTH,
    FINE_WHOLE,
    SAW_TOOTH,
    WINDOW_SECONDS,
    Limit,
)
from gputop.schema.clock_events import mask_of
from gputop.schema.derived import DERIVED, PROCESS_CPU, PROCESS_IO_WAIT, SLOWDOWN_BITS

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from gputop.schema.snapshot import Absence, Device, DeviceSample, Event, Process
    from gputop.stream.history import History


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


_SOURCES = {SLOWDOWN_BITS: "clock_event_reasons"} | {
    name: "processes" for name in DERIVED if name.startswith("process_")
}
"""The field that says why a derived series is missing."""
_OF_PROCESSES = {
    PROCESS_CPU: ("cpu_percent", "children_cpu_most_percent"),
    PROCESS_IO_WAIT: ("io_wait",),
}
"""The fields of a process that a series is made of."""


class NoEvidence(Exception):  # noqa: N818 - it is no error: it ends a rule that cannot tell
    """A reading that a rule needs is missing."""

    def __init__(self, reading: str) -> None:
        super().__init__(reading)
        self.reading = reading


class Window(NamedTuple):
    """The last samples."""

    many: int
    span: float
    """Seconds from the first to the last of them."""
    wanted: float
    """What they should span."""


class _Numbers(NamedTuple):
    """A series in a window."""

    numbers: array[float]
    present: int
    """How many of them are not missing."""
    mean: float | None


class Axis:
    """How many samples a time is, once for all devices."""

    def __init__(self, history: History, interval: float, *, momentary: bool = False) -> None:
        self.history = history
        self.momentary = momentary
        """Whether one sample is all there is, and its numbers are the means of any time."""
        self._shortest = FEWEST_SAMPLES * max(0.0, interval)
        self._known: dict[float, Window] = {}
        self.read = 0
        """Numbers that were read from the history: what a tick costs."""

    def within(self, seconds: float) -> Window:
        """The samples of that time, or of more at a long interval."""
        known = self._known.get(seconds)
        if known is None:
            wanted = max(seconds, self._shortest)
            many = self.history.samples_within(wanted)
            known = self._known[seconds] = Window(many, self.history.span(many), wanted)
        return known


class Look:
    """A device at one moment. What is missing raises `NoEvidence`, but for `known`."""

    def __init__(
        self,
        axis: Axis,
        device: Device,
        sample: DeviceSample,
        processes: Sequence[Process] = (),
        events: Sequence[Event] = (),
        now: float = 0.0,
    ) -> None:
        self.axis = axis
        self.device = device
        self.sample = sample
        self.processes = processes
        self.events = events
        self.now = now
        self.peers: Sequence[Look] = ()
        """The other devices of its job, of the same kind."""
        self.held = False
        """Whether the rule that looks has found something here before, and still does."""
        self._numbers: dict[tuple[str, float], _Numbers] = {}
        self._means: dict[tuple[str, float, bool], float | None] = {}
        self.memo: dict[str, Any] = {}
        """What rules have computed that others need, too."""
        self._masks: Counter[float] | None = None

    def passes(self, limit: Limit, value: float) -> bool:
        """Whether the value is past the limit: the nearer end of it for a finding that stands."""
        return limit.passed(value, held=self.held)

    def reading(self, name: str) -> float:
        """The number of now, or of the inventory."""
        value = getattr(self.sample, name, None)
        if value is None:
            value = getattr(self.device, name, None)
        if value is None:
            raise NoEvidence(name)
        return float(value)

    def absence(self, name: str) -> Absence | None:
        """Why the newest reading of that name is missing; None where it is not."""
        for process in self.processes if name in _OF_PROCESSES else ():
            for each in _OF_PROCESSES[name]:
                if each in process.absent:
                    return process.absent[each]
        name = _SOURCES.get(name, name)
        return self.sample.absent.get(name) or self.device.absent.get(name)

    def values(
        self, name: str, seconds: float = WINDOW_SECONDS, enough: float = ENOUGH_OF_WINDOW
    ) -> array[float]:
        """Its numbers in the last seconds, oldest first; NaN where one of enough is missing."""
        if not self._has(name, seconds, enough):
            raise NoEvidence(name)
        return self._read(name, seconds).numbers

    def known(self, name: str, seconds: float = WINDOW_SECONDS) -> float | None:
        """The mean of the last seconds; None where it is missing."""
        key = name, seconds, self.held
        if key not in self._means:
            there = self._has(name, seconds, ENOUGH_OF_WINDOW)
            self._means[key] = self._read(name, seconds).mean if there else None
        return self._means[key]

    def mean(self, name: str, seconds: float = WINDOW_SECONDS) -> float:
        """The mean of the last seconds."""
        mean = self.known(name, seconds)
        if mean is None:
            raise NoEvidence(name)
        return mean

    def _has(self, name: str, seconds: float, enough: float) -> bool:
        """Whether there are enough numbers of that time."""
        if self.axis.momentary:
            return self._read(name, seconds).present > 0
        many, span, wanted = self.axis.within(seconds)
        if self.held:
            enough /= 2
        if span < enough * wanted:
            return False
        return self._read(name, seconds).present >= max(FEWEST_SAMPLES, enough * many)

    def _read(self, name: str, seconds: float) -> _Numbers:
        key = name, seconds
        known = self._numbers.get(key)
        if known is None:
            numbers = self.axis.history.last(self.device.uuid, name, self.axis.within(seconds).many)
            self.axis.read += len(numbers)
            count, total = len(numbers), sum(numbers)
            if not math.isfinite(total):
                there = finite(numbers)
                count, total = len(there), sum(there)
            known = _Numbers(numbers, count, total / count if count else None)
            self._numbers[key] = known
        return known

    @property
    def activity(self) -> str:
        """The reading that says whether it works: of what has no *busy*, as MIG has, SM active."""
        busy, active = "gpu_utilization_percent", "sm_active_percent"
        return active if self.known(busy) is None and self.known(active) is not None else busy

    def slowed(self, *causes: str, without: str = "") -> float:
        """% of the last minute in which one of these clock event reasons held, and not another."""
        bits = mask_of(causes)
        no = mask_of((without,))
        return self._share(lambda mask: bool(mask & bits) and not mask & no)

    def unslowed(self) -> float:
        """% of the last minute in which there was no clock event reason."""
        return self._share(lambda mask: not mask)

    def _share(self, holds: Callable[[int], bool]) -> float:
        if self._masks is None:
            self._masks = Counter(finite(self.values(SLOWDOWN_BITS)))
        counted = self._masks.items()
        return 100 * sum(n for mask, n in counted if holds(int(mask))) / self._masks.total()

    def span(self, seconds: float) -> float:
        """How much of that time there is anything of."""
        return self.axis.within(seconds).span

    def means(self, label: str, name: str, seconds: float = WINDOW_SECONDS) -> list[Evidence]:
        """A mean as evidence, where there is one."""
        mean = self.known(name, seconds)
        if mean is None:
            return []
        return [Evidence(f"{label}, mean", name, mean, unit_of(name), self.span(seconds))]

    def period(self, name: str, seconds: float = WINDOW_SECONDS) -> float | None:
        """Seconds from one rise to the next; None where there are no such waves to be seen."""
        many, span, _ = self.axis.within(seconds)
        numbers = finite(self.axis.history.last(self.device.uuid, name, many))
        if len(numbers) < FEWEST_SAMPLES or max(numbers) - min(numbers) < SAW_TOOTH:
            return None
        low, high = min(numbers), max(numbers)
        samples = between_rises(numbers, low + 0.35 * (high - low), low + 0.65 * (high - low))
        # What is faster than two samples cannot be told from something slower.
        if samples is None or samples < 2.5:
            return None
        return samples * span / (len(numbers) - 1)

    def fine(self, name: str, seconds: float = WINDOW_SECONDS) -> Fine | None:
        """The driver's own samples of a reading; None where there are none, or not all of them.

        Nor where the ticks are as close to each other as they are.
        """
        step = self.sample.gpu_utilization_samples_seconds
        if name != "gpu_utilization_percent" or step is None:
            return None
        many, span, wanted = self.axis.within(seconds)
        if span < ENOUGH_OF_WINDOW * wanted or step >= span / (many - 1):
            return None
        numbers = self.axis.history.busy_samples(self.device.uuid, many)
        self.axis.read += len(numbers)
        least, most = FINE_WHOLE
        return Fine(numbers, step) if least <= len(numbers) * step / span <= most else None


def finite(numbers: Sequence[float]) -> list[float]:
    """Without those that are missing."""
    if math.isfinite(sum(numbers)):  # as it mostly is, and fast to tell
        return list(numbers)
    return [number for number in numbers if math.isfinite(number)]


def now(label: str, name: str, value: float) -> Evidence:
    """A number of this moment."""
    return Evidence(label, name, value, unit_of(name))
