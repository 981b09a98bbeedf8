"""Everything a key does, in one place: bindings, footer, help and command palette read it here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Tab = Literal["monitor", "benchmark", "processes", "page", "why"]
"""What is shown between header and keys; the two pages of a device open from the others."""
LISTS: tuple[Tab, ...] = ("monitor", "processes")
"""Where there are processes to act on."""
PAGES: tuple[Tab, ...] = ("page", "why")
LIVE: tuple[Tab, ...] = ("monitor", "processes", "page", "why")


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a key does."""

    id: str
    keys: str
    """As Textual names them, separated by commas; the first is the one that is shown."""
    action: str
    """A method `action_…` of the tab that is shown, or else of the app, with its arguments."""
    help: str
    label: str = ""
    """For the footer; actions without one are only in the help."""
    tabs: tuple[Tab, ...] = ()
    """The tabs on which it does something; none is everywhere."""
    everywhere: tuple[str, ...] = ()
    """Those of its keys that no field and no other screen can take."""

    @property
    def name(self) -> str:
        """Of the method behind it."""
        return self.action.partition("(")[0]

    def works_on(self, tab: str) -> bool:
        """Whether it does something on that tab."""
        return not self.tabs or tab in self.tabs


ACTIONS = (
    Action("tab.monitor", "1", "tab('monitor')", "Monitor: devices and their processes"),
    Action("tab.benchmark", "2", "tab('benchmark')", "Benchmark: stress tests and results"),
    Action("tab.processes", "3", "tab('processes')", "Processes: all of them, with all columns"),
    Action("details", "enter", "details", "All that the selected device says", "Details", LISTS),
    Action(
        "switch",
        "tab",
        "switch",
        "Between devices and processes",
        "Processes",
        ("monitor",),
        ("tab",),
    ),
    Action("bench.start", "b", "start", "Stress-test the selected device", "Stress test"),
    Action("bench.stop", "x", "stop", "Stop the stress test", "Stop"),
    Action("why", "w", "why", "Why is it slow? Again: of all devices", "Why", LIVE),
    Action("next", "down,j", "move(1)", "Next device, process, line or result"),
    Action("previous", "up,k", "move(-1)", "Previous device, process, line or result"),
    Action("page.next", "pagedown", "page(1)", "A page down"),
    Action("page.previous", "pageup", "page(-1)", "A page up"),
    Action("right", "right", "side(1)", "The next device", "", ("monitor",)),
    Action("left", "left", "side(-1)", "The previous device", "", ("monitor",)),
    Action("cursor.back", "left", "side(-1)", "What it was: back in time", "Cursor", ("page",)),
    Action("cursor.on", "right", "side(1)", "... and on again", "", ("page",)),
    Action("zoom.out", "z", "zoom(1)", "The charts show more time", "Zoom", ("page",)),
    Action("zoom.in", "Z", "zoom(-1)", "... and less", "", ("page",)),
    Action("absent", "a", "absent", "Readings without a value: hide or show", "", ("page",)),
    Action("first", "home", "move(-9999)", "To the first"),
    Action("last", "end", "move(9999)", "To the last"),
    Action("device.next", "n", "device(1)", "The next device", "Next GPU", PAGES),
    Action("device.previous", "p", "device(-1)", "The previous device", "", PAGES),
    Action(
        "device.reset", "0", "reset", "Minimum, mean and maximum from now on", "Reset", ("page",)
    ),
    Action("filter", "slash", "filter", "Filter processes by what one types", "Filter", LISTS),
    Action("sort", "full_stop,f6", "sort(1)", "Sort processes by the next column", "Sort", LISTS),
    Action("sort.previous", "comma", "sort(-1)", "... by the previous column", "", LISTS),
    Action("sort.reverse", "I", "reverse", "Reverse the order of processes", "", LISTS),
    Action("tree", "t,f5", "tree", "Processes as a tree", "Tree", LISTS),
    Action("signal", "f9", "signal", "Send a signal to the selected process", "Signal", LISTS),
    Action("environment", "e", "environment", "Environment of the selected process", "", LISTS),
    Action("density", "c", "density", "Density: one row, three, full", "Density", ("monitor",)),
    Action("pause", "space", "pause", "Freeze the picture; what comes is kept", "Pause", LIVE),
    Action("interval.longer", "plus,equals_sign", "interval(1)", "Sample less often", "", LIVE),
    Action("interval.shorter", "minus", "interval(-1)", "Sample more often", "", LIVE),
    Action("form", "tab", "field(1)", "Go through the form", "Form", ("benchmark",), ("tab",)),
    Action(
        "form.back",
        "shift+tab",
        "field(-1)",
        "Go back through the form",
        "",
        ("benchmark",),
        ("shift+tab",),
    ),
    Action("theme", "T", "theme", "The next theme of colours"),
    Action("settings", "S", "keep", "Keep theme, density, sorting, … for the next time"),
    Action("back", "escape", "leave", "Back: out of a field, to the monitor"),
    Action(
        "commands",
        "ctrl+p",
        "commands",
        "Command palette: the same by name",
        everywhere=("ctrl+p",),
    ),
    Action("help", "question_mark,f1", "help", "Help: keys and numbers", "Help"),
    Action("suspend", "ctrl+z", "suspend_process", "Suspend; `fg` in the shell resumes it"),
    Action(
        "quit",
        "q,f10,ctrl+c",
        "quit",
        "Quit; ends a running stress test",
        "Quit",
        everywhere=("f10", "ctrl+c"),
    ),
)


BY_ID = {action.id: action for action in ACTIONS}


def action_for(key: str, tab: str) -> Action | None:
    """What a key does on that tab."""
    return next((a for a in ACTIONS if key in a.keys.split(",") and a.works_on(tab)), None)


SHOWN = {
    "question_mark": "?",
    "f1": "F1",
    "f10": "F10",
    "ctrl+c": "Ctrl+C",
    "ctrl+p": "Ctrl+P",
    "ctrl+z": "Ctrl+Z",
    "escape": "Esc",
    "shift+tab": "Shift+Tab",
}
SHOWN |= {"down": "↓", "up": "↑", "left": "←", "right": "→", "tab": "Tab"}
SHOWN |= {"home": "Home", "end": "End", "pagedown": "PgDn", "pageup": "PgUp"}
SHOWN |= {"enter": "Enter", "space": "Space", "slash": "/", "comma": ",", "full_stop": "."}
SHOWN |= {"plus": "+", "equals_sign": "=", "minus": "-", "f5": "F5", "f6": "F6", "f9": "F9"}


def key_names(action: Action) -> list[str]:
    """The keys as they are printed on a keyboard."""
    return [SHOWN.get(key, key) for key in action.keys.split(",")]


def bindings() -> list[Binding]:
    """The actions as Textual's bindings."""
    return [
        Binding(key, f"act('{a.id}')", a.help, id=a.id, show=False, priority=key in a.everywhere)
        for a in ACTIONS
        for key in a.keys.split(",")
    ]
