"""Flow control of a stream between two machines, and the difference between their clocks. Pure.

Between `gputop stream` and its reader are a pipe, `sshd`, the kernel and `ssh`, which together keep
megabytes back. On a line that is too slow a sample would wait there for minutes. So the reader
acknowledges each sample, and the sender has at most `IN_FLIGHT` that are not acknowledged.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.schema.snapshot import Inventory, Sample, merge_samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.schema.snapshot import Record

IN_FLIGHT = 2
"""Samples on their way. One would leave the line idle for a round trip after each; more than two
would only wait for each other."""
ACK_SECONDS = 0.25
"""Longest time that an acknowledgement takes on a good line."""
LEAP_SECONDS = 0.05
"""A contradiction of the bounds that means a clock was set. The drift while a sample is on its way,
which the bounds leave out, makes less of a difference."""
DRIFT = 2e-4
"""Seconds per second by which two clocks drift apart at most: 100 ppm each, as without NTP."""


def uptime() -> float:
    """Return the clock of `Sample.uptime_seconds`, which counts the time of a suspension, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Window:
    """Selects what the sender writes. Before `open` is called that is everything.

    A sample that does not fit is dropped. The newest inventory, events, and samples of utilization
    are kept for the next one. `received` may be called by another thread.
    """

    def __init__(self, clock: Callable[[], float] = uptime) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._opened = False
        self._in_flight: deque[float] = deque()
        """Times of the samples, as they are written."""
        self._reader_ahead: float | None = None
        """The reader's clock minus ours, too small by the way of the acknowledgement."""
        self._inventory: Inventory | None = None
        self._dropped: Sample | None = None

    def open(self) -> None:
        """Begins to wait for acknowledgements."""
        self._opened = True

    def received(self, time: float, clock: float) -> None:
        """Notes that the sample of that time, and all before it, arrived; `clock` is the reader's.

        Of a time that is no sample's, such as an inventory's, only the clock is noted.
        """
        with self._lock:
            self._reader_ahead = clock - self._clock()
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
        sample = record if self._dropped is None else merge_samples(self._dropped, record)
        with self._lock:
            if len(self._in_flight) >= IN_FLIGHT:
                self._dropped = sample
                return []
            self._in_flight.append(round(sample.time, 3))  # as it is encoded
            if self._reader_ahead is not None and sample.uptime_seconds is not None:
                echo = sample.uptime_seconds + self._reader_ahead
                sample = replace(sample, echo_seconds=echo)
        inventory, self._inventory, self._dropped = self._inventory, None, None
        return [sample] if inventory is None else [inventory, sample]


class ClockOffset:
    """The reader's clock minus the sender's, as far as the samples tell.

    No sample arrives before it is made: that is an upper bound, too large by the shortest way that
    a sample has had. A sender that hears of the reader's clock gives a lower bound, too small by
    the shortest way that an acknowledgement has had. `ACK_SECONDS` above that is the offset, or
    the upper bound, which is usually smaller: on a line on which every sample is late it is not.
    """

    def __init__(self) -> None:
        self._upper, self._lower = math.inf, -math.inf
        self._theirs = self._now = -math.inf

    def made_at(self, theirs: float, now: float, echo: float | None = None) -> float:
        """Return when a sample that arrives `now` was made, by the reader's clock, never later."""
        upper, lower = now - theirs, -math.inf
        if echo is not None and echo <= now:
            lower = echo - theirs
        drift = DRIFT * (now - self._now)
        known = min(upper, self._upper + drift), max(lower, self._lower - drift)
        # Samples come in order, so a clock that does not go on was set. One that leaps, or stood
        # still with a virtual machine that was paused, is found out by what the bounds say.
        if theirs <= self._theirs or known[1] - known[0] > LEAP_SECONDS:
            known = upper, lower
        (self._upper, self._lower), self._theirs, self._now = known, theirs, now
        offset = self._upper
        if self._lower > -math.inf:
            offset = min(offset, self._lower + ACK_SECONDS)
        return min(now, theirs + offset)  # which rounding could exceed
