"""Dialogs: lists of choices, and questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

Answer = TypeVar("Answer")
MOVES = {
    "down": "cursor_down",
    "j": "cursor_down",
    "up": "cursor_up",
    "k": "cursor_up",
    "pagedown": "last",
    "end": "last",
    "pageup": "first",
    "home": "first",
}
"""Keys that move the cursor, and the actions of the list for them."""


class Dialog(ModalScreen[Answer]):
    """Modal screen that closes once, with an answer.

    The screen around it is not dimmed, because that would take ten kilobytes twice.
    """

    def ask(self, app: App[Any], act: Callable[[Answer], Any]) -> None:
        """Show the dialog, and call `act` with its answer unless that is false."""
        app.push_screen(self, lambda answer: act(answer) if answer else None)

    def close(self, answer: Answer) -> None:
        """Close with that answer. A second key may arrive before the dialog has closed."""
        if self.is_current:
            self.dismiss(answer)


class Choice(NamedTuple):
    """A line to choose, with a key at its right end."""

    text: str
    hint: str
    value: Any


def _prompt(choice: Choice) -> Table:
    line = Table.grid(expand=True)
    line.add_column(
        ratio=1,
        no_wrap=True,
        overflow="ellipsis",
    )
    line.add_column(justify="right", no_wrap=True)
    line.add_row(Text(choice.text), Text(choice.hint))
    return line


class ChoiceDialog(Dialog[Any]):
    """Dialog that returns the value of the chosen line, or None."""

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        keys: str = "Enter chooses · Esc closes",
    ) -> None:
        """List the `choices`. `keys` is the line that explains the keys."""
        super().__init__()
        self.choices = choices
        self._title, self._keys = title, keys
        self.head = Static(classes="head")
        """Text above the lines, if the dialog shows one."""
        prompts = (Option(_prompt(choice)) for choice in choices)
        self._list = OptionList(*prompts, compact=True)
        # Keys are handled here, in the order in which they were typed.
        self._list.can_focus = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = self._title
            box.border_subtitle = self._keys
            yield self.head
            yield self._list

    def on_mount(self) -> None:
        self._list.highlighted = 0

    @property
    def at(self) -> int:
        """Index of the line under the cursor."""
        return self._list.highlighted or 0

    def update(self, choices: Sequence[Choice]) -> None:
        """Show new texts for the same lines."""
        self.choices = choices
        for index, choice in enumerate(choices):
            self._list.replace_option_prompt_at_index(index, _prompt(choice))

    def choose(self, choice: Choice) -> None:
        """Act on the clicked line, or on the line under the cursor after Enter."""
        self.close(choice.value)

    def on_option_list_option_selected(
        self,
        event: OptionList.OptionSelected,
    ) -> None:
        self.choose(self.choices[event.option_index])

    def on_key(self, event: Key) -> None:
        event.stop()
        self.press(event.key)

    def press(self, key: str) -> None:
        """Handle a key."""
        if key in ("escape", "q"):
            self.close(None)
        elif key == "enter":
            self.choose(self.choices[self.at])
        elif key in MOVES:
            getattr(self._list, f"action_{MOVES[key]}")()


class ConfirmScreen(ChoiceDialog):
    """Yes-or-no question. It begins at *Cancel*, so that Enter alone does not confirm."""

    def __init__(self, title: str, lines: Sequence[str], yes: str) -> None:
        choices = (Choice("Cancel", "n", False), Choice(yes, "y", True))
        super().__init__("", choices, "↓ Enter confirms · Esc cancels")
        # Text objects are not parsed as markup, so names of processes are safe.
        text = [Text(title, style="bold")]
        for line in lines:
            text.append(Text(line, no_wrap=True, overflow="ellipsis"))
        self.head.update(Group(*text))

    def press(self, key: str) -> None:
        if key in ("y", "n"):
            self.close(key == "y")
        super().press(key)
