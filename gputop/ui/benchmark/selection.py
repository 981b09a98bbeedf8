"""Which devices are to be put under stress together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult


class Several(ModalScreen[list[str] | None]):
    """Lines to mark; the answer is the keys of those that are, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark", id="several.mark", priority=True),
        Binding("enter", "done", "OK", id="several.done", priority=True),
        Binding("escape,q", "leave", "Cancel", id="several.leave"),
    ]

    def __init__(self, offered: Sequence[tuple[str, str]], marked: Sequence[str]) -> None:
        """`offered` are labels and keys."""
        super().__init__()
        self._offered, self._marked = offered, set(marked)
        self._list = OptionList(*map(self._line, offered), compact=True)

    def _line(self, offered: tuple[str, str]) -> Text:
        label, key = offered
        return Text(f"[{'x' if key in self._marked else ' '}] {label}")

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text("Devices to test together", style="bold"))
            yield self._list
            keys = (("Space", "bold"), " Mark   ", ("Enter", "bold"), " OK   ")
            yield Static(Text.assemble(*keys, ("Esc", "bold"), " Cancel"))

    def on_mount(self) -> None:
        """Keys are for the list."""
        self._list.focus()

    def action_mark(self) -> None:
        """Marks the line, or takes its mark away."""
        at = self._list.highlighted
        if at is not None:
            self._marked ^= {self._offered[at][1]}
            self._list.replace_option_prompt_at_index(at, self._line(self._offered[at]))

    def on_option_list_option_selected(self) -> None:
        """A click marks, as Space does."""
        self.action_mark()

    def action_done(self) -> None:
        """Closes with those that are marked, in the order of the list."""
        self.dismiss([key for _, key in self._offered if key in self._marked])

    def action_leave(self) -> None:
        """Closes without an answer."""
        self.dismiss(None)
