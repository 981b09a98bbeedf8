"""What tells an answer that is meant from keys mashed, pasted or held down: nothing else is typed.

A yes counts once a question has stood for a moment without a key; then the question says so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump

QUIET_SECONDS = 0.3
WAIT = "a moment …"
"""In the place of the key that answers, until it counts."""


class Quiet:
    """Whether no key was pressed for a moment; `changed` is called when that comes or goes."""

    def __init__(self, owner: MessagePump, changed: Callable[[], object]) -> None:
        self._owner, self._changed = owner, changed
        self._since = time.monotonic()
        self._waiting = False
        self.is_here = False

    def begin(self) -> None:
        """Somebody typed, or the question has just come up."""
        self._since = time.monotonic()
        self.is_here = QUIET_SECONDS == 0
        if not self.is_here and not self._waiting:
            self._wait(QUIET_SECONDS)
        self._changed()

    def _wait(self, seconds: float) -> None:
        self._waiting, due = True, time.monotonic() + seconds
        self._owner.set_timer(seconds, lambda: self._look(due))

    def _look(self, due: float) -> None:
        now = time.monotonic()
        left = self._since + QUIET_SECONDS - now
        if now - due > QUIET_SECONDS / 2:  # what was typed while it was held up is not read yet
            left = max(left, QUIET_SECONDS / 2)
        self._waiting = left > 0.001
        if self._waiting:
            self._wait(left)
            return
        self.is_here = True
        self._changed()
