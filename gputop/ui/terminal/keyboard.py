"""What comes from the terminal, cut into keys, reports and pastes: whatever the bytes are.

Textual's parser is given whole sequences only. Left to itself it takes what it does not know for
keys, in a paste too, and fails on numbers that no terminal sends.
"""

from __future__ import annotations

import codecs
import re
import time
from typing import TYPE_CHECKING

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Key, Paste, Resize
from textual.messages import InBandWindowResize

from gputop.ui.terminal import textual_caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual.message import Message

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


class Typed:
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
    def patience(self) -> float | None:
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

    def idle(self) -> list[Message]:
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
