"""Play a recording at its own pace: a stream like a child's, with pause and seek."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.schema.snapshot import Event, Record, Sample, load_fast

if TYPE_CHECKING:
    from gputop.recording.reader import NumberedRecord, Recording

SLOWEST, FASTEST = 0.25, 64.0
FRAME_SECONDS = 0.1
"""Seconds between two frames: what becomes due within them is shown together."""
MOST_AT_ONCE = 64
"""Samples per frame; if more are due, time waits for them."""
REBUILT_SAMPLES = 300
"""Samples for the charts before a position that was sought: five minutes at one a second."""
EARLIER_EVENTS = 20
"""Samples with events before those: an event is an alert for an hour."""


class Played(NamedTuple):
    """Records that have become due; `restarted` if everything played before them is void.

    The records are read while they are iterated, once.
    """

    records: Iterable[Record | Event]
    restarted: bool = False


class Replay:
    """The stream of a recording. Its clock is the recording's, and stops while it is paused.

    Positions are in seconds since the first sample.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self.recording = recording
        self.speed = 1.0
        self.paused = False
        self.ended = False
        self._clock = clock
        self._base, self._since = 0.0, clock()
        self._next = 0.0
        """Position of the next sample: time waits for it."""
        self._taking: float | None = None
        """Position of the record that is being processed right now."""
        self._wanted: float | None = None
        """Position to seek to, once the current step is done."""
        self._changed = asyncio.Event()
        self._grown = asyncio.Event()
        self._source = recording.play(0)
        self._ahead: NumberedRecord | None = None
        """Next record, already read."""
        self._closed = False

    @property
    def position(self) -> float:
        """Current position, or the one that it seeks."""
        return min(self._reached, self._next) if self._wanted is None else self._wanted

    @property
    def playing(self) -> bool:
        """True if it is neither paused nor at the end."""
        return not (self.paused or self.ended)

    @property
    def end(self) -> float:
        """Position of the last known sample."""
        return self.recording.index.end

    @property
    def _reached(self) -> float:
        if self.paused:
            return self._base
        return self._base + (self._clock() - self._since) * self.speed

    def now(self) -> float:
        """Return the time by which data on the screen is new or old: not yet one that it seeks."""
        return min(self._reached, self._next) if self._taking is None else self._taking

    def pause(self) -> None:
        """Pause, resume, or at the end start again."""
        if self.ended:
            self.paused = False
            self.seek(-self.end)
            return
        self._rebase(self.position)
        self.paused = not self.paused
        self._changed.set()

    def change_speed(self, step: int) -> None:
        """Double the speed, or halve it for a negative `step`."""
        self._rebase(self.position)
        self.speed = max(SLOWEST, min(FASTEST, self.speed * 2.0**step))
        self._changed.set()

    def seek(self, seconds: float) -> None:
        """Move forward or back, within the known part of the recording."""
        self._wanted = max(0.0, min(self.end, self.position + seconds))
        self._changed.set()

    def ask(self, **wanted: Any) -> None:
        """Do nothing: a recording has only what is in it."""

    async def close(self) -> None:
        """End reading in a thread; all else ends with `records`."""
        self._closed = True

    async def records(self) -> AsyncGenerator[Played]:
        """Yield what becomes due, forever."""
        indexing = asyncio.create_task(self._index())
        shown = -FRAME_SECONDS
        try:
            while True:
                if self._wanted is not None:
                    yield self._jump(self._wanted)
                    continue
                if self._ahead is None:
                    self._ahead = await self._read(indexing)
                self.ended = self._ahead is None
                self._next = self._next_due()
                left = (self._next - self._reached) / self.speed
                left = max(left, shown + FRAME_SECONDS - self._clock())
                if self.ended or self.paused or left > 0:
                    await self._wait(None if self.ended or self.paused else left)
                    continue
                due = await self._due(indexing)
                self._next = self._next_due()
                yield Played(self._played(due))
                shown = self._clock()
        finally:
            indexing.cancel()

    def _rebase(self, position: float) -> None:
        self._base, self._since = position, self._clock()

    def _due_at(self, numbered: NumberedRecord) -> float:
        return self.recording.index.positions[numbered.number]

    def _next_due(self) -> float:
        return self.end if self._ahead is None else self._due_at(self._ahead)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a request, that long at most."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    async def _index(self) -> None:
        try:
            await asyncio.to_thread(load_fast)
            while not self.recording.index.complete:
                await asyncio.to_thread(self.recording.index.extend)
                self._has_grown()
        finally:
            asyncio.get_running_loop().call_soon(self._has_grown)  # once the task is done

    def _has_grown(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def _read(self, indexing: asyncio.Task[None]) -> NumberedRecord | None:
        """Return the next record once its position is known, or None at the end."""
        found = await asyncio.to_thread(next, self._source, None)
        while found is not None and self.recording.index.count <= found.number:
            if indexing.done():
                indexing.result()  # raises what went wrong
                return None
            await self._grown.wait()
        return found

    async def _due(self, indexing: asyncio.Task[None]) -> list[NumberedRecord]:
        reached, due = self._reached, [self._ahead] if self._ahead else []
        while len(due) < MOST_AT_ONCE:
            self._ahead = await self._read(indexing)
            if self._ahead is None or self._due_at(self._ahead) > reached:
                return due
            due.append(self._ahead)
        self._ahead = None
        self._rebase(self._due_at(due[-1]))
        return due

    def _played(self, due: Iterable[NumberedRecord]) -> Iterator[Record]:
        try:
            for numbered in due:
                if self._closed:
                    return
                self._taking = self._due_at(numbered)
                yield numbered.record
        finally:
            self._taking = None

    def _jump(self, position: float) -> Played:
        index = self.recording.index
        last = index.sample_at(position)
        first = max(0, last - REBUILT_SAMPLES + 1)
        self._wanted, self._ahead, self.ended = None, None, False
        self._rebase(position)
        self._next = index.positions[last + 1] if last + 1 < index.count else index.end
        self._source = self.recording.play(first)
        return Played(self._rebuilt(first, last), restarted=True)

    def _rebuilt(self, first: int, last: int) -> Iterator[Record | Event]:
        """Yield the records that rebuild the state at that sample."""
        earlier = [n for n in self.recording.index.events if n < first][-EARLIER_EVENTS:]
        for number in earlier:
            samples = (r for n, r in self.recording.play(number) if isinstance(r, Sample))
            for sample in islice(samples, 1):
                yield from sample.events
        yield from self._played(self._until(last))

    def _until(self, last: int) -> Iterator[NumberedRecord]:
        for numbered in self._source:
            if numbered.number > last:
                self._ahead = numbered
                return
            yield numbered
