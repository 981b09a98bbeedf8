"""Draw in terminal cells: rows of styled spans, bars and charts."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, repeat, zip_longest
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
"""Any character but most of what is drawn, which takes one cell each: ASCII, Latin letters, lines,
blocks and braille."""


def is_narrow(text: str) -> bool:
    """True if each character takes one cell: then cells can be counted as characters."""
    return not _UNCOMMON.search(text) or all(
        cell_len(character) == 1 for character in set(text)
    )


def cells_of(text: str) -> int:
    """Return the cells of a text. Most are counted here, as Rich is slow."""
    return cell_len(text) if _UNCOMMON.search(text) else len(text)


def text_of(row: Iterable[Span]) -> str:
    """Return the text of a row."""
    return "".join(map(itemgetter(0), row))


def width_of(row: Sequence[Span]) -> int:
    """Return the cells of a row."""
    text = text_of(row)
    return (
        sum(cells_of(span.text) for span in row)
        if _UNCOMMON.search(text)
        else len(text)
    )


def fit(row: Sequence[Span], width: int, fill: str = " ", style: Style = TEXT) -> Row:
    """Return the row cut or filled to exactly `width` cells."""
    left = width - width_of(row)
    if left >= 0:
        return [*row, Span(fill * left, style)] if left else [*row]
    fitted: Row = []
    left = width
    for span in row:
        cells = cells_of(span.text)
        if cells > left:
            return (
                [*fitted, Span(clip(span.text, left), span.style)]
                if left > 0
                else fitted
            )
        fitted.append(span)
        left -= cells
    return fitted


def clip(text: str, width: int) -> str:
    """Return the text cut to `width` cells, with an ellipsis if something is missing."""
    if width <= 0:
        return ""
    return text if cells_of(text) <= width else set_cell_size(text, width - 1) + "…"


def clip_words(text: str, width: int) -> str:
    """Return the text cut to whole words that fit in `width` cells."""
    return textwrap.shorten(text, width, placeholder="…") if width > 0 else ""


def clip_advice(text: str, width: int) -> str:
    """Return the advice if it fits in `width` cells, else its first clause, else its first words.

    No command is cut: it could lose the device that it is about, such as `-i 5` at its end.
    """
    if cells_of(text) <= width:
        return text
    clause = text.partition("; ")[0]
    shown = clip_words(clause, width)
    if shown.count("`") % 2 == 0:
        return shown
    return f"{shown.rpartition('`')[0].rstrip()}…"


def wrap(text: str, width: int) -> list[str]:
    """Wrap the text at blanks to lines of at most `width` characters, and of 10 at least."""
    return textwrap.wrap(text, max(10, width), break_on_hyphens=False)


def paragraph(
    text: str, width: int, style: Style = TEXT, indent: str = ""
) -> list[Row]:
    """Return the text in rows of at most `width` characters, each after the `indent`."""
    return [
        [Span(indent), Span(line, style)] for line in wrap(text, width - len(indent))
    ]


def cell(text: str, width: int, style: Style = TEXT, *, right: bool = False) -> Span:
    """Return a span of exactly `width` cells."""
    if text.isascii() and len(text) <= width:
        return Span(text.rjust(width) if right else text.ljust(width), style)
    text = clip(text, width)
    space = " " * (width - cells_of(text))
    return Span(space + text if right else text + space, style)


def reading(text: str, style: Style = TEXT) -> Span:
    """Return a span for a reading; a missing one is dim."""
    return Span(text, DIM if text.startswith(ABSENT) else style)


def spread(left: Sequence[Span], right: Sequence[Span], width: int) -> Row:
    """Return a row with text at both ends; the left one is cut if they do not fit."""
    room = width - width_of(right)
    return fit(right, width) if room < 1 else [*fit(left, room), *right]


def rule_of(left: Sequence[Span], right: Sequence[Span], width: int) -> Row:
    """Return a row with text at both ends and a line between them; the left text is cut first."""
    return spread(fit(left, width - width_of(right), "─", TRACK), right, width)


def heading(title: str, width: int) -> Row:
    """Return the title of a section, with a line behind it."""
    return rule_of([Span(f"{title} ", ACCENT)], [], width)


def merged(row: Row) -> Row:
    """Return the row with neighbours of one style as one span."""
    made: Row = []
    for _, group in groupby(
        row, key=lambda span: id(span.style)
    ):  # equal ones are the same one
        spans = [*group]
        made.append(Span(text_of(spans), spans[0].style))
    return made


def beside(blocks: Sequence[list[Row]], width: int, gap: int) -> list[Row]:
    """Return blocks of rows side by side, each `width` cells wide."""
    blank: Row = [Span(" " * width)]
    between = Span(" " * gap)
    return [
        [span for n, row in enumerate(rows) for span in ([between, *row] if n else row)]
        for rows in zip_longest(*blocks, fillvalue=blank)
    ]


def in_columns(
    blocks: Sequence[list[Row]], columns: int, width: int, gap: int
) -> list[Row]:
    """Arrange unbroken blocks in columns, in order, at the smallest height."""
    blocks = [[fit(row, width) for row in block] for block in blocks]
    height = max((len(block) for block in blocks), default=0)
    while len(packed := _packed(blocks, height, fit([], width))) > columns:
        height += 1
    return beside(packed, width, gap)


def _packed(blocks: Sequence[list[Row]], height: int, blank: Row) -> list[list[Row]]:
    packed: list[list[Row]] = [[]]
    for block in blocks:
        gap = bool(packed[-1])
        if gap and len(packed[-1]) + 1 + len(block) > height:
            packed.append([])
            gap = False
        packed[-1] += [blank, *block] if gap else block
    return packed


def faded(rows: Iterable[Row]) -> list[Row]:
    """Return the rows in one dim colour, for data that is out of date."""
    return [[Span(span.text, DIM) for span in row] for row in rows]


def list_row(row: Row, *, selected: bool, focused: bool) -> Row:
    """Return a row of a list; a selected one with its mark, reversed where keys are for the list.

    Elsewhere its text is bold.
    """
    if not selected:
        return [Span(" "), *row]
    row = [
        Span(t, CURSOR if focused else style if style.color else STRONG)
        for t, style in row
    ]
    return [Span("▌", ACCENT if focused else DIM), *row]


def share_of(value: float | None, total: float | None) -> float | None:
    """Return `value` as a share of `total`, or None if either is unknown."""
    return None if value is None or not total else value / total


def half_cells(share: float, width: int, drawn: int | None = None) -> int:
    """Return the half cells that a share (0 to 1) fills of a bar.

    Where some are `drawn`, they stay unless they are wrong by one: a value that only trembles
    moves nothing.
    """
    exact = min(1.0, max(0.0, share)) * width * 2
    halves = round(exact) if drawn is None or abs(exact - drawn) >= 1 else drawn
    if 0 < share < 1:  # a partial share looks neither empty nor full
        halves = max(1, min(2 * width - 1, halves))
    return halves


def bar(
    share: float | None, width: int, style: Style, halves: int | None = None
) -> Row:
    """Return a bar filled by `share` (0 to 1), or by so many half cells; dotted if unknown."""
    if width <= 0:
        return []
    if share is None:
        return [Span("┄" * width, TRACK)]
    if halves is None:
        halves = half_cells(share, width)
    full, half = divmod(halves, 2)
    row = [Span("━" * full + "╸" * half, style)] if halves else []
    rest = width - full - half
    return [*row, Span("─" * rest, TRACK)] if rest else row


# Dots of a braille cell by column, from the bottom up.
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
DOT_LEVELS = tuple(tuple(sum(dots[:n]) for n in range(5)) for dots in _DOTS)
"""Bits of a braille cell with its left or right half filled from the bottom by 0 to 4 dots."""


class ChartWindow(NamedTuple):
    """Values that a chart shows, counted from the first one ever, and where: two in a cell."""

    first: int
    end: int
    """Index after the last one."""
    slots: int
    turn: int = 0
    """Index of a value, shown or not, whose place is the left end."""

    def slot(self, value: int) -> int:
        """Return the place of a value, from the left."""
        return (value - self.turn) % self.slots

    def value_at(self, slot: int) -> int | None:
        """Return the value at a place, or None if nothing is there."""
        value = self.first + (slot + self.turn - self.first) % self.slots
        return value if value < self.end else None

    def span_text(self, interval: float) -> str:
        """Return how long it reaches back, such as `60 s`; in tens of seconds while it fills."""
        seconds = (self.end - self.first) * interval
        if seconds >= 10 and self.end - self.first < self.slots - 2:
            seconds -= seconds % 10
        return f"{seconds:.0f} s" if seconds < 200 else f"{seconds // 60:.0f} min"


def live_window(count: int, width: int, *, scroll: bool = False) -> ChartWindow:
    """Return what a chart of `width` cells shows after `count` values. A cell waits for both.

    Each value has its place and is written over in its turn, as by an oscilloscope; the cell after
    the newest is blank. So a new cell changes two columns, and of values that are all equal nothing
    changes. With `scroll` the newest are at the right, and a new cell moves all others.
    """
    end, slots = count - count % 2, 2 * width
    return ChartWindow(max(0, end - slots + 2 * (not scroll)), end, slots, end * scroll)


def chart(
    values: Sequence[float | None],
    start: int,
    window: ChartWindow,
    height: int,
    top: float,
    style: Style,
) -> list[Row]:
    """Return a filled braille chart of the window. The first of `values` has the index `start`."""
    begin = max(start, window.first)
    levels = _levels(values[begin - start : max(0, window.end - start)], top, height)
    places = [0] * window.slots
    for n, level in enumerate(levels, begin):
        places[window.slot(n)] = level
    if len(levels) == window.slots - 2 and len(set(levels)) == 1:
        places = levels[:1] * window.slots
    rows = map(_column, places[::2], places[1::2], repeat(height))
    return [[Span("".join(row), style)] for row in zip(*rows, strict=True)]


def _levels(values: Sequence[float | None], top: float, height: int) -> list[int]:
    room = 4 * height
    return [
        0 if v is None else max(1, min(room, round(v / top * room))) for v in values
    ]


@lru_cache(maxsize=1024)
def _column(left: int, right: int, height: int) -> str:
    """Return cells from top to bottom, with dots up to a level in each half."""
    below = range(4 * (height - 1), -1, -4)
    dots = (
        DOT_LEVELS[0][max(0, min(4, left - under))]
        + DOT_LEVELS[1][max(0, min(4, right - under))]
        for under in below
    )
    return "".join(chr(0x2800 + each) if each else " " for each in dots)
