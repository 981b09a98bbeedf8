"""Text with colours on a terminal, and pages that are drawn over each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gputop.console import without_colours
from gputop.text import ABSENT, cells, cut

BOLD, DIM = "1", "2"
GREEN, YELLOW, MAGENTA, CYAN = "32", "33", "35", "36"
LOUD_RED, LOUD_YELLOW = "1;31", "1;33"


class Piece(NamedTuple):
    """Text with its look: SGR parameters, empty for plain."""

    text: str
    look: str = ""


Line = list[Piece]


def painted(line: Iterable[Piece], *, colour: bool) -> str:
    """Return a line as it is written, without trailing spaces."""
    spans = [*line]
    while spans and not spans[-1].text.rstrip():
        spans.pop()
    if spans:
        spans[-1] = spans[-1]._replace(text=spans[-1].text.rstrip())
    return "".join(
        f"\x1b[{look}m{text}\x1b[0m" if colour and look and text else text
        for text, look in spans
    )


def clipped(line: Iterable[Piece], width: int) -> Line:
    """Return as much of a line as fits, with a "…" in place of the rest."""
    spans = [*line]
    room = width
    if sum(cells(span.text) for span in spans) <= room:
        return spans
    kept: Line = []
    for text, look in spans:
        if cells(text) >= room:  # there is more to come, or this is too long
            return [*kept, Piece(cut(f"{text} ", room), look)]
        kept.append(Piece(text, look))
        room -= cells(text)
    return kept


def rendered(lines: Iterable[Line], width: int | None, *, colour: bool) -> str:
    """Return lines as text, each cut to the width if given."""
    fitting = (line if width is None else clipped(line, width) for line in lines)
    return "\n".join(painted(line, colour=colour) for line in fitting)


def with_dots(spans: Sequence[Piece]) -> Line:
    """Return a line of these spans with dots between them."""
    return [
        *spans[:1],
        *(part for span in spans[1:] for part in (Piece(" · ", DIM), span)),
    ]


def wanted(environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Return True if output has colours by default."""
    return (
        terminal
        and not without_colours(environment)
        and environment.get("TERM") != "dumb"
    )


HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def frame(page: str, rows: int, *, first: bool = False) -> str:
    """Return what draws a page over the one before in a single write, without flicker.

    The cursor is hidden only while drawing, so the program cannot end with it hidden. `first`
    scrolls the screen up instead of overwriting it. If a page is taller than the terminal, its last
    line says how many lines are missing.
    """
    lines = page.split("\n")
    room = max(1, rows - 1)  # the last row is the cursor's
    if len(lines) > room > 1:
        lines[room - 1 :] = [f"{ABSENT} {len(lines) - room + 1} more lines"]
    body = "".join(f"{line}{ERASE_LINE}\r\n" for line in lines[:room])
    return f"{chr(10) * rows if first else ''}{HIDE}{HOME}{body}{ERASE_BELOW}{SHOW}"
