"""Watches devices while they are under stress, and ends a run that would do one harm.

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
from typing import TYPE_CHECKING, Protocol, Self

from gputop.bench.events import Done
from gputop.bench.plan import limits
from gputop.schema.device import DeviceState
from gputop.schema.snapshot import Inventory, Sample
from gputop.stream.child import StreamChild
from gputop.stream.launch import command

if TYPE_CHECKING:
    from gputop.bench.events import Event
    from gputop.bench.plan.request import Target
    from gputop.bench.run.conditions import Trace
    from gputop.bench.run.session import Session

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


def open_stream() -> StreamChild:
    """The stream that is watched."""
    # With `control` it leaves out GPM, which costs the device something.
    return StreamChild(command(interval=INTERVAL_SECONDS, control=True), INTERVAL_SECONDS)


class Watching(Protocol):
    """What watches the devices of runs."""

    def events(
        self, session: Session, trace: Trace, ending: Callable[[Limit], None]
    ) -> AsyncGenerator[Event]:
        """The session's events, and its device watched meanwhile; close it with `aclosing`."""


class Watch:
    """The thread and its stream, for all runs that are under way together.

    To be made in a running event loop: what it has to say, it says there.
    """

    def __init__(self) -> None:
        self._stream = open_stream()
        self._wards: list[Ward] = []
        self._wanted = asyncio.Event()
        self._outside = asyncio.get_running_loop()
        self._inside = asyncio.new_event_loop()
        self._reading = self._inside.create_task(self._read())
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, without waiting for that."""
        self._do(self._reading.cancel)

    async def events(
        self, session: Session, trace: Trace, ending: Callable[[Limit], None]
    ) -> AsyncGenerator[Event]:
        """The session's events, and its device watched meanwhile; close it with `aclosing`.

        `trace` takes in both, and gives the result its conditions. `ending` is told of a limit, by
        which the session is stopped, or killed where its event loop is held up.
        """
        ward = Ward(session, trace, ending, self._tell)
        self._do(self._add, ward)
        try:
            async with contextlib.aclosing(ward.events()) as events:
                async for event in events:
                    yield event
        finally:
            self._do(self._remove, ward)

    def _do(self, call: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self._inside.call_soon_threadsafe(call, *arguments)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the run with it
            self._outside.call_soon_threadsafe(call, *arguments)

    # What follows is the thread's.

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._inside.run_until_complete(self._reading)
        finally:  # outside of the task, whose end may not cut it short
            self._inside.run_until_complete(self._stream.close())
            self._inside.run_until_complete(self._inside.shutdown_default_executor())
            self._inside.close()

    async def _read(self) -> None:
        await self._wanted.wait()
        try:
            await self._take_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody watches any more
            why = f"{type(error).__name__}: {error}"
            for ward in self._wards:
                ward.end(Limit("silent", "Not watched", why))
            await asyncio.Future()  # until it is cancelled: the wards have timers

    async def _take_all(self) -> None:
        inventory: Inventory | None = None
        async with contextlib.aclosing(self._stream.records()) as records:
            async for record in records:
                if isinstance(record, Inventory):
                    inventory = record
                elif isinstance(record, Sample) and inventory is not None:
                    for ward in self._wards:
                        ward.take(inventory, record)

    def _add(self, ward: Ward) -> None:
        self._wards.append(ward)
        ward.wait(START_SECONDS)
        self._wanted.set()

    def _remove(self, ward: Ward) -> None:
        self._wards.remove(ward)
        ward.wait(None)


class Ward:
    """A run whose device is watched, by the thread that calls all but `events`."""

    def __init__(
        self,
        session: Session,
        trace: Trace,
        ending: Callable[[Limit], None],
        tell: Callable[..., None] = lambda call, *arguments: call(*arguments),
    ) -> None:
        """`tell` has something called in the event loop of the session."""
        self._session, self._trace, self._ending, self._tell = session, trace, ending, tell
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._stops: list[asyncio.Task[None]] = []

    async def events(self) -> AsyncGenerator[Event]:
        """The session's events, of which the trace gives the result its conditions."""
        async with contextlib.aclosing(self._session.events()) as received:
            async for event in received:
                self._trace.take(event)
                if isinstance(event, Done):
                    conditions = self._trace.conditions(event.result)
                    yield Done(replace(event.result, conditions=conditions))
                else:
                    yield event
        await asyncio.gather(*self._stops)

    def take(self, inventory: Inventory, sample: Sample) -> None:
        """A sample: ends the run where it has to end."""
        if self._ended:
            return
        target = self._trace.target
        self._tell(self._trace.look, inventory, sample)
        if why := limits.reached(target, inventory, sample):
            self.end(Limit("limit", "Too hot", why))
        elif answers(target, inventory, sample):
            self.wait(SILENCE_SECONDS)

    def wait(self, seconds: float | None) -> None:
        """Has the run ended unless the device answers within that time; None for no longer."""
        if self._timer is not None:
            self._timer.cancel()
        if seconds is not None and self._trace.target.uuid is not None:
            why = f"nothing was heard of it for {seconds:.0f} s"
            limit = Limit("silent", "Not watched", why)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end, limit)

    def end(self, limit: Limit) -> None:
        """Has the run ended, or its worker killed where that cannot be done in time."""
        if self._ended:
            return
        self._ended = True
        self.wait(None)
        self._tell(self._stop, limit)
        kill = self._session.kill
        self._timer = asyncio.get_running_loop().call_later(HELD_UP_SECONDS, kill)

    def _stop(self, limit: Limit) -> None:
        self._ending(limit)
        self._stops.append(asyncio.create_task(self._session.stop(limit.by)))


def answers(target: Target, inventory: Inventory, sample: Sample) -> bool:
    """Whether the device, or the GPU that it is a part of, has answered of late."""
    device = inventory.device(target.uuid or "")
    readings = sample.device((device and device.parent_uuid) or target.uuid or "")
    if readings is None or readings.age_seconds is None:
        return False
    return readings.state is DeviceState.OK
