"""Signals end the dashboard even while its event loop is held up by a terminal that nobody reads.

Textual's writes block once the terminal takes no more, as over an SSH connection that stalls, and
an event loop that waits for one hears of no signal. So the handlers are Python's own, which run in
the midst of that wait, and a thread ends the process where the loop does not in time. Children end
when their standard input does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
PATIENCE_SECONDS = 1.2
"""From a signal to the end that asks nobody: within two seconds nothing is to be left."""
RESTORE = b"\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
RESTORE += b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
"""What Textual sends at its end: mouse, paste, keyboard, alternate screen, cursor."""


class Watchdog:
    """Made before Textual changes the terminal's modes, to be able to give them back."""

    def __init__(self) -> None:
        self._modes: list[Any] | None = None
        with contextlib.suppress(termios.error, OSError):
            self._modes = termios.tcgetattr(0)

    def watch(
        self, loop: asyncio.AbstractEventLoop, leave: Callable[[], None], status: int
    ) -> None:
        """Has signals call `leave` in the loop, and end the process with `status` if it cannot.

        To be called in the main thread, as Python has it with signals.
        """
        heard, tell = os.pipe()

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
            for each in SIGNALS:
                signal.signal(each, signal.SIG_IGN)  # one is enough
            os.write(tell, b"!")
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(leave)

        def wait() -> None:
            os.read(heard, 1)
            threading.Event().wait(PATIENCE_SECONDS)
            _end(status, self._modes)

        # Started now: whoever starts a thread in a signal handler may hold a lock that it needs.
        threading.Thread(target=wait, name="watchdog", daemon=True).start()
        for number in SIGNALS:
            signal.signal(number, handle)


def _end(status: int, modes: list[Any] | None) -> None:
    """Ends the process here and now; the terminal is restored as far as it takes it."""
    with contextlib.suppress(OSError, termios.error):
        if modes is not None:
            termios.tcsetattr(0, termios.TCSANOW, modes)
        # Opened anew: the shell shares the flags of what is open already.
        terminal = os.open(os.ttyname(2), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        os.write(terminal, RESTORE)
    os._exit(status)
