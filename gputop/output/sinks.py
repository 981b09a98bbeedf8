"""Where a stream goes: to standard output or into a file, as JSON lines or CSV."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from gputop.growing import GrowingFile
from gputop.telemetry.recording import Recorder
from gputop.telemetry.stream import to_stdout, write_all

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from gputop.output.smi import CsvLines
    from gputop.telemetry.snapshot import Record

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Sink(Protocol):
    """Takes records, whole ones, until it is closed."""

    def write(self, record: Record) -> None:
        """Writes one; raises `OSError` for standard output, `OutputError` for a file."""
        ...

    def close(self) -> None:
        """Ends what it wrote."""
        ...


class Printed:
    """Standard output."""

    def __init__(self, csv: CsvLines | None) -> None:
        self._csv = csv

    def write(self, record: Record) -> None:
        """Prints it at once."""
        if self._csv is None:
            to_stdout(record)
        elif text := _text(self._csv, record):
            write_all(sys.stdout.fileno(), text)

    def close(self) -> None:
        """Nothing is held back."""


class CsvFile:
    """A file of CSV."""

    def __init__(self, path: Path, csv: CsvLines) -> None:
        self._file = GrowingFile(path)
        self._csv = csv

    def write(self, record: Record) -> None:
        """Appends its lines."""
        if text := _text(self._csv, record):
            self._file.write(text)

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def _text(csv: CsvLines, record: Record) -> bytes:
    return "".join(f"{line}\n" for line in csv.of(record)).encode()


def open_sink(path: Path | None, csv: CsvLines | None) -> Sink:
    """Standard output without a path. Raises `OutputError` where the file cannot be made."""
    if path is None:
        return Printed(csv)
    return Recorder(path) if csv is None else CsvFile(path, csv)


@contextmanager
def ended_whole(write: Callable[[Record], None]) -> Iterator[Callable[[Record], None]]:
    """`write`, so that signals come between two records, as `KeyboardInterrupt`, and not in one.

    The second one does not wait: a pipe may take no more.
    """
    writing = asked = False

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
        nonlocal asked
        if asked or not writing:
            raise KeyboardInterrupt
        asked = True

    def whole(record: Record) -> None:
        nonlocal writing
        writing = True
        write(record)
        writing = False
        if asked:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield whole
    finally:
        for number, was in before.items():
            signal.signal(number, was)
