"""A followed training: the lines and the steps of its output."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from gputop.agent.masking import masked_arguments
from gputop.agent.problem import Problem
from gputop.training.lines import PlainLines
from gputop.training.members import members
from gputop.training.progress import Progress
from gputop.training.runs import (
    PIECE_BYTES,
    OutputReader,
    Piece,
    Run,
    RunError,
    read_run,
)
from gputop.training.steps import Parse, parse_line

MOST_PIECES = 50
"""Most pieces that one update reads."""
SETTLE_SECONDS = 0.5
"""Time after which a line without an end counts as complete."""


class Source(Protocol):
    """A source of output."""

    def read(self) -> Iterator[Piece]:
        """Yield the new output in pieces with their times."""
        ...


class Training:
    """A training: its command, its output and its progress."""

    is_simulated = False

    def __init__(
        self,
        command: Sequence[str],
        pid: int,
        source: Source,
        parse: Parse | None = None,
        run: Run | None = None,
    ) -> None:
        self.command = command
        self.pid = pid
        self.run = run
        """Run of a relay, or None for a process that gputop did not start."""
        self.lines = PlainLines()
        self.progress = Progress()
        self.output_bytes = 0
        self._source = source
        self._parse = parse or parse_line
        self._last_time = 0.0
        self.ended = False
        """True once the command has ended and all its output was read."""

    def _has_ended(self) -> bool:
        if self.run is None:
            return not Path(f"/proc/{self.pid}").exists()
        if self.run.ended is None:
            self.run = read_run(self.run.folder) or self.run
        return self.run.ended is not None or not self.run.is_running

    def read(self) -> list[Piece]:
        """Return the new output. May block, because the file may be on a network file system."""
        has_ended = self._has_ended()
        pieces = list(islice(self._source.read(), MOST_PIECES))
        self.ended = has_ended and not pieces
        return pieces

    def update(self) -> bool:
        """Read and add the new output. Return True if there was any."""
        pieces = self.read()
        self.add(pieces)
        return bool(pieces)

    def add(self, pieces: Sequence[Piece]) -> None:
        """Add output to the lines and to the progress."""
        for piece in pieces:
            self.output_bytes += len(piece.data) + piece.skipped_bytes
            if piece.skipped_bytes:
                self.lines.skip(piece.skipped_bytes)
            self._last_time = piece.time
            for line in self.lines.feed(piece.data):
                self._add(line, piece.time)
        if not pieces and time.time() - self._last_time > SETTLE_SECONDS:
            for line in self.lines.settle():
                self._add(line, self._last_time)

    def clock(self) -> float:
        """Return the Unix time, or the time of the last output once the training has ended."""
        if self.ended and self._last_time:
            return self._last_time
        return time.time()

    def members(self, pids: Iterable[int]) -> frozenset[int]:
        """Return the pids that belong to the training."""
        return members(pids, self.pid)

    def _add(self, line: str, moment: float) -> None:
        reading = self._parse(line)
        if reading is not None:
            self.progress.add(reading, moment)


def training_of(run: Run, parse: Parse | None = None) -> Training:
    """Return the training of a run."""
    return Training(run.command, run.pid, OutputReader(run.folder), parse, run)


class FileReader:
    """Reads the output file of another program, starting near its end.

    Output gets the time at which it is read, because the file has no times.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = max(0, path.stat().st_size - PIECE_BYTES)

    def read(self) -> Iterator[Piece]:
        """Yield the new output. A file that became shorter is read again from its start."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset = 0
            size = os.fstat(file.fileno()).st_size
            start = max(self._offset, size - PIECE_BYTES)
            skipped = start - self._offset
            file.seek(start)
            data = file.read(size - start)
            self._offset = size
            if data:
                yield Piece(data, time.time(), skipped)


def attach(pid: int, parse: Parse | None = None) -> Training:
    """Return the training of a process whose output goes to a file. Raises `RunError`."""
    what = f"Process {pid} cannot be followed"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        for descriptor in (1, 2):
            path = Path(f"/proc/{pid}/fd/{descriptor}").readlink()
            if path.is_absolute() and stat.S_ISREG(path.stat().st_mode):
                words = (
                    command.decode(errors="replace").strip("\0").split("\0")
                )
                shown = [*masked_arguments(words)]
                return Training(shown, pid, FileReader(path), parse)
    except FileNotFoundError:
        problem = Problem(
            what,
            "there is no such process, or its file is gone",
            "Look at `ps`",
        )
        raise RunError(problem) from None
    except PermissionError:
        problem = Problem(
            what,
            "it belongs to another user",
            "Use sudo, or ask the owner",
        )
        raise RunError(problem) from None
    except OSError as error:
        raise RunError(
            Problem(what, str(error.strerror), "Try again"),
        ) from None
    why = "its output goes to a terminal or a pipe, not to a file"
    raise RunError(Problem(what, why, "Start it with `gputop run -- COMMAND`"))
