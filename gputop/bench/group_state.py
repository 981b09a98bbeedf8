"""The runs that were started together, one for each device, as the dashboard sees them."""

from __future__ import annotations

import time
from statistics import fmean
from typing import TYPE_CHECKING

from gputop.bench.columns import rate
from gputop.bench.compare import score
from gputop.bench.events import Hello
from gputop.bench.group import apart
from gputop.bench.pairs import ALONE, TOGETHER, cost_percent
from gputop.bench.run_state import RunState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.events import Event
    from gputop.bench.group import Spread
    from gputop.bench.plan import Request, Target
    from gputop.telemetry.snapshot import Problem

DROOP_SECONDS = 10.0
"""A run shorter than this says nothing about droop; as for the worker."""


class GroupState:
    """One run for each device. Of pairs it is the one that is under way, or was the last."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.request = requests[0]
        """What is the same for all: kind, data types and seconds."""
        self.runs = {request.target: RunState(request) for request in requests}
        self.alone: dict[Target, RunState] = {}
        """Of pairs, the runs that have ended and are followed by one together."""
        self.stopping = False
        self._turn: Target | None = None
        """Of pairs, whose run alone it is, or was the last."""
        self.started_at = time.monotonic()

    def take(self, target: Target, event: Event) -> None:
        """Takes in what happened on a device."""
        run = self.runs[target]
        if isinstance(event, Hello):
            self._turn = target
            if run.hello is not None:  # of pairs: the second time
                self.alone[target] = run
                run = self.runs[target] = RunState(run.request)
        run.take(event)

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
    def begun(self) -> bool:
        """Whether products are timed; those of one device wait for those of the others."""
        return any(run.progress or run.rows for run in self.runs.values()) or bool(self.alone)

    def stop(self) -> None:
        """Remembers that all are to be stopped."""
        self.stopping = True
        for run in self.runs.values():
            run.stopping = not run.ended

    @property
    def preparing_seconds(self) -> float:
        """Since the start was asked for."""
        return time.monotonic() - self.started_at

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

    def now(self, target: Target) -> float | None:
        """TFLOP/s, of a run over time."""
        return self.runs[target].tflops_now

    def mean(self, target: Target) -> float | None:
        """TFLOP/s so far, of a run over time; of pairs that of the one together."""
        return self.runs[target].tflops_mean

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
            reached = {point.series: point.values.get("tflops") for point in run.result.points}
            return reached.get(ALONE), reached.get(TOGETHER), cost_percent(run.result)
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
