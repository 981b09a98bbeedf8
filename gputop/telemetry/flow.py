"""Flow control of a stream between two machines, and the difference between their clocks. Pure.

Between `gputop stream` and its reader are a pipe, `sshd`, the kernel and `ssh`, which together keep
megabytes back. On a line that is too slow a sample would wait there for minutes. So the reader
acknowledges each sample, and the sender has at most `IN_FLIGHT` that are not acknowledged.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.telemetry.once import merged
from gputop.telemetry.snapshot import Inventory, Sample

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Record

IN_FLIGHT = 2
"""Samples on their way. One would leave the line idle for a round trip after each; more than two
would only wait for each other."""
DRIFT = 2e-4
"""Seconds per second by which two clocks drift apart at most: 100 ppm each, as without NTP."""


class Window:
    """Selects what the sender writes. Before `open` is called that is everything.

    A sample that does not fit is dropped. The newest inventory, events, and samples of utilization
    are kept for the next one. `received` may be called by another thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened = False
        self._in_flight: deque[float] = deque()
        """Times of the samples, as they are written."""
        self._echo: float | None = None
        self._inventory: Inventory | None = None
        self._dropped: Sample | None = None

    def open(self) -> None:
        """Begins to wait for acknowledgements."""
        self._opened = True

    def received(self, time: float, clock: float) -> None:
        """Notes that the sample of that time, and all before it, arrived; `clock` is the reader's.

        A time that is not known is ignored, so a reader of another stream does no harm.
        """
        with self._lock:
            self._echo = clock
            if time in self._in_flight:
                while self._in_flight.popleft() != time:
                    pass

    def due(self, record: Record) -> list[Record]:
        """Return what to write now that the record was made."""
        if not self._opened:
            return [record]
        if isinstance(record, Inventory):
            self._inventory = record
            return []
        sample = record if self._dropped is None else merged(self._dropped, record)
        with self._lock:
            if len(self._in_flight) >= IN_FLIGHT:
                self._dropped = sample
                return []
            self._in_flight.append(round(sample.time, 3))  # as it is encoded
            sample = replace(sample, echo_seconds=self._echo)
        inventory, self._inventory, self._dropped = self._inventory, None, None
        return [sample] if inventory is None else [inventory, sample]


class ClockOffset:
    """The reader's clock minus the sender's, as far as the samples tell.

    Every arrival is an upper bound: a sample cannot arrive before it is made. The smallest one is
    kept, and what it exceeds the truth by is the shortest way that a sample has had. It may grow
    by the drift of two clocks. A sample that echoes the reader's clock was made after that moment,
    which is a lower bound: a clock that stood still, as in a virtual machine that was paused, is
    found out by it, and so is one that was set.
    """

    def __init__(self) -> None:
        self._offset: float | None = None
        self._theirs = self._now = 0.0

    def made_at(self, theirs: float, now: float, echo: float | None = None) -> float:
        """Return when a sample that arrives `now` was made, by the reader's clock, never later."""
        offset = now - theirs
        # Samples come in order: a clock that does not go on was set.
        if self._offset is not None and theirs > self._theirs:
            offset = min(offset, self._offset + DRIFT * (now - self._now))
        if echo is not None and echo <= now:
            offset = max(offset, echo - theirs)
        self._offset, self._theirs, self._now = offset, theirs, now
        return min(now, theirs + offset)  # which rounding could exceed
