"""Write to the terminal without ever waiting for it: a frame is made when the line is free.

A terminal that nobody reads, such as a stalled SSH connection, blocks its writers. Then no frame is
made until it takes output again, and that one shows the newest.

The buffers of a pty, of sshd and of TCP hold seconds or minutes of a slow line, so a terminal that
takes output may still be far behind. Each answer to a status query says how far it has come.
"""

from __future__ import annotations

import contextlib
import math
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
BLOCKED_SECONDS = 10.0
"""Seconds for which a terminal that took no more counts as slow."""
PIECE_BYTES = 1000
"""Bytes of a frame for a slow terminal, roughly: what comes after them is newer."""
AGAIN_SECONDS = 0.1
"""Seconds after which a line that was not free is looked at again, if no answer comes before."""
END_SECONDS = 0.3
"""Most seconds that the last output waits for the terminal."""
CANCEL = b"\x18"
"""Cancels a sequence whose rest was dropped."""
QUERY, ANSWER = "\x1b[5n", "\x1b[0n"
"""Status query of a VT100, and the answer that all is well."""
FIRST_BYTES = 2000
"""Bytes that may be on their way until the line is known."""
FIRST_SECONDS = 0.25
"""Seconds after which a terminal that has not answered counts as one that does not."""
ASK_BYTES = 1000
"""Bytes after which the terminal is asked again."""
SLOW_SECONDS = 0.25
"""Seconds that `ASK_BYTES` or more take on a slow line."""
AHEAD_SECONDS = 0.6
"""Seconds of a slow line's output that may be on their way."""
LEAST_BYTES = 500
ASK_AGAIN_SECONDS = 2.0
"""Seconds without an answer after which the terminal is asked again: it may have been lost."""
LOST_SECONDS = 30.0
"""Seconds after which an answer counts as lost, and the line as dead or the terminal as another."""


def open_terminal(standard: int, flags: int) -> int:
    """Return a non-blocking descriptor of the terminal of standard input or output.

    It is opened again, as a shell shares the flags of open descriptors. Where that is not
    permitted, as after `su`, it is the controlling terminal, or the standard one, which may block.
    """
    for name_of in (os.ttyname, lambda _: os.ctermid()):
        with contextlib.suppress(OSError):
            descriptor = os.open(name_of(standard), flags | os.O_NOCTTY | os.O_NONBLOCK)
            if os.isatty(descriptor):
                return descriptor
            os.close(descriptor)
    return os.dup(standard)


def is_connected() -> bool:
    """Return True if standard input is a terminal: on a dead one Textual's reader would spin."""
    return os.isatty(0)


def write_last(descriptor: int, data: bytes) -> None:
    """Discard pending output of the terminal and write this instead."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(descriptor, termios.TCOFLUSH)
        os.write(descriptor, CANCEL + data)


class FlowControl:
    """Estimate of what the terminal has not shown yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._on_way = 0
        """Bytes since the last query that was answered."""
        self._asked: tuple[float, int] | None = None
        """Time of the query without an answer, and the bytes until there."""
        self._asked_last = 0.0
        self._fastest = math.inf
        """Seconds of the fastest answer, or infinity before the first."""
        self._most: float = FIRST_BYTES
        """Bytes that may be on their way."""

    def begin(self) -> str:
        """Forget the terminal, and return the first query for it."""
        self._asked_last = self._clock()
        self._asked, self._on_way = (self._asked_last, 0), 0
        self._fastest, self._most = math.inf, FIRST_BYTES
        return QUERY

    @property
    def answer_seconds(self) -> float:
        """Seconds in which an answer is to come, or 0 if none is expected."""
        if self._asked is None:
            return 0.0
        if self._fastest == math.inf:  # it may be a terminal that does not answer
            return max(0.0, FIRST_SECONDS - (self._clock() - self._asked[0]))
        return 2 * self._fastest + SLOW_SECONDS

    def room(self) -> int | None:
        """Return the bytes that may be sent now, or None for any number."""
        if self._asked is not None:
            waited = self._clock() - self._asked[0]
            if waited > LOST_SECONDS:
                self._asked, self._fastest, self._most = None, math.inf, math.inf
            elif self._fastest == math.inf:
                self._most = math.inf if waited > FIRST_SECONDS else self._most
            elif waited > self.answer_seconds:
                return 0
        if self._most == math.inf:
            return None
        left = int(self._most - self._on_way)
        return left if left >= LEAST_BYTES // 2 else 0

    def sent(self, count: int) -> None:
        self._on_way += count

    def ask(self) -> str:
        """Return a query for the terminal if it is time for one, or an empty string."""
        least = ASK_BYTES if self._most == math.inf else LEAST_BYTES
        # Without room nothing is sent that a later query could follow.
        if self._asked is not None or (self._on_way < least and self.room() != 0):
            return ""
        self._asked_last = self._clock()
        self._asked = self._asked_last, self._on_way
        return QUERY

    def ask_again(self) -> str:
        """Return another query if the answer to the last one is late: any answer will do.

        Nothing else is sent meanwhile, so that it tells of the same bytes.
        """
        now = self._clock()
        if self._asked is None or now - self._asked_last < ASK_AGAIN_SECONDS:
            return ""
        self._asked_last = now
        return QUERY

    def answered(self) -> None:
        if self._asked is None:
            return
        (at, count), self._asked = self._asked, None
        seconds = self._clock() - at
        self._fastest = min(self._fastest, seconds)
        self._on_way -= count
        on_line = seconds - self._fastest
        is_enough = (
            count >= LEAST_BYTES
        )  # to tell a slow line from a moment without a processor
        if on_line > SLOW_SECONDS * min(1.0, count / ASK_BYTES if is_enough else 1.0):
            self._most = max(LEAST_BYTES, AHEAD_SECONDS * count / on_line)
        elif is_enough:
            self._most = math.inf


class FrameWriter:
    """Queue of output for the terminal.

    Once it is empty and the line is free, `next_frame` is asked for a frame of about so many bytes,
    or any number for None.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        next_frame: Callable[[int | None], str] = lambda _: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop, self._descriptor = loop, descriptor
        self._next_frame, self._clock = next_frame, clock
        self.flow = FlowControl(clock)
        self._again: asyncio.TimerHandle | None = None
        self._blocked_at = -BLOCKED_SECONDS
        self._frames: deque[bytes] = deque()
        self._sent = 0
        """Bytes sent of the first frame: its rest must follow."""
        self._waits = False
        """True while the loop watches for the terminal to take more."""

    def write(self, text: str) -> None:
        """Send output before the next frame."""
        if text:
            self._frames.append(text.encode(errors="replace"))
        self.send_frame()

    def send_frame(self) -> None:
        """Send the next frame once the terminal takes it."""
        if not self._waits:
            self._drain()

    def answered(self) -> None:
        """Go on after the terminal's answer to a query."""
        self.flow.answered()
        self.write(self.flow.ask())

    def finish(self, data: bytes) -> None:
        """Send the last output; waiting frames are dropped."""
        deadline = self._clock() + END_SECONDS
        while len(self._frames) > bool(self._sent):
            self._frames.pop()
        self._frames.append(data)
        while self._send():
            left = deadline - self._clock()
            if left <= 0 or not select.select([], [self._descriptor], [], left)[1]:
                write_last(self._descriptor, data)
                self._frames.clear()
                self._sent = 0
        self._wait(False)

    def close(self) -> None:
        self._wait(False)
        if self._again is not None:
            self._again.cancel()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _drain(self) -> None:
        waits = self._send()
        while not waits and (frame := self._make_frame()):
            self._frames.append(frame)
            waits = self._send()
        self._wait(waits)

    def _make_frame(self) -> bytes:
        """Return the next frame for which the line is free, or nothing."""
        most = self.flow.room()
        if most == 0:
            if self._again is None:
                self._again = self._loop.call_later(AGAIN_SECONDS, self._look_again)
            return (self.flow.ask() or self.flow.ask_again()).encode()
        if self._clock() - self._blocked_at < BLOCKED_SECONDS:
            most = PIECE_BYTES
        frame = self._next_frame(most)
        if frame:
            self.flow.sent(len(frame))
            frame += self.flow.ask()
        return frame.encode(errors="replace")

    def _look_again(self) -> None:
        self._again = None
        self.send_frame()

    def _send(self) -> bool:
        """Send what the terminal takes; return True if something is left."""
        while self._frames:
            frame = self._frames[0]
            try:
                self._sent += os.write(
                    self._descriptor, memoryview(frame)[self._sent :]
                )
            except BlockingIOError:
                self._blocked_at = self._clock()
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
