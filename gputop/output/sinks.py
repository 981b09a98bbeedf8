"""Destinations of a stream: standard output or a file, as JSON lines or CSV."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gputop.recording.writer import GrowingFile, Recorder
from gputop.stream.sender import write_all, write_to_stdout

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from gputop.output.nvidia_smi import CsvLines
    from gputop.schema.snapshot import Record

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def open_sink(
    path: Path | None, csv: CsvLines | None
) -> tuple[Callable[[Record], None], Callable[[], None]]:
    """Return functions that write a record, and that close the output.

    The output is `path`, or standard output without one. Opening and writing raise `OutputError`.
    """
    if csv is None:
        if path is None:
            return write_to_stdout, lambda: None
        recorder = Recorder(path)
        return recorder.write, recorder.close
    file = None if path is None else GrowingFile(path)

    def write(record: Record) -> None:
        text = "".join(f"{line}\n" for line in csv.lines_of(record)).encode()
        if text and file is not None:
            file.write(text)
        elif text:
            write_all(sys.stdout.fileno(), text)

    return write, file.close if file is not None else lambda: None


@contextmanager
def whole_records(write: Callable[[Record], None]) -> Iterator[Callable[[Record], None]]:
    """Yield `write`, with signals delayed to the end of a record, as `KeyboardInterrupt`.

    The second signal does not wait, because a pipe may take no more data.
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
