"""Screens whose keys do the actions of a registry, and the line at the bottom that lists them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from rich.cells import cell_len
from textual import on
from textual.events import Click, Key, Paste
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from gputop.text import fit_columns
from gputop.ui.drawing.cells import Row, Span, faded
from gputop.ui.drawing.palette import ACCENT, DIM
from gputop.ui.shell.actions import CURSOR, Action, key_name
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from gputop.ui.shell.app import GputopApp
    from gputop.ui.widgets.live import FilterView

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

    async def quit(self) -> None:
        self.app.exit()

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
        if field is not None and typing and field.filter_key(event.key, event.character):
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
            self.notify(self.explain(event.key, event.character or ""), timeout=EXPLAINED_SECONDS)
        return True

    def explain(self, key: str, character: str) -> str:
        """Return what to press in place of a key that does nothing here."""
        lists = any(action.id == "help" for action in self.actions)
        what = "? lists the keys" if lists else "q quits"
        return f"Nothing on {character.strip() or key_name(key)} here · {what}"

    async def act(self, action: Action) -> bool:
        """Do the action if it is on offer here; return True if it was done."""
        if not self.offers(action):
            return False
        does = (node for node in (*self.actors, self.app) if hasattr(node, f"action_{action.name}"))
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
        from gputop.ui.widgets.dialogs import Choice, ChoiceDialog

        async def run(action: Action | None) -> None:
            if action is not None:
                await self.act(action)

        themes = [Action("", "", f"theme('{n}')", f"Theme: {n}") for n in self.app.other_themes]
        choices = [Choice(a.help, a.key_names[0], a) for a in (*self.commands(), *themes)]
        self.app.push_screen(ChoiceDialog("Commands", choices), run)

    def commands(self) -> Iterator[Action]:
        """Yield the actions that the command palette offers: not those that move a cursor."""
        left_out = {"commands", *CURSOR}
        return (a for a in self.actions if self.offers(a) and a.name not in left_out)

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
        return [Entry(a, f" {a.key_names[0]}", f" {label} ") for a, label in labelled if label]

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
        return [[span for e in entries for span in (Span(e.key, ACCENT), Span(e.label, DIM))]]

    def on_click(self, event: Click) -> None:
        x = 0
        for entry in self._shown(self.size.width):
            x += entry.width
            if event.x < x:
                self.app.call_later(self.screen.run_action, f"act('{entry.action.id}')")
                return
