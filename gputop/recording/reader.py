"""Reads a recording: its records in order, or from any of its samples on."""

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
from gputop.recording.lines import START, Line, Place, is_gzip, lines
from gputop.recording.writer import SAMPLES_A_PART
from gputop.schema.codec import LIMIT, DecodeError
from gputop.schema.snapshot import Inventory, NewerSchemaError, Record, Sample, decode

LONGEST_END_SECONDS = 3600.0
"""The longest time after the first sample and before the last: no third tells if it is right."""
LINES_AT_ONCE = 500


class Kind(Enum):
    """What a line is, as far as it can be told without decoding it."""

    INVENTORY = "inventory"
    SAMPLE = "sample"
    DAMAGED = "damaged"


class Look(NamedTuple):
    """A line at first sight."""

    kind: Kind
    time: float = 0.0


HEAD = re.compile(rb'\{"type":"(inventory|sample)","time":(-?\d{1,15}(?:\.\d{1,9})?),')
KINDS = {kind.value.encode(): kind for kind in Kind}
EVENTS = b'"events":[{'


def look(line: Line) -> Look:
    """What the line is. Cheap where gputop wrote it, and right where something else did."""
    data = line.data
    if data is None:
        return Look(Kind.DAMAGED)
    head = HEAD.match(data)
    if head is not None and data.endswith(b"}"):
        return Look(KINDS[head[1]], float(head[2]))
    try:
        document = json.loads(data)
        kind, time = Kind(document["type"]), float(document["time"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return Look(Kind.DAMAGED)
    return Look(kind, time) if abs(time) < LIMIT else Look(Kind.DAMAGED)


class Block(NamedTuple):
    """Samples that follow each other."""

    first: int
    """The number of the first one."""
    place: Place
    inventory: Place | None
    """Where the inventory is that holds before them."""


class Index:
    """Grows line by line; what is damaged is told to `damaged`."""

    def __init__(
        self, lines: Iterator[tuple[Line, Look]], damaged: Callable[[Place], None]
    ) -> None:
        self._lines = lines
        self._damaged = damaged
        self._positions = array("d")
        self.blocks = [Block(0, START, None)]
        self._inventory: Place | None = None
        self._seen = 0
        """Samples so far, of which the last one has no position yet."""
        self._times: list[float] = []
        """Of the last three samples."""
        self._smooth: float | None = None
        self.events = array("L")
        """The samples with which events came."""
        self.complete = False

    @property
    def count(self) -> int:
        """Samples that are indexed."""
        return len(self._positions)

    @property
    def end(self) -> float:
        """The position of the last sample so far."""
        return self._positions[-1] if self._positions else 0.0

    def position(self, number: int) -> float:
        """Seconds from the first sample to that one; a clock that was set back makes none."""
        return self._positions[number]

    def at(self, position: float) -> int:
        """The last sample at or before that position; the first one where there is none."""
        return max(0, bisect_right(self._positions, position) - 1)

    def block(self, number: int) -> Block:
        """The one to read from to come to that sample."""
        return self.blocks[bisect_right(self.blocks, number, key=lambda block: block.first) - 1]

    def finish(self) -> None:
        """Reads on to the end of the file."""
        while not self.complete:
            self.extend()

    def extend(self) -> None:
        """Reads on for a moment."""
        read = 0
        for line, (kind, time) in islice(self._lines, LINES_AT_ONCE):
            read += 1
            self._take(line, kind, time)
        if read < LINES_AT_ONCE:
            self._close()

    def _take(self, line: Line, kind: Kind, time: float) -> None:
        if kind is Kind.DAMAGED:
            self._damaged(line.place)
        elif kind is Kind.INVENTORY:
            self._inventory = line.place
        else:
            full = self._seen - self.blocks[-1].first >= SAMPLES_A_PART
            if full:
                self.blocks.append(Block(self._seen, line.place, self._inventory))
            if line.data is not None and EVENTS in line.data:
                self.events.append(self._seen)
            self._seen += 1
            self._times = [*self._times[-2:], time]
            if self._seen == 2:
                self._place(max(self._times[0], time - LONGEST_END_SECONDS))
            elif self._seen > 2:
                self._place(median(self._times))

    def _place(self, time: float) -> None:
        """Gives the sample before the newest one its position.

        Its time is the median of three: one alone that leaps is a damage, not a journey.
        """
        step = 0.0 if self._smooth is None else max(0.0, time - self._smooth)
        self._smooth = time
        self._positions.append(self.end + step)

    def _close(self) -> None:
        if self._seen:
            newest, smooth = self._times[-1], self._smooth
            if smooth is not None:
                newest = min(newest, smooth + LONGEST_END_SECONDS)
            self._place(newest)
        self.complete = True


LOOKED_AT = 1000
"""Lines of which one has to be an inventory."""
NO_SAMPLE = "it has no sample that can be read"
MAKE_ONE = "Make one with `gputop stream --output FILE.jsonl.gz`, or with r in the dashboard"


class RecordingError(Exception):
    """The file cannot be played; `problem` says it to the user."""

    def __init__(self, path: Path, why: str, remedy: str = MAKE_ONE) -> None:
        self.problem = Problem(f"{path} cannot be played", why, remedy)
        super().__init__(str(self.problem))


def _open(path: str, flags: int) -> int:
    """Open it without ever waiting: a pipe or a kernel log may never have anything to read."""
    return os.open(path, flags | os.O_NONBLOCK)


class Numbered(NamedTuple):
    """A record, and the number of the sample that it is, or that it comes before."""

    number: int
    record: Record


class Recording:
    """A recording on disk. Raises `RecordingError` where it is none, or one of a later gputop.

    It keeps nothing of it in memory but the index: eight bytes a sample, and a little for every 64.
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
        self._damages: set[Place] = set()
        self.unread = ""
        """Why it is not read to its end; empty where it is."""
        self.index = Index(self._looks(), self._damaged)
        self._check()

    def _check(self) -> None:
        """Look for the first inventory, and for a sample behind it."""
        known = False
        seen: set[Kind] = set()
        for line, (kind, _) in islice(self._looks(), LOOKED_AT):
            seen.add(kind)
            if kind is Kind.SAMPLE and known:
                return
            if kind is Kind.INVENTORY and line.data is not None and not known:
                known = self._is_known(line.data)
        if not seen:
            why = "it is empty"
        elif known:
            why = NO_SAMPLE if Kind.DAMAGED in seen else "it ended before its first sample"
        else:
            readable = seen - {Kind.DAMAGED}
            why = "it does not say what devices it is of" if readable else "it is no recording"
        raise RecordingError(self.path, why)

    def _is_known(self, inventory: bytes) -> bool:
        """Whether it can be read; raises `RecordingError` where it is of a later gputop."""
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
        """Lines, or places between them, that could not be read so far."""
        return len(self._damages)

    def _damaged(self, place: Place) -> None:
        if len(self._damages) < DAMAGES:
            self._damages.add(place)

    def _opened(self) -> BinaryIO:
        """The same file, whatever its name means by now: one that is removed can be played on."""
        return open(f"/proc/self/fd/{self._descriptor}", "rb", opener=_open)

    def _looks(self, start: Place = START) -> Iterator[tuple[Line, Look]]:
        """The lines from there on and what they are, as far as the bounds go."""
        damaged = samples = 0
        with self._opened() as file:
            for line in lines(file, compressed=self._compressed, start=start):
                found = look(line)
                damaged = damaged + 1 if found.kind is Kind.DAMAGED else 0
                samples += found.kind is Kind.SAMPLE
                if damaged > DAMAGES or samples > SAMPLES:
                    what = f"{DAMAGES:,} damaged lines" if damaged else f"{SAMPLES:,} samples"
                    self.unread = f"not read on after {what}"
                    return
                yield line, found

    def _decoded(self, line: Line) -> Record | None:
        """What the line says; None where it is damaged."""
        try:
            if line.data is not None:
                return decode(line.data)
        except DecodeError:
            pass
        self._damaged(line.place)
        return None

    def records(self) -> Iterator[Record]:
        """All of them, in order; an inventory only where it says something new."""
        known: Inventory | None = None
        for line, _ in self._looks():
            record = self._decoded(line)
            if record is None or record == known:
                continue
            if isinstance(record, Inventory):
                known = record
            elif known is None:  # the line before it was damaged, and said what it means
                self._damaged(line.place)
                continue
            yield record

    def play(self, first: int) -> Iterator[Numbered]:
        """The records from that sample on, after the inventory that holds there.

        Only what is indexed is played: it ends there. Raises `RecordingError` where that is gone.
        """
        indexed = self.index.count
        block = self.index.block(first)
        number, known, pending = block.first, None, None
        if block.inventory is not None:
            line, _ = next(self._looks(block.inventory), (None, None))
            pending = None if line is None else self._decoded(line)
        for line, (kind, _) in self._looks(block.place):
            if kind is Kind.DAMAGED:
                continue  # it is counted by the index
            if kind is Kind.INVENTORY:
                pending = self._decoded(line) or pending
                continue
            if number >= self.index.count:
                return
            if number >= first:
                if pending is not None and pending != known:
                    known = pending
                    yield Numbered(number, known)
                sample = self._decoded(line)
                if sample is not None and known is not None:
                    yield Numbered(number, sample)
            number += 1
        if number < indexed:
            raise RecordingError(self.path, "it became shorter", "Play it again from its begin")

    def last(self) -> tuple[Inventory, Sample]:
        """The last sample that can be read, with its inventory."""
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
