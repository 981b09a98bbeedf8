"""State of the runs that were started together, one per device. Pure."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.bench.events import Hello
from gputop.bench.results.compare import (
    ALONE,
    TOGETHER,
    percent_below,
    rates_of_pair,
    score,
    spreads_of,
)
from gputop.bench.results.facts import wrong_results
from gputop.bench.results.outliers import device_outcome, distribution, find_outlier, slow_reason
from gputop.bench.run.state import STATES, RunState
from gputop.console import FAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gputop.bench.events import Event
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.results.compare import DeviceSpread
    from gputop.bench.results.outliers import RateDistribution
    from gputop.bench.run.conditions import Trace
    from gputop.problem import Problem


@dataclass(frozen=True, slots=True)
class GroupOutlier:
    """A device unlike the others, the reason, and True in `grave` for a fault."""

    target: Target
    why: str
    grave: bool


class GroupState:
    """One run per device. For `pairs` it is the current run, or the last one."""

    def __init__(
        self, requests: Sequence[Request], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.requests, self.now = requests, now
        self.request = requests[0]
        """Kind, data types and seconds, the same for all."""
        self.runs = {request.target: RunState(request, now) for request in requests}
        self.alone: dict[Target, RunState] = {}
        """Runs of `pairs` that have ended and are followed by one together."""
        self.stopping = False
        self._turn: Target | None = None
        """Device of `pairs` that runs alone, or was the last to."""
        self.started_at = now()

    def add_event(self, target: Target, event: Event) -> None:
        """Add an event of a device."""
        if isinstance(event, Hello):
            self._turn = target
        self.runs[target].add_event(event)

    def begin_together(self, targets: Iterable[Target]) -> None:
        """Begin the second run of these devices of `pairs`."""
        for target in targets:
            self.alone[target] = self.runs[target]
            self.runs[target] = RunState(self.runs[target].request, self.now)

    @property
    def traces(self) -> list[Trace]:
        """Traces of the devices in the order of the requests."""
        return [run.trace for run in self.runs.values()]

    @property
    def kind(self) -> str:
        return self.request.kind

    @property
    def is_table(self) -> bool:
        """True if the runs have rows instead of a throughput over time."""
        return self.first.is_table

    @property
    def first(self) -> RunState:
        """Run of the first device, the only one of a run on one device."""
        return next(iter(self.runs.values()))

    @property
    def is_several(self) -> bool:
        return len(self.runs) > 1

    @property
    def states(self) -> Mapping[str, int]:
        """Number of devices in each occurring state, in the order of a run."""
        counted = Counter(run.state for run in self.runs.values())
        return {state: counted[state] for state in STATES if counted[state]}

    @property
    def expected_seconds(self) -> float:
        """Longest expected duration of the runs planned so far."""
        planned = (run.planned for run in self.runs.values() if run.planned)
        return max((each.expected_seconds or 0.0 for each in planned), default=0.0)

    @property
    def measured_at(self) -> float | None:
        """Time of the first figure of any device, by the clock `now`."""
        known = (run.measured_at for run in self.runs.values())
        return min((at for at in known if at is not None), default=None)

    def pair_phase(self, target: Target) -> str:
        """Return which run of `pairs` a device is in."""
        if target in self.alone:
            return TOGETHER
        return ALONE if target is self._turn else "waits"

    def is_faulty(self, target: Target) -> bool:
        """True if the device failed in any of its runs."""
        return any(run.faulty for run in self._all_of(target))

    def wrong_elements(self, target: Target) -> int | None:
        """Return the wrong elements of all its runs, or None before the first check."""
        run = self.runs[target]
        if run.result is not None:
            return run.result.wrong_elements
        found = [each.wrong_elements for each in self._all_of(target) if each.verified]
        return sum(found) if found else None

    @property
    def wrong(self) -> Mapping[Target, int]:
        """Wrong elements of the devices that computed wrong results."""
        found = {target: self.wrong_elements(target) for target in self.runs}
        return {target: many for target, many in found.items() if many}

    def _all_of(self, target: Target) -> list[RunState]:
        earlier = self.alone.get(target)
        return [self.runs[target], *([earlier] if earlier else [])]

    @property
    def faulty(self) -> bool:
        """True if a device failed."""
        return any(map(self.is_faulty, self.runs))

    @property
    def problem(self) -> Problem | None:
        """Problem that all devices failed by."""
        first, *others = (run.problem for run in self.runs.values())
        return first if all(other == first for other in others) else None

    @property
    def measured(self) -> bool:
        """True if any device has something to show."""
        return any(run.measured for run in (*self.runs.values(), *self.alone.values()))

    @property
    def ended(self) -> bool:
        return all(run.ended for run in self.runs.values())

    @property
    def ended_at(self) -> float | None:
        """Time at which the last run ended, by the clock `now`."""
        ends = [run.ended_at for run in self.runs.values() if run.ended_at is not None]
        return max(ends) if self.ended else None

    @property
    def begun(self) -> bool:
        """True if products are timed. All devices begin together."""
        return self.measured_at is not None or bool(self.alone)

    def stop(self) -> None:
        """Mark all runs as stopping."""
        self.stopping = True
        for run in self.runs.values():
            run.stopping = not run.ended

    @property
    def preparing_seconds(self) -> float:
        """Seconds since the start was requested."""
        return self.now() - self.started_at

    @property
    def part_seconds(self) -> float:
        """Seconds of one run: `pairs` has one for each device, and one of all."""
        parts = len(self.runs) + 1 if self.kind == "pairs" else 1
        return self.request.seconds / parts

    def offset(self, target: Target, *, alone: bool) -> float:
        """Return the begin of a run in the seconds of all runs of `pairs`."""
        if self.kind != "pairs":
            return 0.0
        return self.part_seconds * (list(self.runs).index(target) if alone else len(self.runs))

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of the measurement of the device that is farthest."""
        if self.kind != "pairs":
            return max(run.elapsed_seconds for run in self.runs.values())
        if self.ended:
            return self.request.seconds if self.alone else max(self._reached())
        return max(self._reached())

    def _reached(self) -> list[float]:
        return [
            self.offset(target, alone=target not in self.alone)
            + min(run.elapsed_seconds, self.part_seconds)
            for target, run in self.runs.items()
            if run.measured
        ] or [0.0]

    def pair(self, target: Target) -> tuple[float | None, float | None, float | None]:
        """Return TFLOP/s alone and together, and the cost in percent; for `pairs`."""
        if self.kind != "pairs":
            return None, None, None
        run, earlier = self.runs[target], self.alone.get(target)
        if run.result is not None:
            return rates_of_pair(run.result)
        if earlier is None:
            return run.tflops_mean, None, None
        alone, together = earlier.tflops_mean, run.tflops_mean
        return alone, together, percent_below(together, alone) if alone and together else None

    def spreads(self) -> tuple[DeviceSpread, ...]:
        """Return how far devices are apart: `pairs` together, tables at the end."""
        return spreads_of(
            (target, run.request.dtype, self._reached_by(target, run))
            for target, run in self.runs.items()
        )

    def _reached_by(self, target: Target, run: RunState) -> float | None:
        if run.result is not None:
            return score(run.result)
        if self.is_table or (self.kind == "pairs" and target not in self.alone):
            return None
        return run.tflops_mean

    @property
    def rates(self) -> Mapping[Target, float]:
        """Recent TFLOP/s of the devices that run one shape."""
        found = {target: run.tflops_recent for target, run in self.runs.items()}
        return {target: rate for target, rate in found.items() if rate is not None}

    @property
    def distributions(self) -> Mapping[str, RateDistribution]:
        """Distribution of the rates by model, the most numerous first."""
        groups: dict[str, list[float]] = defaultdict(list)
        for target, each in self.rates.items():
            groups[target.name].append(each)
        ordered = sorted(groups.items(), key=lambda each: -len(each[1]))
        found = ((name, distribution(rates, name)) for name, rates in ordered)
        return {name: each for name, each in found if each is not None}

    def _slow(self) -> list[tuple[float, Target, str]]:
        """Return the slow devices, worst first: percent under the median, and in words."""
        known, found = self.distributions, []
        for target, each in self.rates.items():
            among = known[target.name]
            if (words := slow_reason(each, among)) is not None:
                found.append((percent_below(each, among.median), target, words))
        return sorted(found, key=lambda each: -each[0])

    def slow_devices(self) -> Mapping[Target, float]:
        """Return the percent under the median of slow devices, worst first."""
        return {target: percent for percent, target, _ in self._slow()}

    def outliers(self) -> Sequence[GroupOutlier]:
        """Return the devices unlike the others so far, gravest first."""
        found = [odd for target in self.runs if (odd := self._ended_oddly(target)) is not None]
        found += [GroupOutlier(target, words, grave=False) for _, target, words in self._slow()]
        return sorted(found, key=lambda each: not each.grave)

    def _ended_oddly(self, target: Target) -> GroupOutlier | None:
        if wrong := self.wrong_elements(target):
            return GroupOutlier(target, wrong_results(wrong), grave=True)
        run = self.runs[target]
        outlier = find_outlier(device_outcome(run), None) if run.ended else None
        if outlier is None:
            return None
        return GroupOutlier(target, "; ".join(outlier.reasons), outlier.status == FAULT)
