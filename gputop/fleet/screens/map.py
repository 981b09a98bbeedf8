"""The map: a cell for each GPU, in groups, and the legend of its colours.

Each group is a tile: its name and figures, and next to them its GPUs in rows of equal length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, cast

from rich.style import Style
from textual.events import Click
from textual.geometry import Size

from gputop.fleet.model import Gpu, median_of
from gputop.fleet.screens.state import HOST, FleetState, GpuGroup, group_gpus
from gputop.health.findings import Severity
from gputop.text import ABSENT, visible
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cell,
    faded,
    fit,
    merged,
    paragraph,
    spread,
)
from gputop.ui.drawing.live import LiveView, Wheel
from gputop.ui.drawing.palette import (
    ACCENT,
    DIM,
    FAULT,
    LEVELS,
    POINTER,
    STRONG,
    TEXT,
    WARN,
)
from gputop.ui.shell.app import GputopApp

SIGNS = {
    Severity.FAULT: Span("!", FAULT),
    Severity.STALE: Span("?", DIM),
    Severity.WARNING: Span("▲", WARN),
    Severity.INFORMATION: Span("i", ACCENT),
}
"""Sign of a GPU with a finding, the gravest first. In ASCII, `▲` becomes `^`."""
GLYPHS, ASCII_GLYPHS = "▁▂▄▆█", ".:+*#"
"""Glyph of each level. Its height or density repeats the meaning of the colour."""
_REVERSE = Style(reverse=True)
MARGIN, GAP = 1, 2
PAGES = 2
"""Pages that a map may have before larger groups are used."""
ROW_LENGTHS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Lengths of rows. In rows of whole hosts, every host begins at the same column."""
LONGEST_NAME = 18
"""Most cells of a group's name."""
FIGURES, VALUE = 17, 5
"""Cells for the figures of a group (number of GPUs, median, problems), and for a value."""


class Spot(NamedTuple):
    """Place of a GPU, relative to the top of the whole map. Only a part may be visible."""

    y: int
    x: int
    gpu: Gpu


class MapLayout:
    """Places of all groups and GPUs. Each row of a group has as many GPUs as fit."""

    def __init__(self, groups: Sequence[GpuGroup], width: int) -> None:
        self.groups = groups
        longest = max([4, *(len(group.name) for group in groups)])
        self.name = min(LONGEST_NAME, longest)
        self.label = self.name + FIGURES
        largest = max((len(group.gpus) for group in groups), default=1)
        room = max(1, min(largest, width - MARGIN - self.label))
        across = max(length for length in ROW_LENGTHS if length <= room)
        tile = self.label + across + GAP
        columns = max(1, (width - MARGIN + GAP) // tile)
        self.rows: dict[int, list[Spot]] = defaultdict(list)
        self.names: dict[int, list[tuple[int, GpuGroup]]] = defaultdict(list)
        self.places: dict[str, Spot] = {}
        self.height = 0
        for number, group in enumerate(groups):
            column = number % columns
            if column == 0:
                top = self.height
            self.names[top].append((MARGIN + column * tile, group))
            for place, gpu in enumerate(group.gpus):
                line, cell = divmod(place, across)
                x = MARGIN + column * tile + self.label + cell
                spot = Spot(top + line, x, gpu)
                self.rows[spot.y].append(spot)
                self.places[gpu.key] = spot
            self.height = max(self.height, spot.y + 1)


class MapView(Wheel, LiveView):
    """A scrolled window over the map, with the cursor."""

    DEFAULT_CSS = "MapView { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def __init__(self, state: FleetState) -> None:
        super().__init__(id="map")
        self._state = state
        self.by = HOST
        """Label that the GPUs are grouped by."""
        self.map = MapLayout([], 1)
        self._laid_out: object = None
        """GPUs, label and size of the current layout."""

    def lay_out(self) -> None:
        """Lay out the map with the smallest groups that make it short enough."""
        state = self._state
        width, height = self.size
        conditions = (state.gpus, state.by, self.size)
        if not state.gpus or not width or conditions == self._laid_out:
            return
        self._laid_out = conditions
        tried = []
        for by in [state.by] if state.by else state.choices():
            groups = group_gpus(state.gpus, by)
            # As many groups as hosts are only a different name for the hosts.
            fewer = groups[-1].name and len(groups) < state.totals.hosts
            if state.by or by == HOST or fewer:
                made = MapLayout(groups, width)
                over = max(0, made.height - PAGES * (height - 1))
                tried.append((over, -len(groups), by, made))
        *_, self.by, self.map = min(tried, key=lambda each: each[:3])

    def action_move(self, step: int) -> None:
        """Move the cursor by that many rows. Beyond the edge, move to the last GPU."""
        gpu = self._state.cursor
        if gpu is None:
            return
        here = self.map.places[gpu.key]
        y = here.y + step
        if 0 <= y < self.map.height:
            nearest = min(
                self.map.rows[y], key=lambda spot: abs(spot.x - here.x)
            )
            self._state.move_to(nearest.gpu)
        else:
            self.action_side(step * len(self.map.places))

    def action_side(self, step: int) -> None:
        """Move the cursor by that many GPUs, across groups."""
        gpus = [spot.gpu for spot in self.map.places.values()]
        if self._state.cursor is not None:
            at = gpus.index(self._state.cursor) + step
            self._state.move_to(gpus[max(0, min(len(gpus) - 1, at))])

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 2))

    def on_click(self, event: Click) -> None:
        for spot in self.map.rows[event.y - 1 + self.scroll_offset.y]:
            if spot.x == event.x:
                self._state.move_to(spot.gpu)

    def draw(self, width: int, height: int) -> list[Row]:
        state = self._state
        self.lay_out()
        if state.cursor is None:
            return empty_rows(state, width)
        y = self.map.places[state.cursor.key].y
        room = height - 1
        self.virtual_size = Size(width, self.map.height + 1)
        first = max(y - room + 1, min(self.scroll_offset.y, y))
        self.scroll_to(y=first, animate=False)
        shown = range(self.scroll_offset.y, self.map.height)[:room]
        rows = [self._row(y) for y in shown]
        return [
            self._legend(width, shown),
            *(faded(rows) if state.is_old else rows),
        ]

    def _row(self, y: int) -> Row:
        row: Row = []
        end = 0
        parts = [
            (x, self.map.label, self._label(group))
            for x, group in self.map.names[y]
        ]
        for spot in self.map.rows[y]:
            parts.append((spot.x, 1, [self._cell(spot.gpu)]))
        for x, width, part in sorted(parts, key=itemgetter(0)):
            row += [Span(" " * (x - end)), *part]
            end = x + width
        return merged(row)

    def _label(self, group: GpuGroup) -> Row:
        """Return the name, the number of GPUs, their median and the number with problems."""
        state = self._state
        severities = [
            state.worst[g.key] for g in group.gpus if g.key in state.worst
        ]
        sign, style = SIGNS[max(severities)] if severities else Span("")
        median = median_of(group.gpus, state.metric)
        row = [
            cell(
                visible(group.name) or f"(no {self.by})",
                self.map.name,
                STRONG if state.cursor in group.gpus else TEXT,
            ),
            cell(
                f"{len(group.gpus)}",
                5,
                DIM,
                right=True,
            ),
            cell(state.metric.text(median), VALUE + 1, right=True),
            Span(f" {sign}{len(severities) or ''}", style),
        ]
        return fit(row, self.map.label)

    def _cell(self, gpu: Gpu) -> Span:
        """Return the cell of a GPU: the sign of its gravest problem, or its level."""
        state = self._state
        shown = self._glyph(state.metric.level(gpu))
        if gpu.key in state.worst:
            sign, style = SIGNS[state.worst[gpu.key]]
            shown = Span(sign, style + _REVERSE)
        if gpu is state.cursor:
            return Span(shown.text, POINTER)
        return shown

    def _glyph(self, level: int) -> Span:
        """Return the cell of a GPU without problems."""
        if level < 0:
            return Span(ABSENT, DIM)
        is_ascii = cast("GputopApp", self.app).look.ascii
        return Span(
            (ASCII_GLYPHS if is_ascii else GLYPHS)[level], LEVELS[level]
        )

    def _legend(self, width: int, shown: range) -> Row:
        metric = self._state.metric
        row = [Span(f" {metric.name} ", STRONG)]
        edges = [metric.text(edge) for edge in metric.edges]
        for level, edge in enumerate((f"<{edges[0]}", *edges)):
            row += [self._glyph(level), Span(f"{edge} ", DIM)]
        median = metric.text(median_of(self._state.gpus, metric))
        words = f"median {median} · by {visible(self.by, 24)} ({len(self.map.groups):,}) "
        if len(shown) < self.map.height:
            words += (
                f"· rows {shown.start + 1}–{shown.stop} of {self.map.height} "
            )
        return spread(row, [Span(words)], width)


def empty_rows(state: FleetState, width: int) -> list[Row]:
    """Return why there is no GPU to show, and the remedy."""
    if state.age_seconds is None:
        lines = [f"Waiting for the first answer from {state.where}"]
    elif state.fleet.gpus:
        lines = [
            f"No GPU matches the filter {state.typed}",
            "Esc shows all, / changes the filter",
        ]
    elif not state.fleet.fresh:
        lines = [
            "No answer yet",
            *map(str, state.fleet.problems),
            "gputop tries again; R tries now",
        ]
    else:
        lines = [
            "The server answers, but has no GPUs",
            f"Check --match {state.match}",
            "Check that Prometheus scrapes dcgm-exporter or gputop exporter",
        ]
    rows: list[Row] = [[]]
    for line in lines:
        rows += paragraph(
            visible(line), width, STRONG if len(rows) == 1 else TEXT, "  "
        )
    return rows
