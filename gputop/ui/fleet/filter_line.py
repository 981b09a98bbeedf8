"""The line that says which GPUs are shown, while that is typed and while some are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import visible
from gputop.ui.draw import Row, Span, cells_of, clip, spread
from gputop.ui.fleet.filter import EXAMPLE
from gputop.ui.palette import ACCENT, DIM, STRONG, TEXT, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from gputop.ui.fleet.state import FleetState


class FilterLine(LiveView):
    """Is shown where there is something to say."""

    def __init__(self, state: FleetState) -> None:
        super().__init__(id="filter")
        self._state = state

    @property
    def wanted(self) -> bool:
        """Whether there is something to say."""
        return self._state.typing or bool(self._state.typed)

    def key(self, key: str, character: str | None) -> bool:
        """Does what a key does while one types; whether it does anything."""
        state = self._state
        match key:
            case "enter":
                state.typing = False
                state.type(state.typed.strip())
            case "escape":
                self.clear()
            case "backspace":
                state.type(state.typed[:-1])
            case "ctrl+w":
                state.type("".join(state.typed.rstrip().rpartition(" ")[:2]))
            case "ctrl+u":
                state.type("")
            case _ if character is not None and character.isprintable():
                state.type(state.typed + character)
            case _:
                return False
        return True

    def paste(self, text: str) -> None:
        """Its first line, as if somebody had typed that."""
        state, line = self._state, next(iter(text.splitlines()), "")
        state.type(state.typed + "".join(filter(str.isprintable, line)))

    def clear(self) -> bool:
        """Shows all again; whether some were left out."""
        state = self._state
        was, state.typing = self.wanted, False
        state.type("")
        return was

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """What is typed, and what comes of it or what is wrong with it."""
        state = self._state
        typed = visible(state.typed)
        if state.refused:
            said, style = state.refused, WARN
        elif not state.typed:
            said, style = f"labels, as in {EXAMPLE}; * is anything", DIM
        else:
            many = len(state.view.numbers) if state.view else 0
            said, style = f"{many:,} GPU{'s' if many != 1 else ''}", TEXT if many else WARN
        keys = (
            "  Enter keeps · Esc shows all " if state.typing else "  / changes it, Esc shows all "
        )
        room = max(8, width - cells_of(typed) - cells_of(keys) - 8)
        while cells_of(typed) > width // 2:  # the end is where one types
            typed = typed[1:]
        cursor = Span("▏" if state.typing else " ", ACCENT)
        left = [Span(" / ", ACCENT), Span(typed, STRONG), cursor]
        return [spread(left, [Span(clip(visible(said), room), style), Span(keys, DIM)], width)]
