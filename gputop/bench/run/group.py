"""Stress tests of several devices: begun and stopped together, or alone and then together."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.problem import Problem
from gputop.bench.events import (
    Conditions,
    Done,
    Event,
    Failed,
    Planned,
    Point,
    Result,
)
from gputop.bench.results.measures import ALONE, TOGETHER, rates_of_pair
from gputop.bench.run.session import Session
from gputop.console import INTERRUPTED
from gputop.text import percentage

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.run import Run

    Take = Callable[[Target, Event], None]
    """Called with each event of a device."""
    MakeSession = Callable[..., Session]


class DeviceGroup:
    """Runs that prepare each by itself and then begin at once. Never used twice.

    Each device occurs once. If one fails the others go on; a single one does not wait.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        make: MakeSession | None = None,
    ) -> None:
        """Set the requests; `make` makes sessions of another sort."""
        waits, make = len(requests) > 1, make or Session
        self._file: int | None = None
        if any(each.ranks and each.rendezvous is None for each in requests):
            # In memory, where no other user can open it, and it ends with this process.
            self._file = os.memfd_create("gputop-workers")
            path = f"/proc/{os.getpid()}/fd/{self._file}"
            requests = [replace(each, rendezvous=path) for each in requests]
        self._sessions = {
            each.target: make(each, waits=waits) for each in requests
        }
        if len(self._sessions) < len(requests):
            raise ValueError("a device is named twice")
        self._preparing = set(self._sessions) if waits else set()
        self._ready: list[Session] = []

    async def follow(self, take: Take) -> None:
        """Follow all runs; the last event of each device is a `Done` or a `Failed`.

        However it ends, no worker is left.
        """
        tasks = [
            asyncio.create_task(self._follow(target, session, take))
            for target, session in self._sessions.items()
        ]
        try:
            # Not `gather`: it would cancel the others twice, in the middle of their ends.
            ended, _ = await asyncio.wait(
                tasks, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in ended:
                task.result()  # raises what nobody foresaw
        finally:
            for task in tasks:
                task.cancel()
            if self._file is not None:
                os.close(self._file)
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self, by: str = "user") -> None:
        """End all runs, within half a second if the workers respond."""
        await asyncio.gather(
            *(session.stop(by) for session in self._sessions.values())
        )

    def kill(self) -> None:
        """Kill all workers without a result, for exits that cannot wait."""
        for session in self._sessions.values():
            session.kill()

    async def _follow(
        self,
        target: Target,
        session: Session,
        take: Take,
    ) -> None:
        async with contextlib.aclosing(session.events()) as received:
            async for event in received:
                take(target, event)
                if isinstance(event, Planned | Done | Failed):
                    self._begin_if_ready(target, session, event)

    def _begin_if_ready(
        self,
        target: Target,
        session: Session,
        event: Event,
    ) -> None:
        """Begin all planned runs once the last device is ready, or has failed."""
        if target in self._preparing:
            self._preparing.remove(target)
            if isinstance(event, Planned):
                self._ready.append(session)
            if not self._preparing:
                for each in self._ready:
                    each.begin()


class Collective(DeviceGroup):
    """The ranks of `collective`. Where one fails or is ended early, all end. Never used twice."""

    async def follow(self, take: Take) -> None:
        """Follow all ranks; what one of them failed by is the end of all."""
        ends: dict[Target, Done | Failed] = {}
        stops: list[asyncio.Task[None]] = []

        def received(target: Target, event: Event) -> None:
            if not isinstance(event, Done | Failed):
                take(target, event)
                return
            ends[target] = event
            by = event.result.stopped if isinstance(event, Done) else "user"
            if not stops and (by != "time" or isinstance(event, Failed)):
                stops.append(asyncio.create_task(self.stop(by)))

        await super().follow(received)
        await asyncio.gather(*stops)
        failed = self._failure(ends)
        for target, event in ends.items():
            take(target, failed or event)

    def _failure(self, ends: Mapping[Target, Done | Failed]) -> Failed | None:
        """Return what the first rank failed by, with the name of the one that is to blame."""
        failed = []
        for target, end in ends.items():
            if isinstance(end, Failed):
                failed.append((target, end))
        if not failed or failed[0][1].status == INTERRUPTED:
            return None
        target, first = failed[0]
        why = first.problem.why
        stuck = [each for each, one in self._sessions.items() if one.was_stuck]
        if stuck and target not in stuck:  # the first only waited for it
            target, why = stuck[0], "it does not answer any more"
        if target.label not in first.problem.what:
            why = f"{target.label}: {why}"
        return replace(first, problem=replace(first.problem, why=why))


class Pairs:
    """The runs of `pairs`: each device alone, then all at once. Never used twice.

    The seconds of the requests cover all runs in sequence. A device that fails alone, or is ended
    early, is not run together with the others.
    """

    def __init__(self, state: Run, make: MakeSession | None = None) -> None:
        """Set the state, which learns when the runs together begin."""
        self._state, self._make, seconds = state, make, state.part_seconds
        self._requests = [
            replace(each, kind="soak", seconds=seconds)
            for each in state.requests
        ]
        self._now: DeviceGroup | None = None
        self._stopped_by: str | None = None
        self._alone: dict[Target, Result] = {}

    async def follow(self, take: Take) -> None:
        """Follow all runs as `DeviceGroup.follow` does."""

        def alone(target: Target, event: Event) -> None:
            if isinstance(event, Done):
                self._alone[target] = self._completed(target, event)
            else:
                take(target, event)

        def together(target: Target, event: Event) -> None:
            if isinstance(event, Done):
                result = self._completed(target, event)
                event = Done(
                    _join_results(self._alone[target], result, len(fit))
                )
            take(target, event)

        fit: list[Request] = []
        for request in self._requests:
            await self._run([request], alone)
            result = self._alone.get(request.target)
            if result is None:
                continue
            if result.stopped == "time" and not result.wrong_elements:
                fit.append(replace(request, size=result.n))
            else:
                why = "its run alone did not take its time"
                take(request.target, Done(_only_alone(result, why)))
        if len(fit) < 2 or self._stopped_by is not None:
            for request in fit:
                take(request.target, self._end_alone(request.target))
            return
        self._state.begin_together([request.target for request in fit])
        await self._run(fit, together)

    def _end_alone(self, target: Target) -> Done:
        """Return the end of a device that has nothing to run together with."""
        result = self._alone[target]
        if self._stopped_by is None:
            return Done(_only_alone(result, "no other device was left"))
        stopped = replace(result, stopped=self._stopped_by)
        return Done(_only_alone(stopped, "it was stopped"))

    def _completed(self, target: Target, end: Done) -> Result:
        return self._state.devices[target].completed(end.result)

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

    async def _run(self, requests: Sequence[Request], take: Take) -> None:
        if self._stopped_by is not None:
            why, remedy = (
                "this device had not begun",
                "Start it again to have a result",
            )
            for request in requests:
                problem = Problem("The stress test was stopped", why, remedy)
                take(request.target, Failed(problem, INTERRUPTED))
            return
        self._now = DeviceGroup(requests, self._make)
        await self._now.follow(take)


def _join_results(
    alone: Result,
    together: Result,
    devices: int,
) -> Result:
    rows = (_row(ALONE, alone, 1), _row(TOGETHER, together, devices))
    compared = None
    if (
        alone.verified_products is not None
        and together.verified_products is not None
    ):
        compared = alone.verified_products + together.verified_products
    cost = rates_of_pair(rows)[2] or 0.0
    word, share = (
        "costs" if cost >= 0 else "gains",
        percentage(abs(cost), digits=1),
    )
    said = f"running together {word} {share} of {rows[0].values['tflops']:.4g} TFLOP/s"
    return replace(
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
        conditions=_join_conditions(alone.conditions, together.conditions),
        mismatches=dict(
            Counter(alone.mismatches) + Counter(together.mismatches)
        ),
        method=f"alone, then {devices} devices at once; {together.method}",
        notes=(*together.notes, said),
    )


def _join_conditions(
    alone: Conditions | None, together: Conditions | None
) -> Conditions | None:
    """Return the conditions of the run together, with what happened to the device in either."""
    if alone is None or together is None:
        return together or alone
    before, after = alone.memory_errors, together.memory_errors
    errors = {}
    for name in {**before, **after}:
        first = before.get(name) or after[name]
        last = after.get(name) or before[name]
        errors[name] = (first[0], last[-1])
    celsius = (alone.temperature_celsius_max, together.temperature_celsius_max)
    known = [each for each in celsius if each is not None]
    held = Counter(alone.clock_event_seconds) + Counter(
        together.clock_event_seconds
    )
    return replace(
        together,
        temperature_celsius_max=max(known, default=None),
        clock_event_seconds=dict(held),
        clock_events_known=alone.clock_events_known
        or together.clock_events_known,
        memory_errors=errors,
        other_load=tuple(
            dict.fromkeys((*alone.other_load, *together.other_load))
        ),
    )


def _only_alone(result: Result, why: str) -> Result:
    notes, rows = (
        (*result.notes, f"not run together: {why}"),
        (_row(ALONE, result, 1),),
    )
    return replace(
        result,
        kind="pairs",
        points=rows,
        notes=notes,
    )


def _row(
    series: str,
    result: Result,
    devices: int,
) -> Point:
    """Return a row whose x is the number of devices that ran at once."""
    mean = result.tflops_mean or 0.0
    shape = (result.m, result.n, result.k)
    return Point(
        series, devices, {"tflops": mean, "seconds": result.seconds}, shape
    )


def group_runner(
    state: Run, make: MakeSession | None = None
) -> DeviceGroup | Pairs:
    """Return the runner of a group on this machine, with sessions that `make` makes if given."""
    if state.kind == "pairs":
        return Pairs(state, make)
    runner = Collective if state.kind == "collective" else DeviceGroup
    return runner(state.requests, make)
