"""Watch of a fleet: periodic refreshes from Prometheus, in threads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import chain

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.threads import call_in_thread
from gputop.fleet.builder import FleetBuilder, moment_of
from gputop.fleet.client import SECONDS, AskError, Client
from gputop.fleet.model import Fleet
from gputop.fleet.queries import CLOCK, Query, gone_of, names_of, values_of
from gputop.fleet.server import PrometheusServer
from gputop.text import visible

REFRESH_SECONDS = 20.0
"""Most seconds for all answers of one refresh."""
MOST_PROBLEMS = 5


class Refresher:
    """Refreshes a fleet: sends the due queries and builds a fleet from the answers.

    All queries of a refresh are evaluated for the same moment, so that the readings of a GPU are
    consistent. For one thread at a time.
    """

    def __init__(
        self, client: Client, match: str, seconds: float = REFRESH_SECONDS
    ) -> None:
        self.client = client
        self.builder = FleetBuilder()
        self._match = match
        self._seconds = seconds
        self._turn = 0
        self._last: Fleet | None = None
        self._problems_by_query: dict[str, list[Problem]] = {}
        """Problems with the last answer to each query, kept until the query is sent again."""

    def refresh(self) -> Fleet:
        """Return the current fleet, or the previous one and the reason if there is no answer."""
        began = time.monotonic()
        try:
            self._ask_all(began + self._seconds)
            fleet = self.builder.build(self._problems())
        except ProblemError as error:
            # Without any answer yet, the fleet is empty.
            last = self._last or Fleet(time=time.time())
            problems = self._problems(error.problem)
            return replace(last, problems=problems, fresh=False)
        self._turn += 1
        self._last = replace(fleet, took_seconds=time.monotonic() - began)
        return self._last

    def _problems(self, *others: Problem) -> tuple[Problem, ...]:
        """Return the problems without duplicates, up to a limit."""
        found = dict.fromkeys(chain(others, *self._problems_by_query.values()))
        return tuple(found)[:MOST_PROBLEMS]

    def _ask_all(self, deadline: float) -> None:
        """Send the due queries: all of them the first time, labels before numbers."""
        if not self.builder.gpus:
            self._turn = 0
        # The clocks of this machine and of the server may differ.
        clock = self.client.ask(
            CLOCK.text, seconds=deadline - time.monotonic()
        )
        self.builder.moment = moment_of(clock.data.result)
        if self._turn == 0:
            self._ask(gone_of(self._match), deadline)
        for query in (names_of(self._match), *values_of(self._match)):
            if self._turn % query.every == 0:
                self._ask(query, deadline)

    def _ask(self, query: Query, deadline: float) -> None:
        """Send one query. A failure becomes a problem, and the other queries continue."""
        problems = []
        try:
            answer = self.client.ask(
                query.text,
                self.builder.moment.at,
                deadline - time.monotonic(),
            )
            self.builder.add_answer(query.name, answer.data.result)
            for warning in answer.warnings[:MOST_PROBLEMS]:
                problems.append(
                    Problem(
                        "Prometheus warns",
                        visible(warning).rstrip("."),
                        "Some GPUs may be missing",
                    )
                )
        except AskError as error:
            if error.whole:
                raise
            problems.append(error.problem)
        self._problems_by_query[query.name] = problems


class FleetWatch:
    """Watch of a fleet for one reader. Each refresh has its own thread, because it may hang."""

    def __init__(
        self,
        server: PrometheusServer,
        match: str,
        interval: float,
        *,
        seconds: float = SECONDS,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        """Allow `seconds` for one answer and `refresh_seconds` for all answers of a refresh."""
        self._interval = interval
        self._refresher = Refresher(
            Client(server, seconds), match, refresh_seconds
        )
        self._wanted = asyncio.Event()

    async def fleets(self) -> AsyncGenerator[Fleet]:
        """Yield the first fleet as soon as possible, then one after each refresh, forever.

        Never raises: problems are in `Fleet.problems`.
        """
        try:
            while True:
                began = time.monotonic()
                self._wanted.clear()
                refresh = call_in_thread(self._refresher.refresh)
                yield await asyncio.wrap_future(refresh)
                left = began + self._interval - time.monotonic()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), left)
        finally:
            self._refresher.client.close()

    def refresh(self) -> None:
        """Refresh at once, or again when the current refresh has ended."""
        self._wanted.set()
