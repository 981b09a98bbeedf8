"""Filter of a view: the line to type it into, with the number of matches next to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Input, Static

from gputop.ui.drawing.ordered_input import EDITING, OrderedInput

LONGEST_FILTER = 200
PRINTABLE = r"[^\x00-\x1f\x7f-\x9f]*"


class FilterView(Widget):
    """View that lists only rows that match the text in the screen's filter bar."""

    typed = ""
    """Words that a row must all contain."""

    def type(self, text: str) -> None:
        """List only the rows that match this text."""
        self.typed = text
        self.redraw()

    def redraw(self) -> None:
        """Draw again."""
        raise NotImplementedError

    def matches(self) -> str:
        """Return a text with the number of matching rows."""
        raise NotImplementedError

    def action_filter(self) -> None:
        self.screen.query_one(FilterBar).begin(self)

    def clear_filter(self) -> bool:
        """List everything again. Return True if there was a filter."""
        filtered = bool(self.typed)
        self.type("")
        return filtered


class FilterField(OrderedInput):
    """Field that ends with Enter or Esc. The next key is a command.

    `Input.Submitted` comes too late for that: keys typed meanwhile would go to the field.
    """

    at_once: ClassVar[Mapping[str, str]] = {**EDITING, "escape": "clear"}

    async def on_key(self, event: Key) -> None:
        """Drop keys that were typed after the end. `OrderedInput.on_key` handles the others."""
        if self.screen.focused is not self:
            event.prevent_default()

    async def action_submit(self) -> None:
        self.query_ancestor(FilterBar).end(self.value)

    def action_clear(self) -> None:
        self.query_ancestor(FilterBar).end("")


class FilterBar(Horizontal):
    """Line with the filter of a view, shown while it has one."""

    def __init__(self) -> None:
        super().__init__(id="filter")
        self.field = FilterField(
            compact=True,
            max_length=LONGEST_FILTER,
            restrict=PRINTABLE,
            id="filter-field",
        )
        self.field.cursor_blink = False
        self._view: FilterView | None = None
        self._about = Static(markup=False)
        self.display = False

    def compose(self) -> ComposeResult:
        yield Static(" / ")
        yield self.field
        yield self._about

    @property
    def typing(self) -> bool:
        """True while keys go to the filter."""
        return self.screen.focused is self.field

    def begin(self, view: FilterView) -> None:
        """Type the filter of that view. The next key already goes to the field."""
        self._view = view
        self.field.value = view.typed
        self.display = True
        self.screen.set_focus(self.field)

    def show(self, view: FilterView | None) -> None:
        """Show the filter of the view and the number of matching rows."""
        self._view = view
        self.display = view is not None and (self.typing or bool(view.typed))
        if view is None or not self.display:
            return
        keys = "Enter keeps"
        if not self.typing:
            self.field.value = view.typed
            keys = "/ changes it"
        about = f"  {view.matches()}  {keys} · Esc clears "
        # An update is laid out again.
        if about != self._about.content:
            self._about.update(about)

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._view is not None and self.typing:
            self._view.type(event.value)
            self.show(self._view)

    def end(self, text: str) -> None:
        """Filter by the text. Keys are commands again."""
        self.screen.set_focus(None)
        if self._view is not None:
            self._view.type(text)
        self.show(self._view)
