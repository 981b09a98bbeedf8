"""Stress tests of several devices at once: begun and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Failed, Planned
from gputop.bench.run.conditions import Trace
from gputop.bench.run.session import Session

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.supervision import Limit, Watching
    from gputop.bench.run.worker_launch import Place

    Ending = Callable[[Target, Limit], None]
    """Is told which limit ends the run of which device."""


class Group:
    """Runs that are prepared each by itself and then begin at once. Never used twice.

    No device is in it twice. Whichever fails, the others go on; one alone does not wait.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        traces: Sequence[Trace] | None = None,
        places: Sequence[Place] | None = None,
    ) -> None:
        """`traces`, one for each request, take in what is known of the devices.

        So are `places` where the workers run elsewhere than on this machine.
        """
        self._traces = tuple(traces or (Trace(request.target) for request in requests))
        waits = len(requests) > 1
        if places is None:
            sessions = [Session(request, waits=waits) for request in requests]
        else:
            pairs = zip(requests, places, strict=True)
            sessions = [Session(request, waits=waits, place=place) for request, place in pairs]
        self._sessions = {
            request.target: session for request, session in zip(requests, sessions, strict=True)
        }
        if len(self._sessions) < len(requests):
            raise ValueError("a device is named twice")
        self._preparing = set(self._sessions) if waits else set()

    async def events(self, watch: Watching, ending: Ending) -> AsyncGenerator[tuple[Target, Event]]:
        """What happens on each device; of each the last is a `Done` or a `Failed`.

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
        """Ends all runs, within half a second where the workers listen."""
        await asyncio.gather(*(session.stop(by) for session in self._sessions.values()))

    def kill(self) -> None:
        """Ends all workers at once and without a result, for exits that cannot wait."""
        for session in self._sessions.values():
            session.kill()

    async def _follow(
        self,
        watch: Watching,
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
        """The last one that is ready, or has failed, begins the runs of all."""
        if target in self._preparing:
            self._preparing.remove(target)
            if not self._preparing:
                for session in self._sessions.values():
                    session.go()
