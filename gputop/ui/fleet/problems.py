"""The list of what is wrong, worst first; the cursor is the map's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gputop.fleet.page import since
from gputop.text import visible
from gputop.ui.drawing.draw import Row, Span, cell, cells_of, clip, faded, spread, width_of
from gputop.ui.drawing.palette import ACCENT, DIM, GOOD, STRONG, TAB
from gputop.ui.fleet.detail import gpu_name
from gputop.ui.fleet.metrics import GRAVEST_FIRST, SIGNS, counted
from gputop.ui.fleet.painter import SIGN_STYLES
from gputop.ui.processes.widget import CURSOR
from gputop.ui.widgets.live import LiveView
from gputop.ui.widgets.scrolled import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.events import Click

    from gputop.fleet.model import Wrong
    from gputop.ui.fleet.state import FleetState

LONGEST_NAME = 32
ROOMY = 110
"""Cells from which on there is room for where it is, too."""
SINCE_CELLS = 14


class WrongView(Wheel, LiveView):
    """A heading, and a window over the list."""

    def __init__(self, state: FleetState, moved: Callable[[], None]) -> None:
        """`moved` is called when a click has moved the cursor."""
        super().__init__(id="wrong")
        self._state, self._moved = state, moved
        self._seen: int | None = None
        """The row of the cursor when it was last scrolled to."""

    @property
    def _listed(self) -> list[Wrong]:
        return self._state.view.wrong if self._state.view else []

    @property
    def rows(self) -> int:
        """That it could use, with its heading."""
        return 1 + len(self._listed)

    def action_move(self, step: int) -> None:
        """The cursor to what is wrong that many rows further down; first of all to what is seen."""
        state = self._state
        row = state.row
        state.go_row(self._first if row is None else row + step)

    def action_page(self, step: int) -> None:
        """The cursor a window further down."""
        self.action_move(step * max(1, self.size.height - 2))

    def on_click(self, event: Click) -> None:
        """Puts the cursor there."""
        row = self._first + event.y - 1
        if event.y > 0 and row < len(self._listed):
            self._state.go_row(row)
            self._state.on_list = True
            self._moved()

    def draw(self, width: int, height: int) -> list[Row]:
        """The heading, and the rows that there is room for."""
        state = self._state
        if state.fleet is None or not state.fleet.gpus:
            return []
        wrong, room, row = self._listed, max(0, height - 1), state.row
        if row != self._seen:
            self._seen = row
            if self._seen is not None:
                self._first = max(self._seen - room + 1, min(self._first, self._seen))
        self._first = max(0, min(self._first, len(wrong) - room))
        shown = wrong[self._first : self._first + room]
        longest = max((cells_of(gpu_name(state.gpu_of(each))) for each in shown), default=0)
        names = min(LONGEST_NAME, longest)
        rows = [self._heading(width, len(shown))]
        rows += [
            self._line(each, names, width, selected=n == row)
            for n, each in enumerate(shown, self._first)
        ]
        return [rows[0], *faded(rows[1:])] if state.is_old else rows

    def _heading(self, width: int, shown: int) -> Row:
        state = self._state
        title = Span(" PROBLEMS ", TAB if state.on_list else STRONG)
        if not self._listed:
            return [title, Span(" nothing, as far as the metrics say", GOOD)]
        found = Counter(each.severity for each in self._listed)
        words = " · ".join(counted(found[h], h) for h in GRAVEST_FIRST if found[h])
        seen = f"{self._first + 1} to {self._first + shown} of {len(self._listed)} "
        right = [Span(seen, DIM)] if 0 < shown < len(self._listed) else []
        return spread([title, Span(f" {words}, worst first", DIM)], right, width)

    def _line(self, wrong: Wrong, names: int, width: int, *, selected: bool) -> Row:
        state = self._state
        gpu = state.gpu_of(wrong)
        begun = since(wrong, state.fleet.time) if state.fleet else ""
        where = visible(state.place_of(gpu), 40) if width >= ROOMY else ""
        right = [Span(f"  {where}", DIM), Span(f"  {begun} ".rjust(SINCE_CELLS), DIM)]
        row = [
            Span(f"{SIGNS[wrong.severity]} ", SIGN_STYLES[wrong.severity]),
            cell(gpu_name(gpu), names, STRONG),
            Span("  "),
            Span(clip(visible(wrong.text), width - names - 6 - width_of(right))),
        ]
        row = spread(row, right, width - 1)
        if not selected:
            return [Span(" "), *row]
        if state.on_list:
            row = [Span(span.text, CURSOR) for span in row]
        return [Span("▌", ACCENT if state.on_list else DIM), *row]
