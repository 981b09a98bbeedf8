"""A refresh of the fleet: what is due is asked, what was answered is taken in, and nothing raises."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.fleet.client import AWAY, LATER, AskError, Client
from gputop.fleet.model import Fleet
from gputop.fleet.picture import NotAnAnswerError, Picture
from gputop.fleet.queries import SELDOM, Query, Scope, names_of, values_of
from gputop.telemetry.snapshot import Problem
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.fleet.server import Server

REFRESH_SECONDS = 20.0
"""For all answers of one refresh."""
MOST_PROBLEMS = 5


class Asking:
    """Refreshes one fleet, from one thread."""

    def __init__(self, client: Client, match: str, seconds: float = REFRESH_SECONDS) -> None:
        self.client = client
        self.picture = Picture()
        self._scope = Scope(match)
        self._seconds = seconds
        self._turn = 0
        self._last: Fleet | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything was asked once: the first refresh asks what the first screen needs."""
        return self._turn > 1

    def refresh(self) -> Fleet:
        """The fleet now; where there is no answer, the one before with why."""
        began, now = time.monotonic(), time.time()
        problems: list[Problem] = []
        try:
            self._ask_all(began + self._seconds, now, problems)
        except AskError as error:
            return self._as_before(now, [error.problem, *problems])
        self._turn += 1
        took = time.monotonic() - began
        self._last = self.picture.fleet(now, _several(problems), took)
        return self._last

    def _as_before(self, now: float, problems: list[Problem]) -> Fleet:
        before = self._last or Fleet(time=now)
        return replace(before, problems=_several(problems), fresh=False)

    def _ask_all(self, deadline: float, now: float, problems: list[Problem]) -> None:
        self.client.begin()
        if self._turn < 1 or self._turn % SELDOM == 0 or self.picture.unknown:
            for query in names_of(self._scope):
                self._ask(query, deadline, now, problems)
            self.picture.settle()
            self._scope = replace(self._scope, twins=self.picture.places.twins)
        for query in due(values_of(self._scope), self._turn):
            self._ask(query, deadline, now, problems)

    def _ask(self, query: Query, deadline: float, now: float, problems: list[Problem]) -> None:
        """One question; one that cannot be answered is a problem, and the rest goes on."""
        left = deadline - time.monotonic()
        if left <= 0:
            why = f"not all was answered within {self._seconds:.0f} s"
            raise AskError(Problem("Prometheus is slow", why, "Ask for fewer GPUs with --match"))
        try:
            data, warnings = self.client.ask("query", {"query": query.text}, left)
            self.picture.take(query.name, data, now)
        except AskError as error:
            if error.whole:
                raise
            problems.append(error.problem)
        except NotAnAnswerError:
            why = "an answer has another form than that of Prometheus"
            problems.append(Problem("An answer is left out", why, "See what is at that URL"))
        else:
            for warning in warnings[:MOST_PROBLEMS]:
                why = visible(warning, 160).rstrip(".")
                problems.append(Problem("Prometheus warns", why, "Some GPUs may be missing"))


def due(queries: Iterable[Query], turn: int) -> list[Query]:
    """Those of that refresh: the first asks what is asked each time, the second all others, too.

    Later ones take turns, so that no refresh is much longer than another.
    """
    return [
        query
        for place, query in enumerate(queries)
        if query.every == 1 or turn == 1 or (turn > 1 and (place + turn) % query.every == 0)
    ]


def _several(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each once, and not too many."""
    return tuple(dict.fromkeys(problems))[:MOST_PROBLEMS]


def stalled(before: Fleet | None, seconds: float) -> Fleet:
    """What there is where even the time limits have not ended a question, as of name servers."""
    why = f"nothing has come of a question for {seconds:.0f} s"
    problem = Problem(AWAY, why, LATER)
    return replace(before or Fleet(time=time.time()), problems=(problem,), fresh=False)
