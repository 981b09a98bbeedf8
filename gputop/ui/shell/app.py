"""An app that stays for as long as its terminal does: it hears signals, and survives its faults."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import on
from textual.worker import Worker, WorkerState

from gputop.exits import INTERRUPTED
from gputop.text import visible
from gputop.ui.shell.themed import ThemedApp
from gputop.ui.shell.watchdog import Watchdog

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

THRESHOLDS = 10_000, 2, 2
"""New objects until the collector looks through them, and such looks until it looks through older
ones. A tick makes thousands that soon go without it, and at Python's own 700 it took a tenth of the
time; with its own 10 and 10, a screen that was closed stayed for an hour."""
COLLECT_SECONDS, COLLECT_SHARE = 10.0, 0.001
"""Between times that memory is given back, of some 10 ms; and of the time at most, where objects
are many: Python itself looks only when a quarter are new, and memory grows by that."""
TICK_SECONDS = 0.5
"""Between looks at whether the terminal is still there, and at what comes without a record."""


class ResidentApp(ThemedApp, inherit_bindings=False):
    """What the screens that stay have in common; `tick` is called twice a second."""

    CSS_PATH = Path(__file__).with_name("gputop.tcss")  # also for those elsewhere
    TITLE = "gputop"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False  # ours has what keys do, and only what they do here

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """The arguments are those of `ThemedApp`."""
        super().__init__(*arguments, **options)
        self.watchdog = Watchdog()
        self.fault: str | None = None
        """What ended it that should not have."""

    def on_mount(self) -> None:
        """Starts to listen: to signals, to the terminal's end."""
        gc.freeze()  # what is here now stays: a full collection would hold up a key by 20 ms
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
        self._collect_at = time.monotonic() + COLLECT_SECONDS
        self.set_interval(TICK_SECONDS, self._tick)
        # After Ctrl+Z and fg the terminal has nothing left of what it was sent; one that was
        # behind has not been sent everything.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            self.watchdog.watch(loop, lambda: self.exit(return_code=INTERRUPTED), INTERRUPTED)

    def _tick(self) -> None:
        if not self.is_headless and not _terminal_is_there():
            self.exit(return_code=INTERRUPTED)
        self.tick()
        now = time.monotonic()
        if now >= self._collect_at:
            _give_back_memory()
            took = time.monotonic() - now
            self._collect_at = now + max(COLLECT_SECONDS, took / COLLECT_SHARE)

    def tick(self) -> None:
        """Shows what changes with time alone."""

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Says something, in place of what was said before."""
        self.clear_notifications()
        for screen in self.screen_stack:  # Textual leaves what was around each of them, for ever
            for around in screen.query("ToastHolder"):
                self.call_later(around.remove)  # who says something may be outside of the app
        message = "\n".join(map(visible, message.splitlines()))
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.say(event.worker.error)

    def say(self, error: BaseException) -> None:
        """A fault of our own is said, and does not end the screen."""
        self.log.error(error)
        self.notify(_described(error), title="A fault in gputop", severity="error")

    def _fatal_error(self) -> None:
        """Ends with one line instead of Textual's traceback, which `GPUTOP_DEBUG` brings back.

        Textual calls it for an exception that nobody caught; a later one may not, and then its
        traceback is what there is.
        """
        error = sys.exception()
        if error is None or os.environ.get("GPUTOP_DEBUG"):
            super()._fatal_error()
            return
        self.fault = _described(error)
        self.panic()


def _described(error: BaseException) -> str:
    return " ".join(visible(f"{type(error).__name__}: {error}").split())


def _give_back_memory() -> None:
    """Collect garbage, and return to the system what glibc keeps of it: 4 MiB in half an hour."""
    import ctypes  # of which the first screen has no need

    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such call
        ctypes.CDLL(None).malloc_trim(0)


def _terminal_is_there() -> bool:
    """Whether standard input still is a terminal: on a dead one Textual's own reader would spin."""
    try:
        termios.tcgetattr(0)
    except (termios.error, OSError):
        return False
    return True
