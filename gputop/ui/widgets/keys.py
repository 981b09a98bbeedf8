"""The line at the bottom: which key does what here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from gputop.ui.actions import ACTIONS, Action, key_names
from gputop.ui.draw import Row, Span
from gputop.ui.palette import ACCENT, DIM
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.events import Click


class KeysView(LiveView):
    """Keys and their labels, as many as fit; a click does what the key does."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self.tab = "monitor"
        self.running = False

    def _shown(self) -> Iterator[tuple[Action, str, str]]:
        for action in ACTIONS:
            hidden = action.id == "bench.stop" and not self.running
            if action.label and action.tab in (None, self.tab) and not hidden:
                yield action, f" {key_names(action)[0]}", f" {action.label} "

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """One row."""
        row: Row = []
        left = width
        for _, key, label in self._shown():
            left -= cell_len(key + label)
            if left < 0:
                break
            row += [Span(key, ACCENT), Span(label, DIM)]
        return [row]

    def on_click(self, event: Click) -> None:
        """Does what the key under the mouse does."""
        x = 0
        for action, key, label in self._shown():
            x += cell_len(key + label)
            if event.x < x:
                self.app.call_later(self.app.run_action, action.action)
                return
