"""Text on a terminal: its colours, and a page that is drawn again and again in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gputop.console import without_colours
from gputop.text import ABSENT, cells, cut

BOLD, DIM = "1", "2"
GREEN, YELLOW, MAGENTA = "32", "33", "35"
LOUD_RED, LOUD_GREEN, LOUD_YELLOW = "1;31", "1;32", "1;33"


class Span(NamedTuple):
    """Text, and how it looks: parameters of SGR, empty for plain."""

    text: str
    look: str = ""


Line = list[Span]


def painted(line: Iterable[Span], *, colour: bool) -> str:
    """A line as it is written, without blanks at its end."""
    spans = [*line]
    while spans and not spans[-1].text.rstrip():
        spans.pop()
    if spans:
        spans[-1] = spans[-1]._replace(text=spans[-1].text.rstrip())
    return "".join(
        f"\x1b[{look}m{text}\x1b[0m" if colour and look and text else text for text, look in spans
    )


def clipped(line: Iterable[Span], width: int) -> Line:
    """As much of a line as fits, with a "…" where something was left out."""
    spans = [*line]
    room = width
    if sum(cells(span.text) for span in spans) <= room:
        return spans
    kept: Line = []
    for text, look in spans:
        if cells(text) >= room:  # there is more to come, or this is too long
            return [*kept, Span(cut(f"{text} ", room), look)]
        kept.append(Span(text, look))
        room -= cells(text)
    return kept


def wanted(environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether colours are, unless the command line says."""
    return terminal and not without_colours(environment) and environment.get("TERM") != "dumb"


HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def frame(page: str, rows: int, *, first: bool = False) -> str:
    """The page over the one before, to be written at once: nothing is blank in between.

    The cursor is hidden while it is drawn only, so that no end of the program can leave it so. What
    is on the screen at `first` is scrolled up, not overwritten. Of a page that is taller than the
    terminal the end is left out, and how much that is said.
    """
    lines = page.split("\n")
    room = max(1, rows - 1)  # the last is the cursor's
    if len(lines) > room > 1:
        lines[room - 1 :] = [f"{ABSENT} {len(lines) - room + 1} more lines"]
    body = "".join(f"{line}{ERASE_LINE}\r\n" for line in lines[:room])
    return f"{chr(10) * rows if first else ''}{HIDE}{HOME}{body}{ERASE_BELOW}{SHOW}"
