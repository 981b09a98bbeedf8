"""Runs the workers of a `Run`: all together, or each alone and then all together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Failed, Planned, Result
from gputop.bench.results.pairs import join_results, only_alone
from gputop.bench.run.device_runner import DeviceRunner
from gputop.console import INTERRUPTED

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.run import Run

    Hear = Callable[[Target, Event], object]
    """Called with each event of a device, after the `Run` has it."""
    MakeRunner = Callable[..., DeviceRunner]


class Runner:
    """Runs the devices of a `Run` to their ends, once.

    Several devices prepare independently, and then start at the same time. If one fails, the
    others go on, except for ranks of `collective`, which all end. `pairs` runs each device alone,
    and then those that took their full time together.
    """

    def __init__(self, run: Run, make: MakeRunner | None = None) -> None:
        """Set the run. `make` returns the runner of a device, in place of `DeviceRunner`."""
        self.state = run
        self._make = make or DeviceRunner
        self._hear: Hear = lambda *_: None
        self._runners: dict[Target, DeviceRunner] = {}
        """Runners of the devices that run now."""
        self._preparing: set[Target] = set()
        self._stopped_by: str | None = None

    async def follow(self, hear: Hear | None = None) -> None:
        """Run to the end of each device, and add all events to the `Run`.

        No worker is left afterwards.
        """
        self._hear = hear or self._hear
        if self.state.kind == "pairs":
            await self._follow_pairs()
        elif self.state.kind == "collective":
            await self._follow_ranks()
        else:
            await self._together(self.state.requests, self._add)

    async def stop(self, by: str = "user") -> None:
        """End all runs, within half a second if the workers respond. No other run starts."""
        self._stopped_by = self._stopped_by or by
        stops = [runner.stop(by) for runner in self._runners.values()]
        await asyncio.gather(*stops)

    def kill(self) -> None:
        """Kill all workers without a result, for exits that cannot wait."""
        self._stopped_by = self._stopped_by or "user"
        for runner in self._runners.values():
            runner.kill()

    def _add(self, target: Target, event: Event) -> None:
        self.state.add_event(target, event)
        self._hear(target, event)

    async def _together(self, requests: Sequence[Request], end: Hear) -> None:
        """Run these at the same time. `end` is called with the end of each."""
        memory = None
        if any(each.ranks and each.rendezvous is None for each in requests):
            # No other user can open a file in memory, and it ends with this process.
            memory = os.memfd_create("gputop-workers")
            path = f"/proc/{os.getpid()}/fd/{memory}"
            requests = [replace(each, rendezvous=path) for each in requests]
        waits = len(requests) > 1
        self._runners = {}
        for each in requests:
            device = self.state.devices[each.target]
            self._runners[each.target] = self._make(each, device, waits=waits)
        self._preparing = set(self._runners) if waits else set()
        tasks = []
        for target in self._runners:
            following = self._follow_device(target, end)
            tasks.append(asyncio.create_task(following))
        try:
            # `gather` would cancel the other tasks a second time, while they end.
            ended, _ = await asyncio.wait(
                tasks, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in ended:
                task.result()  # raises unexpected errors
        finally:
            for task in tasks:
                task.cancel()
            if memory is not None:
                os.close(memory)
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_device(self, target: Target, end: Hear) -> None:
        def add(event: Event) -> None:
            if isinstance(event, Done | Failed):
                end(target, event)
            else:
                self._add(target, event)
            if isinstance(event, Planned | Done | Failed):
                self._begin_if_ready(target)

        await self._runners[target].run(add)

    def _begin_if_ready(self, target: Target) -> None:
        """Begin all planned runs once the last device is ready, or has ended."""
        if target not in self._preparing:
            return
        self._preparing.remove(target)
        if not self._preparing:
            for runner in self._runners.values():
                runner.begin()

    async def _follow_ranks(self) -> None:
        """Run all ranks. If one fails or ends early, all others end for the same reason."""
        ends: dict[Target, Done | Failed] = {}
        stops: list[asyncio.Task[None]] = []

        def end(target: Target, event: Event) -> None:
            assert isinstance(event, Done | Failed)
            ends[target] = event
            by = event.result.stopped if isinstance(event, Done) else "user"
            if not stops and (by != "time" or isinstance(event, Failed)):
                stops.append(asyncio.create_task(self.stop(by)))

        await self._together(self.state.requests, end)
        await asyncio.gather(*stops)
        failed = self._failure(ends)
        for target, event in ends.items():
            self._add(target, failed or event)

    def _failure(self, ends: Mapping[Target, Done | Failed]) -> Failed | None:
        """Return the failure of the first failed rank, with the name of the rank that caused it."""
        failed = []
        for target, end in ends.items():
            if isinstance(end, Failed):
                failed.append((target, end))
        if not failed or failed[0][1].status == INTERRUPTED:
            return None
        target, first = failed[0]
        why = first.problem.why
        stuck = [each for each, one in self._runners.items() if one.was_stuck]
        if (
            stuck and target not in stuck
        ):  # the first one only waited for the stuck rank
            target, why = stuck[0], "it does not answer any more"
        if target.label not in first.problem.what:
            why = f"{target.label}: {why}"
        return replace(first, problem=replace(first.problem, why=why))

    async def _follow_pairs(self) -> None:
        """Run each device alone, and then together. The seconds of the run cover all parts."""
        alone: dict[Target, Result] = {}
        fit: list[Request] = []
        for request in self.state.requests:
            result = await self._run_alone(request)
            if result is None:
                continue
            if result.stopped == "time" and not result.wrong_elements:
                alone[request.target] = result
                fit.append(self._part(request, result.n))
            else:
                why = "its run alone did not take its time"
                self._add(request.target, Done(only_alone(result, why)))
        if len(fit) < 2 or self._stopped_by is not None:
            for target, result in alone.items():
                self._add(target, self._end_alone(result))
            return

        def end(target: Target, event: Event) -> None:
            if isinstance(event, Done):
                result = self.state.devices[target].completed(event.result)
                event = Done(join_results(alone[target], result, len(fit)))
            self._add(target, event)

        self.state.begin_together(alone)
        await self._together(fit, end)

    async def _run_alone(self, request: Request) -> Result | None:
        """Run a device of `pairs` alone. Return its result, or None if that is its end."""
        target = request.target
        if self._stopped_by is not None:
            self._add(target, _not_begun())
            return None
        results = []

        def end(target: Target, event: Event) -> None:
            if isinstance(event, Done):
                device = self.state.devices[target]
                results.append(device.completed(event.result))
            else:
                self._add(target, event)

        await self._together([self._part(request, request.size)], end)
        return results[0] if results else None

    def _part(self, request: Request, size: int | None) -> Request:
        seconds = self.state.part_seconds
        return replace(request, kind="soak", seconds=seconds, size=size)

    def _end_alone(self, result: Result) -> Done:
        """Return the end of a device that has no other device to run with."""
        if self._stopped_by is None:
            return Done(only_alone(result, "no other device was left"))
        stopped = replace(result, stopped=self._stopped_by)
        return Done(only_alone(stopped, "it was stopped"))


def _not_begun() -> Failed:
    why = "this device had not begun"
    remedy = "Start it again to have a result"
    problem = Problem("The stress test was stopped", why, remedy)
    return Failed(problem, INTERRUPTED)
