"""State of a list: columns, items, order, filter and selection. Not a widget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


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
        valued = [(column.value(item), item) for item in self._items]
        known = [pair for pair in valued if pair[0] is not None]
        known.sort(key=itemgetter(0), reverse=self.descending)
        unknown = [item for value, item in valued if value is None]
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

    def window(self, room: int, across: int = 1) -> Sequence[Item]:
        """Return the `room` lines on screen. The selected line is among them.

        In a grid, `across` of them are side by side, and `room` is a multiple of it.
        """
        lines, at, rows = self.lines, self.at // across, room // across
        last_first = max(0, -(-len(lines) // across) - rows)
        first = min(self.first // across, at, last_first)
        self.first = across * max(at - rows + 1, first)
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
