"""State of the runs that were started together, one per device. Pure."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.bench.events import Event, Hello
from gputop.bench.results.compare import ALONE, TOGETHER, percent_below, rates_of_pair
from gputop.bench.results.verdict import DEFAULTS, RateDistribution, distribution
from gputop.bench.run.state import STATES, RunState

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.trace import Trace
    from gputop.problem import Problem


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
        return any(run.faulty for _, run in self.parts(target))

    def wrong_elements(self, target: Target) -> int | None:
        """Return the wrong elements of all its runs, or None before the first check."""
        run = self.runs[target]
        if run.result is not None:
            return run.result.wrong_elements
        found = [each.wrong_elements for _, each in self.parts(target) if each.verified]
        return sum(found) if found else None

    @property
    def wrong(self) -> Mapping[Target, int]:
        """Wrong elements of the devices that computed wrong results."""
        found = {target: self.wrong_elements(target) for target in self.runs}
        return {target: many for target, many in found.items() if many}

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

    def parts(self, target: Target) -> list[tuple[float, RunState]]:
        """Return the runs of a device in order, each behind its begin in the seconds of all."""
        turns = (list(self.runs).index(target), len(self.runs)) if self.kind == "pairs" else (0,)
        runs = filter(None, (self.alone.get(target), self.runs[target]))
        return [(n * self.part_seconds, run) for n, run in zip(turns, runs, strict=False)]

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of the measurement of the device that is farthest."""
        if self.kind != "pairs":
            return max(run.elapsed_seconds for run in self.runs.values())
        if self.ended and self.alone:
            return self.request.seconds
        lasts = (self.parts(target)[-1] for target in self.runs)
        reached = [
            at + min(run.elapsed_seconds, self.part_seconds) for at, run in lasts if run.measured
        ]
        return max(reached, default=0.0)

    def pair(self, target: Target) -> tuple[float | None, float | None, float | None]:
        """Return TFLOP/s alone and together, and the cost in percent; for `pairs`."""
        if self.kind != "pairs":
            return None, None, None
        run, earlier = self.runs[target], self.alone.get(target)
        if run.result is not None:
            return rates_of_pair(run.result.points)
        if earlier is None:
            return run.tflops_mean, None, None
        alone, together = earlier.tflops_mean, run.tflops_mean
        return alone, together, percent_below(together, alone) if alone and together else None

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
        return {name: distribution(rates, name) for name, rates in ordered}

    def slow_devices(self) -> Mapping[Target, float]:
        """Return the percent under the median of slow devices, worst first."""
        medians = {name: each.median for name, each in self.distributions.items()}
        under = {each: percent_below(rate, medians[each.name]) for each, rate in self.rates.items()}
        ranked = sorted(under.items(), key=lambda each: -each[1])
        return {target: by for target, by in ranked if by > DEFAULTS.tolerance}
