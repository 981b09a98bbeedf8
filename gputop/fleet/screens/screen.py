"""The fleet screen: a map of all GPUs and their problems, with its keys and its help."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.widgets import Footer, Input

from gputop.fleet.model import METRICS, Fleet
from gputop.fleet.screens.map import MapView
from gputop.fleet.screens.panels import DetailView, FleetHeader, ProblemsView
from gputop.fleet.screens.state import EXAMPLE, FleetState
from gputop.fleet.watch import FleetWatch
from gputop.text import visible
from gputop.ui.shell.action_screen import ActionScreen, bindings
from gputop.ui.shell.actions import ACTIONS as DASHBOARD
from gputop.ui.shell.actions import Action

LONGEST_FILTER = 200
SHARED = {
    "next",
    "previous",
    "first",
    "last",
    "page.next",
    "page.previous",
    "theme",
    "commands",
    "export",
    "export.picture",
    "help",
    "repaint",
    "suspend",
    "quit",
}
"""Actions that work as in the dashboard."""
# fmt: off
ACTIONS = (
    Action("fleet.host", "enter", "screen.host", "Show only the host under the cursor", "Host"),
    Action("fleet.switch", "tab,w", "screen.switch", "Switch between map and problems", "Map/list"),
    Action("metric", "m", "screen.metric(1)", "Colour the map by the next metric", "Colour"),
    Action("metric.previous", "M", "screen.metric(-1)", "Colour the map by the previous metric"),
    Action("group", "g", "screen.group(1)", "Group by the next label", "Group"),
    Action("group.previous", "G", "screen.group(-1)", "Group by the previous label"),
    Action("fleet.filter", "slash,f3,f4,backslash", "screen.filter", "Filter by labels", "Filter"),
    Action("fleet.refresh", "R", "screen.refresh_now", "Refresh from the server now", "Refresh"),
    Action("fleet.right", "right", "view.side(1)", "Next GPU"),
    Action("fleet.left", "left", "view.side(-1)", "Previous GPU"),
    Action("settings", "S", "app.save", "Save the theme for the next start"),
    Action("back", "escape", "screen.leave", "Back: leave the list, show all GPUs"),
    *(action for action in DASHBOARD if action.id in SHARED),
)
# fmt: on
"""Actions of all keys on the fleet screen."""
HELP = {
    "Keys": {" ".join(action.key_names): action.help for action in ACTIONS},
    "Signs": {
        "! ▲ ?": "a fault, a warning, and a GPU that is no longer scraped",
        "▁▂▄▆█": "low to high values of the map's metric: the line above the map has the scale",
        "–": "no value has been scraped",
        "r3  64  87% !2": "a group: its name, its number of GPUs, their median, and its problems",
        "dim": "the next answer is late: these are the numbers of the previous one",
    },
    "Numbers": {
        "median": "half of the GPUs are below it; those without the reading do not count",
    },
    "Filter": {
        EXAMPLE: "all words must be true",
        "= !=": "equals, does not equal; * matches anything: rack=r1*",
        "~ !~": "contains, does not contain; case does not matter",
        "train": "a single word is searched for in host, model and all labels",
        "host gpu model": "fields that work like labels",
    },
}


class FleetScreen(ActionScreen):
    """Map and list over a `FleetState`."""

    DEFAULT_CSS = """
    FleetScreen #totals { height: 2; }
    FleetScreen #filter { padding: 0 1; background: ansi_default; color: ansi_default; }
    FleetScreen #map { height: 2fr; }
    FleetScreen #detail { display: none; height: 2; }
    FleetScreen.-middle #detail { display: block; }
    FleetScreen.-tall #detail { display: block; height: 4; }
    FleetScreen #problems { height: 1fr; min-height: 2; }
    """
    actions = ACTIONS
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(ACTIONS))

    def __init__(self, state: FleetState, watch: FleetWatch) -> None:
        """Show the fleets of `watch`."""
        super().__init__()
        self.state = state
        self._watch = watch
        self.VERTICAL_BREAKPOINTS = [(18, "-middle"), (30, "-tall")]
        self._old = False
        """True if the last drawing was out of date."""
        self._input = Input(
            id="filter",
            compact=True,
            max_length=LONGEST_FILTER,
            placeholder=EXAMPLE,
        )
        self._map = MapView(state)
        self._problems = ProblemsView(state)
        self._input.display = False
        self._views = (
            FleetHeader(state, id="totals"),
            self._map,
            DetailView(state, id="detail"),
            self._problems,
        )

    def compose(self) -> ComposeResult:
        yield self._views[0]
        yield self._input
        yield from self._views[1:]
        yield Footer(id="keys", show_command_palette=False)

    def on_mount(self) -> None:
        self.follow(self._watch.fleets(), self.update_fleet)

    async def update_fleet(self, fleet: Fleet) -> None:
        """Show a new fleet."""
        self.state.update(fleet)
        self.show()

    def show(self) -> None:
        self._old = self.state.is_old
        self._input.display = self._input.has_focus or bool(self.state.typed)
        self._map.lay_out()
        for view in self._views:
            view.redraw()

    def tick(self) -> None:
        """Update the age of the fleet. The screen fades if it is too old."""
        self._views[0].redraw()
        if self.state.is_old != self._old:
            self.show()

    def on_click(self) -> None:
        """Show the effect of a click on the map."""
        self.show()

    @on(ProblemsView.RowClicked)
    def _problem_clicked(self) -> None:
        self.state.on_list = True
        self.state.move_to_problem()
        self.show()

    @property
    def actors(self) -> Sequence[DOMNode]:
        """The focused one of list and map, then the map, then the screen."""
        focused = (self._problems,) if self.state.on_list else ()
        return (*focused, self._map, self)

    async def act(self, action: Action) -> bool:
        done = await super().act(action)
        self.show()
        return done

    def action_switch(self) -> None:
        """Switch between map and list. Without a problem at the cursor, go to the first row."""
        self.state.on_list = not self.state.on_list
        self._problems.action_move(0)

    def action_metric(self, step: int) -> None:
        place = METRICS.index(self.state.metric) + step
        self.state.metric = METRICS[place % len(METRICS)]

    def action_group(self, step: int) -> None:
        names = self.state.choices()
        place = names.index(self._map.by) + step
        self.state.by = names[place % len(names)]

    def action_refresh_now(self) -> None:
        self._watch.refresh()
        self.notify(f"Asking {visible(self.state.where)} now")

    def action_host(self) -> None:
        """Show only the host under the cursor."""
        if self.state.cursor is not None:
            # A space would end the word of the filter.
            host = "?".join(glob.escape(self.state.cursor.host).split())
            self._input.value = f"host={host}"

    def action_leave(self) -> None:
        if self.state.on_list and not self._input.has_focus:
            self.state.on_list = False
        else:
            self._input.value = ""
            self.set_focus(None)

    def action_help(self) -> None:
        from gputop.ui.shell.help_and_settings import HelpPage

        self.app.push_screen(HelpPage(HELP))

    def action_filter(self) -> None:
        self._input.display = True
        self._input.focus()

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        self.state.type(event.value)
        self.show()

    @on(Input.Submitted)
    def _filter_kept(self) -> None:
        """Keep the filter. Keys are commands again."""
        self.set_focus(None)
        self.show()
