"""Everything a key does, in one place: bindings, footer, help and command palette read it here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from textual.binding import Binding

from gputop.frozen import dataclass

Tab = Literal["monitor", "benchmark", "processes", "process", "page", "why"]
"""Views between header and keys; the pages of a process and of a device open from the others."""
LISTS: tuple[Tab, ...] = ("monitor", "processes")
"""Tabs with lists of processes."""
PROCESSES: tuple[Tab, ...] = (*LISTS, "process")
"""Tabs with a process to act on."""
PAGES: tuple[Tab, ...] = ("page", "why")
DEVICES: tuple[Tab, ...] = ("monitor", *PAGES)
LIVE: tuple[Tab, ...] = ("monitor", "processes", "process", "page", "why")
CURSOR = ("move", "page", "side", "end", "field")
"""Methods of keys that move a cursor."""
EVERYWHERE = ("tab", "shift+tab", "ctrl+p", "ctrl+l", "f10", "ctrl+c")
"""Keys that do the same in a field."""
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
    when: When = "always"

    @property
    def name(self) -> str:
        """Name of the method, without `action_` and arguments."""
        return self.action.partition("(")[0]

    @property
    def key_names(self) -> list[str]:
        """Its keys as they are printed on a keyboard."""
        return [key_name(key) for key in self.keys.split(",")]

    def has_key(self, key: str) -> bool:
        return key in self.keys.split(",")

    def works_on(self, tab: str, *, replay: bool = False) -> bool:
        """Return True if it works on that tab, of a live stream or of a recording."""
        when = self.when == "always" or (self.when == "replay") == replay
        return when and (not self.tabs or tab in self.tabs)


# fmt: off
ACTIONS = (
    Action("tab.monitor", "1", "tab('monitor')", "Monitor: devices and their processes"),
    Action("tab.benchmark", "2", "tab('benchmark')", "Benchmark: stress tests and results"),
    Action("tab.processes", "3", "tab('processes')", "Processes: all of them, with all columns"),
    Action("details", "enter", "details", "Details of the selected GPU or process", "Details",
           PROCESSES),
    Action("switch", "tab", "switch", "Switch between devices and processes", "Processes",
           ("monitor",)),
    Action("bench.start", "b", "start", "Stress-test the selected device", "Stress test",
           when="live"),
    Action("bench.stop", "x", "stop", "Stop the stress test", "Stop"),
    Action("why", "w,exclamation_mark", "why", "Why is it slow? Findings of all devices",
           "Why", LIVE),
    Action("next", "down,j", "move(1)", "Next device, process, line or result"),
    Action("previous", "up,k", "move(-1)", "Previous device, process, line or result"),
    Action("page.next", "pagedown", "page(1)", "A page down"),
    Action("page.previous", "pageup", "page(-1)", "A page up"),
    Action("right", "right", "side(1)", "The next device, or more columns of processes", "",
           LISTS, when="live"),
    Action("left", "left", "side(-1)", "... the previous one, or back", "", LISTS, when="live"),
    Action("cursor.back", "left", "side(-1)", "Move the cursor back in time", "Cursor", ("page",)),
    Action("cursor.on", "right", "side(1)", "... and forward", "", ("page",)),
    Action("zoom.out", "z", "zoom(1)", "Show more time in the charts", "Zoom", ("page",)),
    Action("zoom.in", "Z", "zoom(-1)", "... and less", "", ("page",)),
    Action("absent", "a", "absent", "Show readings that the GPU does not have", "", ("page",)),
    Action("first", "home", "move(-9999)", "To the first"),
    Action("last", "end", "move(9999)", "To the last"),
    Action("device.next", "n", "device(1)", "The next device", "Next GPU", PAGES),
    Action("device.previous", "p", "device(-1)", "The previous device", "", PAGES),
    Action("device.reset", "0", "reset", "Restart minimum, mean and maximum", "Reset", ("page",)),
    Action("number", "g", "number", "Select a GPU by its number, such as g 5", "", DEVICES),
    Action("filter", "slash,f3,f4,backslash", "filter",
           "Filter processes, or an environment, by text", "Filter", PROCESSES),
    Action("user", "u", "user", "Only the user of the selected process, or all", "", LISTS),
    Action("sort", "full_stop,greater_than_sign,f6", "sort(1)",
           "Sort processes by the next column", "Sort", LISTS),
    Action("sort.previous", "comma,less_than_sign", "sort(-1)", "... by the previous column", "",
           LISTS),
    Action("sort.reverse", "I", "reverse", "Reverse the order of processes", "", LISTS),
    Action("sort.memory", "M", "sort_by('GPU MEM')", "Sort by device memory", "", LISTS),
    Action("sort.cpu", "P", "sort_by('CPU%')", "Sort by use of the CPU", "", LISTS),
    Action("sort.pid", "N", "sort_by('PID')", "Sort by process ID", "", LISTS),
    Action("columns", "o", "settings(True)", "Columns of processes: show, hide, sort", "", LISTS),
    Action("tree", "t,f5", "tree", "Show processes as a tree", "Tree", LISTS),
    Action("signal", "f9", "signal", "Send a signal to the selected process", "Signal", PROCESSES,
           when="live"),
    Action("environment", "e", "environment", "Environment of the selected process", "", PROCESSES,
           when="live"),
    Action("secrets", "v", "secrets", "Show or mask secrets", "Secrets", ("process",)),
    Action("density", "c", "density", "Density: one row, three, full", "Density", ("monitor",)),
    Action("charts", "G", "charts", "Charts: busy and memory, power too, busy", "", ("monitor",)),
    Action("pause", "space", "pause", "Freeze the display; new samples are kept", "Pause", LIVE,
           when="live"),
    Action("interval.shorter", "plus,equals_sign", "interval(-1)", "Sample more often", "", LIVE,
           when="live"),
    Action("interval.longer", "minus", "interval(1)", "Sample less often", "", LIVE, when="live"),
    Action("record", "r", "record", "Record to a file, or stop recording", "", when="live"),
    Action("play", "space", "play", "Pause or play; at the end, play again", "Pause", LIVE,
           when="replay"),
    Action("seek.back", "left", "seek(-10)", "10 seconds back", "10 s", PROCESSES, when="replay"),
    Action("seek.on", "right", "seek(10)", "10 seconds forward", "10 s", PROCESSES, when="replay"),
    Action("seek.far_back", "shift+left", "seek(-60)", "A minute back", "1 min", LIVE,
           when="replay"),
    Action("seek.far_on", "shift+right", "seek(60)", "A minute forward", "1 min", LIVE,
           when="replay"),
    Action("faster", "plus,equals_sign", "speed(1)", "Play faster", "Faster", LIVE, when="replay"),
    Action("slower", "minus", "speed(-1)", "Play slower", "", LIVE, when="replay"),
    Action("form", "tab", "field(1)", "Go through the form", "Form", ("benchmark",)),
    Action("form.back", "shift+tab", "field(-1)", "Go back through the form", "", ("benchmark",)),
    Action("results.draw", "enter", "draw", "Draw the selected result again", "Draw",
           ("benchmark",)),
    Action("results.compare", "d", "compare", "Compare two results: d on one, d on the other",
           "Compare", ("benchmark",)),
    Action("results.forget", "delete", "forget", "Forget the selected result, after a question",
           "", ("benchmark",)),
    Action("theme", "T", "theme", "The next theme of colours"),
    Action("settings", "S", "keep", "Save the settings: theme, density, sorting, columns, …"),
    Action("settings.screen", "f2", "settings", "Settings: all of them, to change"),
    Action("back", "escape", "leave", "Back: out of a field, to the monitor"),
    Action("commands", "ctrl+p", "commands", "Command palette: all actions by name"),
    Action("help", "question_mark,h,f1", "help", "Help: keys and legend", "Help"),
    Action("repaint", "ctrl+l", "repaint", "Repaint the screen"),
    Action("suspend", "ctrl+z", "suspend_process", "Suspend; `fg` in the shell resumes gputop"),
    Action("quit", "q,f10,ctrl+c", "quit", "Quit; ends a running stress test", "Quit"),
)
# fmt: on


def explanation(key: str, *, replay: bool) -> str:
    """Return why a key does nothing on a tab, and what would; "" where nothing is known."""
    if key.isdecimal():
        return f"1 2 3 are the tabs · g {key} selects GPU {key}"
    if key in OTHERS:
        return OTHERS[key]
    for action in ACTIONS:
        if not action.has_key(key):
            continue
        if replay and action.id in REFUSALS:
            return REFUSALS[action.id]
        if action.tabs and action.works_on(action.tabs[0], replay=replay):
            return f"{key_name(key)} works {TAB_NAMES[action.tabs[0]]}: {action.help}"
    return ""


REFUSALS = {
    "signal": "No signals in a replay: its pids may belong to other processes by now",
    "environment": "A recording has no environments of processes",
    "bench.start": "A replay cannot run a stress test: quit it to test a device",
    "record": "This is a recording already: `gputop stream --replay` copies it to another file",
}
TAB_NAMES: dict[Tab, str] = {"monitor": "in the monitor (1)", "benchmark": "in the benchmark (2)"}
TAB_NAMES |= {"processes": "in the processes (3)", "page": "on a device's page (Enter)"}
TAB_NAMES |= {"why": "among the findings (w)", "process": "on a process's page (Enter)"}
OTHERS = dict.fromkeys(("f7", "f8"), "gputop changes no priorities: renice does")
OTHERS |= {"f12": "S saves the settings", "K": "F9 sends a signal, after a question"}
OTHERS |= {"Z": "Space pauses", "f": "c changes the density"}
"""What does what these keys of htop, nvtop and nvitop do."""

SIGNS = {"up": "↑", "down": "↓", "left": "←", "right": "→", "pageup": "PgUp", "pagedown": "PgDn"}
SIGNS |= {"escape": "Esc", "question_mark": "?", "exclamation_mark": "!", "full_stop": "."}
SIGNS |= {"comma": ",", "slash": "/", "backslash": "\\", "plus": "+", "minus": "-"}
SIGNS |= {"equals_sign": "=", "less_than_sign": "<", "greater_than_sign": ">"}


def key_name(key: str) -> str:
    """Return the key as it is printed on a keyboard."""
    *held, last = key.split("+")
    name = SIGNS.get(last) or (last if len(key) == 1 else last.capitalize())
    return "+".join([*(each.capitalize() for each in held), name])


def bindings(actions: Iterable[Action] = ACTIONS) -> list[Binding]:
    return [
        Binding(key, f"act('{a.id}')", a.help, id=a.id, show=False, priority=key in EVERYWHERE)
        for a in actions
        for key in a.keys.split(",")
    ]
