"""Limits on data from outside: other hosts, recordings, the benchmark worker, stored results."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from gputop.agent.lines import field_names
from gputop.agent.problem import Problem
from gputop.agent.snapshot import EVENTS, Inventory, Record

LINE_BYTES = 8 << 20
"""Bytes of one decompressed line of a stream or recording. Decoding can need 20 times as much."""
OBJECTS = 40_000
"""JSON objects in one line: more than the limits below allow in total, but they fit in memory."""
DEVICES = 1024
"""Devices in one inventory or sample. The history needs 0.2 MiB for each."""
PROCESSES = 8192
"""Processes in one sample, counted once per device."""
ITEMS = 8192
"""Items in any other list or table of a record, such as the cores of a host."""
STRING_CHARACTERS = 16_384
"""Characters of one text."""
NUMBER_LIMIT = 1 << 63
LEAST_NUMBER = -NUMBER_LIMIT
"""Bounds of every number. Sums of larger numbers could become infinite."""
LONGEST_MESSAGE = 300
MOST = {
    "devices": DEVICES,
    "machines": DEVICES,
    "processes": PROCESSES,
    "events": EVENTS,
}
"""Most items of the lists that `cut_lists` cuts."""


class DecodeError(ValueError):
    """JSON that does not fit the schema. The message says where and why, and is cut to length."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:LONGEST_MESSAGE])


def cut_lists(record: Record) -> Record:
    """Shorten lists that are too long, and report it as the record's problem. Keep new events."""
    kept: dict[str, Any] = {}
    over = []
    for name, most in MOST.items():
        items = getattr(record, name, ())
        if len(items) > most:
            over.append(f"{len(items):,} {name} where {most:,} are taken")
            kept[name] = items[:most]
            if name == "events":
                kept[name] = items[-most:]
    if not over:
        return record
    if not isinstance(record, Inventory) or record.problem is None:
        remedy = "Check that machine: no real one has this many"
        why = f"it sends {' and '.join(over)}"
        kept["problem"] = Problem("Not everything is shown", why, remedy)
    return replace(record, **kept)


def check(record: Any) -> None:
    """Raise `DecodeError` if a number, text or list in a record exceeds a limit."""
    values = [record]
    # The loop appends to this list.
    for value in values:
        kind = value.__class__
        if kind is int or kind is float:
            # NaN fails this comparison, too.
            if not LEAST_NUMBER < value < NUMBER_LIMIT:
                raise DecodeError(f"number out of range: {value}")
        elif kind is str:
            if len(value) > STRING_CHARACTERS:
                raise DecodeError(
                    f"text of more than {STRING_CHARACTERS:,} characters: {value}"
                )
        elif kind is dict:
            values.append(list(value.values()))
        elif kind is tuple or kind is list:
            if len(value) > ITEMS:
                raise DecodeError(f"more than {ITEMS:,} items in a list")
            values.extend(value)
        elif value is not None and is_dataclass(value):
            values += [getattr(value, name) for name in field_names(kind)]
