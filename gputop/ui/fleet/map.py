"""The map: a cell for each GPU, in groups, and the legend of its colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.style import Style

from gputop.fleet.distributions import HEALTH, UNKNOWN, MapMetric, shares
from gputop.fleet.page import SEVERITIES
from gputop.text import ABSENT, duration, visible
from gputop.ui.drawing.cells import Row, Span, cell, clip, fit, merged, spread, width_of
from gputop.ui.drawing.live import LiveView, Wheel
from gputop.ui.drawing.palette import DIM, GOOD, LEVELS, POINTER, STRONG, TEXT, WARN
from gputop.ui.fleet.grouping import GRAVEST_FIRST, SHAPE, SIGN_STYLES, SIGNS, VALUE
from gputop.ui.fleet.map_layout import AROUND_VALUE, VALUE_CELLS, MapDensity, MapPlace

if TYPE_CHECKING:
    from textual.events import Click

    from gputop.health.findings import Severity
    from gputop.ui.fleet.fleet_state import FleetState
    from gputop.ui.fleet.map_layout import MapLayout, Tile

GLYPHS, ASCII_GLYPHS = "▁▂▄▆█", ".:+*#"
"""Glyph of each level: height, or how full a character is, repeats what the colour says."""
FINE = "■"
"""Glyph of a GPU without problems, where health is shown."""
REVERSE = Style(reverse=True)
MARKS = {severity: style + REVERSE for severity, style in SIGN_STYLES.items()}
"""Styles of signs on the map: a whole cell in their colour stands out from the levels."""
HALVES, UPPER, LOWER = "▀", "↑", "↓"
"""Glyphs of two GPUs in a cell; and of the one that is under the cursor."""


def glyph(level: int, metric: MapMetric, *, ascii: bool) -> Span:  # noqa: A002 - as in Settings
    """Return the cell of a GPU without problems."""
    if metric is HEALTH:
        return Span(FINE, GOOD)
    if level == UNKNOWN:
        return Span(ABSENT, DIM)
    return Span((ASCII_GLYPHS if ascii else GLYPHS)[level], LEVELS[level])


def mark(health: Severity) -> Span:
    """Return the cell of a GPU with a problem."""
    return Span(SIGNS[health], MARKS[health])


@lru_cache(256)
def _pair(upper: Style, lower: Style | None) -> Style:
    return Style(color=upper.color, bgcolor=lower.color if lower else None)


WORDS = dict(
    zip((*GRAVEST_FIRST, None), ("fault", "stale", "warn", "note", "ok"), strict=True)
)


class Painter:
    """Draws the GPUs of a state in their places of a layout."""

    def __init__(self, state: FleetState, layout: MapLayout, *, ascii: bool) -> None:  # noqa: A002
        self._state, self._layout, self._grouping = state, layout, state.grouping
        self._gpus, self._levels, self._health = (
            state.fleet.gpus,
            state.levels,
            state.view.health,
        )
        self._cursor, self._old = state.cursor, state.is_old
        levels = range(UNKNOWN, len(LEVELS))
        self._glyphs = {
            level: glyph(level, state.metric, ascii=ascii) for level in levels
        }

    def row(self, y: int) -> Row:
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
        """Return the name and the figures of a group, or one of them, in their cells."""
        if self._layout.density is MapDensity.FOLDED or row > self._layout.stacked:
            return []
        width, figures = self._layout.label, self._figures(tile)
        if not self._layout.stacked:
            return [
                *self._name(tile, width - width_of(figures) - 1),
                Span(" "),
                *figures,
            ]
        return figures if row else self._name(tile, width)

    def _name(self, tile: Tile, width: int) -> Row:
        name = self._grouping.groups[tile.group].name
        style = STRONG if self._state.place[0] == tile.group else TEXT
        return [
            cell(visible(name) or self._grouping.unnamed, width, style if name else DIM)
        ]

    def _figures(self, tile: Tile) -> Row:
        metric = self._state.metric
        middle = (
            ""
            if metric is HEALTH
            else metric.text(self._grouping.median(tile.group, metric))
        )
        size = cell(str(tile.size), self._grouping.count_cells, DIM, right=True)
        return [
            size,
            Span(" "),
            cell(middle, VALUE, right=True),
            Span(" "),
            *self._wrong(tile),
        ]

    def _wrong(self, tile: Tile) -> Row:
        found, width = (
            self._grouping.wrong.get(tile.group),
            self._grouping.count_cells + 1,
        )
        if not found:
            return [Span(" " * width)]
        gravest = max(found)
        style = SIGN_STYLES[gravest]
        return [
            Span(SIGNS[gravest], style),
            cell(str(sum(found.values())), width - 1, style),
        ]

    def _line(self, tile: Tile) -> Row:
        figures = self._figures(tile)
        name = self._name(tile, self._layout.label - width_of(figures) - SHAPE - 2)
        row = [*name, Span(" "), *figures, Span(" ")]
        if self._state.metric is HEALTH:
            return [*row, Span(" " * SHAPE)]
        counts = Counter(
            self._levels[n] for n in self._grouping.groups[tile.group].members
        )
        bars = shares([counts[level] for level in range(SHAPE)])
        return [
            *row,
            *(Span(bar, style) for bar, style in zip(bars, LEVELS, strict=True)),
        ]

    # GPUs.

    def _cells(self, tile: Tile, row: int) -> Row:
        members = self._grouping.groups[tile.group].members
        numbers = [members[n] for n in self._layout.members(tile, row)]
        if self._layout.density is MapDensity.WIDE:
            return [span for number in numbers for span in self._wide(number)]
        if self._layout.density is MapDensity.HALF:
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
        """Return a cell of two GPUs, with the sign of the graver problem if there is one."""
        glyphs, levels = self._glyphs, self._levels
        wrong = [
            h for n in (upper, lower) if n is not None and (h := self._health.get(n))
        ]
        if self._old and not wrong and lower is not None:  # in one colour, two are one
            return glyphs[max(levels[upper], levels[lower])]
        if self._cursor in (upper, lower):
            return Span(UPPER if self._cursor == upper else LOWER, POINTER)
        if wrong:
            return mark(max(wrong))
        below = None if lower is None else glyphs[levels[lower]].style
        return Span(HALVES, _pair(glyphs[levels[upper]].style, below))

    def _wide(self, number: int) -> Row:
        """Return a GPU with its number and value, and a sign if it has a problem."""
        gpu, health, metric = (
            self._gpus[number],
            self._health.get(number),
            self._state.metric,
        )
        text = WORDS[health] if metric is HEALTH else metric.text(metric.value(gpu))
        absent, index_cells = (
            text == ABSENT,
            self._layout.cell - VALUE_CELLS - AROUND_VALUE,
        )
        row = [cell(visible(gpu.index), index_cells, DIM, right=True), Span(" ")]
        row.append(Span(" ") if absent else self._glyphs[self._levels[number]])
        row.append(cell(text, VALUE_CELLS, DIM if absent else TEXT, right=True))
        row.append(Span(" ") if health is None else mark(health))
        if number == self._cursor:
            row = [Span(span.text, POINTER) for span in row]
        return [*row, Span(" ")]


LEGEND_ROWS = 1
DENSITY_WORDS = {
    MapDensity.WIDE: "",
    MapDensity.ONE: "a cell per GPU",
    MapDensity.HALF: "two GPUs per cell",
    MapDensity.FOLDED: "groups folded, the cursor's open",
}


class MapView(Wheel, LiveView):
    """A scrolled window over the map, with the cursor in it."""

    def __init__(
        self, state: FleetState, moved: Callable[[], None], where: str, match: str
    ) -> None:
        """Call `moved` when a click has moved the cursor; without GPUs show `where` and `match`."""
        super().__init__(id="map")
        self._state, self._moved, self._where, self._match = state, moved, where, match
        self.ascii = False

    def height_in(self, width: int, most: int) -> int:
        """Return how many of `most` rows the map can use."""
        self._state.fit(width, most - LEGEND_ROWS)
        layout = self._state.layout
        return most if layout is None else min(most, layout.height + LEGEND_ROWS)

    # Keys and the mouse.

    def action_move(self, step: int) -> None:
        state = self._state
        for _ in range(abs(step)):
            layout = state.layout
            at = layout.slot(*state.place) if layout else None
            found = (
                layout.vertical(at, 1 if step > 0 else -1) if layout and at else None
            )
            if found is None:
                break
            state.move_to(*found)

    def action_side(self, step: int) -> None:
        """Move the cursor by that many GPUs, across groups."""
        state = self._state
        if state.cursor is not None:
            where = [*state.grouping.where]
            at = where.index(state.cursor) + step
            state.move_to(*state.grouping.where[where[max(0, min(len(where) - 1, at))]])

    def action_page(self, step: int) -> None:
        layout = self._state.layout
        lanes = layout.lanes if layout else 1
        self.action_move(step * lanes * max(1, self.size.height - LEGEND_ROWS - 1))

    def on_click(self, event: Click) -> None:
        layout = self._state.layout
        if layout is None or event.y < LEGEND_ROWS:
            return
        y = event.y - LEGEND_ROWS + self._first
        found = layout.at(MapPlace(event.x, y)) or layout.at(
            MapPlace(event.x, y, lower=True)
        )
        if found is not None:
            self._state.move_to(*found)
            self._moved()

    # Drawing.

    def draw(self, width: int, height: int) -> list[Row]:
        layout = self._state.layout
        if layout is None:
            return empty_rows(self._state, self._where, self._match, width)
        place = self._state.place
        slot = layout.slot(*place) or layout.tiles[place[0]]
        self.follow(place, slot.y, layout.height, height - LEGEND_ROWS)
        painter = Painter(self._state, layout, ascii=self.ascii)
        last = min(layout.height, self._first + height - LEGEND_ROWS)
        rows = [painter.row(y) for y in range(self._first, last)]
        return [self._legend(layout, width, len(rows)), *rows]

    def _legend(self, layout: MapLayout, width: int, rows: int) -> Row:
        state, metric = self._state, self._state.metric
        row = [Span(f" {metric.name} ", STRONG)]
        if metric is HEALTH:
            row += [glyph(0, metric, ascii=self.ascii), Span("fine ", DIM)]
            for health in GRAVEST_FIRST:
                row += [mark(health), Span(f"{SEVERITIES[health][0]} ", DIM)]
        else:
            edges = [metric.text(edge) for edge in metric.edges]
            for level, edge in enumerate((f"<{edges[0]}", *edges)):
                row += [glyph(level, metric, ascii=self.ascii), Span(f"{edge} ", DIM)]
            row += [glyph(UNKNOWN, metric, ascii=self.ascii), Span("unknown ", DIM)]
        lag = state.fleet.lag_seconds(metric.reading)
        if lag > 0:
            row.append(Span(f"{duration(lag)} older than the rest ", WARN))
        by = f"by {visible(state.by, 24)} ({len(state.grouping.groups):,})"
        words = [by, DENSITY_WORDS[layout.density]]
        if rows < layout.height:
            words.append(
                f"rows {self._first + 1}–{self._first + rows} of {layout.height}"
            )
        room = width - width_of(row) - 1
        words = [*filter(None, words)]
        while len(" · ".join(words)) > room and len(words) > 1:
            words.pop(1)
        return spread(
            row, [Span(clip(f"{' · '.join(words)} ", max(0, room)), TEXT)], width
        )


LOOKED_FOR = "DCGM_FI_DEV_GPU_UTIL, DCGM_FI_DEV_FB_USED, … and gputop_gpu_…"


def empty_rows(state: FleetState, where: str, match: str, width: int) -> list[Row]:
    """Return a heading and a remedy, for a map without GPUs."""
    lines: list[Span]
    fleet = state.fleet
    if state.age_seconds is None:
        lines = [
            Span(f"Waiting for the first answer from {visible(where, 200)}", STRONG),
            Span(f"for {duration(state.waiting_seconds)} so far", DIM),
        ]
    elif fleet.gpus:
        lines = [
            Span(f"No GPU matches the filter {visible(state.typed)}", STRONG),
            Span(f"of {len(fleet.gpus):,}. Esc shows all, / changes the filter", TEXT),
        ]
    elif not fleet.fresh:
        lines = [
            Span("No answer yet", STRONG),
            Span("gputop keeps asking; R asks now", TEXT),
        ]
    else:
        matching = f" that match {visible(match, 200)}" if match else ""
        lines = [
            Span(f"The server answers, but has no GPUs{matching}", STRONG),
            *(
                [Span("Check --match: its labels and their values", TEXT)]
                if match
                else []
            ),
            Span(
                "Check that dcgm-exporter or `gputop exporter` is scraped: Status, Targets",
                TEXT,
            ),
            Span(f"These metrics were looked for: {LOOKED_FOR}", DIM),
        ]
    return [
        [],
        *([Span("  "), Span(clip(text, width - 2), style)] for text, style in lines),
    ]
