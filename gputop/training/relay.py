"""The relay: a small process that owns the terminal of a training and writes its output to a file.

It runs in its own session, so that the training continues when gputop ends, the connection drops
or the terminal closes. It needs only the standard library. The folder of a run has these files:

- `run.json`: the command and its processes. The relay adds the exit status at the end.
- `output.log`: the bytes that the command wrote.
- `times`: lines `TIME OFFSET`. Bytes from that offset on were written at that time or later.
- `lock`: locked while the relay runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RECORD, OUTPUT, TIMES, LOCK = "run.json", "output.log", "times", "lock"
MODE = 0o600
CHUNK_BYTES = 1 << 16
STEP_SECONDS = 0.2
"""Shortest time between two lines of `times`."""
DRAIN_SECONDS = 1.0
"""Longest wait for the last output after the command. Its children may keep the terminal open."""
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that are passed on to the command. Slurm announces its time limit by a signal."""
KEYS = {
    signal.SIGINT: b"\x03",
    signal.SIGTERM: b"\x03",
    signal.SIGQUIT: b"\x1c",
}
"""Keys of the terminal, Ctrl+C and Ctrl+\\, that end a command of another user, such as sudo.

It takes no signals from the relay, but from its terminal.
"""
NOT_FOUND = 127


class OutputFile:
    """The file of the output, with the times at which it grew."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._output = os.open(folder / OUTPUT, flags, MODE)
        self._times = os.open(folder / TIMES, flags, MODE)
        self._size = 0
        self._times_size = 0
        self._next_time = 0.0
        self.lost_bytes = 0
        """Bytes that could not be written, because the disk was full."""

    def write(self, data: bytes) -> None:
        """Append `data`. If the disk is full, only count the lost bytes: the training continues."""
        now = time.time()
        try:
            if time.monotonic() >= self._next_time:
                self._add_time(b"%.3f %d\n" % (now, self._size))
                self._next_time = time.monotonic() + STEP_SECONDS
            while data:
                written = os.write(self._output, data)
                self._size += written
                data = data[written:]
        except OSError:
            self.lost_bytes += len(data)

    def _add_time(self, line: bytes) -> None:
        """Append a whole line, or none of it: the next one would continue a part."""
        written = os.write(self._times, line)
        if written < len(line):
            os.ftruncate(self._times, self._times_size)
        else:
            self._times_size += written


def start(command: Sequence[str], columns: int, rows: int) -> tuple[int, int]:
    """Start the command on a new terminal. Return its pid and the terminal's descriptor."""
    pid, terminal = pty.fork()
    if pid == 0:
        _become(command)
    termios.tcsetwinsize(terminal, (rows, columns))
    return pid, terminal


def _become(command: Sequence[str]) -> None:
    """Replace this process by the command. Its input is empty, because no user can type."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os.execvp(command[0], [*command])  # noqa: S606 - this is the purpose
    except OSError as error:
        os.write(
            2,
            f"{command[0]}: {error.strerror}\n".encode(errors="replace"),
        )
    os._exit(NOT_FOUND)


def wait_in_thread(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended.

    Conda's Python, old kernels and some sandboxes have no `pidfd_open`. The thread never handles
    a signal: they are blocked when it starts.
    """
    ended, held_open = os.pipe()

    def wait() -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(held_open)

    threading.Thread(target=wait, daemon=True).start()
    return ended


def copy(terminal: int, ended: int, output: OutputFile) -> None:
    """Copy the output until the command ends. The descriptor `ended` is readable from then on."""
    end: float | None = None
    while end is None or time.monotonic() < end:
        wait = None if end is None else max(0.0, end - time.monotonic())
        watched = [terminal] if end is not None else [terminal, ended]
        readable, _, _ = select.select(watched, (), (), wait)
        if terminal in readable:
            try:
                data = os.read(terminal, CHUNK_BYTES)
            except OSError:  # every process has closed the terminal
                data = b""
            if not data:
                return
            output.write(data)
        elif end is None:
            end = time.monotonic() + DRAIN_SECONDS
        else:
            return


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Replace `run.json` at once, so that no reader sees a part of it."""
    new = folder / f"{RECORD}.new"
    new.write_text(json.dumps(record), encoding="utf-8")
    new.replace(folder / RECORD)


def write_end(folder: Path, record: dict[str, Any]) -> None:
    """Write the record with the exit status, even if the disk is full.

    There is room for it in the block of the record that it replaces.
    """
    try:
        write_record(folder, record)
    except OSError:
        with (folder / RECORD).open("r+", encoding="utf-8") as file:
            json.dump(record, file)


def main(words: Sequence[str]) -> None:
    """Run the command.

    The arguments are the folder, columns, rows, the command without secrets as JSON (for
    `run.json`), and the command.
    """
    folder, columns, rows, shown, *command = words
    here = Path(folder)
    lock = os.open(here / LOCK, os.O_WRONLY | os.O_CREAT, MODE)
    fcntl.flock(lock, fcntl.LOCK_EX)
    output = OutputFile(here)
    waiting = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    pid, terminal = start(command, int(columns), int(rows))
    ended = wait_in_thread(pid)

    def forward(number: int, _: object) -> None:
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            keys = KEYS.get(signal.Signals(number), b"")
            with contextlib.suppress(OSError):
                os.write(terminal, keys)

    for number in FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
    record = {
        "command": json.loads(shown),
        "folder": str(Path.cwd()),
        "pid": pid,
        "relay_pid": os.getpid(),
        "started": time.time(),
    }
    write_record(here, record)
    copy(terminal, ended, output)
    _, status = os.waitpid(pid, 0)
    record["ended"] = time.time()
    record["status"] = os.waitstatus_to_exitcode(status)
    record["lost_bytes"] = output.lost_bytes
    with contextlib.suppress(OSError):
        write_end(here, record)


if __name__ == "__main__":
    main(sys.argv[1:])
