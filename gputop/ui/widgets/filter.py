"""Base of views with a filter field: the keys that edit it, and how it is drawn."""

from __future__ import annotations

from gputop.text import visible
from gputop.ui.drawing.cells import Row, Span, cells_of
from gputop.ui.drawing.palette import ACCENT, STRONG
from gputop.ui.widgets.live import LiveView


class FilterView(LiveView):
    """View with a filter field. A subclass lists what matches, and may keep the text elsewhere."""

    typing = False
    _typed = ""

    @property
    def typed(self) -> str:
        return self._typed

    def type(self, text: str) -> None:
        """Set the text of the filter, and list only what matches it."""
        self._typed = text
        self.redraw()

    def action_filter(self) -> None:
        self.typing = True
        self.redraw()

    def stop_typing(self, *, keep: bool) -> None:
        """Keep the filter, or clear it; keys are commands again."""
        self.typing = False
        self.type(self.typed.strip() if keep else "")

    def clear_filter(self) -> bool:
        """List everything again; return True if there was a filter."""
        filtered = bool(self.typed)
        self.stop_typing(keep=False)
        return filtered

    def filter_key(self, key: str, character: str | None) -> bool:
        """Handle a key while typing; return False if it has no meaning there."""
        typed = self.typed
        match key:
            case "enter" | "escape":
                self.stop_typing(keep=key == "enter")
            case "backspace":
                self.type(typed[:-1])
            case "ctrl+w":
                self.type("".join(typed.rstrip().rpartition(" ")[:2]))
            case "ctrl+u":
                self.type("")
            case _ if character is not None and character.isprintable():
                self.type(typed + character)
            case _:
                return False
        return True

    def paste(self, text: str) -> None:
        """Insert the printable characters of the first line."""
        line = next(iter(text.splitlines()), "")
        self.type(self.typed + "".join(filter(str.isprintable, line)))

    def prompt(self, room: int) -> Row:
        """Return the filter and its cursor. Of a text longer than `room` cells, show the end."""
        typed = visible(self.typed)
        while cells_of(typed) > room:
            typed = typed[1:]
        cursor = Span("▏" if self.typing else " ", ACCENT)
        return [Span(" / ", ACCENT), Span(typed, STRONG), cursor]
