"""The fleet screen: a map of all GPUs, and what is wrong with them; with its keys and its help."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from gputop.text import visible
from gputop.ui.fleet.grouping import EXAMPLE
from gputop.ui.fleet.map import MapView
from gputop.ui.fleet.panels import DetailView, FilterLine, FleetHeader, ProblemsView
from gputop.ui.shell.actions import ACTIONS as DASHBOARD
from gputop.ui.shell.actions import Action, ActionScreen, KeysView, bindings

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.dom import DOMNode
    from textual.events import Resize
    from textual.screen import Screen

    from gputop.fleet.model import Fleet
    from gputop.ui.drawing.live import LiveView
    from gputop.ui.fleet.fleet_state import FleetState

ROOMY = 18
"""Rows from which on there is room for more than the map and what is wrong."""
FEWEST_WRONG, MOST_OF_HEIGHT = 4, 6
"""Fewest rows of the list, and the divisor of the height that gives its most rows while the map
needs the rest."""
SHARED = (
    "page.next",
    "page.previous",
    "theme",
    "commands",
    "help",
    "repaint",
    "suspend",
    "quit",
)
"""Actions of the dashboard that are the same here."""
# fmt: off
ACTIONS = (
    Action("fleet.open", "enter", "open", "Open the host under the cursor", "Open host"),
    Action("fleet.switch", "tab,w", "switch", "Switch between the map and the problems", "List"),
    Action("metric", "m", "metric(1)", "Colour the map by the next metric", "Colour"),
    Action("metric.previous", "M", "metric(-1)", "Colour the map by the previous metric"),
    Action("group", "g", "group(1)", "Group by the next label", "Group"),
    Action("group.previous", "G", "group(-1)", "Group by the previous label"),
    Action("fleet.filter", "slash,f3,f4,backslash", "filter", "Filter GPUs by label", "Filter"),
    Action("fleet.refresh", "R", "refresh_now", "Ask the server now", "Refresh"),
    Action("fleet.next", "down,j", "move(1)", "Down in the map or the list"),
    Action("fleet.previous", "up,k", "move(-1)", "Up in the map or the list"),
    Action("fleet.right", "right", "side(1)", "Next GPU"),
    Action("fleet.left", "left", "side(-1)", "Previous GPU"),
    Action("fleet.first", "home", "end(-1)", "First GPU or row"),
    Action("fleet.last", "end", "end(1)", "Last GPU or row"),
    Action("settings", "S", "save", "Save the theme for the next start"),
    Action("back", "escape", "leave", "Back: leave the list, clear the filter"),
    *(action for action in DASHBOARD if action.id in SHARED),
)
# fmt: on
"""Everything a key does on the fleet screen."""
HELP = {
    "Keys": {" ".join(action.key_names): action.help for action in ACTIONS},
    "Signs": {
        "! ▲ ?": "a fault, a warning, and a GPU that is no longer scraped",
        "▁▂▄▆█": "low to high values of the map's metric: the line above the map has the scale",
        "▀": "two GPUs in a cell, one above the other, where room is short",
        "–": "no value has been scraped",
        "r3  64  87% !2": "a group: its name, its number of GPUs, their median, and its problems",
        "dim": "the next answer is late: these are the numbers of the previous one",
    },
    "Numbers": {
        "median, p5, p95": "half of the GPUs are below the median, one in twenty below p5, and one "
        "in twenty above p95; GPUs without the reading do not count",
        "since": "when the problem began, or when this screen first saw it",
    },
    "Filter": {
        EXAMPLE: "all words must be true",
        "= !=": "equals, does not equal; * matches anything: rack=r1*",
        "~ !~": "contains, does not contain; case does not matter",
        "train": "a single word is searched for in host, model and all labels",
        "host gpu model": "fields that work like labels",
    },
}


class FleetSource(Protocol):
    """Source of fleets: a `FleetWatch`, or a substitute."""

    def fleets(self) -> AsyncGenerator[Fleet]:
        """Yield a fleet at once, then one each interval, for ever."""

    def refresh(self) -> None:
        """Have the next fleet come now."""

    async def close(self) -> None:
        """Close all connections."""


class FleetScreen(ActionScreen):
    """Map and list over a `FleetState`. It stays as it is while a host of the fleet is open."""

    actions = ACTIONS
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(ACTIONS))

    def __init__(
        self,
        state: FleetState,
        watch: FleetSource,
        open_host: Callable[[str], Screen[None]],
        where: str = "",
        match: str = "",
    ) -> None:
        """Show what `watch` sends; `open_host` makes the screen of a host by its name.

        `where` is the server and `match` the selector that it is asked with, as they may be shown.
        """
        super().__init__()
        self.state, self._where, self._match = state, where, match
        self._watch, self._open_host = watch, open_host
        self._old = False
        """True if what was drawn last was out of date."""

    def compose(self) -> ComposeResult:
        state = self.state
        self._header = FleetHeader(state, self._where)
        self._filter = FilterLine(state, self.show)
        self._map = MapView(state, self.show, self._where, self._match)
        self._detail = DetailView(state)
        self._wrong = ProblemsView(state, self.show)
        rows = (self._header, self._filter, self._map, self._detail, self._wrong)
        self._views: tuple[LiveView | KeysView, ...] = (*rows, KeysView(id="keys"))
        yield from self._views

    def on_mount(self) -> None:
        self.follow(self._watch.fleets(), self.update_fleet)

    async def on_unmount(self) -> None:
        await self._watch.close()

    def on_resize(self, event: Resize) -> None:
        self._share_height(event.size.width, event.size.height)

    def on_screen_resume(self) -> None:
        """Show what came while another screen was shown."""
        self.show()

    async def update_fleet(self, fleet: Fleet) -> None:
        """Show what came, or keep it while another screen is shown."""
        self.state.update(fleet)
        if self.is_current:
            self.show()

    def show(self) -> None:
        state, look = self.state, self.app.look
        self._old = state.is_old
        self._map.ascii = look.ascii
        state.halves = look.theme.colours > 16 and not look.ascii
        self._share_height(*self.app.size)
        for view in self._views:
            view.redraw()

    def tick(self) -> None:
        """Show how old the fleet is; everything fades once it is too old."""
        if self.state.is_old != self._old or self.state.age_seconds is None:
            self.show()
        else:
            self._header.redraw()

    def _share_height(self, width: int, height: int) -> None:
        """Give the map what it can use, and the list the rest, and some rows in any case."""
        some = bool(self.state.grouping.groups)
        self._header.brief = tiny = height < ROOMY
        header, asked = self._header.height_in(width), int(self._filter.wanted)
        detail = 2 if some and not tiny else 0
        room = max(1, height - header - asked - detail - 1)
        fewest = 1 if tiny else max(FEWEST_WRONG, height // MOST_OF_HEIGHT)
        least = min(self._wrong.rows, fewest + 1)
        drawn = self._map.height_in(width, max(1, room - least))
        if detail and (spare := room - drawn - self._wrong.rows) > 0:
            more = min(spare, self._detail.rows(width) - detail)
            detail, room = detail + more, room - more
        for view, rows in (
            (self._header, header),
            (self._filter, asked),
            (self._map, drawn if some else room),
            (self._detail, detail),
            (self._wrong, room - drawn if some else 0),
        ):
            view.styles.height, view.display = rows, bool(rows)

    # Keys.

    @property
    def actors(self) -> Sequence[DOMNode]:
        """The list or the map, whichever has the keys; the map; the filter; and the screen."""
        focused = (self._wrong,) if self.state.on_list else ()
        return (*focused, self._map, self._filter, self)

    @property
    def field(self) -> FilterLine:
        return self._filter

    def offers(self, action: Action) -> bool:
        state = self.state
        some = state.on_list or bool(state.view.wrong)
        return super().offers(action) and (some or action.id != "fleet.switch")

    def label_of(self, action: Action) -> str:
        if action.id == "back":
            return "Show all" if self._filter.wanted else ""
        return (
            "Map"
            if action.id == "fleet.switch" and self.state.on_list
            else action.label
        )

    async def act(self, action: Action) -> bool:
        done = await super().act(action)
        self.show()
        return done

    def action_end(self, step: int) -> None:
        state = self.state
        if state.on_list:
            state.move_to_row(0 if step < 0 else len(state.view.wrong))
        elif state.grouping.groups:
            end = 0 if step < 0 else -1
            state.move_to(end, end)

    def action_switch(self) -> None:
        """Switch between map and list; there go to the first row if the cursor is on none."""
        state = self.state
        state.on_list = not state.on_list
        if state.on_list and state.row is None:
            self._wrong.action_move(0)

    def action_metric(self, step: int) -> None:
        self.state.next_metric(step)

    def action_group(self, step: int) -> None:
        self.state.next_group(step)

    def action_refresh_now(self) -> None:
        self._watch.refresh()
        self.notify(f"Asking {visible(self._where, 200)} now")

    def action_leave(self) -> None:
        if self.state.on_list:
            self.state.on_list = False
        else:
            self._filter.clear_filter()

    def action_open(self) -> None:
        gpu = self.state.selected
        if gpu is None:
            self.notify("No GPU is selected: there is no host to open")
            return
        self.app.push_screen(self._open_host(gpu.host))

    def action_help(self) -> None:
        from gputop.ui.shell.help_and_settings import HelpPage

        self.app.push_screen(HelpPage(HELP))
