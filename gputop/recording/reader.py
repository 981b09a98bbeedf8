"""Read a recording: its records in order, or from any of its samples on, by an index."""

from __future__ import annotations

import json
import os
import re
import stat
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from statistics import median
from typing import BinaryIO, NamedTuple

from gputop.bounds import DAMAGES, SAMPLES
from gputop.problem import Problem
from gputop.recording.lines import START, LinePosition, RecordedLine, is_gzip, lines
from gputop.recording.writer import SAMPLES_A_PART
from gputop.schema.codec import LIMIT, DecodeError
from gputop.schema.snapshot import Inventory, NewerSchemaError, Record, Sample, decode

LONGEST_END_SECONDS = 3600.0
"""Longest time after the first sample and before the last, where no third one can confirm it."""
LINES_AT_ONCE = 500


class LineKind(Enum):
    """Kind of a line, found without decoding it."""

    INVENTORY = "inventory"
    SAMPLE = "sample"
    DAMAGED = "damaged"


class LineHead(NamedTuple):
    """Kind and time of a line."""

    kind: LineKind
    time: float = 0.0


HEAD = re.compile(rb'\{"type":"(inventory|sample)","time":(-?\d{1,15}(?:\.\d{1,9})?),')
KINDS = {kind.value.encode(): kind for kind in LineKind}
EVENTS = b'"events":[{'


def read_head(line: RecordedLine) -> LineHead:
    """Return the kind and time of a line, quickly if gputop wrote it."""
    data = line.data
    if data is None:
        return LineHead(LineKind.DAMAGED)
    head = HEAD.match(data)
    if head is not None and data.endswith(b"}"):
        return LineHead(KINDS[head[1]], float(head[2]))
    try:
        document = json.loads(data)
        kind, time = LineKind(document["type"]), float(document["time"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return LineHead(LineKind.DAMAGED)
    return LineHead(kind, time) if abs(time) < LIMIT else LineHead(LineKind.DAMAGED)


class Block(NamedTuple):
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
        self,
        lines: Iterator[tuple[RecordedLine, LineHead]],
        damaged: Callable[[LinePosition], None],
    ) -> None:
        self._lines = lines
        self._damaged = damaged
        self._positions = array("d")
        self.blocks = [Block(0, START, None)]
        self._inventory: LinePosition | None = None
        self._seen = 0
        """Samples so far; the last one has no position yet."""
        self._times: list[float] = []
        """Times of the last three samples."""
        self._smooth: float | None = None
        self.events = array("L")
        """Numbers of the samples with events."""
        self.complete = False

    @property
    def count(self) -> int:
        """Number of indexed samples."""
        return len(self._positions)

    @property
    def end(self) -> float:
        """Position of the last sample so far, in seconds."""
        return self._positions[-1] if self._positions else 0.0

    def position(self, number: int) -> float:
        """Return the seconds from the first sample to that one; a clock step back counts as 0."""
        return self._positions[number]

    def sample_at(self, position: float) -> int:
        """Return the last sample at or before that position, or the first one."""
        return max(0, bisect_right(self._positions, position) - 1)

    def block(self, number: int) -> Block:
        """Return the block that has that sample."""
        return self.blocks[bisect_right(self.blocks, number, key=lambda block: block.first) - 1]

    def finish(self) -> None:
        """Index the file to its end."""
        while not self.complete:
            self.extend()

    def extend(self) -> None:
        """Index the next lines."""
        read = 0
        for line, (kind, time) in islice(self._lines, LINES_AT_ONCE):
            read += 1
            self._add(line, kind, time)
        if read < LINES_AT_ONCE:
            self._close()

    def _add(self, line: RecordedLine, kind: LineKind, time: float) -> None:
        if kind is LineKind.DAMAGED:
            self._damaged(line.start)
        elif kind is LineKind.INVENTORY:
            self._inventory = line.start
        else:
            full = self._seen - self.blocks[-1].first >= SAMPLES_A_PART
            if full:
                self.blocks.append(Block(self._seen, line.start, self._inventory))
            if line.data is not None and EVENTS in line.data:
                self.events.append(self._seen)
            self._seen += 1
            self._times = [*self._times[-2:], time]
            if self._seen == 2:
                self._append_position(max(self._times[0], time - LONGEST_END_SECONDS))
            elif self._seen > 2:
                self._append_position(median(self._times))

    def _append_position(self, time: float) -> None:
        """Append the position of the sample before the newest one.

        Its time is the median of three: a single one that leaps is damaged.
        """
        step = 0.0 if self._smooth is None else max(0.0, time - self._smooth)
        self._smooth = time
        self._positions.append(self.end + step)

    def _close(self) -> None:
        if self._seen:
            newest, smooth = self._times[-1], self._smooth
            if smooth is not None:
                newest = min(newest, smooth + LONGEST_END_SECONDS)
            self._append_position(newest)
        self.complete = True


LOOKED_AT = 1000
"""First lines, one of which must be an inventory."""
NO_SAMPLE = "it has no sample that can be read"
MAKE_ONE = "Make one with `gputop stream --output FILE.jsonl.gz`, or with r in the dashboard"


class RecordingError(Exception):
    """The file cannot be played."""

    def __init__(self, path: Path, why: str, remedy: str = MAKE_ONE) -> None:
        self.problem = Problem(f"{path} cannot be played", why, remedy)
        super().__init__(str(self.problem))


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
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # before it is opened: a device may notice
                raise RecordingError(path, "it is not a file")
            self._descriptor = _open(str(path), os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)
            with self._opened() as file:
                self._compressed = is_gzip(file)
        except OSError as error:
            why = error.strerror or str(error).rstrip(".")
            raise RecordingError(path, why, "Name a recording that you may read") from None
        self._damages: set[LinePosition] = set()
        self.unread = ""
        """Reason that it is not read to its end, or empty."""
        self.index = Index(self._heads(), self._damaged)
        self._check()

    def _check(self) -> None:
        """Find the first inventory and a sample after it, or raise `RecordingError`."""
        known = False
        seen: set[LineKind] = set()
        for line, (kind, _) in islice(self._heads(), LOOKED_AT):
            seen.add(kind)
            if kind is LineKind.SAMPLE and known:
                return
            if kind is LineKind.INVENTORY and line.data is not None and not known:
                known = self._is_known(line.data)
        if not seen:
            why = "it is empty"
        elif known:
            why = NO_SAMPLE if LineKind.DAMAGED in seen else "it ended before its first sample"
        else:
            readable = seen - {LineKind.DAMAGED}
            why = "it does not say what devices it is of" if readable else "it is no recording"
        raise RecordingError(self.path, why)

    def _is_known(self, inventory: bytes) -> bool:
        """Return True if it can be read. Raises `RecordingError` if it is of a later gputop."""
        try:
            decode(inventory)
        except NewerSchemaError as error:
            why, _, remedy = str(error).partition(": ")
            raise RecordingError(self.path, why, remedy.capitalize()) from None
        except DecodeError:
            return False
        return True

    @property
    def damaged(self) -> int:
        """Number of lines, or parts between them, that could not be read so far."""
        return len(self._damages)

    def _damaged(self, place: LinePosition) -> None:
        if len(self._damages) < DAMAGES:
            self._damages.add(place)

    def _opened(self) -> BinaryIO:
        """Open the same file again, even if it was removed or replaced meanwhile."""
        return open(f"/proc/self/fd/{self._descriptor}", "rb", opener=_open)

    def _heads(self, start: LinePosition = START) -> Iterator[tuple[RecordedLine, LineHead]]:
        """Yield the lines from `start` on with their kind and time, within the bounds."""
        damaged = samples = 0
        with self._opened() as file:
            for line in lines(file, compressed=self._compressed, start=start):
                found = read_head(line)
                damaged = damaged + 1 if found.kind is LineKind.DAMAGED else 0
                samples += found.kind is LineKind.SAMPLE
                if damaged > DAMAGES or samples > SAMPLES:
                    what = f"{DAMAGES:,} damaged lines" if damaged else f"{SAMPLES:,} samples"
                    self.unread = f"not read on after {what}"
                    return
                yield line, found

    def _decoded(self, line: RecordedLine) -> Record | None:
        """Return the line's record, or None if it is damaged."""
        try:
            if line.data is not None:
                return decode(line.data)
        except DecodeError:
            pass
        self._damaged(line.start)
        return None

    def records(self) -> Iterator[Record]:
        """Yield all records in order, but inventories only if they differ."""
        known: Inventory | None = None
        for line, _ in self._heads():
            record = self._decoded(line)
            if record is None or record == known:
                continue
            if isinstance(record, Inventory):
                known = record
            elif known is None:  # its inventory was damaged
                self._damaged(line.start)
                continue
            yield record

    def play(self, first: int) -> Iterator[NumberedRecord]:
        """Yield the records from that sample on, after the inventory that holds there.

        It ends with the index. Raises `RecordingError` if an indexed sample is gone.
        """
        indexed = self.index.count
        block = self.index.block(first)
        number, known, pending = block.first, None, None
        if block.inventory is not None:
            line, _ = next(self._heads(block.inventory), (None, None))
            pending = None if line is None else self._decoded(line)
        for line, (kind, _) in self._heads(block.start):
            if kind is LineKind.DAMAGED:
                continue  # it is counted by the index
            if kind is LineKind.INVENTORY:
                pending = self._decoded(line) or pending
                continue
            if number >= self.index.count:
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
        end = self.index.count
        for block in reversed(self.index.blocks):
            inventory: Inventory | None = None
            found: tuple[Inventory, Sample] | None = None
            for number, record in self.play(block.first):
                if number >= end:
                    break
                if isinstance(record, Inventory):
                    inventory = record
                elif inventory is not None:
                    found = inventory, record
            if found is not None:
                return found
            end = block.first
        raise RecordingError(self.path, NO_SAMPLE)
