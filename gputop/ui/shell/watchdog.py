"""Watchdog that lets signals end the dashboard even while its event loop is blocked.

A blocked loop, such as in a write to a terminal that could not be reopened, handles no signals.
So the handlers are Python's own, which run during that wait, and a thread ends the process if the
loop does not in time. Children end when their standard input does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import threading
from typing import TYPE_CHECKING, Any

from gputop.ui.terminal.output import RESTORE, open_terminal, write_last
from gputop.ui.terminal.skeleton import SKELETON

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
PATIENCE_SECONDS = 1.2
"""Seconds from a signal to the forced end: within two seconds nothing may be left."""


class Watchdog:
    """Handler of signals. Create it before Textual changes the terminal's modes."""

    def __init__(self) -> None:
        self._modes: list[Any] | None = None
        with contextlib.suppress(termios.error, OSError):
            self._modes = SKELETON.modes or termios.tcgetattr(0)

    def watch(
        self, loop: asyncio.AbstractEventLoop, leave: Callable[[], None], status: int
    ) -> None:
        """Have signals call `leave` in the loop, or end the process with `status` if it is blocked.

        Call it in the main thread, as Python requires for signals.
        """
        heard, tell = os.pipe()

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
            for each in SIGNALS:
                signal.signal(each, signal.SIG_IGN)  # one is enough
            os.write(tell, b"!")
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(leave)

        def wait() -> None:
            told = os.read(heard, 1)
            os.close(heard)
            if told:
                threading.Event().wait(PATIENCE_SECONDS)
                _end(status, self._modes)

        # Started now: whoever starts a thread in a signal handler may hold a lock that it needs.
        threading.Thread(target=wait, name="watchdog", daemon=True).start()
        for number in SIGNALS:
            signal.signal(number, handle)


def _end(status: int, modes: list[Any] | None) -> None:
    """End the process now, and restore the terminal as far as possible."""
    with contextlib.suppress(OSError, termios.error):
        if modes is not None:
            termios.tcsetattr(0, termios.TCSANOW, modes)
        write_last(open_terminal(1, os.O_WRONLY), RESTORE)
    os._exit(status)
