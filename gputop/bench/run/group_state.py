"""The state of the runs that were started together, one for each device. Pure."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from gputop.bench.events import Hello
from gputop.bench.results.columns import rate
from gputop.bench.results.compare import ALONE, TOGETHER, apart, rates_of_pair, score
from gputop.bench.results.outliers import distribution, judged, member_of, slow, wrong_results
from gputop.bench.run.state import STATES, RunState
from gputop.console import FAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gputop.bench.events import Event
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.results.compare import Spread
    from gputop.bench.results.outliers import Distribution
    from gputop.bench.run.conditions import Trace
    from gputop.problem import Problem

DROOP_SECONDS = 10.0
"""A run shorter than this says nothing about droop; as for the worker."""


@dataclass(frozen=True, slots=True)
class Odd:
    """A device that is not like the others, why, and whether that is a fault of it."""

    target: Target
    why: str
    grave: bool


class GroupState:
    """One run for each device. Of pairs it is the one that is under way, or was the last."""

    def __init__(
        self, requests: Sequence[Request], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.requests, self.now = requests, now
        self.request = requests[0]
        """What is the same for all: kind, data types and seconds."""
        self.runs = {request.target: RunState(request, now) for request in requests}
        self.alone: dict[Target, RunState] = {}
        """Of pairs, the runs that have ended and are followed by one together."""
        self.stopping = False
        self._turn: Target | None = None
        """Of pairs, whose run alone it is, or was the last."""
        self.started_at = now()

    def take(self, target: Target, event: Event) -> None:
        """Take in what happened on a device."""
        if isinstance(event, Hello):
            self._turn = target
        self.runs[target].take(event)

    def begin_together(self, targets: Iterable[Target]) -> None:
        """Begin the second run of these devices, of pairs."""
        for target in targets:
            self.alone[target] = self.runs[target]
            self.runs[target] = RunState(self.runs[target].request, self.now)

    @property
    def traces(self) -> list[Trace]:
        """The traces of the devices, in the order of the requests."""
        return [run.trace for run in self.runs.values()]

    @property
    def kind(self) -> str:
        return self.request.kind

    @property
    def is_table(self) -> bool:
        """Whether its runs have rows, and no throughput over time."""
        return self.only.is_table

    @property
    def only(self) -> RunState:
        """The run of the first device: of one alone, all there is."""
        return next(iter(self.runs.values()))

    @property
    def is_several(self) -> bool:
        return len(self.runs) > 1

    @property
    def states(self) -> Mapping[str, int]:
        """How many devices are in each state that there are any in, in the order of a run."""
        counted = Counter(run.state for run in self.runs.values())
        return {state: counted[state] for state in STATES if counted[state]}

    @property
    def expected_seconds(self) -> float:
        """How long the runs take at most, as far as they are planned."""
        planned = (run.planned for run in self.runs.values() if run.planned)
        return max((each.expected_seconds or 0.0 for each in planned), default=0.0)

    @property
    def measured_at(self) -> float | None:
        """When the first figure of any device came, by the clock of `now`."""
        known = (run.measured_at for run in self.runs.values())
        return min((at for at in known if at is not None), default=None)

    def turn(self, target: Target) -> str:
        """Of pairs, which run of a device it is."""
        if target in self.alone:
            return TOGETHER
        return ALONE if target is self._turn else "waits"

    def is_faulty(self, target: Target) -> bool:
        """Whether that device failed, in any of its runs."""
        return any(run.faulty for run in self._all_of(target))

    def wrong_elements(self, target: Target) -> int | None:
        """Of all its runs; None before the first check."""
        run = self.runs[target]
        if run.result is not None:
            return run.result.wrong_elements
        found = [each.wrong_elements for each in self._all_of(target) if each.verified]
        return sum(found) if found else None

    @property
    def wrong(self) -> Mapping[Target, int]:
        """The devices that computed wrong results, and how many elements."""
        found = {target: self.wrong_elements(target) for target in self.runs}
        return {target: many for target, many in found.items() if many}

    def _all_of(self, target: Target) -> list[RunState]:
        earlier = self.alone.get(target)
        return [self.runs[target], *([earlier] if earlier else [])]

    @property
    def faulty(self) -> bool:
        """Whether a device failed."""
        return any(map(self.is_faulty, self.runs))

    @property
    def problem(self) -> Problem | None:
        """What every one of them failed by."""
        first, *others = (run.problem for run in self.runs.values())
        return first if all(other == first for other in others) else None

    @property
    def measured(self) -> bool:
        """Whether there is something to see of any."""
        return any(run.measured for run in (*self.runs.values(), *self.alone.values()))

    @property
    def ended(self) -> bool:
        return all(run.ended for run in self.runs.values())

    @property
    def ended_at(self) -> float | None:
        """When the last one ended, by the clock of `now`."""
        ends = [run.ended_at for run in self.runs.values() if run.ended_at is not None]
        return max(ends) if self.ended else None

    @property
    def begun(self) -> bool:
        """Whether products are timed; those of one device wait for those of the others."""
        return self.measured_at is not None or bool(self.alone)

    def stop(self) -> None:
        """Remembers that all are to be stopped."""
        self.stopping = True
        for run in self.runs.values():
            run.stopping = not run.ended

    @property
    def preparing_seconds(self) -> float:
        """Since the start was asked for."""
        return self.now() - self.started_at

    @property
    def part_seconds(self) -> float:
        """Of one run: pairs have one for each device, and one of all."""
        parts = len(self.runs) + 1 if self.kind == "pairs" else 1
        return self.request.seconds / parts

    def offset(self, target: Target, *, alone: bool) -> float:
        """Seconds of all runs of pairs at which that one has its begin."""
        if self.kind != "pairs":
            return 0.0
        return self.part_seconds * (list(self.runs).index(target) if alone else len(self.runs))

    @property
    def elapsed_seconds(self) -> float:
        """Of the measurement: as far as the one that is farthest."""
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

    def droop_percent(self, target: Target) -> float | None:
        """How far the last half is below the peak; None for a run that is too short for it."""
        run = self.runs[target]
        if run.result is not None:
            return run.result.droop_percent
        elapsed = run.elapsed_seconds
        late = [value for at, value in run.points if at > elapsed / 2]
        if elapsed < DROOP_SECONDS or not late or not run.peak:
            return None
        return max(0.0, 100 * (1 - fmean(late) / run.peak))

    def best(self, target: Target) -> tuple[float, str] | None:
        """The best row so far, as a number to compare and as text."""
        rows = self.runs[target].rows
        # A launch that waits for nothing has a time and no throughput: that is compared with none.
        comparable = [point for point in rows if "tflops" in point.values] or rows
        return max(filter(None, map(rate, comparable)), default=None)

    def pair(self, target: Target) -> tuple[float | None, float | None, float | None]:
        """TFLOP/s alone and together, and what being together costs, in percent; of pairs."""
        if self.kind != "pairs":
            return None, None, None
        run, earlier = self.runs[target], self.alone.get(target)
        if run.result is not None:
            return rates_of_pair(run.result)
        if earlier is None:
            return run.tflops_mean, None, None
        alone, together = earlier.tflops_mean, run.tflops_mean
        cost = 100 * (1 - together / alone) if alone and together else None
        return alone, together, cost

    def spreads(self) -> tuple[Spread, ...]:
        """How far devices are apart; of pairs in the run together, of tables at the end."""
        return apart(
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
        """TFLOP/s of the last windows, of devices that run one shape."""
        found = {target: run.tflops_recent for target, run in self.runs.items()}
        return {target: rate for target, rate in found.items() if rate is not None}

    @property
    def distributions(self) -> Mapping[str, Distribution]:
        """Distribution of the rates now, by the device's name, the most numerous first."""
        groups: dict[str, list[float]] = defaultdict(list)
        for target, each in self.rates.items():
            groups[target.name].append(each)
        ordered = sorted(groups.items(), key=lambda each: -len(each[1]))
        found = ((name, distribution(rates, name)) for name, rates in ordered)
        return {name: each for name, each in found if each is not None}

    def _slow(self) -> list[tuple[float, Target, str]]:
        """Percent under the median of their likes, worst first, and in words."""
        known, found = self.distributions, []
        for target, each in self.rates.items():
            among = known[target.name]
            if (words := slow(each, among)) is not None:
                found.append((100 * (among.median - each) / among.median, target, words))
        return sorted(found, key=lambda each: -each[0])

    def behind(self) -> Mapping[Target, float]:
        """Devices that are slow among their likes now, by percent of the median; worst first."""
        return {target: percent for percent, target, _ in self._slow()}

    def odd(self) -> Sequence[Odd]:
        """Devices that are not like the others so far, gravest first."""
        found = [odd for target in self.runs if (odd := self._ended_oddly(target)) is not None]
        found += [Odd(target, words, grave=False) for _, target, words in self._slow()]
        return sorted(found, key=lambda each: not each.grave)

    def _ended_oddly(self, target: Target) -> Odd | None:
        if wrong := self.wrong_elements(target):
            return Odd(target, wrong_results(wrong), grave=True)
        run = self.runs[target]
        outlier = judged(member_of(run), None) if run.ended else None
        if outlier is None:
            return None
        return Odd(target, "; ".join(outlier.reasons), outlier.status == FAULT)
