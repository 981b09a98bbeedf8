"""Where the samples of a recording are: their times, and their offsets in the file."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from typing import Annotated, Any, Literal

import msgspec

from gputop.schema.limits import NUMBER_LIMIT, DecodeError

LONGEST_STEP_SECONDS = 3600.0
"""Longest time from one sample to the next. A longer one is a break, or a wrong clock."""


class Head(msgspec.Struct):
    """The part of a line that the index needs. The rest is only checked to be JSON."""

    type: Literal["inventory", "sample"]
    time: Annotated[float, msgspec.Meta(gt=-NUMBER_LIMIT, lt=NUMBER_LIMIT)]
    events: list[Any] | None = None


_decode_head = msgspec.json.Decoder(Head).decode


def read_head(line: str) -> Head:
    """Return the head of a line. Raises `msgspec.DecodeError` or `DecodeError` if it is damaged."""
    try:
        return _decode_head(line)
    except msgspec.DecodeError:
        # msgspec refuses single surrogates, which stand for bytes that are not UTF-8.
        try:
            return msgspec.convert(json.loads(line), Head)
        except ValueError as error:
            raise DecodeError(str(error)) from None


class Index:
    """Times and offsets of a recording's samples, which are numbered from 0.

    It grows while the file is read. Offsets are those of the decompressed content.
    """

    def __init__(self) -> None:
        self.times = array("d")
        self.offsets = array("Q")
        self.positions = array("d")
        """Seconds from the first sample to each. A clock that is set back counts as 0."""
        self.events = array("L")
        """Numbers of the samples with events."""
        self.inventories = array("L")
        """Number of the sample that follows each inventory."""
        self.inventory_offsets = array("Q")
        self.complete = False
        """True once the file has been read to its end, or up to its damage."""

    @property
    def count(self) -> int:
        """Number of samples so far."""
        return len(self.positions)

    @property
    def end(self) -> float:
        """Position of the last sample so far, in seconds."""
        return self.positions[-1]

    def add(self, head: Head, offset: int) -> None:
        """Add the next line of the file."""
        if head.type == "inventory":
            self.inventory_offsets.append(offset)
            self.inventories.append(self.count)
            return
        position = 0.0
        if self.times:
            step = max(0.0, head.time - self.times[-1])
            position = self.positions[-1] + min(step, LONGEST_STEP_SECONDS)
        if head.events:
            self.events.append(self.count)
        self.times.append(head.time)
        self.offsets.append(offset)
        self.positions.append(
            position
        )  # the last one, because other threads go by its length

    def sample_at(self, position: float) -> int:
        """Return the last sample at or before that position, or the first one."""
        return max(0, bisect_right(self.positions, position) - 1)

    def inventory_at(self, number: int) -> int:
        """Return the offset of the inventory that holds for that sample."""
        return self.inventory_offsets[bisect_right(self.inventories, number) - 1]

    def line_of(self, number: int) -> int:
        """Return the number of the sample's line, counted from 1."""
        return number + bisect_right(self.inventories, number) + 1
