"""Watches a device while it is under stress, and ends the run that would do it harm.

It does so in a thread of its own, with a stream of its own: a terminal that takes no more holds up
the event loop that draws on it, and a picture that is paused, or has a sample a minute, is not to
be what a limit depends on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputop.bench import limits
from gputop.bench.events import Done
from gputop.telemetry.child import StreamChild, command
from gputop.telemetry.snapshot import DeviceState, Inventory, Sample

if TYPE_CHECKING:
    from gputop.bench.conditions import Trace
    from gputop.bench.events import Event
    from gputop.bench.plan import Target
    from gputop.bench.session import Session

INTERVAL_SECONDS = 1.0
START_SECONDS = 30.0
"""Until the stream has to know the device: a driver may take long to start."""
SILENCE_SECONDS = 20.0
"""The oldest that the last answer of the device may be: enough to start a sampler again."""
HELD_UP_SECONDS = 3.0
"""After a limit was said, until the worker is killed: longer than a session takes to stop it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Why a run is ended before its time. `by` is the result's `stopped`."""

    by: str
    """`limit` where it is too hot, `silent` where nothing is heard of it any more."""
    title: str
    why: str


async def events(
    session: Session, trace: Trace, ending: Callable[[Limit], None]
) -> AsyncGenerator[Event]:
    """The events of the session, and its device watched meanwhile; close it with `aclosing`.

    `trace` takes in both, and gives the result its conditions. `ending` is told of a limit, by
    which the session is stopped, or killed where this event loop is held up.
    """
    stops: list[asyncio.Task[None]] = []

    def end(limit: Limit) -> None:
        ending(limit)
        stops.append(asyncio.create_task(session.stop(limit.by)))

    watch = _Watch(trace.target, trace.look, end, session.kill)
    watch.start()
    try:
        async with contextlib.aclosing(session.events()) as received:
            async for event in received:
                trace.take(event)
                if isinstance(event, Done):
                    conditions = trace.conditions(event.result)
                    yield Done(replace(event.result, conditions=conditions))
                else:
                    yield event
        await asyncio.gather(*stops)
    finally:
        watch.close()


def open_stream() -> StreamChild:
    """The stream that is watched."""
    # With `control` it leaves out GPM, which costs the device something.
    return StreamChild(command(interval=INTERVAL_SECONDS, control=True), INTERVAL_SECONDS)


class _Watch:
    """The thread. What it has to say, it says in the event loop that made it."""

    def __init__(
        self,
        target: Target,
        look: Callable[[Inventory, Sample], None],
        end: Callable[[Limit], None],
        kill: Callable[[], None],
    ) -> None:
        self._target, self._look, self._end, self._kill = target, look, end, kill
        self._stream = open_stream()
        self._outside = asyncio.get_running_loop()
        self._inside = asyncio.new_event_loop()
        self._task = self._inside.create_task(self._watch())
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends it, and its stream, without waiting for either."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._inside.call_soon_threadsafe(self._task.cancel)

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._inside.run_until_complete(self._task)
        finally:  # outside of the task, whose end may not cut it short
            self._inside.run_until_complete(self._stream.close())
            self._inside.run_until_complete(self._inside.shutdown_default_executor())
            self._inside.close()

    async def _watch(self) -> None:
        self._tell(self._end, await self._until_limit())
        await asyncio.sleep(HELD_UP_SECONDS)
        self._kill()

    async def _until_limit(self) -> Limit:
        """Reads the stream until the run has to end."""
        target, inventory = self._target, None
        loop = asyncio.get_running_loop()
        watched = target.uuid is not None
        seconds = START_SECONDS
        try:
            async with (
                asyncio.timeout(seconds if watched else None) as patience,
                contextlib.aclosing(self._stream.records()) as records,
            ):
                async for record in records:
                    if isinstance(record, Inventory):
                        inventory = record
                    elif isinstance(record, Sample) and inventory is not None:
                        self._tell(self._look, inventory, record)
                        if why := limits.reached(target, inventory, record):
                            return Limit("limit", "Too hot", why)
                        if watched and answers(target, inventory, record):
                            seconds = SILENCE_SECONDS
                            patience.reschedule(loop.time() + seconds)
        except TimeoutError:
            pass
        return Limit("silent", "Not watched", f"nothing was heard of it for {seconds:.0f} s")

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the run with it
            self._outside.call_soon_threadsafe(call, *arguments)


def answers(target: Target, inventory: Inventory, sample: Sample) -> bool:
    """Whether the device, or the GPU that it is a part of, has answered of late."""
    device = inventory.device(target.uuid or "")
    readings = sample.device((device and device.parent_uuid) or target.uuid or "")
    if readings is None or readings.age_seconds is None:
        return False
    return readings.state is DeviceState.OK
