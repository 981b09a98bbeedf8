"""Views that scroll: by the wheel, and rows that are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.drawing.cells import Span
from gputop.ui.drawing.palette import DIM
from gputop.ui.widgets.live import DeviceView

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.events import MouseScrollDown, MouseScrollUp

    from gputop.ui.drawing.cells import Row

WHEEL_LINES = 3


class Wheel:
    """Mixin of a view that the mouse wheel scrolls."""

    _first = 0
    """The first line that shows; who draws keeps it within bounds."""
    redraw: Callable[[], None]

    def wheel(self, step: int) -> None:
        """Show what is that many lines further down, or further up for a negative number."""
        self._first += step
        self.redraw()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll down."""
        self.wheel(WHEEL_LINES)
        event.stop()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll up."""
        self.wheel(-WHEEL_LINES)
        event.stop()


class ScrolledView(DeviceView):
    """Draws as many of `all_rows` as there is room for; the last line says what is left out."""

    _top = _rows_in_all = 0

    def all_rows(self, width: int) -> list[Row]:
        """What there is to show, however much."""
        raise NotImplementedError

    def action_move(self, step: int) -> None:
        """Moves on by that many rows, as far as there are any."""
        room = max(1, self.size.height - 1)
        self._top = max(0, min(self._top + step, self._rows_in_all - room))
        self.redraw()

    def action_page(self, step: int) -> None:
        """Moves on by that many pages."""
        self.action_move(step * max(1, self.size.height - 2))

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows from the one that was scrolled to."""
        rows = self.all_rows(width)
        self._rows_in_all = len(rows)
        if len(rows) <= height:
            self._top = 0
            return rows
        if height < 2:  # what is left out is not counted over nothing
            return rows[self._top : self._top + height]
        room = height - 1
        self._top = min(self._top, len(rows) - room)
        below = len(rows) - room - self._top
        more = f" {self._top} rows above" if self._top else ""
        more += f"{',' if more and below else ''} {below} below" if below else ""
        hint = [Span(f"{more}: PgUp PgDn".rjust(width), DIM)]
        return [*rows[self._top : self._top + room], hint]
