"""Screens whose keys run the actions of a table, and the footer that lists the keys."""

from __future__ import annotations

import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual import on, work
from textual.actions import SkipAction
from textual.binding import ActiveBinding, Binding
from textual.dom import DOMNode
from textual.events import Key
from textual.screen import Screen
from textual.widgets import Footer
from textual.worker import Worker, WorkerState

from gputop.ui.shell.actions import Action, key_name

if TYPE_CHECKING:
    from gputop.ui.shell.app import GputopApp

FIRST = ("help", "quit", "back", "bench.stop", "bench.start", "why")
"""Actions that come first in the footer, which may have no room for the others."""
EVERYWHERE = ("tab", "shift+tab", "ctrl+p", "ctrl+l", "f10", "ctrl+c")
"""Keys that a field uses in the same way."""


def bindings(actions: Iterable[Action]) -> Iterator[Binding]:
    """Yield two bindings for each key.

    The first binding acts before the next key is read. Keys arrive together over a slow line, and
    the second key may be for a field or dialog that the first one opens. The second binding is for
    keys that the focused widget does not use.
    """
    for action in actions:
        for key in action.keys.split(","):
            at_once = f"act_at_once('{action.id}', '{key}')"
            yield Binding(key, at_once, action.help, show=False, priority=True)
            yield Binding(key, f"act('{action.id}')", action.help, show=False)


Item = TypeVar("Item")


class ActionScreen(Screen[None]):
    """A screen whose keys run the actions of its table. A dialog may be above it."""

    actions: ClassVar[Sequence[Action]]

    def __init__(self) -> None:
        super().__init__()
        self.named: dict[str, DOMNode] = {"screen": self}
        """Objects that an action can name as its handler, besides the app."""

    @property
    def app(self) -> GputopApp:  # type: ignore[override] # Textual's is writeable to mypy alone
        return cast("GputopApp", super().app)

    @property
    def actors(self) -> Sequence[DOMNode]:
        """Widgets that handle actions of the view. The first one with the method is used."""
        return (self,)

    def tick(self) -> None:
        """Update everything that changes with time alone. Called twice a second while shown."""

    async def quit(self, status: int) -> None:
        self.app.exit(return_code=status)

    def offers(self, action: Action) -> bool:  # noqa: ARG002 - for subclasses
        """Return True if the action has an effect here and now."""
        return True

    def label_of(self, action: Action) -> str:
        """Return the label of an action in the footer; "" to leave it out."""
        return action.label

    def order(self, action: Action) -> int:
        """Return the sort key of an action in the footer."""
        return FIRST.index(action.id) if action.id in FIRST else len(FIRST)

    def action_for(self, key: str) -> Action | None:
        """Return the action of a key here."""
        for action in self.actions:
            if action.has_key(key) and self.knows(action):
                return action
        return None

    def knows(self, action: Action) -> bool:  # noqa: ARG002 - for subclasses
        """Return True if the action belongs to the current view, whether it is available or not."""
        return True

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Bindings of the available actions, in the order and with the labels of the footer.

        The footer shows those that fit.
        """
        found: dict[str, ActiveBinding] = {}
        room = self.size.width
        for action in sorted(self.actions, key=self.order):
            if self.offers(action):
                label = self.label_of(action)
                if label:
                    room -= len(f" {action.key_names[0]} {label} ")
                binding = Binding(
                    action.keys.partition(",")[0],
                    f"act('{action.id}')",
                    label,
                    show=label != "" and room >= 0,
                    key_display=action.key_names[0],
                )
                active = ActiveBinding(
                    self,
                    binding,
                    enabled=True,
                    tooltip=action.help,
                )
                found.setdefault(binding.key, active)
        return found

    def show_keys(self) -> None:
        """List the keys in the footer again if others are drawn there."""
        bindings = [each.binding for each in self.active_bindings.values()]
        wanted = [each.description for each in bindings if each.show]
        # The screen may be closing.
        for footer in self.query(Footer):
            keys = footer.children
            if [getattr(key, "description", "") for key in keys] != wanted:
                # Otherwise, the footer keeps the previous keys in memory.
                footer.mutate_reactive(Footer.compact)
                self.refresh_bindings()

    def on_key(self, event: Key) -> None:
        """For a key without effect, show which key to press instead."""
        action = self.action_for(event.key)
        if self.focused is not None or (action and self.offers(action)):
            return
        # Textual handles other keys.
        if event.is_printable or event.key[:1] == "f":
            self.notify(self.explain(event.key, event.character or ""))

    def explain(self, key: str, character: str) -> str:
        """Return what to press instead of a key that has no effect here."""
        name = character.strip() or key_name(key)
        return f"Nothing on {name} here · ? lists the keys"

    async def act(self, action: Action) -> bool:
        """Run the action if it is available here. Return True if it was run."""
        handler = self._handler(action)
        if handler is None or not self.offers(action):
            return False
        targets = {action.target: handler}
        return await self.app.run_action(action.action, handler, targets)

    def _handler(self, action: Action) -> DOMNode | None:
        """Return the widget that the action names, or the first one of the view that has it."""
        if action.target == "app":
            return self.app
        named = self.named.get(action.target)
        for node in self.actors if named is None else (named,):
            if hasattr(node, f"action_{action.name}"):
                return node
        return None

    async def action_act(self, name: str) -> None:
        """Run the action with that id. Textual's bindings call this."""
        if not await self.act(self._action(name)):
            raise SkipAction

    async def action_act_at_once(self, name: str, key: str) -> None:  # noqa: ARG002 - for the check
        """Run the action with that id, unless keys go to a field."""
        await self.action_act(name)

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],
    ) -> bool | None:
        in_field = action == "act_at_once" and self.focused is not None
        if in_field and parameters[1] not in EVERYWHERE:
            return False
        return not action.startswith("act") or self.offers(
            self._action(parameters[0]),
        )

    def _action(self, name: object) -> Action:
        return next(each for each in self.actions if each.id == name)

    @work(exclusive=True, group="stream", exit_on_error=False)
    async def follow(
        self,
        items: AsyncGenerator[Item],
        handle: Callable[[Item], Awaitable[None]],
    ) -> None:
        """Handle each item as it arrives, as long as the screen exists."""
        async with contextlib.aclosing(items):
            async for item in items:
                try:
                    await handle(item)
                except Exception as error:  # noqa: BLE001 - the next one may well be fine
                    self.report(error)

    def report(self, error: BaseException) -> None:
        """Show a fault that does not end the screen."""
        self.app.report(error)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.report(event.worker.error)
