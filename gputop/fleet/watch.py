"""A fleet, watched: asked again and again in a thread of its own, for any number of readers.

A thread, as a large answer takes longer than a key may wait; it lives as long as the watch does,
also where the screens that read it each have an event loop of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gputop.fleet.asking import REFRESH_SECONDS, Asking, stalled
from gputop.fleet.client import SECONDS, AskError, Client
from gputop.fleet.matchers import quoted
from gputop.fleet.model import Fleet, Gpu, Series
from gputop.fleet.parse import Checked, readings_of, result_of, series_by
from gputop.fleet.queries import Scope, all_of

if TYPE_CHECKING:
    from gputop.fleet.places import Places
    from gputop.fleet.server import Server

MOST_POINTS = 240
"""Of a history: about as many as a chart has columns of dots."""
SHORTEST_STEP = 15.0
"""Seconds between two points: seldom is anything scraped more often."""
GRACE_SECONDS = 5.0
"""Longer than the time limits of a refresh, before a reader is told that nothing comes."""

T = TypeVar("T")


class FleetWatch:
    """What a server has scraped of a fleet, now and again."""

    def __init__(
        self,
        server: Server,
        match: str = "",
        interval: float = 10.0,
        *,
        seconds: float = SECONDS,
        refresh_seconds: float = REFRESH_SECONDS,
        at_once: bool = False,
    ) -> None:
        """`seconds` is for one answer, `refresh_seconds` for those of one refresh.

        `at_once` is whether already the first fleet has everything.
        """
        self.interval = interval
        self.match = match
        self.fleet: Fleet | None = None
        """The newest."""
        self._patience = refresh_seconds + GRACE_SECONDS
        client = Client(server, seconds)
        self._asking = Asking(client, match, refresh_seconds, interval=interval, at_once=at_once)
        self._other = Client(server, seconds)
        """For what is asked beside the refreshes, and must not wait for them."""
        self._one_at_a_time = threading.Lock()
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._readers: set[_Reader] = set()

    @property
    def places(self) -> Places:
        """Who is where, as of the newest fleet."""
        return self._asking.picture.places

    @property
    def stale_after(self) -> float:
        """Seconds after which a reading is stale."""
        return self._asking.picture.stale_after

    @property
    def is_complete(self) -> bool:
        """Whether everything was asked once: the first fleets lack what changes seldom."""
        return self._asking.is_complete

    async def fleets(self) -> AsyncGenerator[Fleet]:
        """The fleet as soon as it is known, and again after each refresh, until it is closed.

        What is wrong is in `Fleet.problems`: nothing is raised.
        """
        reader = _Reader(asyncio.get_running_loop())
        self._readers.add(reader)
        self._start()
        seen: Fleet | None = None
        try:
            while not self._closed.is_set():
                if self.fleet is seen:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.new.wait(), self.interval + self._patience)
                    if not reader.new.is_set():
                        yield stalled(seen, self.interval + self._patience)
                        continue
                reader.new.clear()
                newest = self.fleet
                if newest is not None and newest is not seen and not self._closed.is_set():
                    seen = newest
                    yield newest
        finally:
            self._readers.discard(reader)

    def refresh(self) -> None:
        """Asks at once, or once more as soon as the present refresh has ended."""
        self._wanted.set()

    async def history(self, gpu: Gpu, seconds: float) -> tuple[Series, ...]:
        """The readings of a GPU over the last seconds, by one range query; none is `()`.

        Raises `AskError` where it cannot be had.
        """
        found = await self.ranges(f"={quoted(gpu.uuid)}", seconds)
        return tuple(
            Series(name, tuple(t for t, _ in points), tuple(v for _, v in points))
            for (of, name), points in found.items()
            if of == gpu.key and points
        )

    async def ranges(
        self, uuids: str, seconds: float
    ) -> dict[tuple[str, str], list[tuple[float, float]]]:
        """By GPU and reading, numbers with their times; `uuids` is the matcher of the label."""
        step = max(SHORTEST_STEP, seconds / MOST_POINTS)
        end = self.fleet.moment if self.fleet is not None else time.time()
        parameters = {"start": f"{end - seconds:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        data = await self.ask("query_range", {"query": self.all_of(uuids), **parameters})
        return series_by(result_of(data, "matrix") or [], self.places.key_of)

    async def details(self, uuids: str, moment: float) -> dict[str, Checked]:
        """Return all readings of some GPUs at that moment, by GPU; raises `AskError`."""
        asked = {"query": self.all_of(uuids), "time": f"{moment:.3f}"}
        data = await self.ask("query", asked)
        return readings_of(result_of(data, "vector") or [], self.places.key_of)

    def all_of(self, uuids: str) -> str:
        """Return the query for all readings of some GPUs."""
        return all_of(Scope(self.match), uuids)

    async def ask(self, path: str, parameters: dict[str, str]) -> Any:
        """The data of one more question; raises `AskError`."""

        def asked() -> Any:
            with self._one_at_a_time:
                self._other.begin()
                return self._other.ask(path, parameters)[0]

        return await in_thread(asked)

    async def close(self) -> None:
        """Ends what is under way; readers come to their end."""
        self._closed.set()
        self._wanted.set()
        self._asking.client.stop()
        self._other.stop()
        self._tell()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            self._wanted.clear()
            self._publish(self._asking.refresh(self._publish))
            assert self.fleet is not None
            if self.fleet.fresh and not self._asking.is_complete:
                continue  # the rest of what is asked seldom
            self._wanted.wait(max(0.0, self.interval - (time.monotonic() - began)))
        self._asking.client.close()
        self._other.close()

    def _publish(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._tell()

    def _tell(self) -> None:
        for reader in [*self._readers]:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                reader.loop.call_soon_threadsafe(reader.new.set)


class _Reader:
    """Who waits for the next fleet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.new = asyncio.Event()


async def in_thread(function: Callable[[], T]) -> T:
    """What it returns or raises, from a thread that nothing waits for when all ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, failed = None, None
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failed = error
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=run, name="fleet-question", daemon=True).start()
    return await future


__all__ = ["AskError", "FleetWatch"]
