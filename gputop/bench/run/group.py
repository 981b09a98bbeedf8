"""Stress tests of several devices: begun and stopped together, or alone and then together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Failed, Planned, Point, Result
from gputop.bench.results.compare import ALONE, TOGETHER, rates_of_pair
from gputop.bench.run.conditions import Trace
from gputop.bench.run.session import Session
from gputop.console import INTERRUPTED
from gputop.problem import Problem
from gputop.text import percentage

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.supervision import RunLimit, Supervision
    from gputop.bench.run.worker_launch import Launcher


if TYPE_CHECKING:
    Ending = Callable[[Target, RunLimit], None]
    """Called with the limit that ends the run of a device."""


class DeviceGroup:
    """Runs that prepare each by itself and then begin at once. Never used twice.

    Each device occurs once. If one fails the others go on; a single one does not wait.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        traces: Sequence[Trace] | None = None,
        launchers: Sequence[Launcher] | None = None,
    ) -> None:
        """Set `traces`, one per request, and `launchers` for workers on other machines."""
        self._traces = tuple(traces or (Trace(request.target) for request in requests))
        waits = len(requests) > 1
        given: Sequence[Launcher | None] = launchers or [None] * len(requests)
        pairs = zip(requests, given, strict=True)
        self._sessions = {
            request.target: Session(request, waits=waits, launcher=launcher)
            for request, launcher in pairs
        }
        if len(self._sessions) < len(requests):
            raise ValueError("a device is named twice")
        self._preparing = set(self._sessions) if waits else set()

    async def events(
        self, watch: Supervision, ending: Ending
    ) -> AsyncGenerator[tuple[Target, Event]]:
        """Yield the events of each device, whose last is a `Done` or a `Failed`.

        However the iteration ends, no worker is left: close it with `contextlib.aclosing`.
        """
        queue: asyncio.Queue[tuple[Target, Event] | asyncio.Task[None]] = asyncio.Queue()
        tasks = [
            asyncio.create_task(self._follow(watch, trace, ending, queue.put_nowait))
            for trace in self._traces
        ]
        for task in tasks:
            task.add_done_callback(queue.put_nowait)
        try:
            left = len(tasks)
            while left:
                happened = await queue.get()
                if isinstance(happened, tuple):
                    yield happened
                else:
                    happened.result()  # raises what nobody foresaw
                    left -= 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self, by: str = "user") -> None:
        """End all runs, within half a second if the workers respond."""
        await asyncio.gather(*(session.stop(by) for session in self._sessions.values()))

    def kill(self) -> None:
        """Kill all workers without a result, for exits that cannot wait."""
        for session in self._sessions.values():
            session.kill()

    async def _follow(
        self,
        watch: Supervision,
        trace: Trace,
        ending: Ending,
        take: Callable[[tuple[Target, Event]], None],
    ) -> None:
        target = trace.target
        received = watch.events(self._sessions[target], trace, partial(ending, target))
        async with contextlib.aclosing(received) as events:
            async for event in events:
                take((target, event))
                if isinstance(event, Planned | Done | Failed):
                    self._is_ready(target)

    def _is_ready(self, target: Target) -> None:
        """Begin all runs once the last device is ready or has failed."""
        if target in self._preparing:
            self._preparing.remove(target)
            if not self._preparing:
                for session in self._sessions.values():
                    session.begin()


class Pairs:
    """The runs of `pairs`: each device alone, then all at once. Never used twice.

    The seconds of the requests cover all runs in sequence. A device that fails alone, or is ended
    early, is not run together with the others.
    """

    def __init__(self, state: GroupState) -> None:
        """Set the state, which learns when the runs together begin."""
        self._state, seconds = state, state.part_seconds
        self._requests = [replace(each, kind="soak", seconds=seconds) for each in state.requests]
        self._now: DeviceGroup | None = None
        self._stopped_by: str | None = None
        self._alone: dict[Target, Result] = {}

    async def events(
        self, watch: Supervision, ending: Ending
    ) -> AsyncGenerator[tuple[Target, Event]]:
        """Yield events as `DeviceGroup.events` does."""
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
                        yield (
                            target,
                            Done(_only_alone(result, "its run alone did not take its time")),
                        )
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
                    result = _join_results(self._alone[target], event.result, len(fit))
                    yield target, Done(result)
                else:
                    yield target, event

    async def stop(self, by: str = "user") -> None:
        """End the current run within half a second, and begin no other."""
        self._stopped_by = self._stopped_by or by
        if self._now is not None:
            await self._now.stop(by)

    def kill(self) -> None:
        """Kill all workers without a result, for exits that cannot wait."""
        self._stopped_by = self._stopped_by or "user"
        if self._now is not None:
            self._now.kill()

    async def _run(
        self, requests: Sequence[Request], watch: Supervision, ending: Ending
    ) -> AsyncGenerator[tuple[Target, Event]]:
        if self._stopped_by is not None:
            for request in requests:
                yield request.target, Failed(_NOT_BEGUN, INTERRUPTED)
            return
        self._now = DeviceGroup(
            requests, [self._state.runs[each.target].trace for each in requests]
        )
        async with contextlib.aclosing(self._now.events(watch, ending)) as events:
            async for each in events:
                yield each


_NOT_BEGUN = Problem(
    "The stress test was stopped", "this device had not begun", "Start it again to have a result"
)


def _join_results(alone: Result, together: Result, devices: int) -> Result:
    """Return both runs of a device as one result, with the mean of the one together."""
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
    """Return a row whose x is the number of devices that ran at once."""
    mean = result.tflops_mean or 0.0
    shape = (result.m, result.n, result.k)
    return Point(series, devices, {"tflops": mean, "seconds": result.seconds}, shape)


def group_runner(state: GroupState) -> DeviceGroup | Pairs:
    """Return the runner of a group on this machine."""
    return Pairs(state) if state.kind == "pairs" else DeviceGroup(state.requests, state.traces)
