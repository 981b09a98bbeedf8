"""What a GPU looks like on the map: in several cells, in one, or in half of one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.style import Style

from gputop.fleet.model import Health
from gputop.text import ABSENT
from gputop.ui.draw import Row, Span, cell
from gputop.ui.fleet.metrics import HEALTH, SIGNS, UNKNOWN
from gputop.ui.palette import BADGE, DIM, FAULT, GOOD, LEVELS, POINTER, TEXT, WARN

if TYPE_CHECKING:
    from gputop.ui.fleet.metrics import Metric

GLYPHS, ASCII_GLYPHS = "▁▂▄▆█", ".:+*#"
"""Of the levels: what colour says is also said by height, or by how full a character is."""
FINE = "■"
"""Of a GPU with which nothing is wrong, where health is shown."""
VALUE_CELLS = 5
AROUND_VALUE = 4
"""Cells of a wide GPU besides its number and value: gaps, its level, and a sign."""
REVERSE = Style(reverse=True)
SIGN_STYLES = {Health.WARNING: WARN, Health.FAULT: FAULT, Health.STALE: DIM}
MARKS = {Health.WARNING: BADGE, Health.FAULT: FAULT + REVERSE, Health.STALE: DIM + REVERSE}
"""Of signs on the map: a whole cell in the colour of a sign is seen among those of the levels."""
HALVES, UPPER, LOWER = "▀", "↑", "↓"
"""Two GPUs in a cell; and which of them is under the cursor."""


def glyph(level: int, metric: Metric, *, ascii: bool) -> Span:  # noqa: A002 - as in Settings
    """One cell of a GPU with which nothing is wrong."""
    if metric is HEALTH:
        return Span(FINE, GOOD)
    if level == UNKNOWN:
        return Span(ABSENT, DIM)
    return Span((ASCII_GLYPHS if ascii else GLYPHS)[level], LEVELS[level])


def sign(health: Health) -> Span:
    """Of what is wrong, beside a text."""
    return Span(SIGNS[health], SIGN_STYLES[health])


def mark(health: Health) -> Span:
    """One cell of a GPU that something is wrong with."""
    return Span(SIGNS[health], MARKS[health])


def wide(index: str, level: Span, text: str, health: Health | None, width: int) -> Row:
    """A GPU with its number and value, and a sign where something is wrong with it."""
    return [
        cell(index, width - VALUE_CELLS - AROUND_VALUE, DIM, right=True),
        Span(" "),
        Span(" ") if text == ABSENT else level,
        cell(text, VALUE_CELLS, DIM if text == ABSENT else TEXT, right=True),
        Span(" ") if health is None else mark(health),
        Span(" "),
    ]


def halves(upper: Style, lower: Style | None, health: Health | None, *, under: bool | None) -> Span:
    """Two GPUs in a cell; `under`: whether the lower one is under the cursor, None where neither.

    Where something is wrong with one of them the cell has the sign of the graver.
    """
    if under is not None:
        return Span(LOWER if under else UPPER, POINTER)
    if health is not None:
        return mark(health)
    return Span(HALVES, _pair(upper, lower))


@lru_cache(256)
def _pair(upper: Style, lower: Style | None) -> Style:
    return Style(color=upper.color, bgcolor=lower.color if lower else None)
