"""Drawing in cells: rows of styled spans, bars, and histories. Knows no widget."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

from gputop.text import ABSENT
from gputop.ui.palette import DIM, TEXT, TRACK

if TYPE_CHECKING:
    from rich.style import Style


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = TEXT


Row = list[Span]


@lru_cache(maxsize=1024)
def is_narrow(text: str) -> bool:
    """Whether each of its characters takes one cell: then cells can be counted as characters."""
    return text.isascii() or all(cell_len(character) == 1 for character in set(text))


def cells_of(text: str) -> int:
    """Cells that a text takes: Rich's answer, which is slow, where there is a quicker one."""
    return len(text) if text.isascii() else cell_len(text)


def width_of(row: Iterable[Span]) -> int:
    """Cells that a row takes."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in row])


def fit(row: Sequence[Span], width: int, fill: str = " ", style: Style = TEXT) -> Row:
    """The row cut or filled to exactly `width` cells."""
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
    """Text cut to `width` cells, with an ellipsis where something is missing."""
    if width <= 0:
        return ""
    if cells_of(text) <= width:
        return text
    return set_cell_size(text, width - 1) + "…"


def clip_words(text: str, width: int) -> str:
    """As many of its words as fit in `width` cells: half a word of a sentence is none."""
    return textwrap.shorten(text, width, placeholder="…") if width > 0 else ""


def cell(text: str, width: int, style: Style = TEXT, *, right: bool = False) -> Span:
    """Text in exactly `width` cells."""
    if text.isascii() and len(text) <= width:
        return Span(text.rjust(width) if right else text.ljust(width), style)
    text = clip(text, width)
    space = " " * (width - cells_of(text))
    return Span(space + text if right else text + space, style)


def reading(text: str, style: Style = TEXT) -> Span:
    """A reading; absent ones are dim."""
    return Span(text, DIM if text.startswith(ABSENT) else style)


def spread(left: Sequence[Span], right: Sequence[Span], width: int) -> Row:
    """One row with text at both ends; the left end gives way."""
    room = width - width_of(right)
    if room < 1:
        return fit(right, width)
    return [*fit(left, room), *right]


def rule_of(left: Sequence[Span], right: Sequence[Span], width: int) -> Row:
    """One row with text at both ends and a line between them; the left end gives way."""
    return spread(fit(left, width - width_of(right), "─", TRACK), right, width)


def beside(blocks: Sequence[list[Row]], width: int, gap: int) -> list[Row]:
    """Blocks of rows, each `width` cells wide, side by side."""
    blank: Row = [Span(" " * width)]
    between = Span(" " * gap)
    return [
        [span for n, row in enumerate(rows) for span in ([between, *row] if n else row)]
        for rows in zip_longest(*blocks, fillvalue=blank)
    ]


def faded(rows: Iterable[Row]) -> list[Row]:
    """In one dim colour: what is no more so, or perhaps not."""
    return [[Span(span.text, DIM) for span in row] for row in rows]


def share_of(value: float | None, total: float | None) -> float | None:
    """`value` as a share of `total`; unknown where either is."""
    return None if value is None or not total else value / total


def bar(share: float | None, width: int, style: Style) -> Row:
    """A bar of `width` cells, filled by `share` (0 to 1) in half cells; unknown is dotted."""
    if width <= 0:
        return []
    if share is None:
        return [Span("┄" * width, TRACK)]
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    if 0 < share < 1:  # something is not nothing, and not all
        halves = max(1, min(2 * width - 1, halves))
    full, half = divmod(halves, 2)
    row = [Span("━" * full + "╸" * half, style)] if halves else []
    rest = width - full - half
    return [*row, Span("─" * rest, TRACK)] if rest else row


# Dots of a braille cell by column, from the bottom up.
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
_LEVELS = tuple(tuple(sum(dots[:n]) for n in range(5)) for dots in _DOTS)


def history(
    values: Sequence[float | None], count: int, width: int, height: int, top: float, style: Style
) -> list[Row]:
    """The last values as a filled braille chart, two to a cell, from the left in order of time.

    `count` is how many values there ever were. The chart fills up, then moves left by a quarter at
    once: drawn so, a tick changes one column, where scrolling would send every cell each time.
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
    """Cells from top to bottom, of dots up to a level on either side."""
    below = range(4 * (height - 1), -1, -4)
    dots = (
        _LEVELS[0][max(0, min(4, left - under))] + _LEVELS[1][max(0, min(4, right - under))]
        for under in below
    )
    return "".join(chr(0x2800 + each) if each else " " for each in dots)


def window_start(count: int, width: int) -> int:
    """The number of the first value that a chart of `width` cells shows."""
    room = 2 * width
    step = max(2, room // 4 // 2 * 2)
    return max(0, -((room - count) // step) * step)
