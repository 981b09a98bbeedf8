"""Textual driver that reads and writes the terminal in the event loop and never blocks it.

Textual's own driver waits for the terminal in threads, writes to standard error, and treats a
SIGCONT without a SIGTSTP before it as the start of another app.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import termios
import time
from typing import TYPE_CHECKING, Any

from textual import constants
from textual.driver import Driver
from textual.events import Resize
from textual.geometry import Size

from gputop.console import INTERRUPTED, terminal_size
from gputop.ui.terminal import output, textual_patches
from gputop.ui.terminal.key_parser import KeyParser
from gputop.ui.terminal.screen_model import ScreenModel, Sequences
from gputop.ui.terminal.skeleton import SKELETON, silent

if TYPE_CHECKING:
    from textual.app import App

MOUSE = "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h"
ALTERNATE = "\x1b[?1049h"
ENTER = ALTERNATE + "\x1b[?25l\x1b[?1004h\x1b[?2026$p\x1b[?2004h\x1b[?7l"
"""Alternate screen, no cursor, focus and paste reports, synchronized-output query, no wrap."""
KEYBOARD = "\x1b[>25u"
"""Kitty keyboard protocol: unambiguous escape codes for all keys, with their text."""
START_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: the terminal shows what is between them at once."""
UNMARKED_BYTES = 256
"""Frames up to this are not marked: they arrive at once."""
NOT_TEXT = re.compile(r"(\x07|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b\[\?[\d;]+[hl])*")
"""Output that leaves the screen as it is: bell, clipboard, modes."""
MOVE = re.compile(r"\x1b\[\d+;\d+H")
"""Textual's last output of each update: to the cursor, which is hidden."""
CHUNK_BYTES = 4096
MOST_UNREAD = 200
"""Unread messages of the app before input pauses."""
PAUSE_SECONDS = 0.02
RESIZE_SECONDS = 0.03
"""Delay after a resize: a dragged window reports many sizes."""


class TerminalDriver(Driver):
    """Driver for standard input and output, which are a terminal."""

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size or terminal_size())
        self._typed = KeyParser(answered=self._answered)
        self._screen = ScreenModel(*terminal_size(), Sequences.of_terminal())
        self._is_modelled = textual_patches.capture(self._screen.put)
        """False if Textual's own output is sent, which is not the known one."""
        self._marks_frames = False
        """True if the terminal knows synchronized output."""
        # What is there to read may be gone: a shell reads it while the app is stopped.
        self._input = output.open_terminal(0, os.O_RDONLY)
        self._outlet = output.FrameWriter(
            self._loop, output.open_terminal(1, os.O_WRONLY), self.repaint, self._next_frame
        )
        self._modes: list[Any] | None = None
        """Modes of the terminal before the app."""
        self._active = False
        self._typed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._resize: asyncio.TimerHandle | None = None
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._loop.add_signal_handler(signal.SIGCONT, self._continue)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)

    @property
    def can_suspend(self) -> bool:
        """True: Ctrl+Z suspends the app."""
        return True

    def write(self, data: str) -> None:
        """Send Textual's output, or what it changed of the screen, while the terminal is ours."""
        if not self._active:
            return
        if not self._is_modelled:
            self._outlet.write(data)
        elif data == START_FRAME:
            self._marks_frames = True
        elif data == END_FRAME or MOVE.fullmatch(data):
            self._outlet.send_frame()
        else:
            if not NOT_TEXT.fullmatch(data):
                self._stop_modelling()
            self._outlet.write(data)

    def _stop_modelling(self) -> None:
        """Send Textual's own output from now on: there is an update that is not known."""
        textual_patches.release()
        self._is_modelled = False
        self.send_message(self.SignalResume())

    def _next_frame(self, most_bytes: int | None) -> str:
        if not (self._active and self._is_modelled):
            return ""
        frame = self._screen.next_frame(most_bytes)
        marked = self._marks_frames and len(frame) > UNMARKED_BYTES
        return f"{START_FRAME}{frame}{END_FRAME}" if marked else frame

    def _answered(self) -> None:
        if self._active:
            self._outlet.answered()

    def repaint(self) -> None:
        """Paint the whole screen, whatever the terminal shows."""
        if self._is_modelled:
            self._screen.forget()
            self._outlet.send_frame()
        else:
            self.send_message(self.SignalResume())

    def start_application_mode(self) -> None:
        """Take the terminal, also again after another program had it unnoticed."""
        before = SKELETON.take_over(output.RESTORE)
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(0)
            if not self._active:
                self._modes = before or [*modes[:6], [*modes[6]]]
            raw = silent(modes)
            raw[3] &= ~termios.ISIG  # Ctrl+C is a key
            termios.tcsetattr(0, termios.TCSANOW, raw)
        again, self._active = self._active, True
        self._screen.forget(clears=before is None)
        # A terminal that is on the alternate screen would clear it.
        enter = ENTER if before is None else ENTER.removeprefix(ALTERNATE)
        self._outlet.write(enter + (MOUSE if self._mouse else ""))
        # Textual 8.2.7 introduced this setting.
        if not again and not getattr(constants, "DISABLE_KITTY_KEY", False):
            self._outlet.write(KEYBOARD)  # pushed once, as it is popped once
        if self._is_modelled:
            self._outlet.write(self._outlet.flow.begin())
        self._loop.add_reader(self._input, self._read)
        self._send_size()

    def disable_input(self) -> None:
        for timer in (self._timer, self._resize):
            if timer is not None:
                timer.cancel()
        self._timer = self._resize = None
        self._loop.remove_reader(self._input)

    def stop_application_mode(self) -> None:
        if not self._active:
            return
        self._active = False
        self.disable_input()
        self._outlet.finish(output.RESTORE)
        self._await_answer()
        with contextlib.suppress(termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
            if self._modes is not None:
                termios.tcsetattr(0, termios.TCSANOW, self._modes)

    def _await_answer(self) -> None:
        """Read the terminal's last answer: the shell would take it for typed."""
        until = time.monotonic() + min(output.END_SECONDS, self._outlet.flow.answer_seconds)
        read = b""
        while output.ANSWER.encode() not in read and (left := until - time.monotonic()) > 0:
            if not select.select([self._input], [], [], left)[0]:
                return
            try:
                read += os.read(self._input, CHUNK_BYTES) or b""
            except OSError:
                return

    def close(self) -> None:
        self._outlet.close()
        os.close(self._input)
        textual_patches.release()

    def _suspend(self) -> None:
        self.stop_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _continue(self) -> None:
        """Resume after `fg`, or after a SIGSTOP, when the shell may have used the terminal."""
        if self._auto_restart:
            self.start_application_mode()
            self.send_message(self.SignalResume())

    def _resized(self) -> None:
        if self._resize is None:
            self._resize = self._loop.call_later(RESIZE_SECONDS, self._send_size)

    def _send_size(self) -> None:
        self._resize = None
        size = Size(*terminal_size())
        self._screen.resize(*size)
        self.send_message(Resize(size, size))

    def _read(self) -> None:
        """Read input, unless the app is still busy with earlier input."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pumps = (self._app, *self._app.screen_stack[-1:])
        if sum(pump.message_queue_size for pump in pumps) > MOST_UNREAD:
            self._pause_input()
            return
        try:
            data = os.read(self._input, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if output.is_connected():
                self._pause_input()
            else:
                self._loop.remove_reader(self._input)
                self._app.exit(return_code=INTERRUPTED)
            return
        if data.replace(output.ANSWER.encode(), b""):  # answers do not keep a paste open
            self._typed_at = self._loop.time()
        for message in self._typed.feed(data):
            self.process_message(message)
        self._start_timeout()

    def _pause_input(self) -> None:
        """Pause reading for a moment; input waits in the terminal."""
        self._loop.remove_reader(self._input)
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._resume_input)

    def _resume_input(self) -> None:
        self._timer = None
        self._loop.add_reader(self._input, self._read)
        self._typed_at = self._loop.time()
        self._start_timeout()

    def _start_timeout(self) -> None:
        seconds = self._typed.timeout_seconds
        if seconds is not None:
            self._timer = self._loop.call_at(self._typed_at + seconds, self._flush)

    def _flush(self) -> None:
        self._timer = None
        for message in self._typed.flush():
            self.process_message(message)
