"""The base of views that list what is typed into them: one set of keys, one look of the line."""

from __future__ import annotations

from gputop.text import visible
from gputop.ui.drawing.cells import Row, Span, cells_of
from gputop.ui.drawing.palette import ACCENT, STRONG
from gputop.ui.widgets.live import LiveView


class FilterView(LiveView):
    """A view with a line of text that is typed into it; a subclass keeps that text."""

    typing = False
    """True while keys go into the text."""

    @property
    def typed(self) -> str:
        """Return the text as it is."""
        raise NotImplementedError

    def type(self, text: str) -> None:
        """List only what that text leaves."""
        raise NotImplementedError

    def action_filter(self) -> None:
        """Begin to type."""
        self.typing = True
        self.redraw()

    def stop_typing(self, *, keep: bool) -> None:
        """Go on with what was typed, or list everything again."""
        self.typing = False
        self.type(self.typed.strip() if keep else "")

    def clear_filter(self) -> bool:
        """List everything again; return True if there was a filter."""
        filtered = bool(self.typed)
        self.stop_typing(keep=False)
        return filtered

    def filter_key(self, key: str, character: str | None) -> bool:
        """Do what a key does while one types; return False if it does nothing."""
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
        """Type the printable characters of the first line."""
        line = next(iter(text.splitlines()), "")
        self.type(self.typed + "".join(filter(str.isprintable, line)))

    def prompt(self, room: int) -> Row:
        """Return what is typed, with a cursor; of a text longer than `room` cells, its end."""
        typed = visible(self.typed)
        while cells_of(typed) > room:
            typed = typed[1:]
        cursor = Span("▏" if self.typing else " ", ACCENT)
        return [Span(" / ", ACCENT), Span(typed, STRONG), cursor]
