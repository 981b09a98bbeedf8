"""`pairs`: the same work on each device alone, and then on all at once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Failed, Point, Result
from gputop.bench.results.compare import ALONE, TOGETHER, rates_of_pair
from gputop.bench.run.group import Group
from gputop.console import INTERRUPTED
from gputop.problem import Problem
from gputop.text import percentage

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.group import Ending
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.places import Place
    from gputop.bench.run.watch import Watching


class Pairs:
    """All runs of it, one after the other. Never used twice.

    The seconds of the requests, which are the same, are those of all runs in sequence. A device
    that fails alone, or is ended before its time, is not run together with the others.
    """

    def __init__(self, state: GroupState) -> None:
        """`state` is told when the runs together begin; who follows the events keeps it."""
        self._state, seconds = state, state.part_seconds
        self._requests = [replace(each, kind="soak", seconds=seconds) for each in state.requests]
        self._now: Group | None = None
        self._stopped_by: str | None = None
        self._alone: dict[Target, Result] = {}

    async def events(self, watch: Watching, ending: Ending) -> AsyncGenerator[tuple[Target, Event]]:
        """As `Group.events`; to be closed in the same way."""
        fit: list[Request] = []
        for request in self._requests:
            async with contextlib.aclosing(self._run([request], watch, ending)) as events:
                async for target, event in events:
                    if not isinstance(event, Done):
                        yield target, event
                        continue
                    result = self._alone[target] = event.result
                    if result.stopped == "time" and not result.wrong_elements:
                        fit.append(replace(request, size=result.n))
                    else:
                        yield target, Done(_only_alone(result, "its run alone was not a whole one"))
        if len(fit) < 2 or self._stopped_by is not None:
            for request in fit:
                result = self._alone[request.target]
                by = self._stopped_by or result.stopped
                why = "no other device was left" if self._stopped_by is None else "it was stopped"
                yield request.target, Done(_only_alone(replace(result, stopped=by), why))
            return
        self._state.begin_together([request.target for request in fit])
        async with contextlib.aclosing(self._run(fit, watch, ending)) as events:
            async for target, event in events:
                if isinstance(event, Done):
                    result = _joined(self._alone[target], event.result, len(fit))
                    yield target, Done(result)
                else:
                    yield target, event

    async def stop(self, by: str = "user") -> None:
        """Ends the run that is under way, within half a second; no other one begins."""
        self._stopped_by = self._stopped_by or by
        if self._now is not None:
            await self._now.stop(by)

    def kill(self) -> None:
        """Ends all workers at once and without a result, for exits that cannot wait."""
        self._stopped_by = self._stopped_by or "user"
        if self._now is not None:
            self._now.kill()

    async def _run(
        self, requests: Sequence[Request], watch: Watching, ending: Ending
    ) -> AsyncGenerator[tuple[Target, Event]]:
        if self._stopped_by is not None:
            for request in requests:
                yield request.target, Failed(_NOT_BEGUN, INTERRUPTED)
            return
        self._now = Group(requests, [self._state.runs[each.target].trace for each in requests])
        async with contextlib.aclosing(self._now.events(watch, ending)) as events:
            async for each in events:
                yield each


_NOT_BEGUN = Problem(
    "The stress test was stopped", "this device had not begun", "Start it again to have a result"
)


def _joined(alone: Result, together: Result, devices: int) -> Result:
    """Both runs of a device as one result, whose mean is the one together."""
    rows = (_row(ALONE, alone, 1), _row(TOGETHER, together, devices))
    compared = None
    if alone.verified_products is not None and together.verified_products is not None:
        compared = alone.verified_products + together.verified_products
    result = replace(
        together,
        kind="pairs",
        points=rows,
        tflops_peak=max(row.values["tflops"] for row in rows),
        started_at=alone.started_at,
        seconds=alone.seconds + together.seconds,
        iterations=alone.iterations + together.iterations,
        checks=alone.checks + together.checks,
        wrong_elements=alone.wrong_elements + together.wrong_elements,
        verified_products=compared,
        method=f"alone, then {devices} devices at once; {together.method}",
        notes=together.notes,
    )
    cost = rates_of_pair(result)[2] or 0.0
    word = "costs" if cost >= 0 else "gains"
    share = percentage(abs(cost), digits=1)
    said = f"running together {word} {share} of {rows[0].values['tflops']:.4g} TFLOP/s"
    return replace(result, notes=(*result.notes, said))


def _only_alone(result: Result, why: str) -> Result:
    return replace(
        result,
        kind="pairs",
        points=(_row(ALONE, result, 1),),
        notes=(*result.notes, f"not run together: {why}"),
    )


def _row(series: str, result: Result, devices: int) -> Point:
    """x is how many devices ran at once."""
    mean = result.tflops_mean or 0.0
    shape = (result.m, result.n, result.k)
    return Point(series, devices, {"tflops": mean, "seconds": result.seconds}, shape)


def runner(state: GroupState, places: Sequence[Place] | None = None) -> Group | Pairs:
    """What runs the requests of a group; `places` where that is elsewhere than on this machine."""
    if state.kind == "pairs":
        return Pairs(state)
    return Group(state.requests, state.traces, places)
