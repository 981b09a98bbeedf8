"""Dialogs of the dashboard: the help with all keys, numbers and signs, and all settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import starmap
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from gputop.schema.labels import LEGEND
from gputop.settings import AUTO, CHOICES, Settings
from gputop.ui.drawing.dialogs import Choice, ChoiceDialog, Dialog
from gputop.ui.drawing.page import OfWidth, side_by_side, titled_table
from gputop.ui.drawing.palette import STRONG
from gputop.ui.processes.columns import COLUMNS, HOST
from gputop.ui.shell.actions import (
    ACTIONS,
    LISTS,
    LIVE,
    OVERVIEWS,
    PAGES,
    PROCESSES,
    TRAINING,
    Action,
)
from gputop.ui.shell.app import GputopApp

NAME = 17
"""Width of a name."""
FIRST = (
    "tab.monitor",
    "tab.benchmark",
    "tab.processes",
    "previous",
    "next",
    "switch",
    "details",
    "why",
    "bench.start",
    "bench.stop",
    "filter",
    "sort",
    "sort.previous",
    "signal",
    "record",
    "pause",
    "play",
    "help",
    "quit",
)
"""Keys that the README lists. They come first."""
PLACES = {
    (): "Everywhere",
    LIVE: "Devices and processes",
    LISTS: "Monitor and processes",
    PROCESSES: "Processes and their pages",
    OVERVIEWS: "Monitor, processes, hosts, training",
    ("process",): "A process's page",
    ("ranks",): "Ranks of a job",
    ("monitor",): "Monitor",
    ("page",): "A device's page",
    PAGES: "A device's page and its findings",
    ("benchmark",): "Benchmark",
    ("hosts",): "Hosts",
    TRAINING: "Training",
    ("processes",): "Full list of processes",
}
"""Titles of the groups of keys, by the tabs that the keys work on."""
MOUSE = {
    "click, wheel": "select, scroll; on a title: sort; on a key of the last line: press it",
    "double click": "the page of a device",
    "Shift and drag": "select text with the terminal (on a Mac: Option)",
}

PANELS = {
    "SM": "SM active (see below) if there is no `busy`, as with MIG",
    "mem": "device memory in use and in total; `host` for the host's memory",
    "power": "power draw and enforced limit",
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
    "⣀⣤⣶": "history: the newest values are on the right",
    "▲": "a problem; in a column heading: sorted, smallest first (▼ largest)",
    "3:1": "MIG instance 1 of GPU 3",
}
HOSTS = {
    "▇ ○ ×": "a GPU's load; a free GPU; a GPU that does not answer",
    "a:3": "GPU 3 of host a",
    "AWAY": "the connection or the remote gputop ended; gputop reconnects within a minute",
    "2.0 s behind": "connected, but its newest sample is so old",
    HOST.title: HOST.about,
    "b, F9, e": "work on this machine only, which is --host localhost; for another machine, use "
    "ssh -t HOST gputop",
}
BENCHMARK = {
    "TFLOP/s": "2·N³ operations per product, normal data, wall time",
    "peak": "best window of 0.1 to 0.2 s; the mean is of the whole run",
    "droop": "decrease from the first seconds to the second half",
}
LEGENDS: dict[str, Mapping[str, str]] = {
    "Mouse": MOUSE,
    "Signs": SIGNS,
    "Panels and rows": PANELS,
    "Readings": LEGEND,
    "Stress test": BENCHMARK,
    "Processes": {each.title: each.about for each in COLUMNS},
}


def _table(title: str, entries: Mapping[str, str]) -> Table:
    table = titled_table(title, padding=(0, 1))
    table.add_column(style=STRONG, width=NAME)
    table.add_column(ratio=1)
    for name, meaning in entries.items():
        table.add_row(Text(name), Text(meaning))
    return table


class HelpPage(Dialog[None]):
    """Groups of names, each with its meaning, by the title of the group."""

    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,q,question_mark,h,f1",
            "dismiss",
            "Close",
            id="help.close",
        ),
    ]

    def __init__(self, groups: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.groups = groups

    def compose(self) -> ComposeResult:
        tables = [*starmap(_table, self.groups.items())]
        with VerticalScroll(classes="box") as box:
            box.border_title = "Help"
            box.border_subtitle = "↑ ↓ scroll · Esc closes"
            yield Static(OfWidth(partial(side_by_side, tables)))


class Help(HelpPage):
    """Keys and legend of the dashboard."""

    def __init__(
        self,
        offered: Callable[[Action], bool] = lambda _: True,
        *,
        hosts: bool = False,
    ) -> None:
        """List the actions that are `offered`. Explain several `hosts` if they are shown."""
        actions = {action.id: action for action in ACTIONS if offered(action)}
        first = [actions.pop(each) for each in FIRST if each in actions]
        groups: dict[str, Mapping[str, str]] = {"Main keys": _lines(first)}
        for tabs, title in PLACES.items():
            lines = _lines(a for a in actions.values() if a.tabs == tabs)
            if lines:
                groups[title] = lines
        if hosts:
            groups["Several hosts"] = HOSTS
        super().__init__(groups | LEGENDS)


def _lines(actions: Iterable[Action]) -> dict[str, str]:
    return {" ".join(action.key_names): action.help for action in actions}


ABOUT = {
    "theme": "colours",
    "ascii": "ASCII characters only",
    "mouse": "takes effect at the next start",
    "bell": "ring on each new alert",
    "notes": "of ended jobs and faults",
    "interval": "between samples",
    "gpm": "read profiling counters",
    "readonly": "no signals; restart to undo",
    "density": "rows per device",
    "sort": "column to sort processes by",
    "reverse": "reverse the order",
    "tree": "children under parents",
}
ALSO = {
    "theme": "T",
    "interval": "+ -",
    "density": "c",
    "sort": ". ,",
    "reverse": "I",
    "tree": "t",
}
"""Keys that change the same setting without this screen."""
STEPS = {"left": -1, "right": 1, "enter": 1, "space": 1}
# `auto` sorts by the first column.
VALUES = {**CHOICES, "sort": (AUTO, *[each.title for each in COLUMNS[1:]])}
WORDS = {None: "auto", True: "on", False: "off"}


class SettingsScreen(ChoiceDialog):
    """Dialog with a line for each setting."""

    def __init__(
        self,
        app: GputopApp,
        changed: Callable[[], None],
    ) -> None:
        """Show the settings of `app`. Call `changed` after each change."""
        keys = "↑ ↓ select · ← → change · S saves · Esc closes"
        super().__init__("Settings", _rows(app.settings), keys)
        self._gputop, self._changed = app, changed

    def choose(self, choice: Choice) -> None:
        self._step(choice, 1)

    def _step(self, choice: Choice, step: int) -> None:
        name, now = choice.value
        choices = VALUES.get(name, (False, True))
        if name == "readonly":
            choices = (now, True)
        if now not in choices:
            choices = (now, *choices)
        following = choices[(choices.index(now) + step) % len(choices)]
        self._gputop.change_settings(**{name: following})
        self._changed()
        self.update(_rows(self._gputop.settings))

    def press(self, key: str) -> None:
        choice = self.choices[self.at]
        if key in STEPS:
            self._step(choice, STEPS[key])
        elif key == "S":
            self.call_later(self._gputop.action_save)
        elif key == "f2":
            self.close(None)
        else:
            super().press(key)


def _rows(settings: Settings) -> list[Choice]:
    rows = []
    for name, about in ABOUT.items():
        value = getattr(settings, name)
        word = WORDS.get(value, f"{value}")
        if isinstance(value, float):
            word = f"{value:g} s"
        text = f"{name:<15} {word:<19}{about}"
        rows.append(Choice(text, ALSO.get(name, ""), (name, value)))
    return rows
