"""Read a recording: its records in order, or from any of its samples on, by an index.

The file is plain or gzip, and its damaged parts are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import weakref
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gputop.bounds import DAMAGES, LINE_BYTES, SAMPLES, SKIPPED_BYTES
from gputop.problem import Problem, ProblemError
from gputop.recording.writer import GZIP, SAMPLES_A_PART
from gputop.schema.codec import LIMIT, DecodeError
from gputop.schema.snapshot import Inventory, NewerSchemaError, Record, Sample, decode

MAGIC = b"\x1f\x8b\x08"
"""First bytes of a member of a gzip file."""
CHUNK_BYTES = 1 << 16
"""Bytes read, or decompressed, at a time."""
DEFLATED_BYTES = 1 << 12
"""Bytes of compressed data at a time. A damaged piece loses the whole piece."""


class LinePosition(NamedTuple):
    """Start of a line: a gzip member's offset, and bytes into it once decompressed.

    A plain file is one member.
    """

    member: int
    skip: int


START = LinePosition(0, 0)
Piece = tuple[LinePosition, bytes | None]
"""A piece of the file's content; None for an unreadable part."""


class RecordedLine(NamedTuple):
    """A line without its newline; None for an unreadable part."""

    start: LinePosition
    data: bytes | None
    kind: type[Record] | None = None
    """Kind of its record, once read; None if it is damaged."""
    time: float = 0.0


def lines(file: BinaryIO, start: LinePosition = START) -> Iterator[RecordedLine]:
    """Yield the lines from `start` on, at which a line begins.

    The file is decompressed if it begins as gzip does. A line that is too long yields one None for
    each piece, so that an endless one cannot keep the reader waiting.
    """
    begin, pending, overlong = start, bytearray(), False
    file.seek(0)
    pieces = _inflated if file.read(len(MAGIC)) == MAGIC else _plain
    for place, data in pieces(file, start):
        if data is None:
            yield RecordedLine(begin if pending else place, None)
            pending.clear()
            overlong = False
            continue
        member, offset = place
        for number, part in enumerate(data.split(b"\n")):
            if number:  # the line before it is whole
                if not overlong:
                    yield RecordedLine(begin, bytes(pending))
                pending.clear()
                overlong = False
            if not pending and not overlong:
                begin = LinePosition(member, offset)
            pending += part
            offset += len(part) + 1
        overlong = overlong or len(pending) > LINE_BYTES
        if overlong:
            yield RecordedLine(begin, None)
            pending.clear()
    if pending and not overlong:
        yield RecordedLine(begin, bytes(pending))


def _plain(file: BinaryIO, start: LinePosition) -> Iterator[Piece]:
    file.seek(start.skip)
    while data := file.read(CHUNK_BYTES):
        yield LinePosition(0, file.tell() - len(data)), data


def _inflated(file: BinaryIO, start: LinePosition) -> Iterator[Piece]:
    """Yield the content of a gzip file's members; after a damaged one comes the next."""
    member, skip = start
    empty = 0
    while empty < DAMAGES:  # a file of empty members would keep the reader waiting
        offset = 0
        try:
            for data in _member(file, member):
                if offset + len(data) > skip:
                    cut = max(0, skip - offset)
                    yield LinePosition(member, offset + cut), data[cut:]
                offset += len(data)
            after = file.tell()
            following = _next_member(file, after)
            # Some files are padded with zeros, which are no loss.
            lost = following != after and any(x.strip(b"\0") for x in _pieces(file, after))
        except zlib.error:
            following, lost = _next_member(file, member + 1), True
        if lost:
            yield LinePosition(member, offset), None
        if following is None:
            return
        member, skip = following, 0
        empty = 0 if offset else empty + 1


def _member(file: BinaryIO, member: int) -> Iterator[bytes]:
    """Yield the content of the member at that offset, and leave the file at its end.

    Raises `zlib.error`. A member that is cut off is no error: more may never have been written.
    """
    file.seek(member)
    inflate = zlib.decompressobj(wbits=GZIP)
    while not inflate.eof:
        read = inflate.unconsumed_tail or file.read(DEFLATED_BYTES)
        data = inflate.decompress(read, CHUNK_BYTES) if read else inflate.flush()
        if data:
            yield data
        if not read:
            return
    file.seek(-len(inflate.unused_data), os.SEEK_CUR)


def _next_member(file: BinaryIO, offset: int) -> int | None:
    """Return the offset of the next member, from that offset on."""
    window = b""
    for data in _pieces(file, offset):
        window = window[1 - len(MAGIC) :] + data  # it may be in two of them
        found = window.find(MAGIC)
        if found >= 0:
            return file.tell() - len(window) + found
    return None


def _pieces(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Yield the file from that offset on, up to `SKIPPED_BYTES`."""
    file.seek(offset)
    while file.tell() - offset < SKIPPED_BYTES and (data := file.read(CHUNK_BYTES)):
        yield data


LONGEST_STEP_SECONDS = 3600.0
"""Longest time from one sample to the next: longer ones are breaks, or their times are damaged."""
LINES_AT_ONCE = 500
HEAD = re.compile(rb'\{"type":"(inventory|sample)","time":(-?\d{1,15}(?:\.\d{1,9})?),')
KINDS: Mapping[str, type[Record]] = {"inventory": Inventory, "sample": Sample}
EVENTS = b'"events":[{'


def read_head(line: RecordedLine) -> RecordedLine:
    """Return the line with its kind and time, quickly if gputop wrote it."""
    data = line.data or b""
    head = HEAD.match(data)
    if head is not None and data.endswith(b"}"):
        return RecordedLine(line.start, data, KINDS[head[1].decode()], float(head[2]))
    with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
        document = json.loads(data)
        if abs(time := float(document["time"])) < LIMIT:
            return RecordedLine(line.start, data, KINDS[document["type"]], time)
    return line


class FileBlock(NamedTuple):
    """Consecutive samples."""

    first: int
    """Number of the first sample."""
    start: LinePosition
    inventory: LinePosition | None
    """Position of the inventory that holds for them."""


class Index:
    """Times of a recording's samples, and positions to read them from. It grows line by line.

    Damaged lines are passed to `damaged`.
    """

    def __init__(
        self, lines: Iterator[RecordedLine], damaged: Callable[[LinePosition], None]
    ) -> None:
        self._lines = lines
        self._damaged = damaged
        self.positions = array("d")
        """Seconds from the first sample to each; a clock step back counts as 0."""
        self.blocks = [FileBlock(0, START, None)]
        self._inventory: LinePosition | None = None
        self._time: float | None = None
        self.events = array("L")
        """Numbers of the samples with events."""
        self.complete = False

    @property
    def count(self) -> int:
        """Number of indexed samples."""
        return len(self.positions)

    @property
    def end(self) -> float:
        """Position of the last sample so far, in seconds."""
        return self.positions[-1] if self.positions else 0.0

    def sample_at(self, position: float) -> int:
        """Return the last sample at or before that position, or the first one."""
        return max(0, bisect_right(self.positions, position) - 1)

    def block(self, number: int) -> FileBlock:
        """Return the block that has that sample."""
        return self.blocks[bisect_right(self.blocks, number, key=lambda block: block.first) - 1]

    def finish(self) -> None:
        """Index the file to its end."""
        while not self.complete:
            self.extend()

    def extend(self) -> None:
        """Index the next lines."""
        read = 0
        for line in islice(self._lines, LINES_AT_ONCE):
            read += 1
            if line.kind is None:
                self._damaged(line.start)
                continue
            if line.kind is Inventory:
                self._inventory = line.start
                continue
            number = self.count
            if number - self.blocks[-1].first >= SAMPLES_A_PART:
                self.blocks.append(FileBlock(number, line.start, self._inventory))
            if line.data is not None and EVENTS in line.data:
                self.events.append(number)
            step = 0.0 if self._time is None else line.time - self._time
            self.positions.append(self.end + min(max(0.0, step), LONGEST_STEP_SECONDS))
            self._time = line.time
        self.complete = read < LINES_AT_ONCE


LOOKED_AT = 1000
"""First lines, one of which must be an inventory."""
NO_SAMPLE = "it has no sample that can be read"
MAKE_ONE = "Make one with `gputop stream --output FILE.jsonl.gz`, or with r in the dashboard"


class RecordingError(ProblemError):
    """The file cannot be played."""

    def __init__(self, path: Path, why: str, remedy: str = MAKE_ONE) -> None:
        super().__init__(Problem(f"{path} cannot be played", why, remedy))


def _open(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe or a kernel log may never have anything to read."""
    return os.open(path, flags | os.O_NONBLOCK)


class NumberedRecord(NamedTuple):
    """A record, and the number of its sample, or of the sample that follows it."""

    number: int
    record: Record


class Recording:
    """A recording on disk. Raises `RecordingError` if it is none, or one of a later gputop.

    Only the index is in memory: eight bytes per sample, and a little for every 64.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._damages: set[LinePosition] = set()
        self.unread = ""
        """Reason that it is not read to its end, or empty."""
        self.index = Index(self._lines(), self._damaged)
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # before it is opened: a device may notice
                raise RecordingError(path, "it is not a file")
            self._descriptor = _open(str(path), os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)
            self._check()
        except OSError as error:
            why = error.strerror or str(error).rstrip(".")
            raise RecordingError(path, why, "Name a recording that you may read") from None

    def _check(self) -> None:
        """Find the first inventory and a sample after it, or raise `RecordingError`."""
        known = False
        for line in islice(self._lines(), LOOKED_AT):
            if line.kind is Sample and known:
                return
            if line.kind is Inventory and not known:
                try:
                    known = isinstance(decode(line.data or b""), Inventory)
                except NewerSchemaError as error:
                    why, _, remedy = str(error).partition(": ")
                    raise RecordingError(self.path, why, remedy.capitalize()) from None
                except DecodeError:
                    continue
        raise RecordingError(self.path, NO_SAMPLE if known else "it is no recording")

    @property
    def damaged(self) -> int:
        """Number of lines, or parts between them, that could not be read so far."""
        return len(self._damages)

    def _damaged(self, place: LinePosition) -> None:
        if len(self._damages) < DAMAGES:
            self._damages.add(place)

    def _lines(self, start: LinePosition = START) -> Iterator[RecordedLine]:
        """Yield the lines from `start` on, within the bounds."""
        damaged = samples = 0
        # The same file again, even if it was removed or replaced meanwhile.
        with open(f"/proc/self/fd/{self._descriptor}", "rb", opener=_open) as file:
            for line in map(read_head, lines(file, start)):
                damaged = damaged + 1 if line.kind is None else 0
                samples += line.kind is Sample
                if damaged > DAMAGES or samples > SAMPLES:
                    what = f"{DAMAGES:,} damaged lines" if damaged else f"{SAMPLES:,} samples"
                    self.unread = f"not read on after {what}"
                    return
                yield line

    def _decoded(self, line: RecordedLine) -> Record | None:
        """Return the line's record, or None if it is damaged."""
        with contextlib.suppress(DecodeError):
            return decode(line.data or b"")
        self._damaged(line.start)
        return None

    def records(self) -> Iterator[Record]:
        """Yield all records in order, but inventories only if they differ."""
        return (numbered.record for numbered in self.play(0))

    def play(self, first: int) -> Iterator[NumberedRecord]:
        """Yield the records from that sample on, after the inventory that holds there.

        It ends with the index, if that is complete. Raises `RecordingError` if an indexed sample is
        gone.
        """
        indexed = self.index.count
        block = self.index.block(first)
        number, known, pending = block.first, None, None
        if block.inventory is not None:
            line = next(self._lines(block.inventory), None)
            pending = None if line is None else self._decoded(line)
        for line in self._lines(block.start):
            if line.kind is None:
                self._damaged(line.start)
                continue
            if line.kind is Inventory:
                pending = self._decoded(line) or pending
                continue
            if self.index.complete and number >= self.index.count:
                return
            if number >= first:
                if pending is not None and pending != known:
                    known = pending
                    yield NumberedRecord(number, known)
                sample = self._decoded(line)
                if sample is not None and known is not None:
                    yield NumberedRecord(number, sample)
            number += 1
        if number < indexed:
            raise RecordingError(self.path, "it became shorter", "Play it again from the start")

    def last(self) -> tuple[Inventory, Sample]:
        """Return the last readable sample, with its inventory."""
        self.index.finish()
        inventory: Inventory | None = None
        found: tuple[Inventory, Sample] | None = None
        for _, record in self.play(max(0, self.index.count - SAMPLES_A_PART)):
            if isinstance(record, Inventory):
                inventory = record
            elif inventory is not None:
                found = inventory, record
        if found is None:
            raise RecordingError(self.path, NO_SAMPLE)
        return found
