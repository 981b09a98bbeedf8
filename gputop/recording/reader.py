"""Read a recording: its records in order, from the start or from any sample.

A recording is JSON lines, plain or gzip. The first damaged line and all lines after it are left
out.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import weakref
import zlib
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, cast

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import EVENTS, Event, Inventory, Record, Sample
from gputop.schema.decode import Head, NewerSchemaError, decode, read_head
from gputop.schema.limits import LINE_BYTES, DecodeError, check
from gputop.text import moment

GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 16
LINES_AT_ONCE = 200
LONGEST_STEP_SECONDS = 3600.0
"""Longest step between two samples. A longer one is a break, or a wrong clock."""
MOST_EVENTS = 10_000
"""Maximum number of events kept for seeks: the newest ones."""
MAKE_ONE = (
    "Make one with `gputop stream --output FILE.jsonl.gz`, or with r in the dashboard"
)
NO_SAMPLE = "it has no sample that can be read"
UNREADABLE = (OSError, EOFError, zlib.error, DecodeError)
"""Errors of the disk, of gzip data, and of lines that are not records."""


class RecordingError(ProblemError):
    """The file cannot be played."""

    def __init__(
        self,
        path: Path,
        why: str,
        remedy: str = MAKE_ONE,
    ) -> None:
        super().__init__(Problem(f"{path} cannot be played", why, remedy))


def open_content(path: Path) -> BinaryIO:
    """Open a recording's decompressed content. Raises `OSError`, or `RecordingError`."""
    # Check before opening, because opening a device can have effects.
    if not stat.S_ISREG(path.stat().st_mode):
        raise RecordingError(path, "it is not a file")
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    if not file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
        return file
    file.close()
    return cast("BinaryIO", gzip.open(path))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without blocking: it may have been replaced by a pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without their newlines. Raises the errors in `UNREADABLE`.

    Truncated gzip data is not an error: the writer may have been killed, or may still be writing.
    """
    rest = b""
    with contextlib.suppress(EOFError):
        while data := cast("gzip.GzipFile", file).read1(CHUNK_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if len(rest) > LINE_BYTES:
                raise DecodeError("the line is too long")
    if rest:
        yield rest


class Recording:
    """A recording on disk. Raises `RecordingError` if the file is not a recording.

    `records` reads the file once, from its start. Seeks need a scan of the file, in steps with
    `scan_more`, which stores the position and the offset of each sample.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ending: str | None = None
        """Why and where reading ends before the end of the file: `damaged at line 102; …`."""
        self.positions = array("d")
        """Seconds from the first sample to each scanned sample. A step back in time counts as 0."""
        self.events: deque[tuple[int, Event]] = deque(maxlen=MOST_EVENTS)
        """Scanned events with the numbers of their samples."""
        self.is_scanned = False
        """True once the file has been scanned to its end, or up to its damage."""
        self._offsets = array("Q")
        """Offset of each sample's line in the decompressed content."""
        self._inventories: list[tuple[int, int]] = []
        """Number of the next sample and offset of the line, for each inventory."""
        self._scanning = self._scan()
        try:
            self._file = open_content(path)
        except OSError as error:
            why = error.strerror or str(error)
            raise RecordingError(path, why, "Name one that you may read") from None
        weakref.finalize(self, self._file.close)
        for record in self.records():
            if isinstance(record, Sample):
                return
        raise RecordingError(path, NO_SAMPLE)

    @property
    def end(self) -> float:
        """Position of the last scanned sample, in seconds."""
        return self.positions[-1] if self.positions else 0.0

    def sample_at(self, position: float) -> int:
        """Return the number of the last sample at or before the position, or else 0."""
        return max(0, bisect_right(self.positions, position) - 1)

    def scan_more(self) -> None:
        """Scan the next lines of the file."""
        for _ in islice(self._scanning, LINES_AT_ONCE):
            pass

    def scan(self) -> None:
        """Scan the file to its end."""
        while not self.is_scanned:
            self.scan_more()

    def _scan(self) -> Iterator[None]:
        line = 1
        offset = 0
        time: float | None = None
        try:
            with open_content(self.path) as file:
                for data in read_lines(file):
                    head = read_head(data)
                    if head.type == "sample":
                        self._add_sample(head, offset, time)
                        time = head.time
                    else:
                        self._inventories.append((len(self.positions), offset))
                    line += 1
                    offset += len(data) + 1
                    yield
        except UNREADABLE as error:
            self._end(len(self.positions), line, time, error)
        self.is_scanned = True

    def _add_sample(
        self,
        head: Head,
        offset: int,
        before: float | None,
    ) -> None:
        """Add a sample; `before` is the time of the previous sample."""
        position = self.end
        if before is not None:
            position += min(max(0.0, head.time - before), LONGEST_STEP_SECONDS)
        for event in head.events[-EVENTS:]:
            check(event)
            self.events.append((len(self.positions), event))
        self._offsets.append(offset)
        # Append this last, because other threads use its length.
        self.positions.append(position)

    def records(self, first: int = 0) -> Iterator[Record]:
        """Yield the inventory of sample number `first`, and then all records from that sample.

        Only one of these iterators can be in use. For `first` > 0 the sample must be scanned.
        """
        number = first
        line = 1
        time: float | None = None
        try:
            self._file.seek(0)
            if first > 0:
                after = bisect_right(self._inventories, first, key=itemgetter(0))
                line = first + after + 1
                self._file.seek(self._inventories[after - 1][1])
                yield decode(self._file.readline(LINE_BYTES))
                self._file.seek(self._offsets[first])
            for data in read_lines(self._file):
                record = decode(data)
                if line == 1 and isinstance(record, Sample):
                    raise DecodeError("a sample before the first inventory")
                yield record
                time = record.time
                line += 1
                if isinstance(record, Sample):
                    number += 1
            if line == 1 or number < len(self.positions):
                raise DecodeError("the file is too short")
        except UNREADABLE as error:
            if line == 1:
                raise self._is_none(error) from None
            self._end(number, line, time, error)

    def _is_none(self, error: Exception) -> RecordingError:
        """Return the error of a file whose first line cannot be read."""
        if not isinstance(error, NewerSchemaError):
            return RecordingError(self.path, "it is no recording")
        why, _, remedy = str(error).partition(": ")
        return RecordingError(self.path, why, remedy.capitalize())

    def _end(
        self, number: int, line: int, time: float | None, error: Exception
    ) -> None:
        """End the recording before sample `number`, because `line` cannot be read.

        `time` is the time of the last good record.
        """
        del self.positions[number:]
        self.is_scanned = True
        place = "at"
        if isinstance(error, gzip.BadGzipFile):
            place = "before"  # the checksum follows the damaged data
        self.ending = f"damaged {place} line {line:,}"
        if time is not None:
            self.ending += f"; played up to {moment(time, '%Y-%m-%d %H:%M:%S')}"

    def last(self) -> tuple[Inventory, Sample]:
        """Return the last sample before the first damage, with its inventory."""
        self.scan()
        sample: Sample | None = None
        # The scan does not check all types, so the last sample may be damaged.
        for first in (len(self.positions) - 1, 0):
            for record in self.records(first):
                if isinstance(record, Inventory):
                    inventory = record
                else:
                    sample = record
            if sample is not None:
                return inventory, sample
        raise RecordingError(self.path, NO_SAMPLE)
