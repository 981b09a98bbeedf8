"""Textual driver that reads and writes the terminal in the event loop, and the parser of its input.

Textual's own driver waits for the terminal in threads, writes to standard error, and treats a
SIGCONT without a SIGTSTP before it as the start of another app. Its parser alone takes unknown
sequences for keys, even in a paste, and fails on numbers that no terminal sends.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import select
import signal
import termios
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from textual import constants
from textual._xterm_parser import (
    BRACKETED_PASTE_END,
    BRACKETED_PASTE_START,
    XTermParser,
)
from textual.driver import Driver
from textual.events import Key, Paste, Resize
from textual.geometry import Size
from textual.messages import InBandWindowResize

from gputop.console import terminal_size
from gputop.ui.terminal import output, textual_patches
from gputop.ui.terminal.screen_model import ScreenModel, Sequences
from gputop.ui.terminal.skeleton import SKELETON, silent

if TYPE_CHECKING:
    from textual.app import App
    from textual.message import Message

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

    can_suspend = True
    """True: Ctrl+Z suspends the app."""

    def __init__(
        self, app: App[Any], *, size: tuple[int, int] | None = None, **more: Any
    ) -> None:
        super().__init__(app, size=size or terminal_size(), **more)
        self._typed = KeyParser(answered=self._answered)
        self._screen = ScreenModel(*terminal_size(), Sequences.of_terminal())
        textual_patches.capture(self._screen.put)
        self._marks_frames = False
        """True if the terminal knows synchronized output."""
        # What is there to read may be gone: a shell reads it while the app is stopped.
        self._input = output.open_terminal(0, os.O_RDONLY)
        self._outlet = output.FrameWriter(
            self._loop, output.open_terminal(1, os.O_WRONLY), self._next_frame
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

    def write(self, data: str) -> None:
        """Send Textual's output, or what it changed of the screen, while the terminal is ours."""
        if not self._active:
            return
        if data == START_FRAME:
            self._marks_frames = True
        elif data == END_FRAME or MOVE.fullmatch(data):
            self._outlet.send_frame()
        else:
            self._outlet.write(data)
            if not NOT_TEXT.fullmatch(data):  # it wrote over the screen
                self.repaint()

    def _next_frame(self, most_bytes: int | None) -> str:
        if not self._active:
            return ""
        frame = self._screen.next_frame(most_bytes)
        marked = self._marks_frames and len(frame) > UNMARKED_BYTES
        return f"{START_FRAME}{frame}{END_FRAME}" if marked else frame

    def _answered(self) -> None:
        if self._active:
            self._outlet.answered()

    def repaint(self) -> None:
        """Paint the whole screen, whatever the terminal shows."""
        self._screen.forget()
        self._outlet.send_frame()

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
        until = time.monotonic() + min(
            output.END_SECONDS, self._outlet.flow.answer_seconds
        )
        read = b""
        with contextlib.suppress(OSError):
            while (
                output.ANSWER.encode() not in read
                and (left := until - time.monotonic()) > 0
            ):
                if not select.select([self._input], [], [], left)[0]:
                    return
                read += os.read(self._input, CHUNK_BYTES)

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
            self._pause_input()  # if the terminal is gone, the app sees that and ends
            return
        if data.replace(
            output.ANSWER.encode(), b""
        ):  # answers do not keep a paste open
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


ESCAPE_SECONDS, SEQUENCE_SECONDS = 0.05, 0.2
"""Seconds to wait for the rest of a sequence: after a lone escape, and after more of it."""
PASTE_SECONDS = 2.0
"""Seconds of silence that end an unfinished paste."""
LONGEST_PASTE = 4096
"""Characters kept of a paste: no field accepts more."""
LONGEST_HELD = 1024
FLOOD = 64
"""Characters at once that nobody can type: an unmarked paste."""
FLOOD_SECONDS = 0.25
"""Seconds of silence that end such a paste."""

ESCAPE = "\x1b"
_STRING = r"[\]PX^_][^\x07\x1b]*"
_TOKEN = re.compile(
    rf"[^\x1b]+|\x1b(?:\[M.{{3}}|\[\[.|\[[0-?]*[ -/]*[@-Z\\-~]|O.|{_STRING}(?:\x07|\x1b\\)"
    r"|[^\[O\]PX^_\x1b])",
    re.DOTALL,
)
_UNFINISHED = re.compile(
    rf"\x1b(?:\[(?:M.{{0,2}}|\[|[0-?]*[ -/]*)|O|{_STRING}\x1b?)?\Z", re.DOTALL
)
_BROKEN = re.compile(rf"\x1b(?:\[[0-?]*[ -/]*|O|{_STRING})?", re.DOTALL)


class KeyParser:
    """Parser of terminal input. Call `flush` if no input follows within `timeout_seconds`.

    `answered` is called for each answer to a status query.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock, self._answered = clock, answered
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._parser = XTermParser()
        self._held = ""
        """Start of an unfinished sequence, or in a paste, of its end mark."""
        self._pasted: str | None = None
        """Text of the current paste so far; None outside a paste."""
        self._flooded_at = -FLOOD_SECONDS

    @property
    def timeout_seconds(self) -> float | None:
        """Seconds without input after which `flush` has messages, or None."""
        if self._pasted is not None:
            return PASTE_SECONDS
        if not self._held:
            return None
        return ESCAPE_SECONDS if self._held == ESCAPE else SEQUENCE_SECONDS

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete with this input."""
        text = self._held + self._decode(data)
        self._held = ""
        if output.ANSWER in text:
            text = text.replace(output.ANSWER, "")
            self._answered()
        now = self._clock()
        if self._pasted is None and self._is_flood(text, now):
            self._flooded_at = now
        return [*self._read(text, flood=now - self._flooded_at < FLOOD_SECONDS)]

    def flush(self) -> list[Message]:
        """Return the messages of unfinished input after the timeout."""
        held, self._held = self._held, ""
        if self._pasted is not None:
            self._pasted += held
            return [self._paste()]
        return [Key("escape", ESCAPE)] if held == ESCAPE else []

    def _is_flood(self, text: str, now: float) -> bool:
        if BRACKETED_PASTE_START in text:  # the terminal marks pastes
            return False
        plain = sum(len(part) for part in _TOKEN.findall(text) if part[0] != ESCAPE)
        lasts = now - self._flooded_at < FLOOD_SECONDS
        return plain >= FLOOD or (lasts and plain > 0)

    def _read(self, text: str, *, flood: bool) -> Iterator[Message]:
        at, flooded = 0, ""
        while at < len(text):
            if self._pasted is not None:
                at, over = self._paste_on(text, at)
                if over:
                    yield self._paste()
                continue
            token = _TOKEN.match(text, at)
            if (
                token is None
                and len(text) - at < LONGEST_HELD
                and _UNFINISHED.match(text, at)
            ):
                self._held = text[at:]
                break
            found = token or _BROKEN.match(text, at)
            assert found is not None, "an escape, as everything else is a token"
            at = found.end()
            if found[0] == BRACKETED_PASTE_START:
                self._pasted = ""
            elif flood:
                flooded += found[0] if found[0][0] != ESCAPE else ""
            elif token is not None:
                yield from self._keys(found[0])
            elif found[0] == ESCAPE:
                yield Key("escape", ESCAPE)
        if flooded:
            yield Paste(flooded[:LONGEST_PASTE])

    def _paste_on(self, text: str, at: int) -> tuple[int, bool]:
        """Add text to the paste; return where to read on, and True if the paste is over."""
        end = text.find(BRACKETED_PASTE_END, at)
        upto = (
            len(text) - len(_begun(text[at:], BRACKETED_PASTE_END)) if end < 0 else end
        )
        self._pasted = ((self._pasted or "") + text[at:upto][:LONGEST_PASTE])[
            :LONGEST_PASTE
        ]
        if end < 0:
            self._held = text[upto:]
            return len(text), False
        return end + len(BRACKETED_PASTE_END), True

    def _paste(self) -> Paste:
        text, self._pasted = self._pasted or "", None
        return Paste(text.replace("\0", ""))

    def _keys(self, token: str) -> list[Message]:
        """Return Textual's messages for a token; none if it is unknown or fails."""
        is_sequence = token[0] == ESCAPE
        if is_sequence and (len(token) == 2 or token[1] in "]PX^_"):
            return []  # Alt and a key, which does nothing here, or an unsolicited report
        try:
            found = [*self._parser.feed(token)]
        except Exception:  # noqa: BLE001 - malformed or huge numbers
            found = []
        if not found:
            self._parser = XTermParser()  # the old one waits for the rest
            textual_patches.forget_keys()
        if is_sequence and token[-1] != "u":
            # Textual takes an unknown function key for the character of its number.
            found = [
                each
                for each in found
                if not (isinstance(each, Key) and each.is_printable)
            ]
        # Sizes come from the kernel only: reports of them can be forged.
        return [
            each for each in found if not isinstance(each, Resize | InBandWindowResize)
        ]


def is_known() -> bool:
    """Return True if Textual's updates and parser, which are private, are those that work here."""
    if not textual_patches.knows_updates():
        return False
    try:
        found = [each for text in ("a", "\x1b[A") for each in XTermParser().feed(text)]
    except Exception:  # noqa: BLE001 - it may be anything by now
        return False
    return [each.key for each in found if isinstance(each, Key)] == ["a", "up"]


def _begun(text: str, end: str) -> str:
    """Return the longest end of the text that `end` may start with."""
    begun = (end[:length] for length in range(len(end) - 1, 0, -1))
    return next(filter(text.endswith, begun), "")
