"""Draw in terminal cells: rows of styled spans, bars and charts, and how rows differ."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, count, pairwise, repeat, zip_longest
from operator import is_not, ne
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

from gputop.text import ABSENT
from gputop.ui.drawing.palette import DIM, TEXT, TRACK

if TYPE_CHECKING:
    from rich.style import Style


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = TEXT


Row = list[Span]


@lru_cache(maxsize=1024)
def is_narrow(text: str) -> bool:
    """True if each character takes one cell: then cells can be counted as characters."""
    return text.isascii() or all(cell_len(character) == 1 for character in set(text))


def cells_of(text: str) -> int:
    """Return the cells of a text. ASCII is counted here, as Rich is slow."""
    return len(text) if text.isascii() else cell_len(text)


def width_of(row: Iterable[Span]) -> int:
    """Return the cells of a row."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in row])


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
            return [*fitted, Span(clip(span.text, left), span.style)] if left > 0 else fitted
        fitted.append(span)
        left -= cells
    return fitted


def clip(text: str, width: int) -> str:
    """Return the text cut to `width` cells, with an ellipsis if something is missing."""
    if width <= 0:
        return ""
    if cells_of(text) <= width:
        return text
    return set_cell_size(text, width - 1) + "…"


def clip_words(text: str, width: int) -> str:
    """Return the text cut to whole words that fit in `width` cells."""
    return textwrap.shorten(text, width, placeholder="…") if width > 0 else ""


def wrap(text: str, width: int) -> list[str]:
    """Wrap the text to lines of at most `width` characters, and of 20 at least."""
    return textwrap.wrap(text, max(20, width))


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
    if room < 1:
        return fit(right, width)
    return [*fit(left, room), *right]


def rule_of(left: Sequence[Span], right: Sequence[Span], width: int) -> Row:
    """Return a row with text at both ends and a line between them; the left text is cut first."""
    return spread(fit(left, width - width_of(right), "─", TRACK), right, width)


def beside(blocks: Sequence[list[Row]], width: int, gap: int) -> list[Row]:
    """Return blocks of rows side by side, each `width` cells wide."""
    blank: Row = [Span(" " * width)]
    between = Span(" " * gap)
    return [
        [span for n, row in enumerate(rows) for span in ([between, *row] if n else row)]
        for rows in zip_longest(*blocks, fillvalue=blank)
    ]


def faded(rows: Iterable[Row]) -> list[Row]:
    """Return the rows in one dim colour, for data that is out of date."""
    return [[Span(span.text, DIM) for span in row] for row in rows]


def share_of(value: float | None, total: float | None) -> float | None:
    """Return `value` as a share of `total`, or None if either is unknown."""
    return None if value is None or not total else value / total


def bar(share: float | None, width: int, style: Style) -> Row:
    """Return a bar filled by `share` (0 to 1) in half cells of `width`; dotted if unknown."""
    if width <= 0:
        return []
    if share is None:
        return [Span("┄" * width, TRACK)]
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    if 0 < share < 1:  # a partial share looks neither empty nor full
        halves = max(1, min(2 * width - 1, halves))
    full, half = divmod(halves, 2)
    row = [Span("━" * full + "╸" * half, style)] if halves else []
    rest = width - full - half
    return [*row, Span("─" * rest, TRACK)] if rest else row


# Dots of a braille cell by column, from the bottom up.
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
DOT_LEVELS = tuple(tuple(sum(dots[:n]) for n in range(5)) for dots in _DOTS)
"""Bits of a braille cell with its left or right half filled from the bottom by 0 to 4 dots."""


def history(
    values: Sequence[float | None], count: int, width: int, height: int, top: float, style: Style
) -> list[Row]:
    """Return the last values as a filled braille chart, two per cell, oldest at the left.

    `count` is the number of values since the start. The chart fills up, then scrolls by a quarter
    at a time: a new value changes one column, where steady scrolling would send every cell.
    """
    first = window_start(count, width)
    shown = values[max(0, len(values) - (count - first)) :][: 2 * width]
    room = 4 * height
    levels = [0 if v is None else max(1, min(room, round(v / top * room))) for v in shown]
    levels += [0] * (2 * width - len(levels))
    columns = map(_column, levels[::2], levels[1::2], repeat(height))
    return [[Span("".join(row), style)] for row in zip(*columns, strict=True)]


@lru_cache(maxsize=1024)
def _column(left: int, right: int, height: int) -> str:
    """Return cells from top to bottom, with dots up to a level in each half."""
    below = range(4 * (height - 1), -1, -4)
    dots = (
        DOT_LEVELS[0][max(0, min(4, left - under))] + DOT_LEVELS[1][max(0, min(4, right - under))]
        for under in below
    )
    return "".join(chr(0x2800 + each) if each else " " for each in dots)


def window_start(count: int, width: int) -> int:
    """Return the index of the first value in a chart of `width` cells."""
    room = 2 * width
    step = max(2, room // 4 // 2 * 2)
    return max(0, -((room - count) // step) * step)


MOVE_BYTES = 5
"""Bytes of moving the cursor within its row."""
STYLE_BYTES = 6
"""Fewest bytes of a change of style."""


def changed_spans(old: Row, new: Row) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) cells in which two rows of the same width differ.

    Spans are joined where sending the cells between costs no more than moving over them.
    """
    cells: tuple[str, list[Style]] | None = None
    start = end = -1
    for x in _differing(old, new):
        if start < 0:
            start = x
        elif x > end:
            near = x - end <= MOVE_BYTES
            if near and cells is None:
                cells = _cells(new)
            if not (near and cells and _bridge_bytes(*cells, end, x) <= MOVE_BYTES):
                yield start, end
                start = x
        end = x + 1
    if start >= 0:
        yield start, end


def _differing(old: Row, new: Row) -> list[int]:
    """Return the cells in which two rows of the same width differ, by spans where these align."""
    if len(old) == len(new):
        found: list[int] = []
        first = 0
        for (was, style), (now, new_style) in zip(old, new, strict=True):
            many = len(now)
            if len(was) != many or not (now.isascii() or is_narrow(now)):
                break
            if style is not new_style and style != new_style:
                found += range(first, first + many)
            elif was != now:
                if not is_narrow(was):
                    break
                found += compress(count(first), map(ne, was, now))
            first += many
        else:
            return found
    (old_texts, old_styles), (texts, styles) = _cells(old), _cells(new)
    differ = [*compress(count(), map(ne, old_texts, texts))]
    others = compress(count(), map(is_not, old_styles, styles))
    restyled = [x for x in others if old_styles[x] != styles[x]]
    return sorted({*differ, *restyled}) if restyled else differ


def _bridge_bytes(texts: str, styles: list[Style], start: int, end: int) -> int:
    """Return the bytes of sending the cells from `start` to `end` between two that are sent."""
    around = styles[start - 1 : end + 1]
    changes = sum(one != next_ for one, next_ in pairwise(around)) - (around[0] != around[-1])
    return len(texts[start:end].encode()) + STYLE_BYTES * changes


def _cells(row: Row) -> tuple[str, list[Style]]:
    """Return a character and a style per cell; a wide character is there twice."""
    texts: list[str] = []
    styles: list[Style] = []
    for text, style in row:
        narrow = text.isascii() or is_narrow(text)
        one_each = text if narrow else "".join([c * cell_len(c) for c in text])
        texts.append(one_each)
        styles += [style] * len(one_each)
    return "".join(texts), styles
