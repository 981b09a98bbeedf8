"""Play a recording at its own pace: a stream like a child's, with pause and seek."""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.agent.snapshot import Event, Record, Sample

if TYPE_CHECKING:
    from gputop.recording.reader import Recording

SLOWEST, FASTEST = 0.25, 64.0
FRAME_SECONDS = 0.1
"""Seconds between two frames. All samples that become due within a frame are shown together."""
MOST_AT_ONCE = 64
"""Samples per frame. If more are due, time waits for them."""
REBUILT_SAMPLES = 300
"""Samples for the charts before a position that was sought: five minutes at one a second."""


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
        recording.scan_more()
        self._source = recording.records()
        self._number = 0
        """Number of the next sample of the source."""

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
        return self.recording.end

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
            else:
                last = self._advance()
                if last >= self._number:
                    records = await asyncio.to_thread(list, self._read(last))
                    yield Played(self._process(records))
            recording = self.recording
            self.ended = recording.is_scanned and self._number == len(
                recording.positions
            )
            if not recording.is_scanned:
                await asyncio.to_thread(recording.scan_more)
            elif self.playing:
                await self._wait(FRAME_SECONDS)
            else:
                await self._wait(None)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a key, that long at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    def _advance(self) -> int:
        """Move the position by the time that has passed; return the last sample that is due."""
        now = self._clock()
        reached = self._position
        if self.playing:
            reached += (now - self._moved_at) * self.speed
        self._moved_at = now
        positions = self.recording.positions
        last = bisect_right(positions, reached) - 1
        most = self._number + MOST_AT_ONCE - 1
        if last > most:
            last = most
            reached = positions[last]
        self._position = min(reached, self.end)
        return last

    def _read(self, last: int) -> Iterator[tuple[float, Record]]:
        """Yield the records up to that sample, or up to a damage, with their positions."""
        while self._number <= last:
            record = next(self._source, None)
            if record is None:
                return
            yield self.recording.positions[self._number], record
            if isinstance(record, Sample):
                self._number += 1

    def _process(self, records: Iterable[tuple[float, Record]]) -> Iterator[Record]:
        """Yield the records. The time is that of each record while it is processed."""
        try:
            for self._record_position, record in records:
                yield record
        finally:
            self._record_position = None
            # The end is earlier if a damage was found.
            self._position = min(self._position, self.end)

    def _jump(self, position: float) -> Played:
        """Go to a position, and return the records that rebuild the state there."""
        last = self.recording.sample_at(position)
        first = max(0, last - REBUILT_SAMPLES + 1)
        self._source = self.recording.records(first)
        self._number = first
        self._wanted = None
        self._position = position
        self._moved_at = self._clock()
        return Played(self._rebuild(first, last), restarted=True)

    def _rebuild(self, first: int, last: int) -> Iterator[Record | Event]:
        """Yield the events before the first sample, and the records up to the last one."""
        for number, event in self.recording.events:
            if number < first:
                yield event
        yield from self._process(self._read(last))
        if self._number == first > 0:
            # The first line is damaged: show what is before it.
            self._wanted = self.end
            self._changed.set()
