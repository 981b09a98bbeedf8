"""Everything a key does, in one place: bindings, footer, help and command palette read it here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from textual.binding import Binding

from gputop.frozen import dataclass

Tab = Literal["monitor", "benchmark", "processes", "page", "why"]
"""Views between header and keys; the two pages of a device open from the others."""
LISTS: tuple[Tab, ...] = ("monitor", "processes")
"""Tabs with processes to act on."""
PAGES: tuple[Tab, ...] = ("page", "why")
LIVE: tuple[Tab, ...] = ("monitor", "processes", "page", "why")
When = Literal["always", "live", "replay"]
"""Kind of stream that an action works on: a live one, a recording, or both."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a key."""

    id: str
    keys: str
    """Keys as Textual names them, separated by commas; the first one is shown."""
    action: str
    """Method `action_…` of the tab that is shown, the screen or the app, with its arguments."""
    help: str
    label: str = ""
    """Label in the footer; actions without one are only in the help."""
    tabs: tuple[Tab, ...] = ()
    """Tabs on which it works; empty for all."""
    everywhere: tuple[str, ...] = ()
    """Keys that work in fields too."""
    when: When = "always"

    @property
    def name(self) -> str:
        """Name of the method, without `action_` and arguments."""
        return self.action.partition("(")[0]

    def works_on(self, tab: str, *, replay: bool = False) -> bool:
        """Return True if it works on that tab, of a live stream or of a recording."""
        when = self.when == "always" or (self.when == "replay") == replay
        return when and (not self.tabs or tab in self.tabs)


# fmt: off
ACTIONS = (
    Action("tab.monitor", "1", "tab('monitor')", "Monitor: devices and their processes"),
    Action("tab.benchmark", "2", "tab('benchmark')", "Benchmark: stress tests and results"),
    Action("tab.processes", "3", "tab('processes')", "Processes: all of them, with all columns"),
    Action("details", "enter", "details", "Details of the selected GPU", "Details", LISTS),
    Action("switch", "tab", "switch", "Switch between devices and processes", "Processes",
           ("monitor",), ("tab",)),
    Action(
        "bench.start", "b", "start", "Stress-test the selected device", "Stress test", when="live"
    ),
    Action("bench.stop", "x", "stop", "Stop the stress test", "Stop"),
    Action("why", "w", "why", "Why is it slow? Press again for all devices", "Why", LIVE),
    Action("next", "down,j", "move(1)", "Next device, process, line or result"),
    Action("previous", "up,k", "move(-1)", "Previous device, process, line or result"),
    Action("page.next", "pagedown", "page(1)", "A page down"),
    Action("page.previous", "pageup", "page(-1)", "A page up"),
    Action("right", "right", "side(1)", "The next device", "", ("monitor",), when="live"),
    Action("left", "left", "side(-1)", "The previous device", "", ("monitor",), when="live"),
    Action("cursor.back", "left", "side(-1)", "Move the cursor back in time", "Cursor", ("page",)),
    Action("cursor.on", "right", "side(1)", "... and forward", "", ("page",)),
    Action("zoom.out", "z", "zoom(1)", "Show more time in the charts", "Zoom", ("page",)),
    Action("zoom.in", "Z", "zoom(-1)", "... and less", "", ("page",)),
    Action("absent", "a", "absent", "Hide or show readings without a value", "", ("page",)),
    Action("first", "home", "move(-9999)", "To the first"),
    Action("last", "end", "move(9999)", "To the last"),
    Action("device.next", "n", "device(1)", "The next device", "Next GPU", PAGES),
    Action("device.previous", "p", "device(-1)", "The previous device", "", PAGES),
    Action(
        "device.reset", "0", "reset", "Restart minimum, mean and maximum", "Reset", ("page",)
    ),
    Action("filter", "slash", "filter", "Filter processes by text", "Filter", LISTS),
    Action("sort", "full_stop,f6", "sort(1)", "Sort processes by the next column", "Sort", LISTS),
    Action("sort.previous", "comma", "sort(-1)", "... by the previous column", "", LISTS),
    Action("sort.reverse", "I", "reverse", "Reverse the order of processes", "", LISTS),
    Action("tree", "t,f5", "tree", "Show processes as a tree", "Tree", LISTS),
    Action("signal", "f9", "signal", "Send a signal to the selected process", "Signal", LISTS,
           when="live"),
    Action("environment", "e", "environment", "Environment of the selected process", "", LISTS,
           when="live"),
    Action("density", "c", "density", "Density: one row, three, full", "Density", ("monitor",)),
    Action("pause", "space", "pause", "Freeze the display; new samples are kept", "Pause", LIVE,
           when="live"),
    Action("interval.longer", "plus,equals_sign", "interval(1)", "Sample less often", "", LIVE,
           when="live"),
    Action("interval.shorter", "minus", "interval(-1)", "Sample more often", "", LIVE, when="live"),
    Action("record", "r", "record", "Record to a file, or stop recording", "", when="live"),
    Action("play", "space", "play", "Pause or play; at the end, play again", "Pause", LIVE,
           when="replay"),
    Action("seek.back", "left", "seek(-10)", "10 seconds back", "10 s", LISTS, when="replay"),
    Action("seek.on", "right", "seek(10)", "10 seconds forward", "10 s", LISTS, when="replay"),
    Action(
        "seek.far_back", "shift+left", "seek(-60)", "A minute back", "1 min", LIVE, when="replay"
    ),
    Action("seek.far_on", "shift+right", "seek(60)", "A minute forward", "1 min", LIVE,
           when="replay"),
    Action("faster", "plus,equals_sign", "speed(1)", "Play faster", "Faster", LIVE, when="replay"),
    Action("slower", "minus", "speed(-1)", "Play slower", "", LIVE, when="replay"),
    Action("form", "tab", "field(1)", "Go through the form", "Form", ("benchmark",), ("tab",)),
    Action("form.back", "shift+tab", "field(-1)", "Go back through the form", "", ("benchmark",),
           ("shift+tab",)),
    Action("theme", "T", "theme", "The next theme of colours"),
    Action("settings", "S", "keep", "Keep theme, density, sorting, … for next time"),
    Action("back", "escape", "leave", "Back: out of a field, to the monitor"),
    Action("commands", "ctrl+p", "commands", "Command palette: all actions by name",
           everywhere=("ctrl+p",)),
    Action("help", "question_mark,f1", "help", "Help: keys and legend", "Help"),
    Action("suspend", "ctrl+z", "suspend_process", "Suspend; `fg` in the shell resumes gputop"),
    Action("quit", "q,f10,ctrl+c", "quit", "Quit; ends a running stress test", "Quit",
           everywhere=("f10", "ctrl+c")),
)
# fmt: on


def action_for(
    key: str, tab: str, *, replay: bool = False, actions: Iterable[Action] = ACTIONS
) -> Action | None:
    """Return the action of a key on that tab, of a live stream or of a recording."""
    return next(
        (a for a in actions if key in a.keys.split(",") and a.works_on(tab, replay=replay)), None
    )


def refusal(key: str) -> str:
    """Return why a key does nothing in a replay, or "" where nobody would wonder."""
    return next(
        (REFUSALS[a.id] for a in ACTIONS if key in a.keys.split(",") and a.id in REFUSALS), ""
    )


REFUSALS = {
    "signal": "No signals in a replay: its pids may belong to other processes by now",
    "environment": "A recording has no environments of processes",
    "bench.start": "A replay cannot run a stress test: quit it to test a device",
    "record": "This is a recording already: `gputop stream --replay` copies it to another file",
}


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
SHOWN |= {"shift+left": "Shift+←", "shift+right": "Shift+→"}
SHOWN |= {"home": "Home", "end": "End", "pagedown": "PgDn", "pageup": "PgUp"}
SHOWN |= {"enter": "Enter", "space": "Space", "slash": "/", "comma": ",", "full_stop": "."}
SHOWN |= {"plus": "+", "equals_sign": "=", "minus": "-", "f5": "F5", "f6": "F6", "f9": "F9"}


def key_names(action: Action) -> list[str]:
    """Return the keys as they are printed on a keyboard."""
    return [SHOWN.get(key, key) for key in action.keys.split(",")]


def bindings(actions: Iterable[Action] = ACTIONS) -> list[Binding]:
    """Return the actions as Textual's bindings."""
    return [
        Binding(key, f"act('{a.id}')", a.help, id=a.id, show=False, priority=key in a.everywhere)
        for a in actions
        for key in a.keys.split(",")
    ]
