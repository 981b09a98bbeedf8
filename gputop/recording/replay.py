"""Play a recording at its own pace: a stream like a child's, with pause and seek."""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.agent.snapshot import Event, Record, Sample

if TYPE_CHECKING:
    from gputop.recording.reader import NumberedRecord, Recording

SLOWEST, FASTEST = 0.25, 64.0
FRAME_SECONDS = 0.1
"""Seconds between two frames. All samples that become due within a frame are shown together."""
MOST_AT_ONCE = 64
"""Samples per frame. If more are due, time waits for them."""
REBUILT_SAMPLES = 300
"""Samples for the charts before a position that was sought: five minutes at one a second."""
EARLIER_EVENTS = 20
"""Samples with events that are read before those: an event is an alert for an hour."""


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

    def __init__(
        self, recording: Recording, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.recording = recording
        self.speed = 1.0
        self.paused = False
        self.ended = False
        self._clock = clock
        self._position = 0.0
        self._moved_at = clock()
        """Time by the clock when the position was last moved."""
        self._record_position: float | None = None
        """Position of the record that is being processed right now."""
        self._wanted: float | None = None
        """Position to seek to, once the current frame is done."""
        self._changed = asyncio.Event()
        self._source = recording.play()
        self._next: NumberedRecord | None = None
        """Next record, already read."""

    @property
    def position(self) -> float:
        """Current position, or the one that it seeks."""
        if self._wanted is not None:
            return self._wanted
        return self._position

    @property
    def playing(self) -> bool:
        """True if it is neither paused nor at the end."""
        return not (self.paused or self.ended)

    @property
    def end(self) -> float:
        """Position of the last known sample."""
        return self.recording.index.end

    def now(self) -> float:
        """Return the time by which data on the screen is new or old."""
        if self._record_position is not None:
            return self._record_position
        return self._position

    def pause(self) -> None:
        """Pause, resume, or at the end start again."""
        if self.ended:
            self.paused = False
            self.seek(-self.end)
            return
        self.paused = not self.paused
        self._changed.set()

    def change_speed(self, step: int) -> None:
        """Double the speed, or halve it for a negative `step`."""
        self.speed = max(SLOWEST, min(FASTEST, self.speed * 2.0**step))
        self._changed.set()

    def seek(self, seconds: float) -> None:
        """Move forward or back, within the known part of the recording."""
        self._wanted = max(0.0, min(self.end, self.position + seconds))
        self._changed.set()

    def ask(self, **wanted: Any) -> None:
        """Do nothing: a recording has only what is in it."""

    async def close(self) -> None:
        """Do nothing: all ends with `records`."""

    async def records(self) -> AsyncGenerator[Played]:
        """Yield what becomes due, forever."""
        while True:
            if self._wanted is not None:
                yield self._jump(self._wanted)
                self._moved_at = self._clock()
                continue
            due = await self._advance()
            if due:
                yield Played(self._process(due))
            if not self.recording.index.complete:
                await asyncio.to_thread(self.recording.extend_index)
            elif self.playing:
                await self._wait(FRAME_SECONDS)
            else:
                await self._wait(None)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a key, that long at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    async def _advance(self) -> list[NumberedRecord]:
        """Move the position by the time that has passed; return what has become due."""
        now = self._clock()
        reached = self._position
        if self.playing:
            reached += (now - self._moved_at) * self.speed
        self._moved_at = now
        due: list[NumberedRecord] = []
        while len(due) < MOST_AT_ONCE:
            if self._next is None:
                self._next = await asyncio.to_thread(next, self._source, None)
            if self._next is None:
                self.ended = True
                self._position = self.end
                return due
            next_position = self.recording.index.positions[self._next.number]
            if next_position > reached:
                self._position = reached
                return due
            due.append(self._next)
            self._next = None
            self._position = next_position
        return due

    def _process(
        self, records: Iterable[NumberedRecord], first: int = 0
    ) -> Iterator[Record | Event]:
        """Yield the records, but only the events of samples before the sample `first`.

        The time is that of each record while it is processed.
        """
        try:
            for number, record in records:
                if isinstance(record, Sample) and number < first:
                    yield from record.events
                    continue
                self._record_position = self.recording.index.positions[number]
                yield record
        finally:
            self._record_position = None
            self._position = min(
                self._position, self.end
            )  # a damage may have been found

    def _jump(self, position: float) -> Played:
        """Go to a position, and return the records that rebuild the state there."""
        index = self.recording.index
        last = index.sample_at(position)
        first = max(0, last - REBUILT_SAMPLES + 1)
        events_end = bisect_left(index.events, first)
        earlier = index.events[max(0, events_end - EARLIER_EVENTS) : events_end]
        self._source = self.recording.play(first, earlier)
        self._next = None
        self._wanted = None
        self._position = position
        self.ended = False
        return Played(self._process(self._read_up_to(last), first), restarted=True)

    def _read_up_to(self, last: int) -> Iterator[NumberedRecord]:
        for numbered in self._source:
            if numbered.number > last:
                self._next = numbered
                return
            yield numbered
