"""Field whose keys are handled in the order in which they were typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import BindingsMap
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.events import Key

EDITING = {key: each.action for key, each in BindingsMap(Input.BINDINGS)}
"""Keys that edit or submit the text, and their actions of `Input`."""


class OrderedInput(Input):
    """Input that handles editing keys at once, as it does printable ones.

    Textual sends editing keys through the app, so that keys that come together overtake each
    other.
    """

    async def on_key(self, event: Key) -> None:
        """Edit at once, leave text to `Input`, and pass on other keys."""
        action = EDITING.get(event.key)
        if action is not None:
            event.prevent_default().stop()
            await self.run_action(action)
