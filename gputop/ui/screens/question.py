"""A question before something that others may mind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gputop.ui.screens.deliberate import WAIT, Quiet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Key


class Question(ModalScreen[bool]):
    """Yes or no; every other way out is no."""

    def __init__(self, title: str, lines: Sequence[str], yes: str) -> None:
        super().__init__()
        self._title, self._lines, self._yes = title, lines, yes
        self._answers = Static()
        self._quiet = Quiet(self, self._show_answers)

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
        yes = Text.assemble(("y", "bold"), f" {self._yes}") if self._quiet.is_here else Text(WAIT)
        yes.pad_right(len(self._yes) + 5 - len(yes))
        self._answers.update(Text.assemble(yes, ("n", "bold"), " Leave it"))

    def on_key(self, event: Key) -> None:
        """Every key is for the question."""
        event.stop()
        if event.key == "y" and self._quiet.is_here:
            self._close(True)
        elif event.key in ("n", "escape", "q"):
            self._close(False)
        else:
            self._quiet.begin()

    def _close(self, answer: bool) -> None:
        if self.is_current:  # a second key may have come before the first had closed it
            self.dismiss(answer)
