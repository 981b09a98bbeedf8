"""How much may be on its way to the terminal, by its answers.

The buffers of a pty, of sshd and of TCP hold seconds or minutes of a slow line, so a terminal that
takes output may still be far behind. Each answer to a status query says how far it has come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

QUERY, ANSWER = "\x1b[5n", "\x1b[0n"
"""Status query of a VT100, and the answer that all is well."""
FIRST_BYTES = 2000
"""Bytes that may be on their way until the line is known."""
FIRST_SECONDS = 0.25
"""Seconds after which a terminal that has not answered counts as one that does not."""
ASK_BYTES = 1000
"""Bytes after which the terminal is asked again."""
SLOW_SECONDS = 0.25
"""Seconds that `ASK_BYTES` or more take on a slow line."""
AHEAD_SECONDS = 0.6
"""Seconds of a slow line's output that may be on their way."""
LEAST_BYTES = 500
ASK_AGAIN_SECONDS = 2.0
"""Seconds without an answer after which the terminal is asked again: it may have been lost."""
LOST_SECONDS = 30.0
"""Seconds after which an answer counts as lost, and the line as dead or the terminal as another."""


class FlowControl:
    """Estimate of what the terminal has not shown yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._on_way = 0
        """Bytes since the last query that was answered."""
        self._asked: tuple[float, int] | None = None
        """Time of the query without an answer, and the bytes until there."""
        self._asked_last = 0.0
        self._fastest = math.inf
        """Seconds of the fastest answer, or infinity before the first."""
        self._most: float = FIRST_BYTES
        """Bytes that may be on their way."""

    def begin(self) -> str:
        """Forget the terminal, and return the first query for it."""
        self._asked_last = self._clock()
        self._asked, self._on_way = (self._asked_last, 0), 0
        self._fastest, self._most = math.inf, FIRST_BYTES
        return QUERY

    @property
    def answer_seconds(self) -> float:
        """Seconds in which an answer is to come, or 0 if none is expected."""
        expected = self._asked is not None and self._fastest < math.inf
        return 2 * self._fastest + SLOW_SECONDS if expected else 0.0

    def room(self) -> int | None:
        """Return the bytes that may be sent now, or None for any number."""
        if self._asked is not None:
            waited = self._clock() - self._asked[0]
            if waited > LOST_SECONDS:
                self._asked, self._fastest, self._most = None, math.inf, math.inf
            elif self._fastest == math.inf:
                self._most = math.inf if waited > FIRST_SECONDS else self._most
            elif waited > self.answer_seconds:
                return 0
        if self._most == math.inf:
            return None
        left = int(self._most - self._on_way)
        return left if left >= LEAST_BYTES // 2 else 0

    def sent(self, count: int) -> None:
        self._on_way += count

    def ask(self) -> str:
        """Return a query for the terminal if it is time for one, or an empty string."""
        least = ASK_BYTES if self._most == math.inf else LEAST_BYTES
        # Without room nothing is sent that a later query could follow.
        if self._asked is not None or (self._on_way < least and self.room() != 0):
            return ""
        self._asked_last = self._clock()
        self._asked = self._asked_last, self._on_way
        return QUERY

    def ask_again(self) -> str:
        """Return another query if the answer to the last one is late: any answer will do.

        Nothing else is sent meanwhile, so that it tells of the same bytes.
        """
        now = self._clock()
        if self._asked is None or now - self._asked_last < ASK_AGAIN_SECONDS:
            return ""
        self._asked_last = now
        return QUERY

    def answered(self) -> None:
        if self._asked is None:
            return
        (at, count), self._asked = self._asked, None
        seconds = self._clock() - at
        self._fastest = min(self._fastest, seconds)
        self._on_way -= count
        on_line = seconds - self._fastest
        if on_line > SLOW_SECONDS:
            self._most = max(LEAST_BYTES, AHEAD_SECONDS * count / on_line)
        elif count >= LEAST_BYTES:
            self._most = math.inf
