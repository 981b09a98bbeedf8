"""Everything a key does, in one place: bindings, footer, help and command palette read it here.

Below are the screens whose keys do it, and the line at the bottom that lists the keys.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeVar, cast

from rich.cells import cell_len
from textual import on, work
from textual.binding import Binding
from textual.events import Click, Key, Paste
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from gputop.text import fit_columns
from gputop.ui.drawing.cells import Row, Span, faded
from gputop.ui.drawing.live import FilterView, LiveView
from gputop.ui.drawing.palette import ACCENT, DIM

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from gputop.ui.shell.app import GputopApp

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


class Action(NamedTuple):
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
    Action("tab.monitor", "1", "tab('monitor')", "Monitor: devices and their processes"),
    Action("tab.benchmark", "2", "tab('benchmark')", "Benchmark: stress tests and results"),
    Action("tab.processes", "3", "tab('processes')", "Processes: full list, all columns"),
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
    Action("page.next", "pagedown", "page(1)", "Page down"),
    Action("page.previous", "pageup", "page(-1)", "Page up"),
    Action("right", "right", "side(1)", "Next device, or more columns of processes", "",
           LISTS, when="live"),
    Action("left", "left", "side(-1)", "Previous device, or columns back", "", LISTS, when="live"),
    Action("cursor.back", "left", "side(-1)", "Move the cursor back in time", "Cursor", ("page",)),
    Action("cursor.on", "right", "side(1)", "Move the cursor forward in time", "", ("page",)),
    Action("zoom.out", "z", "zoom(1)", "Show more time in the charts", "Zoom", ("page",)),
    Action("zoom.in", "Z", "zoom(-1)", "Show less time in the charts", "", ("page",)),
    Action("absent", "a", "absent", "Show or hide readings that the GPU lacks", "", ("page",)),
    Action("first", "home", "move(-9999)", "First row"),
    Action("last", "end", "move(9999)", "Last row"),
    Action("device.next", "n", "device(1)", "Next device", "Next GPU", PAGES),
    Action("device.previous", "p", "device(-1)", "Previous device", "", PAGES),
    Action("device.reset", "0", "reset", "Reset minimum, mean and maximum", "Reset", ("page",)),
    Action("number", "g", "number", "Select a GPU by its number, such as g 5", "", DEVICES),
    Action("filter", "slash,f3,f4,backslash", "filter",
           "Filter processes, or an environment, by text", "Filter", PROCESSES),
    Action("user", "u", "user", "Show only the selected user's processes, or all", "", LISTS),
    Action("sort", "full_stop,greater_than_sign,f6", "sort(1)",
           "Sort processes by the next column", "Sort", LISTS),
    Action("sort.previous", "comma,less_than_sign", "sort(-1)",
           "Sort processes by the previous column", "", LISTS),
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
    Action("charts", "G", "charts", "Charts: busy and memory, also power, only busy", "",
           ("monitor",)),
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
    Action("form", "tab", "field(1)", "Next field of the form", "Form", ("benchmark",)),
    Action("form.back", "shift+tab", "field(-1)", "Previous field of the form", "", ("benchmark",)),
    Action("results.draw", "enter", "draw", "Draw the selected result again", "Draw",
           ("benchmark",)),
    Action("results.compare", "d", "compare", "Compare two results: d on one, d on the other",
           "Compare", ("benchmark",)),
    Action("results.forget", "delete", "forget", "Forget the selected result (asks first)",
           "", ("benchmark",)),
    Action("theme", "T", "theme", "Next colour theme"),
    Action("settings", "S", "save", "Save the settings: theme, density, sorting, columns, …"),
    Action("settings.screen", "f2", "settings", "View and change all settings"),
    Action("back", "escape", "leave", "Back: leave the field, the filter or the page"),
    Action("commands", "ctrl+p", "commands", "Command palette: all actions by name"),
    Action("help", "question_mark,h,f1", "help", "Help: keys and legend", "Help"),
    Action("repaint", "ctrl+l", "repaint", "Repaint the screen"),
    Action("suspend", "ctrl+z", "suspend_process", "Suspend; `fg` in the shell resumes gputop"),
    Action("quit", "q,f10,ctrl+c", "quit", "Quit; stops a running stress test", "Quit"),
)
# fmt: on


def explanation(key: str, *, replay: bool) -> str:
    """Return why a key does nothing on a tab, and what would; "" where nothing is known."""
    if key.isdecimal():
        return f"1 2 3 are the tabs · g {key} selects GPU {key}"
    if key in OTHERS:
        return OTHERS[key]
    for action in ACTIONS:
        if (
            action.has_key(key)
            and action.tabs
            and action.works_on(action.tabs[0], replay=replay)
        ):
            return f"{key_name(key)} works {TAB_NAMES[action.tabs[0]]}: {action.help}"
    if replay and any(
        action.has_key(key) and action.when == "live" for action in ACTIONS
    ):
        return f"{key_name(key)} works on live data, not in a replay"
    return ""


TAB_NAMES: dict[Tab, str] = {
    "monitor": "in the monitor (1)",
    "benchmark": "in the benchmark (2)",
}
TAB_NAMES |= {"processes": "in the processes (3)", "page": "on a device's page (Enter)"}
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


def bindings(actions: Iterable[Action] = ACTIONS) -> list[Binding]:
    return [
        Binding(
            key,
            f"act('{a.id}')",
            a.help,
            id=a.id,
            show=False,
            priority=key in EVERYWHERE,
        )
        for a in actions
        for key in a.keys.split(",")
    ]


Item = TypeVar("Item")
EXPLAIN_SECONDS, EXPLAINED_SECONDS = 1.0, 3.0
"""Seconds between explanations of keys that do nothing, and those that one is shown for."""


class ActionScreen(Screen[None]):
    """A screen whose keys do the actions of its registry. A dialog may lie over it."""

    actions: ClassVar[Sequence[Action]]
    _explained_at = 0.0

    @property
    def app(self) -> GputopApp:  # type: ignore[override] # Textual's is writeable to mypy alone
        return cast("GputopApp", super().app)

    @property
    def actors(self) -> Sequence[DOMNode]:
        """Nodes that do what keys do; the app does what none of them does."""
        return (self,)

    @property
    def field(self) -> FilterView | None:
        """View that is typed into, if there is one."""
        return None

    def tick(self) -> None:
        """Show what changes with time alone; called twice a second while the screen is shown."""

    async def quit(self, status: int) -> None:
        self.app.exit(return_code=status)

    def offers(self, action: Action) -> bool:
        """Return True if the action does something here and now."""
        return action.id == "quit" or not self.app.screen.is_modal

    def label_of(self, action: Action) -> str:
        """Return the label of an action on the line of keys; "" to leave it out."""
        return action.label

    def order(self, action: Action) -> int:
        """Return the sort key of an action on the line of keys: the way back comes first."""
        return int(action.id != "back")

    def action_for(self, key: str) -> Action | None:
        """Return what a key does here."""
        return next((a for a in self.actions if a.has_key(key) and self.knows(a)), None)

    def knows(self, action: Action) -> bool:  # noqa: ARG002 - for subclasses
        """Return True if the action is one of what the screen now shows, on offer or not."""
        return True

    async def handle_input(self, event: Key | Paste) -> bool:
        """Do what a key does where nothing has the focus; return True if it was done."""
        field = self.field
        typing = field is not None and field.typing
        if isinstance(event, Paste):
            if field is not None and typing and not event.is_forwarded:
                field.paste(event.text)
            return False
        if self.focused is not None:
            return False
        if (
            field is not None
            and typing
            and field.filter_key(event.key, event.character)
        ):
            return True
        action = self.action_for(event.key)
        return (action is not None and await self.act(action)) or self._explain(event)

    def _explain(self, event: Key) -> bool:
        """Say of a key that does nothing what would, once a second at most."""
        if not event.is_printable and event.key[:1] != "f":  # F keys, or for Textual
            return False
        now = time.monotonic()
        if now - self._explained_at >= EXPLAIN_SECONDS:
            self._explained_at = now
            self.notify(
                self.explain(event.key, event.character or ""),
                timeout=EXPLAINED_SECONDS,
            )
        return True

    def explain(self, key: str, character: str) -> str:
        """Return what to press in place of a key that does nothing here."""
        return (
            f"Nothing on {character.strip() or key_name(key)} here · ? lists the keys"
        )

    async def act(self, action: Action) -> bool:
        """Do the action if it is on offer here; return True if it was done."""
        if not self.offers(action):
            return False
        does = (
            node
            for node in (*self.actors, self.app)
            if hasattr(node, f"action_{action.name}")
        )
        return await self.app.run_action(action.action, next(does, None))

    def on_screen_suspend(self) -> None:
        """Fade the keys under a dialog, or show them again."""
        for keys in self.query(KeysView):
            keys.redraw()

    on_screen_resume = on_screen_suspend

    async def action_act(self, name: str) -> None:
        """Do the action of that id; Textual's bindings call it."""
        await self.act(self._action(name))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "act" or self.offers(self._action(parameters[0]))

    def _action(self, name: object) -> Action:
        return next(each for each in self.actions if each.id == name)

    def action_commands(self) -> None:
        from gputop.ui.drawing.dialogs import Choice, ChoiceDialog

        themes = [
            Action("", "", f"theme('{n}')", f"Theme: {n}")
            for n in self.app.other_themes
        ]
        left_out = {"commands", *CURSOR}
        offered = [a for a in self.actions if self.offers(a) and a.name not in left_out]
        choices = [Choice(a.help, a.key_names[0], a) for a in (*offered, *themes)]
        ChoiceDialog("Commands", choices).ask(self.app, self.act)

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


class Entry(NamedTuple):
    """A key on the line, with its label."""

    action: Action
    key: str
    label: str

    @property
    def width(self) -> int:
        return cell_len(self.key + self.label)


class KeysView(LiveView):
    """Keys of the screen and their labels, as many as fit; a click does what the key does."""

    def _offered(self) -> list[Entry]:
        screen = self.screen
        assert isinstance(screen, ActionScreen)
        actions = sorted(filter(screen.offers, screen.actions), key=screen.order)
        labelled = ((each, screen.label_of(each)) for each in actions)
        return [
            Entry(a, f" {a.key_names[0]}", f" {label} ")
            for a, label in labelled
            if label
        ]

    def _shown(self, width: int) -> list[Entry]:
        """Return the entries that fit, and always the last two, help and quit."""
        entries = self._offered()
        if sum(entry.width for entry in entries) > width:
            entries = [entry._replace(label=entry.label.rstrip()) for entry in entries]
        ranked = (*reversed(entries[-2:]), *entries[:-2])
        fitting = fit_columns(ranked, width, lambda entry: entry.width)
        return [entry for entry in entries if entry in fitting]

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """Return one row; under a dialog, the same in one dim colour."""
        if self.app.screen is not self.screen and self._rows:
            return faded(self._rows)
        entries = self._shown(width)
        return [
            [
                span
                for e in entries
                for span in (Span(e.key, ACCENT), Span(e.label, DIM))
            ]
        ]

    def on_click(self, event: Click) -> None:
        x = 0
        for entry in self._shown(self.size.width):
            x += entry.width
            if event.x < x:
                self.app.call_later(self.screen.run_action, f"act('{entry.action.id}')")
                return
