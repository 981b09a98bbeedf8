"""Many devices while their tests run: how many are how far, and how their throughput lies. Pure."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from gputop.bench.compare import NOTICED_PERCENT
from gputop.bench.events import Done, Event, Failed, Hello, Planned, Point, Progress, Verified
from gputop.bench.outliers import Distribution, distribution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputop.bench.plan import Target

STATES = ("starting", "preparing", "ready", "running", "done", "failed")
WINDOWS = 10
"""Samples that a device is judged by while it runs: one alone is too restless."""


class Gathering:
    """What was heard so far of each device."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._states = dict.fromkeys(targets, "starting")
        self._recent: dict[Target, deque[Progress]] = {
            target: deque(maxlen=WINDOWS) for target in targets
        }
        self.wrong: dict[Target, int] = {}
        """Elements, by the device that computed them."""
        self.expected_seconds = 0.0
        self.elapsed_seconds = 0.0
        self.rows: Counter[Target] = Counter()

    def take(self, target: Target, event: Event) -> None:
        """Remembers what happened."""
        says = {
            Hello: "preparing",
            Planned: "ready",
            Progress: "running",
            Point: "running",
            Done: "done",
            Failed: "failed",
        }
        self._states[target] = says.get(type(event), self._states[target])
        if isinstance(event, Planned):
            self.expected_seconds = max(self.expected_seconds, event.expected_seconds or 0.0)
        elif isinstance(event, Progress):
            self._recent[target].append(event)
            self.elapsed_seconds = max(self.elapsed_seconds, event.elapsed_seconds)
        elif isinstance(event, Point):
            self.rows[target] += 1
        elif isinstance(event, Verified) and event.wrong_elements:
            self.wrong[target] = event.wrong_elements
        elif isinstance(event, Done) and event.result.wrong_elements:
            self.wrong[target] = event.result.wrong_elements

    @property
    def states(self) -> Mapping[str, int]:
        """How many devices are in each state that there are any in, in the order of a run."""
        counted = Counter(self._states.values())
        return {state: counted[state] for state in STATES if counted[state]}

    def state(self, target: Target) -> str:
        """Of one device."""
        return self._states[target]

    @property
    def rates(self) -> Mapping[Target, float]:
        """TFLOP/s of the last windows, weighted by time, of those that run one shape."""
        found = {}
        for target, windows in self._recent.items():
            seconds = sum(each.window_seconds for each in windows)
            if seconds and self._states[target] != "failed":
                found[target] = sum(w.tflops * w.window_seconds for w in windows) / seconds
        return found

    @property
    def distribution(self) -> Distribution | None:
        """Of the rates now."""
        return distribution(list(self.rates.values()))

    def behind(self) -> Mapping[Target, float]:
        """Those that are noticeably under the median now, by how many percent; worst first."""
        among = self.distribution
        if among is None or among.count < 2 or not among.median:
            return {}
        under = {
            target: 100 * (among.median - rate) / among.median
            for target, rate in self.rates.items()
        }
        named = [(target, by) for target, by in under.items() if by > NOTICED_PERCENT]
        return dict(sorted(named, key=lambda each: -each[1]))

    def failed(self) -> Sequence[Target]:
        """Those that ended without a result."""
        return [target for target, state in self._states.items() if state == "failed"]
