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
from pathlib import Path
from typing import BinaryIO, cast

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Event, Inventory, Record, Sample
from gputop.schema.decode import NewerSchemaError, decode
from gputop.schema.limits import LINE_BYTES, DecodeError
from gputop.text import moment

GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 16
LINES_AT_ONCE = 200
LONGEST_STEP_SECONDS = 3600.0
"""Longest step between two samples. A longer step means a pause or a wrong clock."""
MOST_EVENTS = 10_000
"""Most events kept for seeks: the newest ones."""
MAKE_ONE = "Make one with `gputop stream --output FILE.jsonl.gz`, or with r in the dashboard"
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

    `records` reads the file once, from its start. A replay scans the file in steps with
    `scan_more`, which stores the position and the place of each sample. `records_from` reads the
    scanned samples again.
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
        self._newest_time = 0.0
        self._samples = array("Q")
        """Offset of each scanned sample in the decompressed content."""
        self._inventories = array("Q")
        """Offset of the inventory of each scanned sample."""
        self._scanning = self._scan()
        try:
            self._file = open_content(path)
        except OSError as error:
            why = error.strerror or str(error)
            raise RecordingError(
                path, why, "Choose a file that you can read"
            ) from None
        weakref.finalize(self, self._file.close)
        while not (self.positions or self.is_scanned):
            next(self._scanning, None)
        if not self.positions:
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

    def _scan(self) -> Iterator[None]:
        """Store the place of each sample. Each step is one record."""
        inventory = 0
        for offset, record in self._read():
            if isinstance(record, Inventory):
                inventory = offset
            else:
                self._add_sample(record, offset, inventory)
            yield
        self.is_scanned = True

    def _add_sample(
        self,
        sample: Sample,
        offset: int,
        inventory: int,
    ) -> None:
        """Add a sample with the offsets of its line and of its inventory."""
        position = 0.0
        if self.positions:
            step = max(0.0, sample.time - self._newest_time)
            position = self.end + min(step, LONGEST_STEP_SECONDS)
        self._newest_time = sample.time
        number = len(self.positions)
        self.events.extend((number, event) for event in sample.events)
        self._samples.append(offset)
        self._inventories.append(inventory)
        # Append this last, because other threads use its length.
        self.positions.append(position)

    def records(self) -> Iterator[Record]:
        """Yield all records, up to a damaged line."""
        for _, record in self._read():
            yield record

    def records_from(self, first: int) -> Iterator[Record]:
        """Yield the scanned samples from number `first`, and each inventory before its sample.

        Only one of these iterators can be in use.
        """
        number = first
        inventory: int | None = None
        try:
            while number < len(self.positions):
                if self._inventories[number] != inventory:
                    inventory = self._inventories[number]
                    yield self._record_at(inventory)
                yield self._record_at(self._samples[number])
                number += 1
        except UNREADABLE as error:
            del self.positions[number:]
            self.ending = (
                f"sample {number + 1:,} cannot be read again: {error}"
            )

    def _record_at(self, offset: int) -> Record:
        self._file.seek(offset)
        return decode(self._file.readline(LINE_BYTES))

    def _read(self) -> Iterator[tuple[int, Record]]:
        """Yield each record with the offset of its line, and set `ending` at a damaged line."""
        line = 1
        offset = 0
        time = 0.0
        try:
            with open_content(self.path) as file:
                for data in read_lines(file):
                    record = decode(data)
                    if line == 1 and isinstance(record, Sample):
                        raise DecodeError(
                            "a sample before the first inventory"
                        )
                    yield offset, record
                    time = record.time
                    line += 1
                    offset += len(data) + 1
            if line == 1:
                raise DecodeError("the file is empty")
        except UNREADABLE as error:
            if line == 1:
                raise self._refusal(error) from None
            place = "at"
            if isinstance(error, gzip.BadGzipFile):
                # The checksum follows the damaged data.
                place = "before"
            until = moment(time, "%Y-%m-%d %H:%M:%S")
            self.ending = (
                f"damaged {place} line {line:,}; played up to {until}"
            )

    def _refusal(self, error: Exception) -> RecordingError:
        """Return the error of a file whose first line cannot be read."""
        if not isinstance(error, NewerSchemaError):
            return RecordingError(self.path, "it is not a recording")
        why, _, remedy = str(error).partition(": ")
        return RecordingError(self.path, why, remedy.capitalize())

    def last(self) -> tuple[Inventory, Sample]:
        """Return the last sample before the first damage, with its inventory."""
        for record in self.records():
            if isinstance(record, Inventory):
                inventory = record
            else:
                last = inventory, record
        return last
