"""Runs the workers of a `Run` together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Failed, Planned
from gputop.bench.run.device_runner import DeviceRunner
from gputop.console import INTERRUPTED

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target
    from gputop.bench.run.run import Run

    Hear = Callable[[Target, Event], object]
    """Called with each event of a device, after the `Run` has it."""
    MakeRunner = Callable[..., DeviceRunner]


class Runner:
    """Runs the devices of a `Run` to their ends, once.

    Several devices prepare independently, and then start at the same time. If one fails, the
    others go on, except for ranks of `collective`, which all end.
    """

    def __init__(self, run: Run, make: MakeRunner | None = None) -> None:
        """Set the run. `make` returns the runner of a device, in place of `DeviceRunner`."""
        self.state = run
        self._make = make or DeviceRunner
        self._hear: Hear = lambda *_: None
        self._runners: dict[Target, DeviceRunner] = {}
        """Runners by device, once the run has started."""
        self._preparing: set[Target] = set()

    async def follow(self, hear: Hear | None = None) -> None:
        """Run to the end of each device, and add all events to the `Run`.

        No worker is left afterwards.
        """
        self._hear = hear or self._hear
        if self.state.kind == "collective":
            await self._follow_ranks()
        else:
            await self._together(self._add)

    async def stop(self, by: str = "user") -> None:
        """End all runs, within half a second if the workers respond."""
        stops = [runner.stop(by) for runner in self._runners.values()]
        await asyncio.gather(*stops)

    def kill(self) -> None:
        """Kill all workers without a result, for exits that cannot wait."""
        for runner in self._runners.values():
            runner.kill()

    def _add(self, target: Target, event: Event) -> None:
        self.state.add_event(target, event)
        self._hear(target, event)

    async def _together(self, end: Hear) -> None:
        """Run all devices at the same time. `end` is called with the end of each."""
        requests, memory = self.state.requests, None
        if any(each.ranks and each.rendezvous is None for each in requests):
            # No other user can open a file in memory, and it ends with this process.
            memory = os.memfd_create("gputop-workers")
            path = f"/proc/{os.getpid()}/fd/{memory}"
            requests = [replace(each, rendezvous=path) for each in requests]
        waits = len(requests) > 1
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

        await self._together(end)
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
