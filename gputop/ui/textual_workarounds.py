"""Workarounds for bugs of Textual 8.2.8."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Any

from textual._xterm_parser import XTermParser
from textual.command import CommandPalette
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.messages import InBandWindowResize
from textual.widgets import OptionList

from gputop.console import terminal_size
from gputop.ui.terminal_background import AnswerFilter

if TYPE_CHECKING:
    from textual.app import App
    from textual.message import Message

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
BEGUN_MARK = re.compile(r"\x1b(\[(2(0[01]?)?)?)?\Z")


class PasteFilter:
    """Removes escapes from pasted text: Textual takes some sequences in it for keys."""

    _pasting = False
    _held = ""

    def feed(self, text: str) -> str:
        """Return the text for the parser. The start of a mark is held back."""
        text, self._held = self._held + text, ""
        begun = BEGUN_MARK.search(text)
        if begun and (self._pasting or len(begun[0]) > 2):
            text, self._held = text[: begun.start()], begun[0]
        kept = []
        while text:
            mark = PASTE_END if self._pasting else PASTE_START
            part, found, text = text.partition(mark)
            kept += [part.replace("\x1b", "") if self._pasting else part, found]
            if found:
                self._pasting = not self._pasting
        return "".join(kept)


class SteadyDriver(LinuxDriver):
    """Textual's driver, without its failures at unusual sizes, input and signals."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        options["size"] = options.get("size") or terminal_size()
        super().__init__(app, **options)
        self._file = sys.__stdout__  # standard error may be closed, or a file

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size within our limits; Textual prefers COLUMNS and LINES."""
        return terminal_size()

    def process_message(self, message: Message) -> None:
        """Drop sizes that come as input: a program can forge them, without limits."""
        if not isinstance(message, Resize | InBandWindowResize):
            super().process_message(message)

    def run_input_thread(self) -> None:
        """Read until the terminal is gone.

        Textual's loop spins after the end of input
        (https://github.com/Textualize/textual/pull/6690), and a malformed key, such as
        `ESC [ 99999999999 u`, ends the app.
        """
        decode = getincrementaldecoder("utf-8")("replace").decode
        parser, pastes, answers = XTermParser(), PasteFilter(), AnswerFilter()
        # If the terminal is gone, the app notices it.
        with contextlib.suppress(OSError):
            while not self.exit_event.is_set():
                messages = [*parser.tick()]
                if select.select([self.fileno], [], [], 0.1)[0]:
                    data = os.read(self.fileno, 4096)
                    if not data:
                        return
                    text = pastes.feed(answers.feed(decode(data)))
                    try:  # for the parser, an empty text is the end of input
                        messages += parser.feed(text) if text else ()
                    except (ValueError, OverflowError):
                        parser = XTermParser()
                messages += answers.found
                answers.found.clear()
                for message in messages:
                    self.process_message(message)

    def resume_application_mode(self) -> None:
        """Take the terminal after SIGCONT.

        Textual starts a second input thread if SIGSTOP and not SIGTSTP had stopped it.
        """
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
        super().resume_application_mode()


class Palette(CommandPalette):
    """Textual's command palette; its page keys end the app if nothing is listed yet."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "command_list" and not self.query_one(OptionList).size.height:
            return False
        return super().check_action(action, parameters)


def apply_dropped_resize(app: App[Any]) -> None:
    """Apply a resize whose timer was late.

    Timer._run skips the only call of such a timer, and App keeps the timer, so that no
    later resize is applied either. Since https://github.com/Textualize/textual/pull/6471.
    """
    if getattr(app, "_resize_event", None) and hasattr(app, "_check_resize"):
        app._check_resize()  # noqa: SLF001
