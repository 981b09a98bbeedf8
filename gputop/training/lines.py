"""Output of a terminal program as plain lines, without escape sequences."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator

from gputop.text import size

LINES = 2000
"""Most lines kept. Older ones are dropped."""
LINE_CHARACTERS = 4096
"""Longest line. The rest of a longer one is dropped."""
_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, movements of the cursor
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, DCS and other strings
    r"|[ -/]*[0-~]"  # two characters
    r")"
)
_UP = re.compile(r"\x1b\[(\d*)[AF]")
_UNFINISHED = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?\Z",
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, except for tabs and the ends of lines."""
_ENDS = re.compile(r"([\r\n])")


class PlainLines:
    """Lines of an output that may have colours and progress bars.

    A carriage return starts the line again. Moving the cursor up, as stacked progress bars do,
    overwrites the last lines.
    """

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES)
        """Finished lines, the newest last."""
        self.last = ""
        """Unfinished line, such as a progress bar."""
        self.count = 0
        """Number of finished lines, including dropped ones."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        """Start of an unfinished escape sequence."""
        self._begins = False
        """True after a carriage return: the next text replaces the line."""
        self._is_new = False
        """True if the line has changed since it was yielded."""

    def feed(self, data: bytes) -> Iterator[str]:
        """Add output. Yield each line, and each version of a line that is overwritten."""
        text = self._rest + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = ""
        if unfinished is not None:
            text, self._rest = text[: unfinished.start()], unfinished[0]
        start = 0
        for up in _UP.finditer(text):
            yield from self._add(text[start : up.start()])
            yield from self.settle()
            self._move_up(int(up[1] or 1))
            start = up.end()
        yield from self._add(text[start:])

    def skip(self, count: int) -> None:
        """Add a line with the amount of output that is missing here."""
        self._end(f"[{size(count)} of output are only in the file]")
        self.last = self._rest = ""
        self._is_new = False

    def settle(self) -> Iterator[str]:
        """Yield the unfinished line if it has changed. It may never be finished."""
        if self._is_new:
            self._is_new = False
            yield self.last

    def _add(self, text: str) -> Iterator[str]:
        for part in _ENDS.split(_ESCAPES.sub("", text)):
            if part == "\r":
                yield from self.settle()
                self._begins = True
            elif part == "\n":
                yield from self.settle()
                self._end(self.last)
                self.last = ""
                self._begins = False
            elif part:
                self._write(part)

    def _end(self, line: str) -> None:
        self.lines.append(line)
        self.count += 1

    def _write(self, text: str) -> None:
        if self._begins:
            self.last = ""
            self._begins = False
        room = LINE_CHARACTERS - len(self.last)
        plain = _CONTROLS.sub("", text[:room])
        self.last = (self.last + plain).expandtabs()[:LINE_CHARACTERS]
        self._is_new = True

    def _move_up(self, count: int) -> None:
        for _ in range(min(count, len(self.lines))):
            self.last = self.lines.pop()
            self.count -= 1
        self._begins = True
