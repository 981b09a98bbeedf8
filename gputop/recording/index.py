"""An index of a recording: when its samples were taken, and from where on they can be read."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from statistics import median
from typing import NamedTuple

from gputop.recording.lines import START, Line, Place
from gputop.recording.writer import SAMPLES_A_PART
from gputop.schema.codec import LIMIT

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
