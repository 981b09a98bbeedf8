"""Parser of terminal input: keys, reports and pastes, cut before Textual's parser sees them.

Textual's parser alone takes unknown sequences for keys, even in a paste, and fails on numbers that
no terminal sends.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Key, Paste, Resize
from textual.messages import InBandWindowResize

from gputop.ui.terminal import textual_patches
from gputop.ui.terminal.output import ANSWER

if TYPE_CHECKING:
    from textual.message import Message

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
_UNFINISHED = re.compile(rf"\x1b(?:\[(?:M.{{0,2}}|\[|[0-?]*[ -/]*)|O|{_STRING}\x1b?)?\Z", re.DOTALL)
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
        if ANSWER in text:
            text = text.replace(ANSWER, "")
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
        if held == ESCAPE:
            return [Key("escape", ESCAPE)]
        return self._keys(held) if len(held) == 2 else []

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
        """Add text to the paste; return where to read on, and True if the paste is over."""
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
        """Return Textual's messages for a token; none if it is unknown or fails."""
        is_sequence = token[0] == ESCAPE
        if is_sequence and token[1] in "]PX^_" and len(token) > 2:
            return []  # an unsolicited report
        try:
            found = [*self._parser.feed(token)]
            if not found and len(token) == 2:  # Alt and a key: the parser waits for more
                found = [_with_alt(each) for each in self._parser.feed("")]
        except Exception:  # noqa: BLE001 - malformed or huge numbers
            found = []
        if not found or (is_sequence and len(token) == 2):
            self._parser = XTermParser()  # the old one waits for the rest
            textual_patches.forget_keys()
        if is_sequence and len(token) > 2 and token[-1] != "u":
            # Textual takes an unknown function key for the character of its number.
            found = [each for each in found if not (isinstance(each, Key) and each.is_printable)]
        # Sizes come from the kernel only: reports of them can be forged.
        return [each for each in found if not isinstance(each, Resize | InBandWindowResize)]


def is_known() -> bool:
    """Return True if Textual's parser, which is private, still turns text into keys."""
    try:
        found = [each for text in ("a", "\x1b[A") for each in XTermParser().feed(text)]
    except Exception:  # noqa: BLE001 - it may be anything by now
        return False
    return [each.key for each in found if isinstance(each, Key)] == ["a", "up"]


def _with_alt(message: Message) -> Message:
    """Return the key with Alt, which Textual adds to letters only."""
    if isinstance(message, Key) and "alt+" not in message.key:
        return Key(f"alt+{message.key}", message.character)
    return message


def _begun(text: str, end: str) -> str:
    """Return the longest end of the text that `end` may start with."""
    begun = (end[:length] for length in range(len(end) - 1, 0, -1))
    return next(filter(text.endswith, begun), "")
