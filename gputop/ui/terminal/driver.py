"""The terminal, for Textual: read and written in the event loop, which it can never hold up.

In place of Textual's own driver, whose threads wait for the terminal, which writes to standard
error, and which takes a SIGCONT that no SIGTSTP came before for the start of another dashboard.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from typing import TYPE_CHECKING, Any

from textual import constants
from textual.driver import Driver
from textual.events import Resize
from textual.geometry import Size

from gputop.console import INTERRUPTED, terminal_size
from gputop.ui.terminal.keyboard import Typed
from gputop.ui.terminal.output import RESTORE, Outlet, open_terminal

if TYPE_CHECKING:
    from textual.app import App

MOUSE = "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h"
TAKE = "\x1b[?1049h\x1b[?25l\x1b[?1004h\x1b[?2026$p\x1b[?2004h\x1b[?7l"
"""Alternate screen, no cursor, reports of focus and paste, no line wrap; asks for whole frames."""
KEYBOARD = "\x1b[>25u"
"""Kitty's protocol: unambiguous escape codes, for all keys, with their text."""
CHUNK_BYTES = 4096
MOST_UNREAD = 200
"""Messages that the app has not looked at, before the keyboard waits."""
PAUSE_SECONDS = 0.02
RESIZE_SECONDS = 0.03
"""A window that is dragged tells its size very often: the last one in this time counts."""


class TerminalDriver(Driver):
    """Standard input and output of this process, which are a terminal."""

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size or terminal_size())
        self._typed = Typed()
        self._outlet = Outlet(self._loop, open_terminal(), self._paint_anew)
        self._modes: list[Any] | None = None
        """Of the terminal, as they were before."""
        self._active = False
        self._timer: asyncio.TimerHandle | None = None
        self._resize: asyncio.TimerHandle | None = None
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._loop.add_signal_handler(signal.SIGCONT, self._continue)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)

    @property
    def can_suspend(self) -> bool:
        """Whether Ctrl+Z is for us."""
        return True

    def write(self, data: str) -> None:
        """Sends a frame; nothing while the terminal is somebody else's."""
        if self._active:
            self._outlet.write(data)

    def start_application_mode(self) -> None:
        """Takes the terminal, also again where somebody else had it without our knowing."""
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(0)
            if not self._active:
                self._modes = [*modes[:6], [*modes[6]]]
            termios.tcsetattr(0, termios.TCSANOW, _raw(modes))
        again, self._active = self._active, True
        self.write(TAKE + (MOUSE if self._mouse else ""))
        # Textual has this setting since 8.2.7.
        if not again and not getattr(constants, "DISABLE_KITTY_KEY", False):
            self.write(KEYBOARD)  # pushed once: it is popped once
        self._loop.add_reader(0, self._read)
        self._tell_size()

    def disable_input(self) -> None:
        """Reads no more."""
        for timer in (self._timer, self._resize):
            if timer is not None:
                timer.cancel()
        self._timer = self._resize = None
        self._loop.remove_reader(0)

    def stop_application_mode(self) -> None:
        """Gives the terminal back as it was."""
        if not self._active:
            return
        self._active = False
        self.disable_input()
        self._outlet.finish(RESTORE)
        with contextlib.suppress(termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
            if self._modes is not None:
                termios.tcsetattr(0, termios.TCSANOW, self._modes)

    def close(self) -> None:
        """Writes no more."""
        self._outlet.close()

    def _suspend(self) -> None:
        self.stop_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _continue(self) -> None:
        """After `fg`; or after a SIGSTOP, when the shell may have had the terminal."""
        if self._auto_restart:
            self.start_application_mode()
            self._paint_anew()

    def _paint_anew(self) -> None:
        self.send_message(self.SignalResume())

    def _resized(self) -> None:
        if self._resize is None:
            self._resize = self._loop.call_later(RESIZE_SECONDS, self._tell_size)

    def _tell_size(self) -> None:
        self._resize = None
        size = Size(*terminal_size())
        self.send_message(Resize(size, size))

    def _read(self) -> None:
        """Takes in what was typed, unless the app has enough to do as it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unread() > MOST_UNREAD:
            self._rest()
            return
        try:
            data = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if _is_there():
                self._rest()
            else:
                self._loop.remove_reader(0)
                self._app.exit(return_code=INTERRUPTED)
            return
        for message in self._typed.feed(data):
            self.process_message(message)
        self._be_patient()

    def _unread(self) -> int:
        pumps = (self._app, *self._app.screen_stack[-1:])
        return sum(pump.message_queue_size for pump in pumps)

    def _rest(self) -> None:
        """Reads on in a moment; what is typed meanwhile waits in the terminal."""
        self._loop.remove_reader(0)
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._read_on)

    def _read_on(self) -> None:
        self._timer = None
        self._loop.add_reader(0, self._read)
        self._be_patient()

    def _be_patient(self) -> None:
        seconds = self._typed.patience
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._idle)

    def _idle(self) -> None:
        self._timer = None
        for message in self._typed.idle():
            self.process_message(message)


def _is_there() -> bool:
    try:
        termios.tcgetattr(0)
    except (termios.error, OSError):
        return False
    return True


def _raw(modes: list[Any]) -> list[Any]:
    """These with every key handed on as it is: Ctrl+C, Ctrl+S and Enter too."""
    changed = [*modes[:6], [*modes[6]]]
    changed[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    changed[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    changed[6][termios.VMIN] = 1
    return changed
