"""Read a recording: its records in order, or from any of its samples on.

A recording is JSON lines, plain or gzip. It is good up to its first damaged line. That line and all
lines after it are left out.
"""

from __future__ import annotations

import gzip
import os
import stat
import weakref
import zlib
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, cast

import msgspec

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Inventory, Record, Sample
from gputop.recording.index import Index, read_head
from gputop.schema.decode import NewerSchemaError, decode
from gputop.schema.limits import LINE_BYTES, DecodeError
from gputop.text import moment

RECORDS = 10_000_000
"""Lines of a recording that are read: four months at one per second. The index takes 24 bytes for
each."""

GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 16
LINES_AT_ONCE = 200
MAKE_ONE = (
    "Make one with `gputop stream --output FILE.jsonl.gz`, or with r in the dashboard"
)
UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    UnicodeDecodeError,
    msgspec.MsgspecError,
    RecursionError,
    DecodeError,
)
"""Errors of a disk and of gzip data, and those of a line that is no record."""
R = TypeVar("R", bound=Record)


class RecordingError(ProblemError):
    """The file cannot be played."""

    def __init__(self, path: Path, why: str, remedy: str = MAKE_ONE) -> None:
        super().__init__(Problem(f"{path} cannot be played", why, remedy))


class NumberedRecord(NamedTuple):
    """A record, and the number of its sample, or of the sample that follows it."""

    number: int
    record: Record


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without their newlines. Raises one of `UNREADABLE`.

    A missing end of gzip data is no error: whoever wrote the file may have been killed, or may
    still be writing.
    """
    rest = b""
    while data := _read_chunk(file):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > LINE_BYTES:
            raise DecodeError("the line is too long")
    if rest:
        yield rest


def _read_chunk(file: BinaryIO) -> bytes:
    try:
        return cast("gzip.GzipFile", file).read1(CHUNK_BYTES)
    except EOFError:
        return b""


def _read_at(file: BinaryIO, offset: int, kind: type[R]) -> R:
    """Return the record whose line begins at that offset. Raises one of `UNREADABLE`."""
    file.seek(offset)
    record = decode(file.readline(LINE_BYTES + CHUNK_BYTES))
    if not isinstance(record, kind):
        raise DecodeError("the file has changed")
    return record


def open_content(path: Path) -> BinaryIO:
    """Open a recording's decompressed content. Raises `OSError`, or `RecordingError`."""
    if not stat.S_ISREG(
        path.stat().st_mode
    ):  # before opening, which a device may notice
        raise RecordingError(path, "it is not a file")
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    if not file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
        return file
    file.close()
    return cast("BinaryIO", gzip.open(path))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting: it may have become a pipe that nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


class Recording:
    """A recording on disk. Raises `RecordingError` if the file is none.

    Only the index is in memory: 24 bytes for each sample.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = Index()
        self.ending: str | None = None
        """Why and where reading ends before the end of the file: `damaged at line 102; …`."""
        try:
            self._file = open_content(path)
            weakref.finalize(self, self._file.close)
            self._indexing = self._build_index(open_content(path))
            self.extend_index()
        except OSError as error:
            why = error.strerror or str(error)
            raise RecordingError(
                path, why, "Name a recording that you may read"
            ) from None
        except NewerSchemaError as error:
            why, _, remedy = str(error).partition(": ")
            raise RecordingError(path, why, remedy.capitalize()) from None
        if not self.index.inventories:
            raise RecordingError(path, "it is no recording")
        if not self.index.count:
            raise RecordingError(path, "it has no sample that can be read")

    def _build_index(self, file: BinaryIO) -> Generator[None]:
        """Index the file line by line, up to its end or its damage."""
        index = self.index
        offset = 0
        try:
            with file:
                for number, line in enumerate(read_lines(file)):
                    if number == RECORDS:
                        self._end(index.count, f"over {RECORDS:,} lines")
                        return
                    head = read_head(line.decode())
                    if head.type == "sample" and not index.inventories:
                        raise DecodeError("a sample before the first inventory")
                    if head.type == "inventory" or index.count == 0:
                        decode(line)
                    index.add(head, offset)
                    offset += len(line) + 1
                    yield
        except UNREADABLE as error:
            if isinstance(error, NewerSchemaError) and not index.count:
                raise
            self._end_at_damage(index.count, error)
        finally:
            index.complete = True

    def _end_at_damage(self, number: int, error: Exception) -> None:
        """End the recording before that sample, whose line cannot be read."""
        place = "at"
        if isinstance(error, gzip.BadGzipFile):  # a checksum comes after its data
            place = "before"
        self._end(number, f"damaged {place} line {self.index.line_of(number):,}")

    def _end(self, number: int, reason: str) -> None:
        """Leave out the samples from that number on."""
        del self.index.positions[number:]
        self.index.complete = True
        if number > 0:
            last = moment(self.index.times[number - 1], "%Y-%m-%d %H:%M:%S")
            self.ending = f"{reason}; played up to {last}"

    def extend_index(self) -> None:
        """Index the next lines."""
        for _ in islice(self._indexing, LINES_AT_ONCE):
            pass

    def finish_index(self) -> None:
        """Index the file to its end."""
        while not self.index.complete:
            self.extend_index()

    def records(self) -> Iterator[Record]:
        """Yield all records in order, but inventories only if they differ."""
        for numbered in self.play():
            yield numbered.record

    def last(self) -> tuple[Inventory, Sample]:
        """Return the last sample before the first damage, with its inventory."""
        self.finish_index()
        try:
            return self._last_from(self.index.count - 1)
        except RecordingError:  # its types are wrong, which the index does not check
            return self._last_from(0)

    def _last_from(self, first: int) -> tuple[Inventory, Sample]:
        for _, record in self.play(first):
            if isinstance(record, Inventory):
                inventory = record
            else:
                sample = record
        return inventory, sample

    def play(
        self, first: int = 0, earlier: Iterable[int] = ()
    ) -> Iterator[NumberedRecord]:
        """Yield the samples from that number on, after those whose numbers are in `earlier`.

        The inventory that holds for a sample comes before it, unless it is the same as before.
        Raises `RecordingError` if the first sample cannot be read.
        """
        index = self.index
        inventory: Inventory | None = None
        inventory_offset = -1
        for number in chain(earlier, count(first)):
            while number >= index.count and not index.complete:
                self.extend_index()
            if number >= index.count:
                return
            before = inventory
            try:
                if inventory_offset != index.inventory_at(number):
                    inventory_offset = index.inventory_at(number)
                    inventory = _read_at(self._file, inventory_offset, Inventory)
                sample = _read_at(self._file, index.offsets[number], Sample)
            except UNREADABLE as error:
                self._indexing.close()
                self._end_at_damage(number, error)
                if number > first:
                    return
                why = f"it is damaged at line {index.line_of(number):,}"
                raise RecordingError(
                    self.path, why, "Play it again from the start"
                ) from None
            if inventory is not None and inventory != before:
                yield NumberedRecord(number, inventory)
            yield NumberedRecord(number, sample)
