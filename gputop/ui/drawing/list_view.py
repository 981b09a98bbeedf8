"""One widget for all lists: rows in columns, with a selection, an order and a filter.

To make a list, declare its `Column`s, fill a `ListState` with items, and show the state in a
`ListView`. A subclass of `ListState` defines the identity of an item (`identity`) and the text that
the filter searches (`search_text`). A subclass of `ListView` defines the styles of cells
(`cell_of`) and the text of an empty list (`nothing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple

from rich.style import Style
from textual.events import Click
from textual.message import Message

from gputop.text import ABSENT, fit_columns
from gputop.ui.drawing.cells import Row, Span, cell, list_row
from gputop.ui.drawing.filter_bar import FilterView
from gputop.ui.drawing.list_state import Column, Item, ListState
from gputop.ui.drawing.live import LiveView, Wheel
from gputop.ui.drawing.palette import DIM, STRONG, TEXT

MARK_WIDTH = 1
"""Cells for the mark of the selected row, before the first column."""
GAP = 1
"""Cells before each column."""


class Slot(NamedTuple, Generic[Item]):
    """A column on screen, with its cells without the gap."""

    column: Column[Item]
    cells: int


def fit_slots(
    columns: Sequence[Column[Item]],
    ranked: Sequence[Column[Item]],
    width: int,
    least: Callable[[Column[Item]], float] = lambda _: 0,
    enough: int = 0,
) -> list[Slot[Item]]:
    """Return the columns that fit into `width` cells, in screen order.

    The last of `ranked` are dropped first. A column of width 0 is always shown and gets the
    remaining width. `least` returns the width that it keeps if a column is to be shown. Columns
    grow evenly to their `most` cells while it keeps more than `enough`.
    """
    widest = [column for column in columns if not column.width]
    room = width - MARK_WIDTH - GAP * len(widest)
    shown = fit_columns(ranked, room, lambda column: GAP + column.width, least)
    rest = room - sum(GAP + column.width for column in shown)
    cells = {column: column.width for column in shown}
    growing = [column for column in shown if column.most]
    for done, column in enumerate(growing):
        share = (rest - enough) // (len(growing) - done)
        grown = max(0, min(column.most - column.width, share))
        cells[column] += grown
        rest -= grown
    cells.update(dict.fromkeys(widest, max(0, rest)))
    return [Slot(each, cells[each]) for each in columns if each in cells]


class ListView(Wheel, LiveView, FilterView, Generic[Item]):
    """A heading, the visible rows, and a line with their range."""

    class RowClicked(Message):
        """Message that a row was selected with the mouse."""

    noun = "rows"
    """Word for several items."""
    keys_of_range: tuple[str, ...] = (" · ↑↓ scroll", " · / filter")
    """Keys in the line with the range."""
    focused_list = True
    """True while keys go to this list."""
    above = 1
    """Rows above the items: the heading, if there is room."""
    room = 1
    """Number of items for which there was room at the last drawing."""
    across = 1
    """Number of items side by side."""
    tall = 1
    """Rows of an item."""
    has_heading = True

    def __init__(
        self,
        state: ListState[Item],
        columns: Sequence[Column[Item]] = (),
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Show `state` in these `columns`. The last columns are dropped first."""
        super().__init__(id=id)
        self.state = state
        self.columns = columns

    def slots(self, width: int) -> Sequence[Slot[Item]]:
        """Return the columns for that width, in screen order."""
        fixed = [column for column in self.columns if column.width]
        return fit_slots(self.columns, fixed, width)

    def cell_of(self, item: Item, slot: Slot[Item]) -> Row:
        """Return the cells of an item in a column."""
        text = slot.column.text(item)
        style = DIM
        if text != ABSENT:
            style = self.style_of(item, slot.column)
        right = slot.column.right
        return [cell(text, slot.cells, style, right=right)]

    def style_of(self, item: Item, column: Column[Item]) -> Style:  # noqa: ARG002
        """Return the style of a known value. Subclasses override this."""
        return TEXT

    def nothing(self) -> str:
        """Return why the list is empty."""
        return f"No {self.noun}"

    def title_of(self, column: Column[Item]) -> str:
        """Return the heading of a column."""
        return column.title

    @property
    def selected(self) -> Item | None:
        """Selected item, or None if nothing is listed."""
        return self.state.selected

    def action_move(self, step: int) -> None:
        self.state.select(self.state.at + step)
        self.redraw()

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.room - self.across))

    @property
    def typed(self) -> str:  # type: ignore[override] # it is the state's
        return self.state.filter

    def type(self, text: str) -> None:
        self.state.set_filter(text)
        self.redraw()

    def matches(self) -> str:
        return f"{len(self.state.lines)} of {self.state.total} match"

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw the heading, the rows that fit, and their range."""
        state = self.state
        if not state.total and not state.filter:
            return [[Span(f"  {self.nothing()}", DIM)]]
        self.above = int(self.has_heading and height > 1)
        space = height - self.above
        needed = -(-len(state.lines) // self.across) * self.tall
        scrolls = needed > space > self.tall + 1
        self.room = max(1, (space - scrolls) // self.tall) * self.across
        rows = self.draw_lines(width)
        if self.above:
            rows.insert(0, self.heading(width))
        if scrolls:
            rows.append(self._range(width))
        return rows

    def draw_lines(self, width: int) -> list[Row]:
        """Draw the items on screen, or the message that none matches."""
        lines = self.state.window(self.room)
        if not lines:
            return [[Span(f"  {self.no_match()}", DIM)]]
        slots = self.slots(width)
        at = self.state.at
        return [
            self.line(item, slots, selected=number == at)
            for number, item in enumerate(lines, self.state.first)
        ]

    def no_match(self) -> str:
        """Return the message that no item matches the filter."""
        if not self.state.filter:
            return self.nothing()
        return f"No {self.noun} with all of these words"

    def line(
        self,
        item: Item,
        slots: Sequence[Slot[Item]],
        *,
        selected: bool,
    ) -> Row:
        """Return the row of an item."""
        row: Row = []
        for slot in slots:
            row += [Span(" " * GAP), *self.cell_of(item, slot)]
        return list_row(row, selected=selected, focused=self.focused_list)

    def heading(self, width: int) -> Row:
        """Return the titles. An arrow marks the order."""
        state = self.state
        row = [Span(" " * MARK_WIDTH)]
        for slot in self.slots(width):
            title = self.title_of(slot.column)
            style = DIM
            if slot.column is state.sorted_by:
                title += "▼" if state.descending else "▲"
                style = STRONG
            right = slot.column.right
            text = cell(title, slot.cells, style, right=right)
            row += [Span(" " * GAP), text]
        return row

    def _range(self, width: int) -> Row:
        """Return the line with the range of the rows on screen."""
        first, many = self.state.first, len(self.state.lines)
        last = min(many, first + self.room)
        text = f"  {first + 1} to {last} of {many} {self.noun}"
        parts = (text, *self.keys_of_range)
        return [Span("".join(fit_columns(parts, width, len)), DIM)]

    def on_click(self, event: Click) -> None:
        """Sort by the heading at the mouse, or select the row at the mouse."""
        number = self.number_at(event.x, event.y - self.above)
        shown = self.state.window(self.room, self.across)
        if event.y < self.above:
            self.click_heading(event.x)
        elif number < len(shown):
            self.state.select(self.state.first + number)
            self.post_message(self.RowClicked())
        self.redraw()

    def number_at(self, x: int, y: int) -> int:  # noqa: ARG002 - for a grid
        """Return the number of the item at that cell, counted from the first one on screen."""
        return y

    def click_heading(self, x: int) -> None:
        """Sort by the column at that cell, or reverse the order."""
        if self.state.sorted_by is None:
            return
        end = MARK_WIDTH
        for slot in self.slots(self.size.width):
            end += GAP + slot.cells
            if x < end:
                self.state.sort_by(slot.column)
                return
