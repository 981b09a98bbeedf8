"""The map: a cell for each GPU, in groups, and the legend of its colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import duration, visible
from gputop.ui.drawing.draw import Row, Span, clip, spread, width_of
from gputop.ui.drawing.palette import DIM, STRONG, TEXT, WARN
from gputop.ui.fleet.grouping import NONE
from gputop.ui.fleet.layout import Density, Slot
from gputop.ui.fleet.metrics import GRAVEST_FIRST, HEALTH, UNKNOWN
from gputop.ui.fleet.painter import Painter, glyph, mark
from gputop.ui.widgets.live import LiveView
from gputop.ui.widgets.scrolled import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.events import Click

    from gputop.ui.fleet.layout import Layout
    from gputop.ui.fleet.state import FleetState

LEGEND_ROWS = 1
DENSITY_WORDS = {
    Density.WIDE: "",
    Density.ONE: "a cell per GPU",
    Density.HALF: "two GPUs per cell",
    Density.FOLDED: "groups folded, that of the cursor open",
}


class MapView(Wheel, LiveView):
    """A window over the map, with the cursor in it."""

    def __init__(self, state: FleetState, moved: Callable[[], None]) -> None:
        """`moved` is called when a click has moved the cursor."""
        super().__init__(id="map")
        self._state, self._moved = state, moved
        self.ascii = False
        self.empty: Callable[[int], list[Row]] = lambda _: []
        """What there is to say where there is no GPU to show."""
        self._seen: tuple[int, int] | None = None
        """Where the cursor was when it was last scrolled to."""

    def height_in(self, width: int, most: int) -> int:
        """Rows that it can use of those."""
        self._state.fit(width, most - LEGEND_ROWS)
        layout = self._state.layout
        return most if layout is None else min(most, layout.height + LEGEND_ROWS)

    # Keys and the mouse.

    def action_move(self, step: int) -> None:
        """The cursor up or down."""
        state = self._state
        for _ in range(abs(step)):
            layout = state.layout
            at = layout.slot(*state.place) if layout else None
            found = layout.vertical(at, 1 if step > 0 else -1) if layout and at else None
            if found is None:
                break
            state.go(*found)

    def action_side(self, step: int) -> None:
        """The cursor to the GPU that many further on, into the next group or the one before."""
        state = self._state
        group, member = state.place
        if not state.groups:
            return
        member += step
        while member < 0 and group > 0:
            group -= 1
            member += len(state.groups[group].members)
        while member >= len(state.groups[group].members) and group + 1 < len(state.groups):
            member -= len(state.groups[group].members)
            group += 1
        state.go(group, member)

    def action_page(self, step: int) -> None:
        """The cursor a screen further up or down."""
        layout = self._state.layout
        lanes = layout.lanes if layout else 1
        self.action_move(step * lanes * max(1, self.size.height - LEGEND_ROWS - 1))

    def on_click(self, event: Click) -> None:
        """Puts the cursor on what is under the mouse; a folded group is opened."""
        layout = self._state.layout
        if layout is None or event.y < LEGEND_ROWS:
            return
        y = event.y - LEGEND_ROWS + self._first
        found = layout.at(Slot(event.x, y)) or layout.at(Slot(event.x, y, lower=True))
        if found is None:
            group = layout.group_at(event.x, y)
            found = None if group is None else (group, 0)
        if found is not None:
            self._state.go(*found)
            self._moved()

    # Drawing.

    def draw(self, width: int, height: int) -> list[Row]:
        """The legend, and the rows of the map that there is room for."""
        layout = self._state.layout
        if layout is None:
            return self.empty(width)
        self._follow(layout, height - LEGEND_ROWS)
        painter = Painter(self._state, layout, ascii=self.ascii)
        last = min(layout.height, self._first + height - LEGEND_ROWS)
        rows = [painter.row(y) for y in range(self._first, last)]
        return [self._legend(layout, width, len(rows)), *rows]

    def _follow(self, layout: Layout, room: int) -> None:
        """Scrolls so that the cursor is seen, after it has moved; and never past the end."""
        place = self._state.place
        if place != self._seen:
            self._seen = place
            slot = layout.slot(*place)
            y = slot.y if slot else layout.tiles[place[0]].y
            if y >= self._first + room:
                self._first = y - room + 1
            self._first = min(self._first, y or 0)
        self._first = max(0, min(self._first, layout.height - room))

    def _legend(self, layout: Layout, width: int, rows: int) -> Row:
        state, metric = self._state, self._state.metric
        row = [Span(f" {metric.name} ", STRONG)]
        if metric is HEALTH:
            row += [glyph(0, metric, ascii=self.ascii), Span("fine ", DIM)]
            for health in GRAVEST_FIRST:
                row += [mark(health), Span(f"{health} ", DIM)]
        else:
            edges = (
                "0",
                *(f"{edge:g}" for edge in metric.edges[:-1]),
                metric.text(metric.edges[-1]),
            )
            for level, edge in enumerate(edges):
                row += [glyph(level, metric, ascii=self.ascii), Span(f"{edge} ", DIM)]
            row += [glyph(UNKNOWN, metric, ascii=self.ascii), Span("unknown ", DIM)]
        lag = state.fleet.lag_seconds(metric.reading) if state.fleet is not None else 0.0
        if lag > 0:
            row.append(Span(f"{duration(lag)} older than the rest ", WARN))
        groups = len(state.groups)
        by = f"by {visible(state.by, 24)} · {groups:,} group{'s' if groups != 1 else ''}"
        by = "all in one" if state.by == NONE else by
        words = [by, DENSITY_WORDS[layout.density]]
        if rows < layout.height:
            words.append(f"rows {self._first + 1} to {self._first + rows} of {layout.height}")
        room = width - width_of(row) - 1
        said = " · ".join(filter(None, words))
        while len(said) > room and len(words) > 1:
            words.pop(1)
            said = " · ".join(filter(None, words))
        return spread(row, [Span(clip(f"{said} ", max(0, room)), TEXT)], width)


LOOKED_FOR = "DCGM_FI_DEV_GPU_UTIL, DCGM_FI_DEV_FB_USED, … and gputop_gpu_…"


def empty(state: FleetState, where: str, match: str, width: int) -> list[Row]:
    """A heading and what to do, in the middle of nothing."""
    lines: list[Span]
    fleet = state.fleet
    if fleet is None:
        lines = [
            Span(f"Waiting for the first answer of {visible(where, 200)}", STRONG),
            Span(f"for {duration(state.waiting_seconds)} now", DIM),
        ]
    elif fleet.gpus:
        lines = [
            Span(f"No GPU passes the filter {visible(state.typed)}", STRONG),
            Span(f"of {len(fleet.gpus):,}. Esc shows all, / changes the filter", TEXT),
        ]
    elif not fleet.fresh:
        lines = [
            Span("No answer yet", STRONG),
            Span("It is asked again all the time; R asks now", TEXT),
        ]
    else:
        matching = f" that match {visible(match, 200)}" if match else ""
        lines = [
            Span(f"The server answers, and has no GPUs{matching}", STRONG),
            *([Span("Check --match: its labels and their values", TEXT)] if match else []),
            Span("Check that dcgm-exporter or `gputop exporter` is scraped: Status, Targets", TEXT),
            Span(f"These metrics were looked for: {LOOKED_FOR}", DIM),
        ]
    return [[], *([Span("  "), Span(clip(text, width - 2), style)] for text, style in lines)]
