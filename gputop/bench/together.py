"""Many devices while their tests run: how many are how far, and how their throughput lies. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Failed, Hello, Planned, Point, Progress, Verified
from gputop.bench.outliers import Distribution, distribution, slow, throttled
from gputop.exits import FAULT, INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputop.bench.plan import Target

STATES = ("starting", "preparing", "ready", "running", "done", "failed")
WINDOWS = 10
"""Samples that a device is judged by while it runs: one alone is too restless."""


@dataclass(frozen=True, slots=True)
class Odd:
    """A device that is not like the others, why, and whether that is a fault of it."""

    target: Target
    why: str
    grave: bool


class Gathering:
    """What was heard so far of each device."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._states = dict.fromkeys(targets, "starting")
        self._recent: dict[Target, deque[Progress]] = {
            target: deque(maxlen=WINDOWS) for target in targets
        }
        self.wrong: dict[Target, int] = {}
        """Elements, by the device that computed them."""
        self.ends: dict[Target, Done | Failed] = {}
        self.expected_seconds = 0.0
        self.elapsed_seconds = 0.0

    def take(self, target: Target, event: Event) -> None:
        """Remembers what happened."""
        if isinstance(event, Done | Failed):
            self.ends[target] = event
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
        elif isinstance(event, Verified) and event.wrong_elements:
            self.wrong[target] = event.wrong_elements
        elif isinstance(event, Done) and event.result.wrong_elements:
            self.wrong[target] = event.result.wrong_elements

    @property
    def targets(self) -> Sequence[Target]:
        """All of them."""
        return [*self._states]

    @property
    def states(self) -> Mapping[str, int]:
        """How many devices are in each state that there are any in, in the order of a run."""
        counted = Counter(self._states.values())
        return {state: counted[state] for state in STATES if counted[state]}

    @property
    def ended(self) -> bool:
        """Whether all of them have."""
        return len(self.ends) == len(self._states)

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
    def distributions(self) -> Mapping[str, Distribution]:
        """Of the rates now, by the device's name, the most numerous first."""
        groups: dict[str, list[float]] = defaultdict(list)
        for target, rate in self.rates.items():
            groups[target.name].append(rate)
        ordered = sorted(groups.items(), key=lambda each: -len(each[1]))
        found = ((name, distribution(rates, name)) for name, rates in ordered)
        return {name: each for name, each in found if each is not None}

    def behind(self) -> Mapping[Target, float]:
        """Those that are slow among their likes now, by percent of the median; worst first."""
        known = self.distributions
        found = {}
        for target, rate in self.rates.items():
            among = known[target.name]
            if slow(rate, among) is not None:
                found[target] = 100 * (among.median - rate) / among.median
        return dict(sorted(found.items(), key=lambda each: -each[1]))

    def odd(self) -> Sequence[Odd]:
        """Those that are not like the others so far, gravest first."""
        found = [self._ended_oddly(target) for target in self._states]
        known, rates = self.distributions, self.rates
        for target in self.behind():
            said = slow(rates[target], known[target.name])
            found.append(Odd(target, said or "", grave=False))
        return sorted((each for each in found if each), key=lambda each: not each.grave)

    def _ended_oddly(self, target: Target) -> Odd | None:
        if wrong := self.wrong.get(target):
            elements = "element" if wrong == 1 else "elements"
            return Odd(target, f"computed wrong results: {wrong} {elements}", grave=True)
        last = self.ends.get(target)
        if isinstance(last, Failed):
            if last.status == INTERRUPTED:
                return None
            why = f"{last.problem.what}: {last.problem.why}"
            return Odd(target, why, grave=last.status == FAULT)
        said = throttled(last.result) if last is not None else None
        return None if said is None else Odd(target, said, grave=False)
