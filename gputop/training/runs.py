"""Runs: commands under a relay. Start a run, find it again, and read its output."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gputop.agent.masking import masked_arguments
from gputop.agent.problem import Problem, ProblemError
from gputop.files import NoHomeError, user_folder
from gputop.training import relay

PIECE_BYTES = 1 << 14
"""Most bytes read of the output between two lines of `times`."""
START_SECONDS = 10.0
MOST_OF_A_NAME = 1000
SHOWN_CHARACTERS = 1 << 14
"""Most characters of a command that are kept. JSON may need six bytes for one."""


class RunError(ProblemError):
    """The command cannot be run, or the run cannot be found."""


@dataclass(frozen=True)
class Run:
    """State of a run at one moment, read from its folder."""

    folder: Path
    command: tuple[str, ...]
    """Command without secrets."""
    pid: int
    """Pid of the command, which leads a process group."""
    relay_pid: int
    started: float
    ended: float | None = None
    status: int | None = None
    """Exit status, or the negative number of the signal that ended it. None while it runs."""
    lost_bytes: int = 0

    @property
    def name(self) -> str:
        """Name for `--attach`."""
        return self.folder.name

    @property
    def is_running(self) -> bool:
        """True while the relay runs."""
        try:
            with (self.folder / relay.LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def signal(self, number: int) -> None:
        """Send a signal to the command, through the relay if it forwards this one.

        SIGKILL goes to the command itself, so that the relay can record the end.
        """
        if not self.is_running:
            return
        with contextlib.suppress(ProcessLookupError):
            if number in relay.FORWARDED:
                os.kill(self.relay_pid, number)
            else:
                os.killpg(self.pid, number)


def runs_folder() -> Path:
    """Return the folder of all runs. Raises `RunError` if the user has no home folder."""
    try:
        return user_folder("data") / "runs"
    except NoHomeError as error:
        problem = Problem(
            "The output cannot be kept",
            str(error),
            "Set XDG_DATA_HOME",
        )
        raise RunError(problem) from None


def read_run(folder: Path) -> Run | None:
    """Return the run in a folder, or None if there is none."""
    try:
        found = json.loads((folder / relay.RECORD).read_bytes())
        return Run(
            folder,
            tuple(map(str, found["command"])),
            int(found["pid"]),
            int(found["relay_pid"]),
            float(found["started"]),
            found.get("ended"),
            found.get("status"),
            found.get("lost_bytes", 0),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def all_runs() -> list[Run]:
    """Return all runs, the newest first."""
    found = []
    with contextlib.suppress(OSError):
        for folder in runs_folder().iterdir():
            run = read_run(folder)
            if run is not None:
                found.append(run)
    found.sort(key=lambda run: run.started, reverse=True)
    return found


def find_run(name: str | None) -> Run:
    """Return the newest run that matches, by the start of its name or by the command's pid.

    Runs that still run come before ended ones. Raises `RunError` if there is none.
    """
    runs = all_runs()
    if name is not None:
        runs = [
            r for r in runs if r.name.startswith(name) or name == str(r.pid)
        ]
    for run in runs:
        if run.is_running:
            return run
    if runs:
        return runs[0]
    what = f"There is no run {name}" if name is not None else "There is no run"
    remedy = "Start one: `gputop run -- python train.py`"
    raise RunError(Problem(what, f"{runs_folder()} has none", remedy))


def shown_command(command: Sequence[str]) -> list[str]:
    """Return the beginning of the command, without secrets.

    It is one argument of the relay, which may have 128 KiB; the names of many files are more.
    """
    shown = []
    left = SHOWN_CHARACTERS
    for argument in masked_arguments(command):
        if len(argument) >= left:
            shown.append(f"{argument[:left]}…")
            break
        shown.append(argument)
        left -= len(argument) + 1
    return shown


def _new_folder(name: str) -> Path:
    """Make the folder of a run. Raises OSError.

    Containers with the same home folder may start runs in the same second with the same pid.
    """
    for number in range(1, MOST_OF_A_NAME):
        folder = runs_folder() / name
        if number > 1:
            folder = runs_folder() / f"{name}-{number}"
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))


def start_run(
    command: Sequence[str],
    columns: int,
    rows: int,
    name: str = "",
) -> tuple[Run, subprocess.Popen[bytes]]:
    """Start a command under a relay. Return the run and the relay's process."""
    try:
        folder = _new_folder(
            name or time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}")
        )
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise RunError(
            Problem(
                "The output cannot be kept",
                why,
                "Free some space, or set XDG_DATA_HOME",
            ),
        ) from None
    words = [
        sys.executable,
        "-I",
        relay.__file__,
        str(folder),
        str(columns),
        str(rows),
        json.dumps(shown_command(command)),
    ]
    with (folder / "relay.err").open("wb") as errors:
        process = subprocess.Popen(
            [*words, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        run = read_run(folder)
        if run is not None:
            return run, process
        if process.poll() is not None:
            break
        time.sleep(0.01)
    process.kill()
    why = (
        (folder / "relay.err")
        .read_text(errors="replace")
        .strip()
        .rpartition("\n")[2]
    )
    problem = Problem(
        "The command was not started",
        why or "its relay does not answer",
        "Try again, or set XDG_DATA_HOME to a local folder",
    )
    raise RunError(problem)


class Piece(NamedTuple):
    """Output between two lines of `times`."""

    data: bytes
    time: float
    """Unix time at which it was written, within 0.2 s."""
    skipped_bytes: int = 0
    """Bytes before this piece that were not read, because too much came at once."""


class OutputReader:
    """Reads the output of a run from its start, as it grows.

    Only the last `PIECE_BYTES` of each 0.2 s are read, so that a fast output does not block the
    screen. The file keeps everything.
    """

    def __init__(self, folder: Path) -> None:
        self._output = folder / relay.OUTPUT
        self._times_file = folder / relay.TIMES
        self._offset = 0
        self._times: list[float] = []
        self._offsets: list[int] = []
        self._times_read = 0

    def read(self) -> Iterator[Piece]:
        """Yield the new output in pieces with their times."""
        with contextlib.suppress(OSError), self._output.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > self._offset:
                self._read_times()
            while self._offset < size:
                place = bisect_right(self._offsets, self._offset)
                end = size
                if place < len(self._offsets):
                    end = min(end, self._offsets[place])
                start = max(self._offset, end - PIECE_BYTES)
                skipped = start - self._offset
                file.seek(start)
                data = file.read(end - start)
                written = self._times[place - 1] if place else time.time()
                self._offset = end
                yield Piece(data, written, skipped)
        done = bisect_right(self._offsets, self._offset) - 1
        if done > 0:  # no longer needed
            del self._times[:done], self._offsets[:done]

    def _read_times(self) -> None:
        with contextlib.suppress(OSError), self._times_file.open("rb") as file:
            file.seek(self._times_read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._times_read += len(line)
                # On a full disk, earlier versions wrote parts of lines.
                with contextlib.suppress(ValueError):
                    moment, offset = map(float, line.split())
                    self._times.append(moment)
                    self._offsets.append(int(offset))


def exit_status(status: int) -> int:
    """Return the exit status as a shell reports it: 128 + the signal's number after a signal."""
    if status < 0:
        return 128 - status
    return status


def pass_on_signals(process: subprocess.Popen[bytes]) -> None:
    """Forward the signals of this process to the command, through its relay.

    SIGHUP, which a closed terminal sends, ends this process only.
    """

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    for number in relay.FORWARDED:
        if number != signal.SIGHUP:
            signal.signal(number, forward)


def copy_output(run: Run, descriptor: int) -> Iterator[None]:
    """Copy the raw output of a run until it ends. Yield whenever there is no new output.

    A slow reader does not slow the command down.
    """
    with (run.folder / relay.OUTPUT).open("rb") as file:
        ended = False
        while not ended:
            # Checked before reading, so that the last output is read as well.
            ended = not run.is_running
            while data := file.read(relay.CHUNK_BYTES):
                while data:
                    data = data[os.write(descriptor, data) :]
            if not ended:
                yield
