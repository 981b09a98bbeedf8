"""A question before something that others may mind."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult


class Question(ModalScreen[bool]):
    """Yes or no; every other way out is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="question.yes"),
        Binding("n,escape,q", "answer(False)", "No", id="question.no"),
    ]

    def __init__(self, title: str, lines: Sequence[str], yes: str) -> None:
        super().__init__()
        self._title, self._lines, self._yes = title, lines, yes

    def compose(self) -> ComposeResult:
        # Text objects: what processes are called is never read as markup.
        with Vertical(classes="box"):
            yield Static(Text(self._title, style="bold"))
            yield Static(Text("\n".join(self._lines)), classes="lines")
            yield Static(
                Text.assemble(("y", "bold"), f" {self._yes}   ", ("n", "bold"), " Leave it")
            )

    def action_answer(self, answer: bool) -> None:
        """Closes with the answer."""
        self.dismiss(answer)
