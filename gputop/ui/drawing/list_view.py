"""One widget for all lists: rows in columns, with a selection, an order and a filter.

To make a list, declare its `Column`s, fill a `ListState` with items, and show the state in a
`ListView`. A subclass of `ListState` defines the identity of an item (`identity`) and the text that
the filter searches (`search_text`). A subclass of `ListView` defines the styles of cells
(`cell_of`) and the text of an empty list (`nothing`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from textual.message import Message

from gputop.text import ABSENT, fit_columns
from gputop.ui.drawing.cells import Row, Span, cell, list_row
from gputop.ui.drawing.filter_bar import FilterView
from gputop.ui.drawing.live import Wheel
from gputop.ui.drawing.palette import DIM, STRONG, TEXT

if TYPE_CHECKING:
    from rich.style import Style
    from textual.events import Click

Item = TypeVar("Item")

MARK_WIDTH = 1
"""Cells for the mark of the selected row, before the first column."""
GAP = 1
"""Cells before each column."""


@dataclass(frozen=True, eq=False)
class Column(Generic[Item]):
    """A column of a list."""

    title: str
    width: int
    """Cells; 0 for the column that gets the remaining width."""
    text: Callable[[Item], str]
    value: Callable[[Item], Any] = lambda _: None
    """Sort key; None if unknown. Unknown values come last in both directions."""
    right: bool = True
    """True for numbers, which are aligned to the right."""
    largest_first: bool = False
    """True if the first sort is descending."""
    about: str = ""
    """Explanation for the help."""
    most: int = 0
    """Cells that it may grow to, if more than its width."""


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
    grow to their `most` cells while it keeps more than `enough`.
    """
    room = width - MARK_WIDTH
    has_rest = any(not column.width for column in columns)
    if has_rest:
        room -= GAP
    shown = fit_columns(ranked, room, lambda column: GAP + column.width, least)
    rest = room - sum(GAP + column.width for column in shown)
    cells = {column: column.width for column in shown}
    for column in shown:
        grown = max(0, min(column.most - column.width, rest - enough))
        cells[column] += grown
        rest -= grown
    slots = []
    for column in columns:
        if not column.width:
            slots.append(Slot(column, max(0, rest)))
        elif column in cells:
            slots.append(Slot(column, cells[column]))
    return slots


class ListState(Generic[Item]):
    """Items of a list, their order, the filter and the selection. Not a widget.

    Views may share a state. The lines are computed once after each change.
    """

    def __init__(self, sorted_by: Column[Item] | None = None) -> None:
        """Sort by that column, or keep the given order of the items."""
        self.sorted_by = sorted_by
        self.descending = sorted_by is not None and sorted_by.largest_first
        self.filter = ""
        """Words that an item must all contain."""
        self.first = 0
        """Index of the first line on screen."""
        self._items: Sequence[Item] = ()
        self._lines: Sequence[Item] | None = None
        self._ordered: Sequence[Item] | None = None
        self._at = 0
        self._selected: Hashable = None

    def identity(self, item: Item) -> Hashable:
        """Return the identity of an item. The selection stays on that identity."""
        return id(item)

    def search_text(self, item: Item) -> str:
        """Return the lower-case text that the filter searches."""
        raise NotImplementedError

    def matches(self, item: Item, words: Sequence[str]) -> bool:
        """Return True if the item contains all of these lower-case words."""
        text = self.search_text(item)
        return all(word in text for word in words)

    def arrange(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the lines for the matching items, in order. A tree may add lines."""
        return items

    def fill(self, items: Sequence[Item]) -> None:
        """List these items."""
        self._items = items
        self.changed()

    def changed(self, *, order: bool = True) -> None:
        """Compute the lines again. With `order`, also sort again."""
        self._lines = None
        if order:
            self._ordered = None

    @property
    def total(self) -> int:
        """Number of items before filtering."""
        return len(self._items)

    @property
    def lines(self) -> Sequence[Item]:
        """Items that match the filter, in order."""
        if self._lines is None:
            if self._ordered is None:
                self._ordered = self._sorted()
            found = self._ordered
            words = self.filter.casefold().split()
            if words:
                found = [item for item in found if self.matches(item, words)]
            self._lines = self.arrange(found)
            self._follow(self._lines)
        return self._lines

    def _sorted(self) -> Sequence[Item]:
        column = self.sorted_by
        if column is None:
            return self._items
        known = []
        unknown = []
        for item in self._items:
            value = column.value(item)
            if value is None:
                unknown.append(item)
            else:
                known.append((value, item))
        known.sort(key=lambda pair: pair[0], reverse=self.descending)
        return [item for _, item in known] + unknown

    def _follow(self, lines: Sequence[Item]) -> None:
        """Keep the selection on its item, or at its position if the item has disappeared."""
        if not lines:
            return
        self._at = min(self._at, len(lines) - 1)
        if self._selected is None:
            return
        for number, item in enumerate(lines):
            if self.identity(item) == self._selected:
                self._at = number
                return
        self._selected = self.identity(lines[self._at])

    @property
    def at(self) -> int:
        """Index of the selected line."""
        return self._at if self.lines else 0

    @property
    def selected(self) -> Item | None:
        """Selected item, or None if nothing is listed."""
        lines = self.lines
        if not lines:
            return None
        return lines[self._at]

    def select(self, number: int) -> None:
        """Select the line of that index, or the nearest one."""
        lines = self.lines
        if lines:
            self._at = max(0, min(len(lines) - 1, number))
            self._selected = self.identity(lines[self._at])

    def window(self, room: int) -> Sequence[Item]:
        """Return the lines on screen for this many rows. The selected line is among them."""
        lines, at = self.lines, self.at
        last_first = max(0, len(lines) - room)
        self.first = max(at - room + 1, min(self.first, at, last_first))
        return lines[self.first : self.first + room]

    def sort_by(self, column: Column[Item]) -> None:
        """Sort by that column in its default order. If it is the current one, reverse the order."""
        if column is self.sorted_by:
            self.descending = not self.descending
        else:
            self.sorted_by = column
            self.descending = column.largest_first
        self.changed()

    def set_filter(self, text: str) -> None:
        """List only items that contain all words of `text`."""
        if text != self.filter:
            self.filter = text
            self.changed(order=False)


class ListView(Wheel, FilterView, Generic[Item]):
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
    """Rows for items at the last drawing."""

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
        self.action_move(step * max(1, self.room - 1))

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
        self.above = int(height > 1)
        space = height - self.above
        scrolls = space > 2 and len(state.lines) > space
        self.room = max(1, space - scrolls)
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
            row.append(Span(" " * GAP))
            row += self.cell_of(item, slot)
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
            row.append(Span(" " * GAP))
            row.append(
                cell(
                    title,
                    slot.cells,
                    style,
                    right=slot.column.right,
                ),
            )
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
        number = event.y - self.above
        if number < 0:
            self.click_heading(event.x)
        elif 0 <= number < len(self.state.window(self.room)):
            self.state.select(self.state.first + number)
            self.post_message(self.RowClicked())
        self.redraw()

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
