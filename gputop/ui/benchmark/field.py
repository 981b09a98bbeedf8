"""A field of the form: a short text of few characters; every other key keeps its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.widgets import Input

if TYPE_CHECKING:
    from textual.events import Key

EDITING = {
    "backspace": "delete_left",
    "delete": "delete_right",
    "left": "cursor_left",
    "right": "cursor_right",
    "home": "home",
    "end": "end",
    "ctrl+a": "home",
    "ctrl+e": "end",
    "ctrl+d": "delete_right",
    "ctrl+k": "delete_right_all",
    "ctrl+u": "delete_left_all",
    "ctrl+w": "delete_left_word",
    "enter": "submit",
}
"""The keys that change the text, and the actions of `Input` that do it."""


class Field(Input):
    """Takes the characters of `letters` as text, and leaves all others to the dashboard.

    Textual gives printable keys to an `Input` at once and editing keys by way of the app, so that
    keys that come together overtake each other. Here the field does both, in the order typed.
    """

    def __init__(self, value: str, letters: str, **changes: Any) -> None:
        super().__init__(value, compact=True, restrict=f"[{letters}]*", **changes)
        self._letters = letters

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002
        """Whether the key is text here, and no key of the dashboard."""
        return character is not None and character in self._letters

    async def on_key(self, event: Key) -> None:
        """Text is for `Input`, editing is done at once, and the rest goes to the dashboard."""
        if event.is_printable:
            if not self.check_consume_key(event.key, event.character):
                event.prevent_default()
            return
        action = EDITING.get(event.key)
        if action is not None:
            event.prevent_default().stop()
            await self.run_action(action)
