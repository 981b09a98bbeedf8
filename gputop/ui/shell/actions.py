"""Everything a key does, in one table: bindings, footer, help and command palette read it here.

Below are the screens whose keys do it, and the footer that lists the keys.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeVar, cast

from rich.cells import cell_len
from textual import on, work
from textual.actions import SkipAction
from textual.binding import ActiveBinding, Binding
from textual.screen import Screen
from textual.widgets import Footer
from textual.worker import Worker, WorkerState

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.dom import DOMNode
    from textual.events import Key, Resize

    from gputop.ui.shell.app import GputopApp

Tab = Literal["hosts", "monitor", "benchmark", "processes", "process", "page", "why"]
"""Views between header and keys; the pages of a process and of a device open from the others."""
HOSTS: tuple[Tab, ...] = ("hosts",)
LISTS: tuple[Tab, ...] = ("monitor", "processes")
"""Tabs with lists of processes."""
PROCESSES: tuple[Tab, ...] = (*LISTS, "process")
"""Tabs with a process to act on."""
PAGES: tuple[Tab, ...] = ("page", "why")
DEVICES: tuple[Tab, ...] = ("monitor", *PAGES)
LIVE: tuple[Tab, ...] = ("monitor", "processes", "process", "page", "why", "hosts")
CURSOR = ("move", "page", "side", "field")
"""Methods of keys that move a cursor."""
RANKS = {"help": 0, "quit": 1, "back": 2, "bench.stop": 3, "bench.start": 4, "why": 5}
"""Actions that come first in the footer, which may lack room for the others."""
EVERYWHERE = ("tab", "shift+tab", "ctrl+p", "ctrl+l", "f10", "ctrl+c")
"""Keys that do the same in a field."""
When = Literal["always", "live", "replay"]
"""Kind of stream that an action works on: a live one, a recording, or both."""


class Action(NamedTuple):
    """An action of a key."""

    id: str
    keys: str
    """Keys as Textual names them, separated by commas; the first one is shown."""
    action: str
    """Who handles it, its method `action_…`, and arguments: `tabs.tab('monitor')`.

    `view` is the shown tab or the view in it that has the cursor; `tabs`, `replay`, `screen` and
    `app` are what they are called. Without a name it is the view, or else the screen.
    """
    help: str
    label: str = ""
    """Label in the footer; actions without one are only in the help."""
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
        """Its keys as they are printed on a keyboard."""
        return [key_name(key) for key in self.keys.split(",")]

    @property
    def is_for_processes(self) -> bool:
        """True if it is for the lists of processes."""
        return self.tabs in (LISTS, PROCESSES)

    def has_key(self, key: str) -> bool:
        return key in self.keys.split(",")

    def works_on(self, tab: str, *, replay: bool = False) -> bool:
        """Return True if it works on that tab, of a live stream or of a recording."""
        when = self.when == "always" or (self.when == "replay") == replay
        return when and (not self.tabs or tab in self.tabs)


# fmt: off
ACTIONS = (
    Action("tab.monitor", "1", "tabs.tab('monitor')", "Monitor: devices and their processes"),
    Action("tab.benchmark", "2", "tabs.tab('benchmark')", "Benchmark: stress tests and results"),
    Action("tab.processes", "3", "tabs.tab('processes')", "Processes: full list, all columns"),
    Action("details", "enter", "tabs.details", "Details of the selected GPU or process", "Details",
           PROCESSES),
    Action("hosts.open", "enter", "view.open", "Open the selected host", "Open", HOSTS),
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
    Action("next", "down,j", "view.move(1)", "Next device, process, line or result"),
    Action("previous", "up,k", "view.move(-1)", "Previous device, process, line or result"),
    Action("page.next", "pagedown", "view.page(1)", "Page down"),
    Action("page.previous", "pageup", "view.page(-1)", "Page up"),
    Action("right", "right", "view.side(1)", "Next device, or more columns of processes", "",
           LISTS, when="live"),
    Action("left", "left", "view.side(-1)", "Previous device, or columns back", "", LISTS,
           when="live"),
    Action("cursor.back", "left", "view.side(-1)", "Move the cursor back in time", "Cursor",
           ("page",)),
    Action("cursor.on", "right", "view.side(1)", "Move the cursor forward in time", "", ("page",)),
    Action("zoom.out", "z", "view.zoom(1)", "Show more time in the charts", "Zoom", ("page",)),
    Action("zoom.in", "Z", "view.zoom(-1)", "Show less time in the charts", "", ("page",)),
    Action("absent", "a", "view.absent", "Show or hide readings that the GPU lacks", "", ("page",)),
    Action("first", "home", "view.move(-9999)", "First row"),
    Action("last", "end", "view.move(9999)", "Last row"),
    Action("device.next", "n", "view.device(1)", "Next device", "Next GPU", PAGES),
    Action("device.previous", "p", "view.device(-1)", "Previous device", "", PAGES),
    Action("device.reset", "0", "view.reset", "Reset minimum, mean and maximum", "Reset",
           ("page",)),
    Action("number", "g", "tabs.number", "Select a GPU by its number, such as g 5", "", DEVICES),
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
    Action("columns", "o", "screen.settings(True)", "Columns of processes: show, hide, sort", "",
           LISTS),
    Action("tree", "t,f5", "view.tree", "Show processes as a tree", "Tree", LISTS),
    Action("signal", "f9", "view.signal", "Send a signal to the selected process", "Signal",
           PROCESSES,
           when="live"),
    Action("environment", "e", "tabs.environment", "Environment of the selected process", "",
           LISTS, when="live"),
    Action("environment.here", "e", "view.environment", "Scroll to its environment", "",
           ("process",), when="live"),
    Action("secrets", "v", "view.secrets", "Show or mask secrets", "Secrets", ("process",)),
    Action("density", "c", "view.density", "Density: one row, three, full", "Density",
           ("monitor",)),
    Action("charts", "G", "view.charts", "Charts: all, busy and memory, only busy", "",
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
    Action("seek.back", "left", "replay.seek(-10)", "10 seconds back", "10 s", PROCESSES,
           when="replay"),
    Action("seek.on", "right", "replay.seek(10)", "10 seconds forward", "10 s", PROCESSES,
           when="replay"),
    Action("seek.far_back", "shift+left", "replay.seek(-60)", "A minute back", "1 min", LIVE,
           when="replay"),
    Action("seek.far_on", "shift+right", "replay.seek(60)", "A minute forward", "1 min", LIVE,
           when="replay"),
    Action("faster", "plus,equals_sign", "replay.speed(1)", "Play faster", "Faster", LIVE,
           when="replay"),
    Action("slower", "minus", "replay.speed(-1)", "Play slower", "", LIVE, when="replay"),
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
    Action("settings", "S", "screen.save", "Save the settings: theme, density, columns, …"),
    Action("settings.screen", "f2", "screen.settings", "View and change all settings"),
    Action("back", "escape", "screen.leave", "Back: leave the field, the filter or the page"),
    Action("commands", "ctrl+p", "app.command_palette", "Command palette: all actions by name"),
    Action("help", "question_mark,h,f1", "screen.help", "Help: keys and legend", "Help"),
    Action("repaint", "ctrl+l", "app.repaint", "Repaint the screen"),
    Action("suspend", "ctrl+z", "app.suspend_process", "Suspend; `fg` in the shell resumes gputop"),
    Action("quit", "q,f10,ctrl+c", "app.quit", "Quit; what a stress test measured is kept", "Quit"),
)
# fmt: on


def explanation(key: str, *, replay: bool) -> str:
    """Return why a key does nothing on a tab, and what would; "" where nothing is known."""
    if key.isdecimal():
        return f"1 2 3 are the tabs · g {key} selects GPU {key}"
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
}
TAB_NAMES |= {"processes": "in the processes (3)", "page": "on a device's page (Enter)"}
TAB_NAMES |= {"hosts": "among several hosts"}
TAB_NAMES |= {"why": "among the findings (w)", "process": "on a process's page (Enter)"}
OTHERS = dict.fromkeys(("f7", "f8"), "gputop cannot change priorities: use renice")
OTHERS |= {"f12": "S saves the settings", "K": "F9 sends a signal (asks first)"}
OTHERS |= {"Z": "Space pauses", "f": "c changes the density"}
"""Keys of htop, nvtop and nvitop that do something else here, or nothing, with what to press."""

SIGNS = {
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}
SIGNS |= {
    "escape": "Esc",
    "question_mark": "?",
    "exclamation_mark": "!",
    "full_stop": ".",
}
SIGNS |= {"comma": ",", "slash": "/", "backslash": "\\", "plus": "+", "minus": "-"}
SIGNS |= {"equals_sign": "=", "less_than_sign": "<", "greater_than_sign": ">"}


def key_name(key: str) -> str:
    """Return the key as it is printed on a keyboard."""
    *held, last = key.split("+")
    name = SIGNS.get(last) or (last if len(key) == 1 else last.capitalize())
    return "+".join([*(each.capitalize() for each in held), name])


def bindings(actions: Iterable[Action]) -> Iterator[Binding]:
    """Yield two bindings for each key.

    The first one acts before the next key is read: keys come together over a slow line, and the
    second of them may be for the field or dialog that the first one opens. The other is for keys
    that the focused widget does not use.
    """
    for action in actions:
        for key in action.keys.split(","):
            at_once = f"act_at_once('{action.id}', '{key}')"
            yield Binding(key, at_once, action.help, show=False, priority=True)
            yield Binding(key, f"act('{action.id}')", action.help, show=False)


Item = TypeVar("Item")
EXPLAIN_SECONDS, EXPLAINED_SECONDS = 1.0, 3.0
"""Seconds between explanations of keys that do nothing, and those that one is shown for."""


class ActionScreen(Screen[None]):
    """A screen whose keys do the actions of its table. A dialog may lie over it."""

    actions: ClassVar[Sequence[Action]]
    _explained_at = 0.0

    @property
    def app(self) -> GputopApp:  # type: ignore[override] # Textual's is writeable to mypy alone
        return cast("GputopApp", super().app)

    @property
    def actors(self) -> Sequence[DOMNode]:
        """Widgets that handle actions of the view; the first one with the method does."""
        return (self,)

    def tick(self) -> None:
        """Show what changes with time alone; called twice a second while the screen is shown."""

    async def quit(self, status: int) -> None:
        self.app.exit(return_code=status)

    def offers(self, action: Action) -> bool:  # noqa: ARG002 - for subclasses
        """Return True if the action does something here and now."""
        return True

    def label_of(self, action: Action) -> str:
        """Return the label of an action in the footer; "" to leave it out."""
        return action.label

    def order(self, action: Action) -> int:
        """Return the sort key of an action in the footer."""
        return RANKS.get(action.id, len(RANKS))

    def action_for(self, key: str) -> Action | None:
        """Return what a key does here."""
        for action in self.actions:
            if action.has_key(key) and self.knows(action):
                return action
        return None

    def knows(self, action: Action) -> bool:  # noqa: ARG002 - for subclasses
        """Return True if the action is one of what the screen now shows, on offer or not."""
        return True

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Bindings of the offered actions, in the order and with the labels of the footer."""
        found: dict[str, ActiveBinding] = {}
        for action in sorted(self.actions, key=self.order):
            if self.offers(action):
                label = self.label_of(action)
                binding = Binding(
                    action.keys.partition(",")[0],
                    f"act('{action.id}')",
                    label,
                    show=label != "",
                    key_display=action.key_names[0],
                )
                active = ActiveBinding(self, binding, enabled=True, tooltip=action.help)
                found.setdefault(binding.key, active)
        return found

    def on_key(self, event: Key) -> None:
        """Explain a key that no binding acted on."""
        if self.focused is None:
            action = self.action_for(event.key)
            if action is None or not self.offers(action):
                self._explain(event)

    def _explain(self, event: Key) -> None:
        """Say of a key that does nothing what would, once a second at most."""
        if not event.is_printable and event.key[:1] != "f":  # F keys, or for Textual
            return
        now = time.monotonic()
        if now - self._explained_at >= EXPLAIN_SECONDS:
            self._explained_at = now
            said = self.explain(event.key, event.character or "")
            self.notify(said, timeout=EXPLAINED_SECONDS)

    def explain(self, key: str, character: str) -> str:
        """Return what to press in place of a key that does nothing here."""
        name = character.strip() or key_name(key)
        return f"Nothing on {name} here · ? lists the keys"

    async def act(self, action: Action) -> bool:
        """Do the action if it is on offer here; return True if it was done."""
        handler = self._handler(action)
        if handler is None or not self.offers(action):
            return False
        targets = {action.target: handler}
        return await self.app.run_action(action.action, handler, targets)

    def targets(self, action: Action) -> Sequence[DOMNode]:
        """Return the widgets that the action is for; the first one with the method handles it."""
        if action.target == "app":
            return (self.app,)
        if action.target == "screen":
            return (self,)
        return self.actors

    def _handler(self, action: Action) -> DOMNode | None:
        for node in self.targets(action):
            if hasattr(node, f"action_{action.name}"):
                return node
        return None

    async def action_act(self, name: str) -> None:
        """Do the action of that id; Textual's bindings call it."""
        if not await self.act(self._action(name)):
            raise SkipAction

    async def action_act_at_once(self, name: str, key: str) -> None:  # noqa: ARG002 - for the check
        """Do the action of that id, unless keys are for a field."""
        await self.action_act(name)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        in_field = action == "act_at_once" and self.focused is not None
        if in_field and parameters[1] not in EVERYWHERE:
            return False
        return not action.startswith("act") or self.offers(self._action(parameters[0]))

    def _action(self, name: object) -> Action:
        return next(each for each in self.actions if each.id == name)

    @work(exclusive=True, group="stream", exit_on_error=False)
    async def follow(
        self, items: AsyncGenerator[Item], handle: Callable[[Item], Awaitable[None]]
    ) -> None:
        """Handle each item as it comes, for as long as the screen exists."""
        async with contextlib.aclosing(items):
            async for item in items:
                try:
                    await handle(item)
                except Exception as error:  # noqa: BLE001 - the next one may well be fine
                    self.report(error)

    def report(self, error: BaseException) -> None:
        """Notify of a fault that does not end the screen."""
        self.app.report(error)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.report(event.worker.error)


class KeysView(Footer):
    """Keys of the screen and their labels, with help and quit first; a click presses the key."""

    _listed: Sequence[str] = ()
    _width = 0

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, show_command_palette=False)

    def compose(self) -> ComposeResult:
        """Yield the keys that fit: a label that is cut says nothing."""
        left = self.app.size.width
        for each in super().compose():
            key = getattr(each, "key_display", "")
            label = getattr(each, "description", "")
            left -= cell_len(f" {key} {label} ")
            if left < 0:
                break
            yield each

    def on_resize(self, event: Resize) -> None:
        if event.size.width != self._width:
            self._width = event.size.width
            self.refresh(recompose=True)

    def redraw(self) -> None:
        """List the keys again, if they have changed."""
        self.screen.refresh_bindings()

    def bindings_changed(self, screen: Screen[None]) -> None:
        listed = [f"{each.binding}" for each in screen.active_bindings.values()]
        if listed != self._listed:
            self._listed = listed
            self.mutate_reactive(Footer.compact)  # forgets the keys of before
            super().bindings_changed(screen)
