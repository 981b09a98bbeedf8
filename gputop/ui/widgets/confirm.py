"""Dialogs that ask before an action that may affect others, and ignore stray keystrokes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.text import Text
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Key
    from textual.message_pump import MessagePump

Answer = TypeVar("Answer")
QUIET_SECONDS = 0.3
WAIT = "a moment …"
"""Shown in place of the key that confirms, until it is accepted."""


class Dialog(ModalScreen[Answer]):
    """Modal screen that closes once, with an answer.

    The screen below stays as it is around it: to dim that would take ten kilobytes, twice.
    """

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
        self._since = time.monotonic()
        self._waiting = False
        self.over = False

    def begin(self) -> None:
        """Start again: a key was pressed, or the question has just come up."""
        self._since = time.monotonic()
        self.over = QUIET_SECONDS == 0
        if not self.over and not self._waiting:
            self._wait(QUIET_SECONDS)
        self._changed()

    def _wait(self, seconds: float) -> None:
        self._waiting, due = True, time.monotonic() + seconds
        self._owner.set_timer(seconds, lambda: self._look(due))

    def _look(self, due: float) -> None:
        now = time.monotonic()
        left = self._since + QUIET_SECONDS - now
        if now - due > QUIET_SECONDS / 2:  # the loop stalled: its keys are still unread
            left = max(left, QUIET_SECONDS / 2)
        self._waiting = left > 0.001
        if self._waiting:
            self._wait(left)
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
        yes = Text.assemble(("y", "bold"), f" {self._yes}") if self._quiet.over else Text(WAIT)
        yes.pad_right(len(self._yes) + 5 - len(yes))
        self._answers.update(Text.assemble(yes, ("n", "bold"), " Cancel"))

    def on_key(self, event: Key) -> None:
        event.stop()
        if event.key == "y" and self._quiet.over:
            self.close(True)
        elif event.key in ("n", "escape", "q"):
            self.close(False)
        else:
            self._quiet.begin()
