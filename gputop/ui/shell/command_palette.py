"""The command palette: the actions of keys by name, narrowed down by typing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen

from gputop.ui.drawing.cells import Row, Span, spread
from gputop.ui.drawing.palette import ACCENT, DIM, TAB, TEXT
from gputop.ui.shell.actions import Action, key_names
from gputop.ui.widgets.filter import FilterView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Click, Key

MOVES = {"down": 1, "up": -1, "pagedown": 8, "pageup": -8, "home": -999, "end": 999}
PROMPT = " › "


class CommandList(FilterView):
    """The typed text, and under it the actions whose help contains its words."""

    class Chosen(Message):
        """Message that an action was clicked."""

        def __init__(self, action: Action) -> None:
            super().__init__()
            self.action = action

    def __init__(self, actions: Sequence[Action]) -> None:
        super().__init__(id="commands")
        self._actions = actions
        self._typed = ""
        self._at = 0
        self._first = 0

    @property
    def found(self) -> list[Action]:
        """Actions that match, in the order of the registry."""
        words = self.typed.lower().split()
        return [a for a in self._actions if all(word in a.help.lower() for word in words)]

    @property
    def chosen(self) -> Action | None:
        """Action that Enter chooses, or None if nothing matches."""
        found = self.found
        return found[self._at] if found else None

    @property
    def typed(self) -> str:
        """Words that must all occur in an action's help."""
        return self._typed

    def type(self, text: str) -> None:
        """Search for another text."""
        self._typed = text
        self._at = 0
        self.redraw()

    def move(self, step: int) -> None:
        """Select another action."""
        self._at = max(0, min(len(self.found) - 1, self._at + step))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        """Return the prompt, and as many actions as fit, with the selected one."""
        found, room = self.found, max(1, height - 1)
        self._first = max(self._at - room + 1, min(self._first, self._at))
        rows: list[Row] = [[Span(PROMPT, ACCENT), Span(self.typed), Span("▏", ACCENT)]]
        if not found:
            return [*rows, [Span("   No action matches", DIM)]]
        for n, action in enumerate(found[self._first : self._first + room], self._first):
            at = n == self._at
            keys = Span(f" {key_names(action)[0]} ", TAB if at else ACCENT)
            name = Span(f"   {action.help} ", TAB if at else TEXT)
            rows.append(spread([name], [keys], width))
        return rows

    def on_click(self, event: Click) -> None:
        """Choose the action under the mouse."""
        at = self._first + event.y - 1
        if event.y >= 1 and at < len(self.found):
            self.post_message(self.Chosen(self.found[at]))


class Commands(ModalScreen[Action | None]):
    """Dialog that returns the chosen action, or None."""

    def __init__(self, actions: Sequence[Action]) -> None:
        super().__init__()
        self._list = CommandList(actions)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = "Commands"
            box.border_subtitle = "Enter runs it · Esc closes"
            yield self._list

    def on_key(self, event: Key) -> None:
        """Send every key to the list, in the order typed."""
        event.stop()
        match event.key:
            case "escape" | "ctrl+p":
                self._close(None)
            case "enter":
                self._close(self._list.chosen)
            case key if key in MOVES:
                self._list.move(MOVES[key])
            case key:
                self._list.filter_key(key, event.character)

    @on(CommandList.Chosen)
    def _choose(self, message: CommandList.Chosen) -> None:
        self._close(message.action)

    def _close(self, action: Action | None) -> None:
        if self.is_current:  # a second key may have come before the first had closed it
            self.dismiss(action)
