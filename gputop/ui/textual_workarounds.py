"""Workarounds for Textual 8.2.8, with issue numbers if they are reported."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from codecs import getincrementaldecoder

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.message import Message
from textual.messages import InBandWindowResize

from gputop.console import terminal_size
from gputop.ui.terminal_input import InputFilter


class SteadyDriver(LinuxDriver):
    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size, limited. Textual prefers COLUMNS and LINES (#6153)."""
        return terminal_size()

    def process_message(self, message: Message) -> None:
        """Drop sizes that come as input, because a program can send forged, unlimited ones."""
        if not isinstance(message, Resize | InBandWindowResize):
            super().process_message(message)

    def run_input_thread(self) -> None:
        """Read until the terminal is gone. Textual's loop spins then (#6690).

        Textual's loop also ends the app at a malformed key, such as `ESC [ 9999999999 u`.
        """
        decode = getincrementaldecoder("utf-8")("replace").decode
        parser, keys = XTermParser(), InputFilter()
        with contextlib.suppress(OSError):  # if the terminal is gone
            while not self.exit_event.is_set():
                messages = [*parser.tick()]
                if select.select([self.fileno], [], [], 0.1)[0]:
                    data = os.read(self.fileno, 4096)
                    if not data:
                        return
                    text = keys.feed(decode(data))
                    try:  # an empty text would be the end
                        messages += parser.feed(text) if text else ()
                    except (ValueError, OverflowError):
                        parser = XTermParser()
                for message in [*messages, *keys.take_answers()]:
                    self.process_message(message)

    def resume_application_mode(self) -> None:
        """Restore the terminal after SIGSTOP, too. Textual only handles SIGTSTP (#1582)."""
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
        super().resume_application_mode()


class SteadyApp(App[None]):
    def end_with(self, error: BaseException) -> bool:
        """Record an exception that ends the app. Return False for a traceback."""
        raise NotImplementedError

    def _fatal_error(self) -> None:
        error = sys.exc_info()[1]  # There is no public hook (#2818).
        if error is None or not self.end_with(error):
            super()._fatal_error()
        else:
            self.panic()

    def apply_dropped_resize(self) -> None:
        """Apply a resize that Textual dropped because its timer was late (#6471)."""
        if getattr(self, "_resize_event", None):
            self._check_resize()
