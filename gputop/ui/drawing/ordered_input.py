"""Field that handles keys in the order in which they were typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import BindingsMap
from textual.events import Key
from textual.widgets import Input

EDITING = {key: each.action for key, each in BindingsMap(Input.BINDINGS)}
"""Keys that edit or submit the text, and the actions of `Input` for them."""


class OrderedInput(Input):
    """Input that handles editing keys at once, like printable keys.

    Textual sends editing keys through the app, so keys that arrive together would overtake each
    other.
    """

    at_once: ClassVar[Mapping[str, str]] = EDITING
    """Keys, and the actions of this field for them."""

    async def on_key(self, event: Key) -> None:
        """Handle editing keys, leave text to `Input`, and pass on other keys."""
        action = self.at_once.get(event.key)
        if action is not None:
            event.prevent_default().stop()
            await self.run_action(action)
