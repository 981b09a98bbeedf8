"""Samples on request, for a reader at the end of a slow line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from gputop.agent.snapshot import Inventory, Record, Sample, merge_samples

SILENCE_SECONDS = 120.0
"""Seconds without a request after which the reader counts as gone. A slow line takes 20 s."""


def uptime() -> float:
    """Return the clock of `Sample.uptime_seconds`, which includes suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Pacing:
    """Drops samples that the reader has not requested.

    Pipes, `sshd`, TCP and `ssh` between this process and its reader hold megabytes, so waiting for
    a full pipe is too late: on a line of 64 kbit/s, a host was 67 s behind after 75 s. So a reader
    over ssh requests the next sample when it has read one, and at most one sample is in transit.
    Samples made in the meantime are dropped. Their events and utilization samples, and the newest
    inventory, are sent with the next sample. A reader that never sends a request gets everything.
    """

    def __init__(self, clock: Callable[[], float] = uptime) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._on_its_way = 0
        """Samples that were written and that the reader has not read yet."""
        self._sent_at = clock()
        """Time of the last sample that was sent on request."""
        self._inventory: Inventory | None = None
        self._dropped: Sample | None = None

    def ask(self) -> None:
        """Record that the reader wants the next sample. Any thread may call this.

        The first request comes before the first sample. Each later request comes after the reader
        has read a sample.
        """
        with self._lock:
            if self._asked_at is not None:
                self._on_its_way = max(0, self._on_its_way - 1)
            self._asked_at = self._clock()

    @property
    def reader_is_gone(self) -> bool:
        """True if a sample was sent long ago and no request has come since.

        If the network fails, `sshd` keeps this process for a quarter of an hour.
        """
        with self._lock:
            if self._asked_at is None or self._on_its_way == 0:
                return False
            return self._clock() - self._sent_at > SILENCE_SECONDS

    def select(self, record: Record) -> list[Record]:
        """Return the records to write after this record was made."""
        with self._lock:
            if self._asked_at is None:
                if isinstance(record, Sample):
                    self._on_its_way += 1
                return [record]
            if isinstance(record, Inventory):
                self._inventory = record
                return []
            if self._dropped is not None:
                record = merge_samples(self._dropped, record)
            if self._on_its_way > 0:
                self._dropped = record
                return []
            self._on_its_way = 1
            self._sent_at = self._clock()
            self._dropped = None
            if record.uptime_seconds is not None:
                waited = record.uptime_seconds - self._asked_at
                record = replace(record, waited_seconds=waited)
            if self._inventory is None:
                return [record]
            inventory, self._inventory = self._inventory, None
            return [inventory, record]
