"""The fleet screen: a map of all GPUs, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.events import Key, Paste

from gputop.settings import DEFAULT, Settings
from gputop.text import visible
from gputop.ui.fleet.detail import DetailView
from gputop.ui.fleet.header import FilterLine, FleetHeader
from gputop.ui.fleet.map import MapView, empty
from gputop.ui.fleet.wrong import WrongView
from gputop.ui.shell.actions import Action, action_for, bindings
from gputop.ui.shell.app import ResidentApp
from gputop.ui.shell.command_palette import Commands
from gputop.ui.shell.fleet_actions import ACTIONS, BY_ID, FleetHelp
from gputop.ui.shell.keys import KeysView
from gputop.ui.shell.themed import ANY_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Event as UiEvent
    from textual.events import Resize

    from gputop.problem import Problem
    from gputop.ui.drawing.look import Terminal
    from gputop.ui.fleet.state import FleetState
    from gputop.ui.widgets.live import LiveView

ROOMY = 18
"""Rows from which on there is room for more than the map and what is wrong."""
FEWEST_WRONG, MOST_OF_HEIGHT = 4, 6
"""Rows of the list that are there at least, and what part of the height it takes at most while the
map needs the rest."""


class FleetApp(ResidentApp, inherit_bindings=False):
    """One screen over a `FleetState`; it ends for a host that is to be opened."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings(ACTIONS))

    def __init__(
        self,
        state: FleetState,
        where: str = "",
        match: str = "",
        refresh_now: Callable[[], None] = lambda: None,
        settings: Settings = DEFAULT,
        *,
        problems: Sequence[Problem] = (),
        config: Path | None = None,
        terminal: Terminal = ANY_TERMINAL,
    ) -> None:
        """`where` is the server and `match` what was asked of it, for the eyes of the user."""
        super().__init__(settings, problems, config, terminal)
        self.state, self._where, self._match = state, where, match
        self._refresh_now = refresh_now
        self._old = False
        """Whether what was drawn last was of the past."""
        self.opened: str | None = None
        """The host that it was left for."""

    def compose(self) -> ComposeResult:
        state = self.state
        self._header = FleetHeader(state, self._where)
        self._filter = FilterLine(state)
        self._map = MapView(state, self.show)
        self._map.empty = lambda width: empty(state, self._where, self._match, width)
        self._detail = DetailView(state)
        self._wrong = WrongView(state, self.show)
        self._keys = KeysView(self.offers, ACTIONS)
        self._views: tuple[LiveView, ...] = (
            self._header,
            self._filter,
            self._map,
            self._detail,
            self._wrong,
            self._keys,
        )
        yield from self._views

    def on_mount(self) -> None:
        """Shows what there is, and from now on what comes."""
        self.state.changed, self.state.failed = self.show, self.say
        self.show()

    def on_unmount(self) -> None:
        """What comes is kept, and shown by whoever comes next."""
        self.state.changed, self.state.failed = lambda: None, lambda _: None

    def on_resize(self, event: Resize) -> None:
        """Shares the room out anew."""
        self._arrange(event.size.width, event.size.height)

    def show(self) -> None:
        """Draws what changed."""
        state = self.state
        self._old = state.is_old
        self._map.ascii = self.look.ascii
        state.halves = self.look.theme.colours > 16 and not self.look.ascii
        self._keys.on_list = state.on_list
        self._keys.way_back = "Show all" if self._filter.wanted else ""
        self._arrange(*self.size)
        for view in self._views:
            view.redraw()

    def tick(self) -> None:
        """Shows how old it is; all fades once that is too old."""
        if self.state.is_old != self._old or self.state.fleet is None:
            self.show()
        else:
            self._header.redraw()

    def _arrange(self, width: int, height: int) -> None:
        """The map has what it can use; the list has the rest, and some rows in any case."""
        some = bool(self.state.groups)
        self._header.brief = tiny = height < ROOMY
        header, asked = self._header.height_in(width), int(self._filter.wanted)
        detail = 2 if some and not tiny else 0
        room = max(1, height - header - asked - detail - 1)
        fewest = 1 if tiny else max(FEWEST_WRONG, height // MOST_OF_HEIGHT)
        least = min(self._wrong.rows, fewest + 1)
        drawn = self._map.height_in(width, max(1, room - least))
        for view, rows in (
            (self._header, header),
            (self._filter, asked),
            (self._map, drawn if some else room),
            (self._detail, detail),
            (self._wrong, room - drawn if some else 0),
        ):
            view.styles.height, view.display = rows, bool(rows)

    # Keys.

    async def on_event(self, event: UiEvent) -> None:
        """Does at once what a key does, in the order typed."""
        if isinstance(event, Paste) and not event.is_forwarded:
            if self.state.typing and not self.screen.is_modal:
                self._filter.paste(event.text)
                self.show()
        elif isinstance(event, Key) and not self.screen.is_modal:
            if self.state.typing and self._filter.filter_key(event.key, event.character):
                self.show()
                return
            action = action_for(event.key, "", actions=ACTIONS)
            if action is not None and await self.act(action):
                return
        await super().on_event(event)

    def offers(self, action: Action) -> bool:
        """Whether it does something here."""
        if self.screen.is_modal and action.id != "quit":
            return False
        if action.id == "fleet.switch":
            return self.state.on_list or bool(self.state.view and self.state.view.wrong)
        return True

    async def act(self, action: Action) -> bool:
        """Does it, if it is on offer here; whether it was done."""
        done = self.offers(action) and await self.run_action(action.action)
        self.show()
        return done

    async def action_act(self, name: str) -> None:
        """What Textual's bindings call: the action of that id."""
        await self.act(BY_ID[name])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a binding does something here; behind another screen only `everywhere` do."""
        return action != "act" or self.offers(BY_ID[str(parameters[0])])

    def action_move(self, step: int) -> None:
        """Down, on the map or in the list."""
        (self._wrong if self.state.on_list else self._map).move(step)

    def action_page(self, step: int) -> None:
        """A page down."""
        (self._wrong if self.state.on_list else self._map).page(step)

    def action_side(self, step: int) -> None:
        """To the next GPU."""
        self._map.side(step)

    def action_next_group(self, step: int) -> None:
        """To another group."""
        self.state.next_of_groups(step)

    def action_end(self, step: int) -> None:
        """To the first or the last."""
        state = self.state
        if state.on_list:
            state.go_row(0 if step < 0 else len(state.view.wrong) if state.view else 0)
        elif state.groups:
            group = 0 if step < 0 else len(state.groups) - 1
            state.go(group, 0 if step < 0 else len(state.groups[group].members))

    def action_switch(self) -> None:
        """Between map and list; there the cursor goes to the first row, if it is on none."""
        state = self.state
        state.on_list = not state.on_list
        if state.on_list and state.row is None:
            self._wrong.move(0)

    def action_metric(self, step: int) -> None:
        """Another colour."""
        self.state.next_metric(step)

    def action_group(self, step: int) -> None:
        """Other groups."""
        self.state.next_group(step)

    def action_density(self) -> None:
        """More in less room, or what fits."""
        self.state.next_density()

    def action_filter(self) -> None:
        """What is typed from now on says which GPUs are shown."""
        self.state.typing = True

    def action_refresh_now(self) -> None:
        """Asks the server now."""
        self._refresh_now()
        self.notify(f"{visible(self._where, 200)} is asked now")

    def action_leave(self) -> None:
        """Off the list, then off the filter."""
        state = self.state
        if state.on_list:
            state.on_list = False
        else:
            self._filter.clear_filter()

    def action_open(self) -> None:
        """Leaves for the host of the GPU under the cursor."""
        gpu = self.state.selected
        if gpu is None:
            self.notify("There is no GPU to open the host of")
            return
        self.opened = gpu.host
        self.exit()

    def action_help(self) -> None:
        """Keys and legend."""
        self.push_screen(FleetHelp())

    def action_commands(self) -> None:
        """The command palette: what keys do here, by name."""
        here = [a for a in ACTIONS if self.offers(a) and a.id != "commands"]

        async def run(action: Action | None) -> None:
            if action is not None:
                await self.act(action)

        self.push_screen(Commands(here), run)
