"""All actions of keys in one table. Bindings, footer, help and command palette use it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Tab = Literal[
    "hosts",
    "monitor",
    "benchmark",
    "processes",
    "process",
    "ranks",
    "page",
    "why",
    "training",
]
"""Views between header and keys. Pages of processes and devices open from the other views."""
HOSTS: tuple[Tab, ...] = ("hosts",)
TRAINING: tuple[Tab, ...] = ("training",)
"""Tab that `gputop run` adds."""
LISTS: tuple[Tab, ...] = ("monitor", "processes")
"""Tabs with lists of processes."""
PROCESSES: tuple[Tab, ...] = (*LISTS, "process", "ranks")
"""Tabs with a process to act on."""
OVERVIEWS: tuple[Tab, ...] = (*LISTS, *HOSTS, *TRAINING)
"""Tabs that lead to the ranks of a job."""
PAGES: tuple[Tab, ...] = ("page", "why")
LIVE: tuple[Tab, ...] = (
    "monitor",
    "processes",
    "process",
    "ranks",
    "page",
    "why",
    "hosts",
    "training",
)
CURSOR = ("move", "page", "side", "field")
"""Methods of keys that move a cursor."""
When = Literal["always", "live", "replay"]
"""Kind of stream for an action: a live one, a recording, or both."""


class Action(NamedTuple):
    """The action of a key."""

    id: str
    keys: str
    """Keys in Textual's names, separated by commas. The first one is shown."""
    action: str
    """Its handler, the method `action_…` and the arguments: `tabs.tab('monitor')`.

    `view` is the current tab, or the view in it that has the cursor. `tabs`, `replay`, `screen` and
    `app` are the objects of these names. Without a name it is the view, or else the screen.
    """
    help: str
    label: str = ""
    """Label in the footer. Actions without a label are only in the help."""
    tabs: tuple[Tab, ...] = ()
    """Tabs on which it works; empty for all."""
    when: When = "always"

    @property
    def target(self) -> str:
        """Name of the widget that handles it; "" for the view or the screen."""
        return self.action.partition("(")[0].rpartition(".")[0]

    @property
    def name(self) -> str:
        """Name of the method, without target, `action_` and arguments."""
        return self.action.partition("(")[0].rpartition(".")[2]

    @property
    def key_names(self) -> list[str]:
        """Its keys as printed on a keyboard."""
        return [key_name(key) for key in self.keys.split(",")]

    @property
    def is_for_processes(self) -> bool:
        """True if it is for the lists of processes."""
        return self.tabs in (LISTS, PROCESSES)

    def has_key(self, key: str) -> bool:
        return key in self.keys.split(",")

    def works_on(self, tab: str, *, replay: bool = False) -> bool:
        """Return True if it works on that tab, for a live stream or for a recording."""
        when = self.when == "always" or (self.when == "replay") == replay
        return when and (not self.tabs or tab in self.tabs)


# fmt: off
ACTIONS = (
    Action("tab.monitor", "1", "tabs.tab('monitor')", "Monitor: devices and their processes"),
    Action("tab.benchmark", "2", "tabs.tab('benchmark')", "Benchmark: stress tests and results"),
    Action("tab.processes", "3", "tabs.tab('processes')", "Processes: full list, all columns"),
    Action("tab.training", "4", "tabs.tab('training')", "Training: output, steps and findings"),
    Action("details", "enter", "tabs.details", "Details of the selected GPU or process", "Details",
           PROCESSES),
    Action("hosts.open", "enter", "tabs.tab('monitor')", "Open the selected host", "Open", HOSTS),
    Action("hosts.filter", "slash,f3,f4,backslash", "view.filter", "Filter hosts by text", "Filter",
           HOSTS),
    Action("hosts.sort", "full_stop,greater_than_sign,f6", "view.sort(1)",
           "Sort hosts by the next column", "Sort", HOSTS),
    Action("switch", "tab", "view.switch", "Switch between devices and processes", "Processes",
           ("monitor",)),
    Action("bench.start", "b", "screen.start", "Stress-test the selected device", "Stress test",
           when="live"),
    Action("bench.stop", "x", "screen.stop", "Stop the stress test", "Stop"),
    Action("why", "w,exclamation_mark", "tabs.why", "Why is it slow? Findings of all devices",
           "Why", LIVE),
    Action("ranks", "R", "tabs.ranks", "Ranks of a parallel job: which one the others wait for",
           "Ranks", OVERVIEWS),
    Action("ranks.next", "n", "view.job(1)", "Next job", "", ("ranks",)),
    Action("ranks.previous", "p", "view.job(-1)", "Previous job", "", ("ranks",)),
    Action("next", "down,j", "view.move(1)", "Next device, process, line or result"),
    Action("previous", "up,k", "view.move(-1)", "Previous device, process, line or result"),
    Action("page.next", "pagedown", "view.page(1)", "Page down"),
    Action("page.previous", "pageup", "view.page(-1)", "Page up"),
    Action("right", "right", "view.side(1)", "Next device, or more columns of processes", "",
           LISTS, when="live"),
    Action("left", "left", "view.side(-1)", "Previous device, or columns back", "", LISTS,
           when="live"),
    Action("zoom.out", "z", "view.zoom(1)", "Show more time in the charts", "Zoom", ("page",)),
    Action("zoom.in", "Z", "view.zoom(-1)", "Show less time in the charts", "", ("page",)),
    Action("absent", "a", "view.absent", "Show or hide readings that the GPU lacks", "", ("page",)),
    Action("first", "home", "view.move(-9999)", "First row"),
    Action("last", "end", "view.move(9999)", "Last row"),
    Action("device.next", "n", "view.device(1)", "Next device", "Next GPU", PAGES),
    Action("device.previous", "p", "view.device(-1)", "Previous device", "", PAGES),
    Action("filter", "slash,f3,f4,backslash", "view.filter",
           "Filter processes, or an environment, by text", "Filter", PROCESSES),
    Action("user", "u", "view.user", "Show only the selected user's processes, or all", "", LISTS),
    Action("users", "U", "view.users", "Totals by user, or processes", "Users", ("processes",)),
    Action("sort", "full_stop,greater_than_sign,f6", "view.sort(1)",
           "Sort processes by the next column", "Sort", LISTS),
    Action("sort.previous", "comma,less_than_sign", "view.sort(-1)",
           "Sort processes by the previous column", "", LISTS),
    Action("sort.reverse", "I", "view.reverse", "Reverse the order of processes", "", LISTS),
    Action("sort.memory", "M", "view.sort_by('GPU MEM')", "Sort by device memory", "", LISTS),
    Action("sort.cpu", "P", "view.sort_by('CPU%')", "Sort by use of the CPU", "", LISTS),
    Action("sort.pid", "N", "view.sort_by('PID')", "Sort by process ID", "", LISTS),
    Action("tree", "t,f5", "view.tree", "Show processes as a tree", "Tree", LISTS),
    Action("signal", "f9", "view.signal", "Send a signal to the selected process", "Signal",
           PROCESSES,
           when="live"),
    Action("stacks", "s", "view.stacks", "Where its time goes: samples its Python stacks for 2 s",
           "", PROCESSES, when="live"),
    Action("environment", "e", "tabs.environment", "Environment of the selected process", "",
           LISTS, when="live"),
    Action("environment.here", "e", "view.environment", "Show its environment first", "",
           ("process",), when="live"),
    Action("secrets", "v", "view.secrets", "Show or mask secrets", "Secrets", ("process",)),
    Action("density", "c", "view.density", "Density: one row, three, full", "Density",
           ("monitor",)),
    Action("pause", "space", "screen.pause", "Freeze the display; new samples are kept", "Pause",
           LIVE,
           when="live"),
    Action("interval.shorter", "plus,equals_sign", "screen.interval(-1)", "Sample more often", "",
           LIVE,
           when="live"),
    Action("interval.longer", "minus", "screen.interval(1)", "Sample less often", "", LIVE,
           when="live"),
    Action("record", "r", "screen.record", "Record to a file, or stop recording", "", when="live"),
    Action("play", "space", "replay.play", "Pause or play; at the end, play again", "Pause", LIVE,
           when="replay"),
    Action("seek.back", "left", "replay.seek(-10)", "10 seconds back", "10 s", LIVE,
           when="replay"),
    Action("seek.on", "right", "replay.seek(10)", "10 seconds forward", "10 s", LIVE,
           when="replay"),
    Action("seek.far_back", "shift+left", "replay.seek(-60)", "A minute back", "1 min", LIVE,
           when="replay"),
    Action("seek.far_on", "shift+right", "replay.seek(60)", "A minute forward", "1 min", LIVE,
           when="replay"),
    Action("faster", "plus,equals_sign", "replay.speed(1)", "Play faster", "Faster", LIVE,
           when="replay"),
    Action("slower", "minus", "replay.speed(-1)", "Play slower", "", LIVE, when="replay"),
    Action("training.signal", "f9", "view.signal", "Interrupt or end the training (asks first)",
           "End it", TRAINING),
    Action("training.stacks", "s", "view.stacks",
           "Where the time of the training goes: samples its Python stacks", "Stacks", TRAINING),
    Action("training.zoom.out", "z", "view.zoom(1)", "Show more time in the charts", "Zoom",
           TRAINING),
    Action("training.zoom.in", "Z", "view.zoom(-1)", "Show less time in the charts", "", TRAINING),
    Action("training.right", "right", "view.side(1)", "Scroll the output to the right", "",
           TRAINING),
    Action("training.left", "left", "view.side(-1)", "Scroll the output to the left", "",
           TRAINING),
    Action("form", "tab", "view.field(1)", "Next field of the form", "Form", ("benchmark",)),
    Action("form.back", "shift+tab", "view.field(-1)", "Previous field of the form", "",
           ("benchmark",)),
    Action("results.draw", "enter", "view.draw", "Draw the selected result again", "Draw",
           ("benchmark",)),
    Action("results.compare", "d", "view.compare", "Compare two results: d on one, d on the other",
           "Compare", ("benchmark",)),
    Action("results.report", "e", "view.report", "Write the report of the selected result (HTML)",
           "Report", ("benchmark",)),
    Action("results.forget", "delete", "view.forget", "Forget the selected result (asks first)",
           "", ("benchmark",)),
    Action("export", "E", "app.export('txt')", "Export the page as text to a file"),
    Action("export.picture", "V", "app.export('svg')", "Export the page as a picture (SVG)"),
    Action("theme", "T", "app.theme", "Next colour theme"),
    Action("settings", "S", "screen.save", "Save the settings: theme, density, sorting, …"),
    Action("settings.screen", "f2", "screen.settings", "View and change all settings"),
    Action("back", "escape", "screen.leave", "Back: leave the field, the filter or the page"),
    Action("commands", "ctrl+p", "app.command_palette", "Command palette: all actions by name"),
    Action("help", "question_mark,h,f1", "screen.help", "Help: keys and legend", "Help"),
    Action("repaint", "ctrl+l", "app.repaint", "Repaint the screen"),
    Action("suspend", "ctrl+z", "app.suspend_process", "Suspend; `fg` in the shell resumes gputop"),
    Action("quit", "q,f10,ctrl+c", "app.quit", "Quit; stress test results so far are kept", "Quit"),
)
# fmt: on


def explanation(key: str, *, replay: bool) -> str:
    """Return why a key has no effect on a tab, and which key to press; "" if unknown."""
    if key.isdecimal():
        return "1 2 3 are the tabs · ↓ ↑ select a GPU"
    if key in OTHERS:
        return OTHERS[key]
    if replay and any(
        action.has_key(key) and action.when == "live" for action in ACTIONS
    ):
        return f"{key_name(key)} works on live data, not in a replay"
    for action in ACTIONS:
        if (
            action.has_key(key)
            and action.tabs
            and action.works_on(action.tabs[0], replay=replay)
        ):
            return f"{key_name(key)} works {TAB_NAMES[action.tabs[0]]}: {action.help}"
    return ""


TAB_NAMES: dict[Tab, str] = {
    "monitor": "in the monitor (1)",
    "benchmark": "in the benchmark (2)",
    "processes": "in the processes (3)",
    "page": "on a device's page (Enter)",
    "hosts": "among several hosts",
    "why": "among the findings (w)",
    "process": "on a process's page (Enter)",
    "ranks": "on the page of ranks (R)",
    "training": "on the training's tab of `gputop run`",
}
OTHERS = {
    "f7": "gputop cannot change priorities: use renice",
    "f8": "gputop cannot change priorities: use renice",
    "f12": "S saves the settings",
    "K": "F9 sends a signal (asks first)",
    "Z": "Space pauses",
    "f": "c changes the density",
}
"""Keys of htop, nvtop and nvitop that have another effect or none here, with the replacement."""

SIGNS = {
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "question_mark": "?",
    "exclamation_mark": "!",
    "full_stop": ".",
    "comma": ",",
    "slash": "/",
    "backslash": "\\",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "less_than_sign": "<",
    "greater_than_sign": ">",
}


def key_name(key: str) -> str:
    """Return the key as printed on a keyboard."""
    *held, last = key.split("+")
    name = SIGNS.get(last) or (last if len(key) == 1 else last.capitalize())
    return "+".join([*(each.capitalize() for each in held), name])
