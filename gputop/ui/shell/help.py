"""Help: the actions of keys, from the registry, and the meaning of every number and sign."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gputop.schema.labels import LEGEND
from gputop.ui.drawing.palette import ACCENT, STRONG
from gputop.ui.processes.columns import COLUMNS, HOST
from gputop.ui.shell.actions import ACTIONS, LISTS, LIVE, PAGES, Action, key_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from textual.app import ComposeResult

WIDEST, FRAME = 84, 10
"""Cells of the text at most, and of the frame around it."""
NAME = 17
PLACES = {
    (): "Keys everywhere",
    LIVE: "Devices and processes",
    LISTS: "Monitor and processes",
    ("monitor",): "Monitor",
    ("page",): "A device's page",
    PAGES: "A device's page and its findings",
    ("benchmark",): "Benchmark",
}
"""Titles of the groups of keys, by the tabs that the keys work on."""

PANELS = {
    "SM": "SM active (see below), where `busy` is not counted, as with MIG",
    "mem": "device memory in use, of the total; `host` where it is the host's memory",
    "power": "power draw, of the enforced limit",
    "bus": "share of time in which device memory was read or written",
    "PCIe, NVLink ↓ ↑": "rates at which the device receives and sends",
    "LIMIT, heat, …": "why the clocks are not higher: heat and HW (hardware) are bad; a power "
    "cap is normal at full load; set clocks were requested by a user",
}
SIGNS = {
    "–": "no reading: the device's page has the reason and the remedy",
    "▌": "the selected device or process",
    "━━─": "a bar: share of the whole",
    "┄┄┄": "a bar whose value is missing",
    "⣀⣤⣶": "history: fills from the left, then moves by a quarter at a time",
    "▲": "a problem; in a column heading: sorted, smallest first (▼ largest)",
    "3:1": "MIG instance 1 of GPU 3",
}
HOSTS = {
    "a:3": "GPU 3 of host a",
    "AWAY": "its connection or its gputop ended: gputop reconnects, after a minute at most",
    "no data for …": "it is connected but silent: gputop soon reconnects",
    HOST.title: HOST.about,
    "b, F9, e": "work on this machine only, which --host localhost shows; for another, run gputop "
    "there: ssh -t HOST gputop",
}
WHY = {
    "▲": "a finding: a cause of slowness, or a problem; `may` if it is not certain",
    "·": "a finding that only explains, such as a power limit at full load",
    "evidence": "the numbers behind a finding, each with its time",
    "cannot tell": "rules that lack a reading, and the reason",
}
BENCHMARK = {
    "TFLOP/s": "2·N³ operations per product, normal data, wall time",
    "peak": "best window of 0.2 s; the mean is of the whole run",
    "droop": "how far the second half is below the peak",
}


class HelpPage(ModalScreen[None]):
    """Groups of names, each with its meaning, by the title of the group."""

    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close", id="help.close")
    ]

    def __init__(self, groups: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        super().__init__()
        self._groups = groups

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box") as box:
            box.border_title = "Help"
            box.border_subtitle = "↑ ↓ scroll · Esc closes"
            # The box has at most 96 % of the screen.
            yield Static(self._text(min(WIDEST, self.app.size.width * 96 // 100 - FRAME)))

    def _text(self, width: int) -> Text:
        text = Text()
        for title, entries in self._groups.items():
            _add(text, title, entries, width)
        text.rstrip()
        return text


class Help(HelpPage):
    """Keys and legend of the dashboard."""

    def __init__(
        self, offered: Callable[[Action], bool] = lambda _: True, *, hosts: bool = False
    ) -> None:
        """List the actions that are `offered`; explain several `hosts` if they are shown."""
        actions = [action for action in ACTIONS if offered(action)]
        super().__init__(
            {
                title: [(" ".join(key_names(a)), a.help) for a in actions if a.tabs == tabs]
                for tabs, title in PLACES.items()
            }
            | ({"Several hosts": HOSTS.items()} if hosts else {})
            | {
                "Signs": SIGNS.items(),
                "Panels and rows": PANELS.items(),
                "Why is it slow?": WHY.items(),
                "Readings": LEGEND.items(),
                "Processes": [(column.title, column.about) for column in COLUMNS],
                "Stress test": BENCHMARK.items(),
            }
        )


def _add(text: Text, title: str, entries: Iterable[tuple[str, str]], width: int) -> None:
    """Add a group. Lines are wrapped here, so that a long meaning stays in its column."""
    if text:
        text.append("\n")
    text.append(f"{title}\n", style=ACCENT)
    for name, meaning in entries:
        first, *rest = textwrap.wrap(meaning, max(20, width - NAME - 2)) or [""]
        text.append(f"  {name:<{NAME - 1}} ", style=STRONG)
        text.append(f"{first}\n")
        for line in rest:
            text.append(f"  {'':<{NAME}}{line}\n")
