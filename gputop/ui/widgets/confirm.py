"""A question before something that others may mind, and what tells that its answer is meant."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.events import Key
    from textual.message_pump import MessagePump

QUIET_SECONDS = 0.3
WAIT = "a moment …"
"""In the place of the key that answers, until it counts."""


class QuietPeriod:
    """Whether no key was pressed for a moment; `changed` is called when that comes or goes."""

    def __init__(self, owner: MessagePump, changed: Callable[[], object]) -> None:
        self._owner, self._changed = owner, changed
        self._since = time.monotonic()
        self._waiting = False
        self.over = False

    def begin(self) -> None:
        """Somebody typed, or the question has just come up."""
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
        if now - due > QUIET_SECONDS / 2:  # what was typed while it was held up is not read yet
            left = max(left, QUIET_SECONDS / 2)
        self._waiting = left > 0.001
        if self._waiting:
            self._wait(left)
            return
        self.over = True
        self._changed()


class ConfirmScreen(ModalScreen[bool]):
    """Yes or no; every other way out is no."""

    def __init__(self, title: str, lines: Sequence[str], yes: str) -> None:
        super().__init__()
        self._title, self._lines, self._yes = title, lines, yes
        self._answers = Static()
        self._quiet = QuietPeriod(self, self._show_answers)

    def compose(self) -> ComposeResult:
        # Text objects: what processes are called is never read as markup.
        with Vertical(classes="box"):
            yield Static(Text(self._title, style="bold"))
            yield Static(Text("\n".join(self._lines)), classes="lines")
            yield self._answers

    def on_mount(self) -> None:
        """The answer is for who has read it."""
        self._quiet.begin()

    def _show_answers(self) -> None:
        yes = Text.assemble(("y", "bold"), f" {self._yes}") if self._quiet.over else Text(WAIT)
        yes.pad_right(len(self._yes) + 5 - len(yes))
        self._answers.update(Text.assemble(yes, ("n", "bold"), " Cancel"))

    def on_key(self, event: Key) -> None:
        """Every key is for the question."""
        event.stop()
        if event.key == "y" and self._quiet.over:
            self._close(True)
        elif event.key in ("n", "escape", "q"):
            self._close(False)
        else:
            self._quiet.begin()

    def _close(self, answer: bool) -> None:
        if self.is_current:  # a second key may have come before the first had closed it
            self.dismiss(answer)
