"""Draw in terminal cells: rows of styled spans, and bars."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from gputop.text import ABSENT
from gputop.ui.drawing.palette import ACCENT, CURSOR, DIM, STRONG, TEXT, TRACK


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = TEXT


Row = list[Span]
_UNCOMMON = re.compile("[^ -~°-ſ–—‘’“”•…←↑→↓≈≠≤≥\u2500-\u25fc\u2800-\u28ff]")
"""Any character that may not take exactly one cell. The others are ASCII, Latin letters, lines,
blocks and braille, which make up most of the screen."""


def is_narrow(text: str) -> bool:
    """True if each character takes one cell, so that cells can be counted as characters."""
    if not _UNCOMMON.search(text):
        return True
    return all(cell_len(character) == 1 for character in set(text))


def cells_of(text: str) -> int:
    """Return the cells of a text. Most texts are counted here, because Rich is slow."""
    if _UNCOMMON.search(text):
        return cell_len(text)
    return len(text)


def text_of(row: Iterable[Span]) -> str:
    """Return the text of a row."""
    return "".join(map(itemgetter(0), row))


def width_of(row: Sequence[Span]) -> int:
    """Return the cells of a row."""
    text = text_of(row)
    if not _UNCOMMON.search(text):
        return len(text)
    return sum(cell_len(span.text) for span in row)


def fit(
    row: Sequence[Span],
    width: int,
    fill: str = " ",
    style: Style = TEXT,
) -> Row:
    """Return the row cut or filled to exactly `width` cells."""
    left = width - width_of(row)
    if left > 0:
        return [*row, Span(fill * left, style)]
    if left == 0:
        return [*row]
    fitted: Row = []
    left = width
    for span in row:
        text = clip(span.text, left)
        fitted.append(Span(text, span.style))
        left -= cells_of(text)
        if text != span.text:
            break
    return fitted


def clip(text: str, width: int) -> str:
    """Return the text cut to `width` cells, with an ellipsis if it was longer."""
    if width <= 0:
        return ""
    if cells_of(text) <= width:
        return text
    return set_cell_size(text, width - 1) + "…"


def clip_words(text: str, width: int) -> str:
    """Return the text cut to the whole words that fit in `width` cells."""
    if width <= 0:
        return ""
    return textwrap.shorten(text, width, placeholder="…")


def clip_advice(text: str, width: int) -> str:
    """Return the advice if it fits in `width` cells, else its first clause, else its first words.

    Commands are not cut, because the device may be at the end, such as `-i 5`.
    """
    if cells_of(text) <= width:
        return text
    clause = text.partition("; ")[0]
    shown = clip_words(clause, width)
    if shown.count("`") % 2 == 0:
        return shown
    return f"{shown.rpartition('`')[0].rstrip()}…"


def wrap(text: str, width: int) -> list[str]:
    """Wrap the text at blanks to lines of at most `width` characters, with a minimum of 10."""
    return textwrap.wrap(text, max(10, width), break_on_hyphens=False)


def paragraph(
    text: str,
    width: int,
    style: Style = TEXT,
    indent: str = "",
) -> list[Row]:
    """Return the text in rows of at most `width` characters, each after the `indent`."""
    rows = []
    for line in wrap(text, width - len(indent)):
        rows.append([Span(indent), Span(line, style)])
    return rows


def cell(
    text: str,
    width: int,
    style: Style = TEXT,
    *,
    right: bool = False,
) -> Span:
    """Return a span of exactly `width` cells."""
    if text.isascii() and len(text) <= width:
        return Span(text.rjust(width) if right else text.ljust(width), style)
    text = clip(text, width)
    space = " " * (width - cells_of(text))
    return Span(space + text if right else text + space, style)


def reading(text: str, style: Style = TEXT) -> Span:
    """Return a span for a reading. A missing reading is dim."""
    return Span(text, DIM if text.startswith(ABSENT) else style)


def spread(
    left: Sequence[Span],
    right: Sequence[Span],
    width: int,
) -> Row:
    """Return a row with text at both ends. If they do not fit, the left text is cut."""
    room = width - width_of(right)
    if room < 1:
        return fit(right, width)
    return [*fit(left, room), *right]


def rule_of(
    left: Sequence[Span],
    right: Sequence[Span],
    width: int,
) -> Row:
    """Return a row with text at both ends and a line in between. The left text is cut first."""
    return spread(fit(left, width - width_of(right), "─", TRACK), right, width)


def merged(row: Row) -> Row:
    """Return the row with adjacent spans of the same style merged."""
    made: Row = []
    for _, group in groupby(
        row,
        key=lambda span: id(span.style),
        # Equal styles are the same object.
    ):
        spans = [*group]
        made.append(Span(text_of(spans), spans[0].style))
    return made


def beside(
    blocks: Sequence[list[Row]],
    width: int,
    gap: int,
) -> list[Row]:
    """Return blocks of rows side by side, each `width` cells wide."""
    blank: Row = [Span(" " * width)]
    rows = []
    for parts in zip_longest(*blocks, fillvalue=blank):
        row: Row = []
        for part in parts:
            if row:
                row.append(Span(" " * gap))
            row += part
        rows.append(row)
    return rows


def faded(rows: Iterable[Row]) -> list[Row]:
    """Return the rows in one dim colour, for outdated data."""
    return [[Span(span.text, DIM) for span in row] for row in rows]


def list_row(
    row: Row,
    *,
    selected: bool,
    focused: bool,
) -> Row:
    """Return a row of a list. A selected row has a mark, and is reversed if the list has the focus.

    Without the focus, its text is bold.
    """
    if not selected:
        return [Span(" "), *row]
    shown = [Span("▌", ACCENT if focused else DIM)]
    for text, style in row:
        look = style if style.color else STRONG
        shown.append(Span(text, CURSOR if focused else look))
    return shown


def share_of(value: float | None, total: float | None) -> float | None:
    """Return `value` as a share of `total`, or None if either is unknown."""
    if value is None or not total:
        return None
    return value / total


def bar(
    share: float | None,
    width: int,
    style: Style,
) -> Row:
    """Return a bar filled by `share` (0 to 1). It is dotted if the share is unknown."""
    if width <= 0:
        return []
    if share is None:
        return [Span("┄" * width, TRACK)]
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    # A partial share must look neither empty nor full.
    if 0 < share < 1:
        halves = max(1, min(2 * width - 1, halves))
    full, half = divmod(halves, 2)
    row: Row = []
    if full or half:
        row.append(Span("━" * full + "╸" * half, style))
    rest = width - full - half
    if rest:
        row.append(Span("─" * rest, TRACK))
    return row
