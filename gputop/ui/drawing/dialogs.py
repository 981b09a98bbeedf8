"""Dialogs: questions that ignore stray keystrokes, and lists of choices narrowed down by typing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rich.text import Text
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gputop.ui.drawing.cells import Row, Span, fit, width_of
from gputop.ui.drawing.live import CursorList, FilterView
from gputop.ui.drawing.palette import ACCENT, DIM, TAB, TEXT

if TYPE_CHECKING:
    from textual.app import App, ComposeResult
    from textual.events import Click, Key
    from textual.message_pump import MessagePump
    from textual.timer import Timer

Answer = TypeVar("Answer")
QUIET_SECONDS = 0.3
WAIT = "a moment …"
"""Shown in place of the key that confirms, until it is accepted."""


class Dialog(ModalScreen[Answer]):
    """Modal screen that closes once, with an answer.

    The screen below stays as it is around it: to dim that would take ten kilobytes, twice.
    """

    def ask(self, app: App[Any], act: Callable[[Answer], Any]) -> None:
        """Show the dialog, and call `act` with its answer, unless that is no or nothing."""
        app.push_screen(self, lambda answer: act(answer) if answer else None)

    def close(self, answer: Answer) -> None:
        """Close with that answer; a second key may come before the first has closed it."""
        if self.is_current:
            self.dismiss(answer)


class QuietPeriod:
    """Wait until no key was pressed for a moment: a stray keystroke must not confirm.

    `changed` is called when the period starts and when it is over.
    """

    def __init__(self, owner: MessagePump, changed: Callable[[], object]) -> None:
        self._owner, self._changed = owner, changed
        self._timer: Timer | None = None
        self.over = False

    def begin(self) -> None:
        """Start again: a key was pressed, or the question has just come up."""
        self.over = QUIET_SECONDS == 0
        if self._timer is not None:
            self._timer.stop()
        if not self.over:
            self._wait(QUIET_SECONDS)
        self._changed()

    def answer(self, key: str) -> bool | None:
        """Return what a key answers to a yes-or-no question, or None; the period starts again."""
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
        ):  # it stalled: its keys are still unread
            self._wait(QUIET_SECONDS / 2)
            return
        self.over = True
        self._changed()


class ConfirmScreen(Dialog[bool]):
    """Yes-or-no question; every way out but `y` means no."""

    def __init__(self, title: str, lines: Sequence[str], yes: str) -> None:
        super().__init__()
        self._title, self._lines, self._yes = title, lines, yes
        self._answers = Static()
        self._quiet = QuietPeriod(self, self._show_answers)

    def compose(self) -> ComposeResult:
        # Text objects: names of processes are never parsed as markup.
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


MOVES = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": 8, "pageup": -8}
MOVES |= {"home": -999, "end": 999}


class Choice(NamedTuple):
    """A line to choose, with a key or a number at its right end."""

    text: str
    hint: str
    value: Any


class ChoiceList(CursorList, FilterView):
    """The typed text, and under it the choices that contain its words."""

    def __init__(
        self, choices: Sequence[Choice], clicked: Callable[[Choice], object]
    ) -> None:
        """List the `choices`; call `clicked` with one that the mouse chooses."""
        super().__init__(id="choices")
        self.choices, self.clicked = choices, clicked
        self._head: list[Row] = []

    @property
    def found(self) -> Sequence[Choice]:
        """Choices that match, in their order: first those that begin with the typed text."""
        typed = self.typed.lower()
        found = [
            c
            for c in self.choices
            if all(each in c.text.lower() for each in typed.split())
        ]
        return sorted(
            found, key=lambda choice: not choice.text.lower().startswith(typed)
        )

    @property
    def total(self) -> int:
        return len(self.found)

    @property
    def chosen(self) -> Choice | None:
        """Choice under the cursor, or None if nothing matches."""
        found = self.found
        return found[self.at] if found else None

    def type(self, text: str) -> None:
        self.at = 0
        super().type(text)

    def press(self, key: str, character: str | None) -> None:
        """Type the key, or move the cursor."""
        if not (self.typing and self.filter_key(key, character)) and key in MOVES:
            self.action_move(MOVES[key])

    def head(self, width: int) -> list[Row]:
        """Return the rows above the choices."""
        return [self.prompt(width - 4)] if self.typing else []

    def draw(self, width: int, height: int) -> list[Row]:
        found, head = self.found, self.head(width)[: height - 1]
        indent = "   " if self.typing else " "
        rows: list[Row] = [] if found else [[Span("   Nothing matches", DIM)]]
        for n in self.list_in(height - len(head)):
            styles = (TAB, TAB) if n == self.at else (TEXT, ACCENT)
            hint = f"  {found[n].hint} " if found[n].hint else ""
            left, right = map(Span, (f"{indent}{found[n].text}", hint), styles)
            rows.append(
                [*fit([left], width - width_of([right]), style=left.style), right]
            )
        self._head = head
        return [*head, *rows]

    def on_click(self, event: Click) -> None:
        row = event.y - len(self._head)
        if 0 <= row < len(self.listed):
            self.at = self.listed[row]
            self.clicked(self.found[self.at])


class ChoiceDialog(Dialog[Any]):
    """Dialog that returns the value of the chosen line, or None."""

    def __init__(self, title: str, choices: Sequence[Choice], keys: str = "") -> None:
        """List the `choices`; `keys` is the line of what keys do, if they are not typed."""
        super().__init__()
        self._title, self._keys = title, keys
        self._list = ChoiceList(choices, lambda choice: self.close(choice.value))
        self._list.typing = not keys

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = self._title
            box.border_subtitle = self._keys or "Enter chooses · Esc closes"
            yield self._list

    def on_key(self, event: Key) -> None:
        """Handle every key here, in the order typed."""
        event.stop()
        self.press(event.key, event.character)

    def press(self, key: str, character: str | None) -> None:
        match key:
            case "escape" | "ctrl+p":
                self.close(None)
            case "enter":
                chosen = self._list.chosen
                self.close(chosen and chosen.value)
            case _:
                self._list.press(key, character)


PAUSE_SECONDS = 0.8
"""Seconds without a key after which a number is complete that others begin with: 1, as in 10."""


class NumberDialog(ChoiceDialog):
    """Dialog that a number closes: at once if no other begins with it, or else after a pause."""

    def press(self, key: str, character: str | None) -> None:
        super().press(key, character)
        typed, chosen = self._list.typed, self._list.chosen
        begun = sum(
            typed != "" and each.text.startswith(typed) for each in self._list.choices
        )

        def choose() -> None:
            if chosen is not None and self._list.typed == typed:
                self.close(chosen.value)

        if begun:
            self.set_timer(PAUSE_SECONDS, choose) if begun > 1 else choose()
