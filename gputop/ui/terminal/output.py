"""Writes to the terminal as fast as it takes it, and never waits: what is late is not sent.

A terminal that nobody reads, as on an SSH connection that stalls, holds up whoever writes to it.
Here frames wait for a moment; then they are dropped, and once the terminal takes output again the
screen is painted as it is by then.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"  # mouse
    b"\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[<u"  # whole frames, paste, line wrap, keyboard
    b"\x1b[?1049l\x1b[?25h\x1b[?1004l"  # alternate screen, cursor, focus
)
"""What leaves a terminal as a shell wants it."""
LATE_SECONDS = 0.5
"""A frame that has waited so long is of the past."""
END_SECONDS = 0.3
"""How long the last words wait for the terminal."""
CANCEL = b"\x18"
"""Ends a sequence of which the rest was dropped."""


def open_terminal() -> int:
    """A descriptor of standard output's terminal that does not block.

    Opened anew, for a shell shares the flags of what is open already. Where it may not be opened,
    as after `su`, the controlling terminal is; else it is standard output, which may block.
    """
    for path in (_name_of(1), os.ctermid()):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            if os.isatty(descriptor):
                return descriptor
            os.close(descriptor)
    return os.dup(1)


def _name_of(descriptor: int) -> str:
    try:
        return os.ttyname(descriptor)
    except OSError:
        return os.ctermid()


def write_last(descriptor: int, data: bytes) -> None:
    """Writes these in place of all that the terminal has not taken yet."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(descriptor, termios.TCOFLUSH)
        os.write(descriptor, CANCEL + data)


class FrameWriter:
    """Frames on their way to the terminal. `repaint` is called when some were dropped, later."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        repaint: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop, self._descriptor = loop, descriptor
        self._repaint, self._clock = repaint, clock
        self._frames: deque[tuple[float, bytes]] = deque()
        self._sent = 0
        """Bytes of the first frame that are out: its rest has to follow."""
        self._dropped = False
        self._waits = False
        """Whether the loop says when the terminal takes more."""

    @property
    def waiting_bytes(self) -> int:
        """How much has not been sent yet."""
        return sum(len(frame) for _, frame in self._frames) - self._sent

    def write(self, text: str) -> None:
        """Sends a frame, or drops it where the terminal is behind."""
        now = self._clock()
        if self._frames and now - self._frames[0][0] > LATE_SECONDS:
            self._dropped = True
            while len(self._frames) > bool(self._sent):
                self._frames.pop()
        if self._dropped:
            return
        self._frames.append((now, text.encode(errors="replace")))
        if not self._waits:
            self._drain()

    def finish(self, data: bytes) -> None:
        """Sends the last words; what waits is dropped where the terminal does not take it soon."""
        deadline = self._clock() + END_SECONDS
        self._dropped = False
        while len(self._frames) > bool(self._sent):
            self._frames.pop()
        self._frames.append((self._clock(), data))
        while self._send():
            left = deadline - self._clock()
            if left <= 0 or not select.select([], [self._descriptor], [], left)[1]:
                write_last(self._descriptor, data)
                self._frames.clear()
                self._sent = 0
        self._wait(False)

    def close(self) -> None:
        """Gives the terminal back."""
        self._wait(False)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _drain(self) -> None:
        self._wait(self._send())
        if not self._waits and self._dropped:
            self._dropped = False
            self._repaint()

    def _send(self) -> bool:
        """Sends what the terminal takes; whether something is left."""
        while self._frames:
            frame = self._frames[0][1]
            try:
                self._sent += os.write(self._descriptor, memoryview(frame)[self._sent :])
            except BlockingIOError:
                return True
            except OSError:  # it is gone, which who reads it will find out
                self._frames.clear()
                self._sent = 0
                return False
            if self._sent == len(frame):
                self._frames.popleft()
                self._sent = 0
        return False

    def _wait(self, waits: bool) -> None:
        if waits and not self._waits:
            self._loop.add_writer(self._descriptor, self._drain)
        elif self._waits and not waits:
            self._loop.remove_writer(self._descriptor)
        self._waits = waits
