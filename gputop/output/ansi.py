"""Colours of text on a terminal: the 16 that every one has, as the numbers of ECMA-48's SGR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gputop.terminal import without_colours
from gputop.text import cells, cut

BOLD, DIM = "1", "2"
RED, GREEN, YELLOW, MAGENTA, CYAN = "31", "32", "33", "35", "36"
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
