"""Write frames to the terminal without ever waiting for it; late frames are dropped.

A terminal that nobody reads, such as a stalled SSH connection, blocks its writers. Here frames
wait for a moment, then they are dropped, and the screen is repainted once the terminal takes
output again.
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
"""Sequence that restores the terminal for a shell."""
LATE_SECONDS = 0.5
"""Age at which waiting frames are dropped."""
END_SECONDS = 0.3
"""Most seconds that the last output waits for the terminal."""
CANCEL = b"\x18"
"""Cancels a sequence whose rest was dropped."""


def open_terminal() -> int:
    """Return a non-blocking descriptor of standard output's terminal.

    It is opened again, as a shell shares the flags of open descriptors. Where that is not
    permitted, as after `su`, it is the controlling terminal, or standard output, which may block.
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
    """Discard pending output of the terminal and write this instead."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(descriptor, termios.TCOFLUSH)
        os.write(descriptor, CANCEL + data)


class FrameWriter:
    """Queue of frames for the terminal. After drops, `repaint` is called once it drains."""

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
        """Bytes sent of the first frame: its rest must follow."""
        self._dropped = False
        self._waits = False
        """True while the loop watches for the terminal to take more."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes not sent yet."""
        return sum(len(frame) for _, frame in self._frames) - self._sent

    def write(self, text: str) -> None:
        """Send a frame, or drop it if the terminal is behind."""
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
        """Send the last output; waiting frames are dropped."""
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
        """Close the descriptor."""
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
        """Send what the terminal takes; return True if something is left."""
        while self._frames:
            frame = self._frames[0][1]
            try:
                self._sent += os.write(self._descriptor, memoryview(frame)[self._sent :])
            except BlockingIOError:
                return True
            except OSError:  # the terminal is gone, which its reader will notice
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
