"""Dialogs: questions that ignore stray keystrokes, and lists of choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rich.table import Table
from rich.text import Text
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

if TYPE_CHECKING:
    from textual.app import App, ComposeResult
    from textual.events import Key
    from textual.message_pump import MessagePump
    from textual.timer import Timer

Answer = TypeVar("Answer")
QUIET_SECONDS = 0.3
WAIT = "a moment …"
"""Replaces the key that confirms, until that key is accepted."""


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


class QuietPeriod:
    """Time without keys before a key may confirm: a stray keystroke must not confirm.

    `changed` is called at the start and at the end of the period.
    """

    def __init__(
        self, owner: MessagePump, changed: Callable[[], object]
    ) -> None:
        self._owner, self._changed = owner, changed
        self._timer: Timer | None = None
        self.over = False

    def begin(self) -> None:
        """Restart the period, because a key was pressed or the question has just appeared."""
        self.over = QUIET_SECONDS == 0
        if self._timer is not None:
            self._timer.stop()
        if not self.over:
            self._wait(QUIET_SECONDS)
        self._changed()

    def answer(self, key: str) -> bool | None:
        """Return the answer of a key to a yes-or-no question, or None. The period restarts."""
        if key == "y" and self.over:
            return True
        if key in ("n", "escape", "q"):
            return False
        self.begin()
        return None

    def _wait(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        self._timer = self._owner.set_timer(seconds, lambda: self._look(due))

    def _look(self, due: float) -> None:
        if (
            time.monotonic() - due > QUIET_SECONDS / 2
            # The program stalled, and its keys are still unread.
        ):
            self._wait(QUIET_SECONDS / 2)
            return
        self.over = True
        self._changed()


class ConfirmScreen(Dialog[bool]):
    """Yes-or-no question. Every way to close it except `y` means no."""

    def __init__(
        self,
        title: str,
        lines: Sequence[str],
        yes: str,
    ) -> None:
        super().__init__()
        self._title, self._lines, self._yes = title, lines, yes
        self._answers = Static()
        self._quiet = QuietPeriod(self, self._show_answers)

    def compose(self) -> ComposeResult:
        # Text objects are not parsed as markup, so names of processes are
        # safe.
        with Vertical(classes="box"):
            yield Static(Text(self._title, style="bold"))
            yield Static(Text("\n".join(self._lines)), classes="lines")
            yield self._answers

    def on_mount(self) -> None:
        self._quiet.begin()

    def _show_answers(self) -> None:
        yes = (
            Text.assemble(("y", "bold"), f" {self._yes}")
            if self._quiet.over
            else Text(WAIT)
        )
        yes.pad_right(len(self._yes) + 5 - len(yes))
        self._answers.update(Text.assemble(yes, ("n", "bold"), " Cancel"))

    def on_key(self, event: Key) -> None:
        event.stop()
        if (answer := self._quiet.answer(event.key)) is not None:
            self.close(answer)


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
        prompts = (Option(_prompt(choice)) for choice in choices)
        self._list = OptionList(*prompts, compact=True)
        # Keys are handled here, in the order in which they were typed.
        self._list.can_focus = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = self._title
            box.border_subtitle = self._keys
            yield self._list

    def on_mount(self) -> None:
        self.at = min(self.at, len(self.choices) - 1)

    @property
    def at(self) -> int:
        """Index of the line under the cursor."""
        return self._list.highlighted or 0

    @at.setter
    def at(self, index: int) -> None:
        self._list.highlighted = index

    def update(self, choices: Sequence[Choice]) -> None:
        """Show new texts for the same lines."""
        self.choices = choices
        for index, choice in enumerate(choices):
            self._list.replace_option_prompt_at_index(index, _prompt(choice))

    def choose(self, choice: Choice) -> None:
        """Act on the clicked line, or on the line under the cursor after Enter."""
        self.close(choice.value)

    def on_option_list_option_selected(
        self, event: OptionList.OptionSelected
    ) -> None:
        self.choose(self.choices[event.option_index])

    def on_key(self, event: Key) -> None:
        event.stop()
        self.press(event.key)

    def press(self, key: str) -> None:
        """Handle a key."""
        match key:
            case "escape" | "q":
                self.close(None)
            case "enter":
                self.choose(self.choices[self.at])
            case "down" | "j":
                self._list.action_cursor_down()
            case "up" | "k":
                self._list.action_cursor_up()
            case "pagedown" | "end":
                self._list.action_last()
            case "pageup" | "home":
                self._list.action_first()


PAUSE_SECONDS = 0.8
"""Seconds without a key that complete a number if others begin with it: 1, as in 10."""


class NumberDialog(ChoiceDialog):
    """Dialog that closes on a number: at once if no other begins with it, else after a pause."""

    _typed = ""

    def press(self, key: str) -> None:
        super().press(key)
        if not key.isdecimal():
            return
        self._typed += key
        begun = [c for c in self.choices if c.text.startswith(self._typed)]
        if not begun:
            self._typed = ""
            return
        self.at = self.choices.index(begun[0])
        if len(begun) == 1:
            self.close(begun[0].value)
        else:
            self.set_timer(PAUSE_SECONDS, partial(self._complete, self._typed))

    def _complete(self, typed: str) -> None:
        if self._typed == typed:
            self.choose(self.choices[self.at])
