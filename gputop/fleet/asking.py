"""A refresh of the fleet: what is due is asked, what is answered taken in, and nothing raises.

All queries of a refresh are evaluated for the same moment, so that the readings of a GPU fit each
other whatever is scraped while they are asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain

from gputop.bounds import ANSWER_BYTES, ANSWERS_BYTES
from gputop.fleet.builder import NotAnAnswerError, Picture
from gputop.fleet.client import AWAY, LATER, AskError, Client, slow
from gputop.fleet.model import Fleet
from gputop.fleet.parse import Moment, moment_of, result_of
from gputop.fleet.queries import (
    CLOCK,
    FIRST,
    SELDOM,
    Query,
    Scope,
    all_of,
    gone_of,
    names_of,
    values_of,
)
from gputop.fleet.start_times import StartTimes, readings_over_time
from gputop.problem import Problem
from gputop.text import visible

REFRESH_SECONDS = 20.0
"""For all answers of one refresh."""
DATING_SECONDS = 5.0
"""For when findings began, in a refresh that others follow."""
MOST_PROBLEMS = 5
SLOW, GONE = "slow", "gone"
ASKED_ONCE = (SLOW, GONE)
"""Of which nothing is said in the refresh after."""
EVERYTHING = 1
"""The refresh in which everything is asked; before it is the first one."""

Answer = bytes | AskError
"""An answer as it came, or why there is none."""


class Asking:
    """Refreshes one fleet, from one thread."""

    def __init__(
        self,
        client: Client,
        match: str,
        seconds: float = REFRESH_SECONDS,
        *,
        interval: float = 10.0,
        at_once: bool = False,
    ) -> None:
        """`interval` is that of the refreshes, in seconds.

        `at_once` is whether the first one has everything, for who waits for no second.
        """
        self.client = client
        self.picture = Picture(interval)
        self._scope = Scope(match)
        self._seconds = seconds
        self._turn = EVERYTHING if at_once else 0
        self._last: Fleet | None = None
        self._at_once = at_once
        self._start_times = StartTimes()
        self._said: dict[str, tuple[Problem, ...]] = {}
        """By question, what was wrong with its last answer: it stays until it is asked again."""

    @property
    def is_complete(self) -> bool:
        """Whether everything was asked once: the first refresh asks what the first screen needs."""
        return self._turn > EVERYTHING

    def refresh(self, tell: Callable[[Fleet], None] | None = None) -> Fleet:
        """The fleet now; where there is no answer, the one before with why.

        `tell` is told, the first time, how far it has come.
        """
        began = time.monotonic()
        deadline = began + self._seconds
        for once in ASKED_ONCE:
            self._said.pop(once, None)
        try:
            self._ask_all(deadline, tell)
            fleet = self._dated(self.picture.fleet(self._problems()), deadline)
        except AskError as error:
            return self._as_before(error.problem)
        except Exception as error:  # noqa: BLE001 - the screen says it, and goes on
            return self._as_before(_own_fault(error))
        self._turn += 1
        self._last = replace(fleet, took_seconds=time.monotonic() - began)
        return self._last

    def _problems(self, *others: Problem) -> tuple[Problem, ...]:
        """Each once, and not too many."""
        found = dict.fromkeys(chain(others, *self._said.values()))
        return tuple(found)[:MOST_PROBLEMS]

    def _as_before(self, why: Problem) -> Fleet:
        before = self._last or Fleet(time=time.time())
        return replace(before, problems=self._problems(why), fresh=False)

    def _ask_all(self, deadline: float, tell: Callable[[Fleet], None] | None) -> None:
        self.client.begin()
        self.picture.begin(self._moment(deadline))
        queries = due(values_of(self._scope), self._turn)
        if not self.picture.is_named:
            first = queries.pop(0)
            self._ask_at_once([*names_of(self._scope), first], deadline)
            if self._scope.twins:
                queries = due(values_of(self._scope), self._turn)
            if tell is not None and self._turn < EVERYTHING:
                self._last = self.picture.fleet(self._problems())
                tell(self._last)
        elif self._turn % SELDOM == 0 or self.picture.unknown:
            for query in names_of(self._scope):
                self._ask(query, deadline)
            self._settle()
        if self._turn == EVERYTHING:
            self._ask(gone_of(self._scope), deadline)
            self._settle()
        for query in queries:
            if query.every > 1 and time.monotonic() > deadline:
                self._said[SLOW] = (slow(self._seconds).problem,)
                break  # it has its turn again
            self._ask(query, deadline)

    def _moment(self, deadline: float) -> Moment:
        """Ask the server what time it is, as the clock of this machine may be another."""
        data, _ = self.client.ask("query", {"query": CLOCK.text}, deadline - time.monotonic())
        moment = moment_of(data)
        if moment is None:
            why = "it does not say what time it is"
            raise AskError(Problem("No answer of Prometheus", why, "See what is at that URL"))
        return moment

    def _dated(self, fleet: Fleet, deadline: float) -> Fleet:
        """Return the fleet with when its findings began, as far as a few queries tell."""
        whole = self._turn >= EVERYTHING
        if not self._at_once:
            deadline = min(deadline, time.monotonic() + DATING_SECONDS)
        batches = self._start_times.undated(fleet, self.picture.known, every=self._at_once)
        for batch in batches if whole else ():  # the first screen does not wait for it
            left = deadline - time.monotonic()
            if left <= 0:
                break
            start, end, step = self._start_times.range(fleet)
            text = all_of(self._scope, batch.uuids, batch.readings)
            span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
            try:
                data, _ = self.client.ask("query_range", {"query": text, **span}, left)
            except AskError as error:
                if error.whole:
                    break  # the readings are there: they are worth more than when it began
                continue
            found = readings_over_time(result_of(data, "matrix") or [], self.picture.places.key_of)
            self._start_times.add_answer(batch, found)
        return self._start_times.dated(fleet, self.picture.known, whole=whole)

    def _ask_at_once(self, queries: list[Query], deadline: float) -> None:
        """For the first screen: names, and a value of each GPU, which is read by its name."""
        answers: dict[str, Answer] = {}
        most_bytes = ANSWERS_BYTES // len(queries)

        def ask(query: Query) -> None:
            answers[query.name] = self._fetched(query, deadline, most_bytes)

        threads = [threading.Thread(target=ask, args=(query,), daemon=True) for query in queries]
        for thread in threads:
            thread.start()
        for query, thread in zip(queries, threads, strict=True):
            thread.join(max(0.0, deadline - time.monotonic()))
            if query is queries[-1]:
                self._settle()
            # One at a time: an answer takes several times as much memory when it is unpacked.
            self._take(query, answers.pop(query.name, slow(self._seconds)))

    def _settle(self) -> None:
        if self.picture.settle():
            self._scope = replace(self._scope, twins=self.picture.places.twins)

    def _ask(self, query: Query, deadline: float) -> None:
        """One question; one that cannot be answered is a problem, and the rest goes on."""
        self._take(query, self._fetched(query, deadline))

    def _fetched(self, query: Query, deadline: float, most_bytes: int = ANSWER_BYTES) -> Answer:
        left = deadline - time.monotonic()
        if left <= 0:
            return slow(self._seconds)
        try:
            asked = {"query": query.text, "time": f"{self.picture.moment.at:.3f}"}
            return self.client.fetch("query", asked, left, most_bytes)
        except AskError as error:
            return error.with_traceback(None)  # which has what was read so far

    def _take(self, query: Query, answer: Answer) -> None:
        try:
            if isinstance(answer, AskError):
                raise answer
            data, warnings = self.client.unpacked(answer)
        except AskError as error:
            if error.whole:
                raise
            self._said[query.name] = (error.problem,)
            return
        said = []
        try:
            self.picture.take(query.name, data)
        except NotAnAnswerError:
            why = "an answer has another form than that of Prometheus"
            said.append(Problem("An answer is left out", why, "See what is at that URL"))
        for warning in warnings[:MOST_PROBLEMS]:
            why = visible(warning, 160).rstrip(".")
            said.append(Problem("Prometheus warns", why, "Some GPUs may be missing"))
        self._said[query.name] = tuple(said)


def due(queries: Iterable[Query], turn: int) -> list[Query]:
    """Return the queries of that refresh: of the first what a map needs, of the second all.

    Later ones take turns, so that no refresh is much longer than another.
    """
    if turn < EVERYTHING:
        return [query for query in queries if query.name in FIRST]
    return [
        query for query in queries if turn == EVERYTHING or (query.phase + turn) % query.every == 0
    ]


def _own_fault(error: Exception) -> Problem:
    why = visible(f"{type(error).__name__}: {error}", 160)
    return Problem("A fault of gputop's own", why, "Please report it")


def stalled(before: Fleet | None, seconds: float) -> Fleet:
    """What there is where even the time limits have not ended a question, as of name servers."""
    why = f"nothing has come of a question for {seconds:.0f} s"
    problem = Problem(AWAY, why, LATER)
    return replace(before or Fleet(time=time.time()), problems=(problem,), fresh=False)
