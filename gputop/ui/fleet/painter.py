"""The rows of the map, cell by cell."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from rich.style import Style

from gputop.health.findings import Severity
from gputop.text import ABSENT, visible
from gputop.ui.drawing.cells import Row, Span, cell, fit, width_of
from gputop.ui.drawing.palette import BADGE, DIM, FAULT, GOOD, LEVELS, POINTER, STRONG, TEXT, WARN
from gputop.ui.fleet.grouping import SHAPE, VALUE
from gputop.ui.fleet.layout import Density
from gputop.ui.fleet.metrics import GRAVEST_FIRST, HEALTH, SIGNS, UNKNOWN, shares

if TYPE_CHECKING:
    from gputop.ui.fleet.layout import Layout, Tile
    from gputop.ui.fleet.metrics import Metric
    from gputop.ui.fleet.state import FleetState

GLYPHS, ASCII_GLYPHS = "▁▂▄▆█", ".:+*#"
"""Of the levels: what colour says is also said by height, or by how full a character is."""
FINE = "■"
"""Of a GPU with which nothing is wrong, where health is shown."""
VALUE_CELLS = 5
AROUND_VALUE = 4
"""Cells of a wide GPU besides its number and value: gaps, its level, and a sign."""
REVERSE = Style(reverse=True)
SIGN_STYLES = {Severity.WARNING: WARN, Severity.FAULT: FAULT, Severity.STALE: DIM}
MARKS = {Severity.WARNING: BADGE, Severity.FAULT: FAULT + REVERSE, Severity.STALE: DIM + REVERSE}
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


def mark(health: Severity) -> Span:
    """One cell of a GPU that something is wrong with."""
    return Span(SIGNS[health], MARKS[health])


def wide(index: str, level: Span, text: str, health: Severity | None, width: int) -> Row:
    """A GPU with its number and value, and a sign where something is wrong with it."""
    return [
        cell(index, width - VALUE_CELLS - AROUND_VALUE, DIM, right=True),
        Span(" "),
        Span(" ") if text == ABSENT else level,
        cell(text, VALUE_CELLS, DIM if text == ABSENT else TEXT, right=True),
        Span(" ") if health is None else mark(health),
        Span(" "),
    ]


def halves(
    upper: Style, lower: Style | None, health: Severity | None, *, under: bool | None
) -> Span:
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


HEALTH_WORDS = {
    None: "ok",
    Severity.WARNING: "warn",
    Severity.FAULT: "fault",
    Severity.STALE: "stale",
}


class Painter:
    """Draws what the state shows where the layout has it."""

    def __init__(self, state: FleetState, layout: Layout, *, ascii: bool) -> None:  # noqa: A002
        assert state.fleet is not None
        assert state.view is not None
        assert state.grouping is not None
        self._state, self._layout, self._grouping = state, layout, state.grouping
        self._gpus, self._levels, self._health = state.fleet.gpus, state.levels, state.view.health
        self._cursor, self._old = state.cursor, state.is_old
        self._glyphs = {
            level: glyph(level, state.metric, ascii=ascii) for level in range(-1, len(LEVELS))
        }

    def row(self, y: int) -> Row:
        """What is at that height of the whole map."""
        row: Row = []
        for group in self._layout.rows[y]:
            tile = self._layout.tiles[group]
            if not tile.across or y < tile.cells_y:
                row = [*fit(row, tile.x), *self._line(tile)]
            else:
                label = self._label(tile, y - tile.y)
                row = fit([*fit(row, tile.x), *label] if label else row, tile.cells_x)
                row += merged(self._cells(tile, y - tile.cells_y))
        if not self._old:
            return row
        return [span if span.style is POINTER else Span(span.text, DIM) for span in row]

    # Groups.

    def _label(self, tile: Tile, row: int) -> Row:
        """The name and the figures of a group, or one of them, in as many cells as they have."""
        if self._layout.density is Density.FOLDED or row > self._layout.stacked:
            return []
        width, figures = self._layout.label, self._figures(tile)
        if not self._layout.stacked:
            return [*self._name(tile, width - width_of(figures) - 1), Span(" "), *figures]
        return figures if row else self._name(tile, width)

    def _name(self, tile: Tile, width: int) -> Row:
        name = self._grouping.groups[tile.group].name
        style = STRONG if self._state.place[0] == tile.group else TEXT
        return [cell(visible(name) or self._grouping.unnamed, width, style if name else DIM)]

    def _figures(self, tile: Tile) -> Row:
        """How many GPUs, their median, and how many of them are wrong."""
        metric = self._state.metric
        middle = "" if metric is HEALTH else metric.text(self._grouping.median(tile.group, metric))
        return [
            cell(str(tile.size), self._grouping.count_cells, DIM, right=True),
            Span(" "),
            cell(middle, VALUE, right=True),
            Span(" "),
            *self._wrong(tile),
        ]

    def _wrong(self, tile: Tile) -> Row:
        """The sign of the gravest, and how many are wrong in all."""
        found, width = self._grouping.wrong.get(tile.group), self._grouping.count_cells + 1
        if not found:
            return [Span(" " * width)]
        gravest = next(health for health in GRAVEST_FIRST if health in found)
        style = SIGN_STYLES[gravest]
        return [Span(SIGNS[gravest], style), cell(str(sum(found.values())), width - 1, style)]

    def _line(self, tile: Tile) -> Row:
        """A folded group: name, figures and how its GPUs are spread over the levels."""
        figures = self._figures(tile)
        name = self._name(tile, self._layout.label - width_of(figures) - SHAPE - 2)
        row = [*name, Span(" "), *figures, Span(" ")]
        if self._state.metric is HEALTH:
            return [*row, Span(" " * SHAPE)]
        counts = Counter(self._levels[n] for n in self._grouping.groups[tile.group].members)
        bars = shares([counts[level] for level in range(SHAPE)])
        return [*row, *(Span(bar, style) for bar, style in zip(bars, LEVELS, strict=True))]

    # GPUs.

    def _cells(self, tile: Tile, row: int) -> Row:
        """Those of a group in one of its rows."""
        members = self._grouping.groups[tile.group].members
        numbers = [members[n] for n in self._layout.members(tile, row)]
        if self._layout.density is Density.WIDE:
            return [span for number in numbers for span in self._wide(number)]
        if self._layout.density is Density.HALF:
            upper, lower = numbers[: tile.across], numbers[tile.across :]
            return [
                self._halves(number, lower[n] if n < len(lower) else None)
                for n, number in enumerate(upper)
            ]
        return [self._one(number) for number in numbers[: tile.across]]

    def _one(self, number: int) -> Span:
        health = self._health.get(number)
        span = self._glyphs[self._levels[number]] if health is None else mark(health)
        return Span(span.text, POINTER) if number == self._cursor else span

    def _halves(self, upper: int, lower: int | None) -> Span:
        glyphs, levels = self._glyphs, self._levels
        below = None if lower is None else glyphs[levels[lower]].style
        wrong = None
        if self._health:
            found = [h for n in (upper, lower) if n is not None and (h := self._health.get(n))]
            wrong = min(found, key=GRAVEST_FIRST.index) if found else None
        if self._old and wrong is None and lower is not None:  # in one colour, two are one
            return glyphs[max(levels[upper], levels[lower])]
        under = None if self._cursor not in (upper, lower) else self._cursor != upper
        return halves(glyphs[levels[upper]].style, below, wrong, under=under)

    def _wide(self, number: int) -> Row:
        gpu, health, metric = self._gpus[number], self._health.get(number), self._state.metric
        text = HEALTH_WORDS[health] if metric is HEALTH else metric.text(metric.value(gpu))
        row = wide(
            visible(gpu.index), self._glyphs[self._levels[number]], text, health, self._layout.cell
        )
        if number != self._cursor:
            return row
        return [*(Span(span.text, POINTER) for span in row[:-1]), row[-1]]


def merged(row: Row) -> Row:
    """Neighbours in one style as one span."""
    made: Row = []
    for _, group in groupby(row, key=lambda span: id(span.style)):  # equal ones are the same one
        spans = [*group]
        made.append(Span("".join([span.text for span in spans]), spans[0].style))
    return made
