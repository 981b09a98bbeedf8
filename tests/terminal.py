"""A terminal for end-to-end tests: a program in a real pty, its screen kept by pyte."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import re
import select
import signal
import struct
import sys
import termios
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte
from wcwidth import wcwidth

MARKER = "GPUTOP_TEST_RUN"
"""Environment variable by which a run's processes are found, however deep they are."""

PATIENCE_SECONDS = 45.0
"""In which something has come of it, however busy this machine is."""
FRAME_SECONDS = 0.5
"""After which the rest of a frame does not come any more: who painted it may be gone."""
ALTERNATE_SCREEN = 1049
SHOW_CURSOR = 25
WHOLE_FRAMES = 2026
"""Synchronized output, on while a program paints."""

# What pyte takes for text, or fails on: sequences with private markers or intermediates that it
# does not know, and the strings of DCS, SOS, PM and APC.
_CSI = re.compile(rb"\x1b\[([0-?]*)([ -/]*)([@-~])")
_FRAMES = b"\x1b[?2026$p"
_STRING = re.compile(rb"\x1b[PX^_].*?\x1b\\", re.DOTALL)
_UNFINISHED = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_](?:[^\x1b]|\x1b(?!\\))*)?\Z", re.DOTALL
)


def set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


class ScreenError(AssertionError):
    """What a test waited for did not come; the message has the screen."""


class _Screen(pyte.Screen):
    """pyte's, with an alternate screen, and with answers to what a program asks its terminal."""

    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], None]) -> None:
        self._main: tuple[Any, Any] | None = None
        self._answer = answer
        super().__init__(columns, rows)

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())

    @property
    def display(self) -> list[str]:
        """The rows; half of a wide character that was written over is blank, as in a terminal."""
        return [
            "".join(
                self.buffer[y][x].data
                or ("" if x and wcwidth(self.buffer[y][x - 1].data[:1] or " ") == 2 else " ")
                for x in range(self.columns)
            )
            for y in range(self.lines)
        ]

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        super().set_mode(*modes, **kwargs)
        if kwargs.get("private") and ALTERNATE_SCREEN in modes and self._main is None:
            self._main = copy.deepcopy(self.buffer), copy.copy(self.cursor)
            self.erase_in_display(2)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and ALTERNATE_SCREEN in modes and self._main is not None:
            self.buffer, self.cursor = self._main
            self._main = None
            self.dirty.update(range(self.lines))


class Terminal:
    """A program as leader of its own session, with this terminal as its controlling one.

    Output is read while a method waits: `wait_for`, `collect`, `wait` and `wait_until_gone`. What
    is waited for is looked for in whole frames, of a program that says where they begin and end:
    a pty gives 4 KiB at a time, in which a frame's first rows may come without its last.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        self.run_id = uuid.uuid4().hex
        self.raw = b""
        self.on_read: Callable[[Terminal], None] = lambda _: None
        """Called after each piece of output: what must be so at every moment."""
        self._status: int | None = None
        self._held = b""
        self._taken_at = 0.0
        self._master, slave = os.openpty()
        set_size(self._master, columns, rows)
        self.line_modes_before = self.line_modes
        self.screen = _Screen(columns, rows, self._write)
        self._stream = pyte.ByteStream(self.screen)
        environment = {**os.environ, "TERM": "xterm-256color", **(env or {}), MARKER: self.run_id}
        self._started = time.monotonic()
        # A session leader without a terminal is given the first one that it opens as its own. With
        # posix_spawn none of our code runs in the child, so a process with threads may do this.
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, 0, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP],
            )
        except OSError:
            self.close_pty()
            raise
        finally:
            os.close(slave)
        self._pidfd = os.pidfd_open(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave nothing behind, whatever the test did."""
        self.close_pty()
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._until_ended(next(iter(left)), 5.0)
        self.wait()
        os.close(self._pidfd)

    @property
    def text(self) -> str:
        """The screen's rows, without the blanks at their ends."""
        return "\n".join(row.rstrip() for row in self.screen.display)

    @property
    def bytes_received(self) -> int:
        return len(self.raw)

    @property
    def modes(self) -> set[int]:
        """The private modes that are set, such as `ALTERNATE_SCREEN` or 1000 for the mouse."""
        return {mode >> 5 for mode in self.screen.mode if mode >= 32}

    @property
    def line_modes(self) -> list[Any]:
        """As the kernel has them: echo, line by line, and so on."""
        return termios.tcgetattr(self._master)

    @property
    def waiting_bytes(self) -> int:
        answer = fcntl.ioctl(self._master, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(answer, sys.byteorder)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def wait_for(
        self,
        wanted: str | Callable[[Terminal], object],
        timeout: float = PATIENCE_SECONDS,
        what: str = "",
    ) -> float:
        """Read until the screen has that text, or the predicate is true of the terminal.

        Returns the seconds since the start; raises `ScreenError` after `timeout`, or as soon as
        the program is gone.
        """
        deadline = time.monotonic() + timeout

        def there() -> bool:
            return wanted in self.text if isinstance(wanted, str) else bool(wanted(self))

        more = True
        while (self.is_painting and more) or not there():
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not more:
                reason = f"after {timeout:g} s" if remaining <= 0 else "when the output ended"
                raise ScreenError(f"no {what or repr(wanted)} {reason}; on screen:\n{self.text}")
            more = self._read(min(remaining, FRAME_SECONDS) if self.is_painting else remaining)
        return self.elapsed

    def until(self, true: Callable[[], object]) -> None:
        """Wait for something that need not be drawn; reads the program's output meanwhile."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            if time.monotonic() > deadline:
                raise ScreenError(f"it does not come; on screen:\n{self.text}")
            self.collect(0.02)

    def pid_of(self, word: str) -> int | None:
        """A process other than the program with that word in its command line, if there is one."""
        lines = self.processes().items()
        return next((pid for pid, line in lines if word in line and pid != self.pid), None)

    def collect(self, seconds: float) -> int:
        """Read for that long; returns the number of bytes that came."""
        before, deadline = self.bytes_received, time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0 and self._read(remaining):
            pass
        return self.bytes_received - before

    def send(self, keys: str | bytes) -> None:
        """Type; keys beyond letters are their escape sequences (`\\x1b[A` is up)."""
        self._write(keys.encode() if isinstance(keys, str) else keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size; the kernel tells the program (SIGWINCH)."""
        self.screen.resize(rows, columns)
        set_size(self._master, columns, rows)

    def close_pty(self) -> None:
        """Hang up, as a terminal window that is closed: the kernel sends SIGHUP."""
        if self._master >= 0:
            os.close(self._master)
        self._master = -1

    def kill(self, signal_number: int) -> None:
        """Send the program a signal; its children get none."""
        signal.pidfd_send_signal(self._pidfd, signal_number)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """The program's exit status, negative for a signal; reads its output meanwhile."""
        if self._status is None:
            if not self._until_ended(self.pid, timeout):
                raise ScreenError(f"still running after {timeout:g} s; on screen:\n{self.text}")
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def processes(self) -> dict[int, str]:
        """Command line by pid of all live processes of this run, however they descend."""
        return processes_of(self.run_id)

    def wait_until_gone(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until the program and all that it started are gone; reads its output meanwhile."""
        deadline = time.monotonic() + timeout
        while left := self.processes():
            if not self._until_ended(next(iter(left)), deadline - time.monotonic()):
                rows = "\n".join(f"{pid} {command}" for pid, command in left.items())
                raise ScreenError(f"still there after {timeout:g} s:\n{rows}")

    def _until_ended(self, pid: int, timeout: float) -> bool:
        """Read until that process has ended, and what it wrote before; false after `timeout`."""
        deadline = time.monotonic() + timeout
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            sources, ready = [pidfd, self._master], list[int]()
            while ready != [pidfd]:
                sources = [fd for fd in sources if fd >= 0]
                ready, _, _ = select.select(sources, [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    return False
                if self._master in ready and not self._read(0):
                    sources.remove(self._master)
        finally:
            os.close(pidfd)
        return True

    def _write(self, data: bytes) -> None:
        while data and self._master >= 0:
            data = data[os.write(self._master, data) :]

    def _read(self, timeout: float) -> bool:
        """Take in what comes within that time; false where no more can come."""
        if self._master < 0:
            return False
        if not select.select([self._master], [], [], timeout)[0]:
            return True
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # EIO: nobody has the other side open any more
            return False
        self.raw += data
        self._take(data)
        return True

    @property
    def is_painting(self) -> bool:
        """Whether there is more to come of the frame on the screen."""
        return WHOLE_FRAMES in self.modes and self.elapsed - self._taken_at < FRAME_SECONDS

    def _take(self, data: bytes) -> None:
        data = self._held + data
        unfinished = _UNFINISHED.search(data)
        end = unfinished.start() if unfinished else len(data)
        self._held = data[end:]
        self._taken_at = self.elapsed
        if _FRAMES in data[:end]:
            self._write(b"\x1b[?2026;2$y")
        self._stream.feed(_CSI.sub(_known, _STRING.sub(b"", data[:end])))
        self.on_read(self)


def _known(sequence: re.Match[bytes]) -> bytes:
    parameters, intermediates, final = sequence.groups()
    private = parameters[:1] in b"<=>" or (parameters[:1] == b"?" and final not in b"hlJK")
    return b"" if intermediates or b":" in parameters or (parameters and private) else sequence[0]


def processes_of(run_id: str) -> dict[int, str]:
    wanted = f"{MARKER}={run_id}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # Gone meanwhile, or somebody else's. A zombie has no environment left.
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode(errors="replace").strip()
    return found
