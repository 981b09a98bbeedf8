"""The line at the bottom: which key does what here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from gputop.text import fit_columns
from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.palette import ACCENT, DIM
from gputop.ui.shell.actions import ACTIONS, LISTS, PAGES, Action, key_names
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from textual.events import Click


class Entry(NamedTuple):
    """A key on the line, with what it does."""

    action: Action
    key: str
    label: str

    @property
    def width(self) -> int:
        return cell_len(self.key + self.label)


class KeysView(LiveView):
    """Keys and their labels, as many as fit; a click does what the key does."""

    def __init__(
        self, offers: Callable[[Action], bool], actions: Sequence[Action] = ACTIONS
    ) -> None:
        """`offers` says which of the actions do something here."""
        super().__init__(id="keys")
        self._offers, self._actions = offers, actions
        self.tab = "monitor"
        self.way_back = ""
        """Where the way back leads to from here, where that is not said by the tab."""
        self.running = False
        self.in_field = False
        self.paused = False
        self.on_list = False
        """Whether keys are for the processes."""

    def _offered(self) -> Iterator[Entry]:
        for action in self._actions:
            hidden = action.id == "bench.stop" and not self.running
            label = self._label(action)
            if label and self._offers(action) and not hidden:
                yield Entry(action, f" {key_names(action)[0]}", f" {label} ")

    def _label(self, action: Action) -> str:
        match action.id:
            case "back":
                if self.in_field:
                    return "Leave the field"
                return "Back" if self.tab in PAGES else self.way_back
            case "switch" if self.on_list:
                return "Devices"
            case "fleet.switch" if self.on_list:
                return "Map"
            case "pause" if self.paused:
                return "Resume"
            case "play" if self.paused:
                return "Play"
        return action.label

    def _order(self, entry: Entry) -> int:
        """The way back first, then a replay's; then the processes', where keys are for those."""
        action = entry.action
        if action.id == "back":
            return 0
        if action.when == "replay":
            return 1
        return 2 if self.on_list and action.tabs == LISTS else 3

    def _shown(self, width: int) -> list[Entry]:
        """What fits, and in any case the last ones, help and the way out."""
        entries = sorted(self._offered(), key=self._order)
        if sum(entry.width for entry in entries) > width:
            entries = [entry._replace(label=entry.label.rstrip()) for entry in entries]
        others, last = entries[:-2], entries[-2:]
        left = width - last[-1].width
        if left < 0:
            return []
        if last[0].width > left:
            return last[1:]
        left -= last[0].width
        return [*fit_columns(others, left, lambda entry: entry.width), *last]

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """One row."""
        entries = self._shown(width)
        return [[span for e in entries for span in (Span(e.key, ACCENT), Span(e.label, DIM))]]

    def on_click(self, event: Click) -> None:
        """Does what the key under the mouse does."""
        x = 0
        for entry in self._shown(self.size.width):
            x += entry.width
            if event.x < x:
                self.app.call_later(self.app.run_action, f"act('{entry.action.id}')")
                return
