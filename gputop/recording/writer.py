"""Writes a recording: the lines of a stream, in a file that can be read from many places on."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from gputop.recording.file import GrowingFile
from gputop.schema.snapshot import Inventory, encode

if TYPE_CHECKING:
    from pathlib import Path

    from gputop.schema.snapshot import Record

SAMPLES_A_PART = 64
"""Samples between two repetitions of the inventory: what one damage can cost at most."""


class Recorder:
    """Writes records to a new file; raises `OutputError`."""

    def __init__(self, path: Path) -> None:
        self.file = GrowingFile(path)
        self._inventory: Inventory | None = None
        self._samples = 0

    def write(self, record: Record) -> None:
        """Appends one; whoever cuts the file off after it does not lose it."""
        if isinstance(record, Inventory):
            self._inventory = record
            self._line(record)
            return
        if self._samples == SAMPLES_A_PART:
            self._samples = 0
            self.file.part()
            if self._inventory is not None:
                self._line(self._inventory)
        self._line(record.with_secrets(shown=False))
        self._samples += 1

    def _line(self, record: Record) -> None:
        self.file.write(encode(record).encode() + b"\n")

    def close(self) -> None:
        """Ends the file."""
        self.file.close()


def default_name(hostname: str, now: float) -> str:
    """What a recording is called that was given no name: `gputop-node07-20251120-120000.jsonl.gz`.

    `now` is a Unix time; the name has it as the time of day here.
    """
    host = re.sub(r"[^A-Za-z0-9._-]+", "-", hostname)[:60].strip("-.") or "host"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"gputop-{host}-{stamp}.jsonl.gz"
