"""The terminal, for Textual: read and written in the event loop, which it can never hold up.

In place of Textual's own driver, whose threads wait for the terminal, which writes to standard
error, and which takes a SIGCONT that no SIGTSTP came before for the start of another dashboard.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
import termios
import time
from typing import TYPE_CHECKING, Any

from textual import constants
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.driver import Driver
from textual.events import Key, Paste, Resize
from textual.geometry import Size
from textual.messages import InBandWindowResize

from gputop.exits import INTERRUPTED
from gputop.terminal import terminal_size
from gputop.ui.terminal import textual_caches
from gputop.ui.terminal.output import RESTORE, FrameWriter, open_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual.app import App
    from textual.message import Message


MOUSE = "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h"
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?1004h\x1b[?2026$p\x1b[?2004h\x1b[?7l"
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
        self._typed = KeyParser()
        self._outlet = FrameWriter(self._loop, open_terminal(), self._repaint)
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
        self.write(ENTER + (MOUSE if self._mouse else ""))
        # Textual has this setting since 8.2.7.
        if not again and not getattr(constants, "DISABLE_KITTY_KEY", False):
            self.write(KEYBOARD)  # pushed once: it is popped once
        self._loop.add_reader(0, self._read)
        self._send_size()

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
            self._repaint()

    def _repaint(self) -> None:
        self.send_message(self.SignalResume())

    def _resized(self) -> None:
        if self._resize is None:
            self._resize = self._loop.call_later(RESIZE_SECONDS, self._send_size)

    def _send_size(self) -> None:
        self._resize = None
        size = Size(*terminal_size())
        self.send_message(Resize(size, size))

    def _read(self) -> None:
        """Takes in what was typed, unless the app has enough to do as it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unread() > MOST_UNREAD:
            self._pause_input()
            return
        try:
            data = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if _is_connected():
                self._pause_input()
            else:
                self._loop.remove_reader(0)
                self._app.exit(return_code=INTERRUPTED)
            return
        for message in self._typed.feed(data):
            self.process_message(message)
        self._start_timeout()

    def _unread(self) -> int:
        pumps = (self._app, *self._app.screen_stack[-1:])
        return sum(pump.message_queue_size for pump in pumps)

    def _pause_input(self) -> None:
        """Reads on in a moment; what is typed meanwhile waits in the terminal."""
        self._loop.remove_reader(0)
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._resume_input)

    def _resume_input(self) -> None:
        self._timer = None
        self._loop.add_reader(0, self._read)
        self._start_timeout()

    def _start_timeout(self) -> None:
        seconds = self._typed.timeout_seconds
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._flush)

    def _flush(self) -> None:
        self._timer = None
        for message in self._typed.flush():
            self.process_message(message)


def _is_connected() -> bool:
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


ESCAPE_SECONDS, SEQUENCE_SECONDS = 0.05, 0.2
"""How long the rest of a sequence may take: after the escape alone, which is a key, and later."""
PASTE_SECONDS = 2.0
"""How long a paste may stall before it is taken to be over."""
LONGEST_PASTE = 4096
"""Characters of a paste that are kept: no field takes more."""
LONGEST_HELD = 1024
FLOOD = 64
"""Characters in one piece that nobody types: a paste by a terminal that does not mark it so."""
FLOOD_SECONDS = 0.25
"""A flood has ended when nothing came for that long."""

ESCAPE = "\x1b"
_STRING = r"[\]PX^_][^\x07\x1b]*"
_TOKEN = re.compile(
    rf"[^\x1b]+|\x1b(?:\[M.{{3}}|\[\[.|\[[0-?]*[ -/]*[@-Z\\-~]|O.|{_STRING}(?:\x07|\x1b\\)"
    r"|[^\[O\]PX^_\x1b])",
    re.DOTALL,
)
_UNFINISHED = re.compile(rf"\x1b(?:\[(?:M.{{0,2}}|\[|[0-?]*[ -/]*)|O|{_STRING}\x1b?)?\Z", re.DOTALL)
_BROKEN = re.compile(rf"\x1b(?:\[[0-?]*[ -/]*|O|{_STRING})?", re.DOTALL)


class KeyParser:
    """Takes what was read, and gives what it means. `patience` is when to ask again without."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._parser = XTermParser()
        self._held = ""
        """The begin of a sequence, or in a paste what may be that of its end."""
        self._pasted: str | None = None
        """Of a paste that is under way, its text so far."""
        self._flooded_at = -FLOOD_SECONDS

    @property
    def timeout_seconds(self) -> float | None:
        """Seconds without a byte after which `idle` has something to say."""
        if self._pasted is not None:
            return PASTE_SECONDS
        if not self._held:
            return None
        return ESCAPE_SECONDS if self._held == ESCAPE else SEQUENCE_SECONDS

    def feed(self, data: bytes) -> list[Message]:
        """What has come, as far as it is whole."""
        text = self._held + self._decode(data)
        self._held = ""
        now = self._clock()
        if self._pasted is None and self._is_flood(text, now):
            self._flooded_at = now
        return [*self._read(text, flood=now - self._flooded_at < FLOOD_SECONDS)]

    def flush(self) -> list[Message]:
        """What is left once nothing more came for as long as `patience` says."""
        held, self._held = self._held, ""
        if self._pasted is not None:
            self._pasted += held
            return [self._paste()]
        if held == ESCAPE:
            return [Key("escape", ESCAPE)]
        return self._keys(held) if len(held) == 2 else []

    def _is_flood(self, text: str, now: float) -> bool:
        if BRACKETED_PASTE_START in text:  # whose terminal says so itself
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
            if token is None and len(text) - at < LONGEST_HELD and _UNFINISHED.match(text, at):
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
        """Takes in what is pasted; returns where to read on, and whether the paste is over."""
        end = text.find(BRACKETED_PASTE_END, at)
        upto = len(text) - len(_begun(text[at:], BRACKETED_PASTE_END)) if end < 0 else end
        self._pasted = ((self._pasted or "") + text[at:upto][:LONGEST_PASTE])[:LONGEST_PASTE]
        if end < 0:
            self._held = text[upto:]
            return len(text), False
        return end + len(BRACKETED_PASTE_END), True

    def _paste(self) -> Paste:
        text, self._pasted = self._pasted or "", None
        return Paste(text.replace("\0", ""))

    def _keys(self, token: str) -> list[Message]:
        """What Textual makes of it; nothing of what it does not know, or fails on."""
        is_sequence = token[0] == ESCAPE
        if is_sequence and token[1] in "]PX^_" and len(token) > 2:
            return []  # a report that nobody asked for
        try:
            found = [*self._parser.feed(token)]
            if not found and len(token) == 2:  # Alt and a key: the parser waits for more
                found = [_with_alt(each) for each in self._parser.feed("")]
        except Exception:  # noqa: BLE001 - of numbers that are none, or too large
            found = []
        if not found or (is_sequence and len(token) == 2):
            self._parser = XTermParser()  # the old one waits for the rest
            textual_caches.forget_keys()
        if is_sequence and len(token) > 2 and token[-1] != "u":
            # An unknown function key would be the letter of its number.
            found = [each for each in found if not (isinstance(each, Key) and each.is_printable)]
        # Sizes come from the kernel: a forged one would be believed.
        return [each for each in found if not isinstance(each, Resize | InBandWindowResize)]


def is_known() -> bool:
    """Whether Textual's parser, which is private, takes text and gives keys as it did."""
    try:
        found = [each for text in ("a", "\x1b[A") for each in XTermParser().feed(text)]
    except Exception:  # noqa: BLE001 - whatever it is by now
        return False
    return [each.key for each in found if isinstance(each, Key)] == ["a", "up"]


def _with_alt(message: Message) -> Message:
    """The key as one with Alt, which Textual says of letters only."""
    if isinstance(message, Key) and "alt+" not in message.key:
        return Key(f"alt+{message.key}", message.character)
    return message


def _begun(text: str, end: str) -> str:
    """The last characters of the text with which that end may have begun."""
    for length in range(min(len(end) - 1, len(text)), 0, -1):
        if text.endswith(end[:length]):
            return end[:length]
    return ""
