"""Play a recording at its own pace, as a stream with pause and seek."""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.agent.snapshot import Event, Record, Sample

if TYPE_CHECKING:
    from gputop.recording.reader import Recording

SLOWEST, FASTEST = 0.25, 64.0
FRAME_SECONDS = 0.1
"""Seconds between two frames. All samples that become due within a frame are shown together."""
MOST_AT_ONCE = 64
"""Most samples per frame. If more are due, the position stops at the last of these."""
REBUILT_SAMPLES = 300
"""Samples before the target of a seek that refill the charts: five minutes at one a second."""


class Played(NamedTuple):
    """Records that have become due. If `restarted`, they replace everything played before.

    The time of the replay follows them, so they can be iterated only once.
    """

    records: Iterable[Record | Event]
    restarted: bool = False


class Replay:
    """The stream of a recording. Its time is the position, which stops while paused.

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
        """Time of `_clock` when the position last changed."""
        self._record_position: float | None = None
        """Position of the record that is being processed; None between frames."""
        self._wanted: float | None = None
        """Target of a seek after the current frame."""
        self._changed = asyncio.Event()
        self._source = recording.records_from(0)
        self._number = 0
        """Number of the next sample in `_source`."""

    @property
    def position(self) -> float:
        """Current position, or the target of a seek."""
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
        """Return the current time on the scale of positions, for the age of data on screen."""
        if self._record_position is not None:
            return self._record_position
        return self._position

    def pause(self) -> None:
        """Pause or resume. At the end, start again."""
        if self.ended:
            self.paused = False
            self.seek(-self.end)
            return
        self.paused = not self.paused
        self._changed.set()

    def change_speed(self, step: int) -> None:
        """Double the speed, or halve it for a negative `step`."""
        self.speed = max(SLOWEST, min(FASTEST, self.speed * 2.0**step))

    def seek(self, seconds: float) -> None:
        """Move forward or back, within the known part of the recording."""
        self._wanted = max(0.0, min(self.end, self.position + seconds))
        self._changed.set()

    def ask(self, **wanted: Any) -> None:
        """Do nothing: a recording cannot change its settings."""

    async def close(self) -> None:
        """Do nothing: nothing runs outside `records`."""

    async def records(self) -> AsyncGenerator[Played]:
        """Yield records as they become due, forever."""
        while True:
            last = self._advance()
            events: list[Event] = []
            restarted = self._wanted is not None
            if self._wanted is not None:
                last = self._jump(self._wanted)
                events = self._events_before(self._number)
            records: list[tuple[float, Record]] = []
            if last >= self._number:
                records = await asyncio.to_thread(list, self._read(last))
                self._position = min(self._position, self.end)
            if records:
                played = chain(events, self._process(records))
                yield Played(played, restarted)
            else:
                self._record_position = None
            recording = self.recording
            known = len(recording.positions)
            self.ended = recording.is_scanned and self._number >= known
            if not recording.is_scanned:
                await asyncio.to_thread(recording.scan_more)
            elif self.playing:
                await self._wait(FRAME_SECONDS)
            else:
                await self._wait(None)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a pause or seek, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    def _advance(self) -> int:
        """Advance the position by the elapsed time. Return the number of the last due sample."""
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

    def _jump(self, position: float) -> int:
        """Seek to a position. Return the number of its sample; earlier ones refill the charts."""
        last = self.recording.sample_at(position)
        self._number = max(0, last - REBUILT_SAMPLES + 1)
        self._source = self.recording.records_from(self._number)
        self._wanted = None
        # The screen has the old sample until the new ones are read.
        self._record_position = self._position
        self._position = position
        self._moved_at = self._clock()
        return last

    def _events_before(self, first: int) -> list[Event]:
        """Return the events before sample `first`."""
        return [
            event for number, event in self.recording.events if number < first
        ]

    def _read(self, last: int) -> Iterator[tuple[float, Record]]:
        """Yield records with their positions up to sample `last`."""
        while self._number <= last:
            record = next(self._source, None)
            # The file has changed.
            if record is None:
                return
            yield self.recording.positions[self._number], record
            if isinstance(record, Sample):
                self._number += 1

    def _process(
        self, records: Iterable[tuple[float, Record]]
    ) -> Iterator[Record]:
        """Yield the records. While one is processed, `now` returns its position."""
        try:
            for self._record_position, record in records:
                yield record
        finally:
            self._record_position = None
