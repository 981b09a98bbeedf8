"""Watch of a fleet: a thread that refreshes it from Prometheus for any number of readers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent import futures
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from gputop.agent.problem import Problem
from gputop.agent.process_limit import process_limit_problem, says_process_limit
from gputop.agent.threads import call_in_thread
from gputop.fleet.builder import FleetBuilder
from gputop.fleet.client import (
    ANSWER_BYTES,
    AWAY,
    LATER,
    SECONDS,
    AskError,
    Client,
    slow,
)
from gputop.fleet.fleet_findings import LOOK_BACK_SECONDS, STEP_SECONDS, StartTimes
from gputop.fleet.model import Fleet
from gputop.fleet.parse import Checked, Moments, RefreshMoment, moment_of
from gputop.fleet.queries import (
    CLOCK,
    FIRST,
    SELDOM,
    Query,
    all_of,
    gone_of,
    names_of,
    values_of,
)
from gputop.fleet.server import PrometheusServer, one_of
from gputop.text import visible

ANSWERS_BYTES = 128 << 20
"""Bytes of all answers that are read at the same time."""

REFRESH_SECONDS = 20.0
"""Seconds for all answers of one refresh."""
DATING_SECONDS = 5.0
"""Most seconds for start times of findings."""
MOST_PROBLEMS = 5
SLOW, GONE = "slow", "gone"
EVERYTHING = 1
"""Number of the refresh in which everything is asked, after the first one."""

Answer = bytes | AskError
"""Body of an answer, or the reason why there is none."""
MOST_POINTS = 240
"""Most points of a history: about the dots in the width of a chart."""
SHORTEST_STEP = 15.0
"""Fewest seconds between points, as scrapes are seldom more frequent."""
GRACE_SECONDS = 5.0
"""Seconds beyond the time limits of a refresh until a reader learns that nothing comes."""


class Refresher:
    """Refreshes a fleet: asks what is due and builds a fleet of the answers. Never raises.

    All queries of a refresh are evaluated for the same moment, so that the readings of a GPU fit
    each other whatever is scraped meanwhile. For one thread only.
    """

    def __init__(
        self,
        client: Client,
        match: str,
        seconds: float = REFRESH_SECONDS,
        *,
        interval: float = 10.0,
        at_once: bool = False,
    ) -> None:
        """Ask every `interval` seconds; with `at_once` the first refresh has everything."""
        self.client = client
        self.builder = FleetBuilder(interval)
        self._match = match
        self._seconds = seconds
        self._turn = EVERYTHING if at_once else 0
        self._last: Fleet | None = None
        self._start_times = StartTimes()
        self._problems_by_query: dict[str, tuple[Problem, ...]] = {}
        """Problems with the last answer to each query, kept until it is asked again."""

    @property
    def is_complete(self) -> bool:
        """True if everything was asked once. The first refresh asks what the first screen needs."""
        return self._turn > EVERYTHING

    def refresh(self, tell: Callable[[Fleet], None] | None = None) -> Fleet:
        """Return the fleet now, or the previous one with the reason if there is no answer.

        The first time, `tell` is called with the fleet so far.
        """
        began = time.monotonic()
        deadline = began + self._seconds
        for once in (SLOW, GONE):
            self._problems_by_query.pop(once, None)
        try:
            self._ask_all(deadline, tell)
            fleet = self._dated(self.builder.build(self._problems()), deadline)
        except Exception as error:  # noqa: BLE001 - the screen shows it, and goes on
            why = visible(f"{type(error).__name__}: {error}", 160)
            problem = Problem("Internal error of gputop", why, "Please report it")
            if isinstance(error, AskError):
                problem = error.problem
            elif says_process_limit(error):
                problem = process_limit_problem(AWAY)
            return _old(self._last, *self._problems(problem))
        self._turn += 1
        self._last = replace(fleet, took_seconds=time.monotonic() - began)
        return self._last

    def _problems(self, *others: Problem) -> tuple[Problem, ...]:
        """Return the problems, each once, up to a bound."""
        found = dict.fromkeys(chain(others, *self._problems_by_query.values()))
        return tuple(found)[:MOST_PROBLEMS]

    def _ask_all(self, deadline: float, tell: Callable[[Fleet], None] | None) -> None:
        self.client.load_credentials()
        self.builder.moment = self._moment(deadline)
        queries = due(values_of(self._match), self._turn)
        if not self.builder.named:
            first = queries.pop(0)
            self._ask_in_parallel([*names_of(self._match), first], deadline)
            if tell is not None and self._turn < EVERYTHING:
                self._last = self.builder.build(self._problems())
                tell(self._last)
        elif self._turn % SELDOM == 0 or self.builder.unknown:
            for query in names_of(self._match):
                self._ask(query, deadline)
            self.builder.update_identities()
        if self._turn == EVERYTHING:
            self._ask(gone_of(self._match), deadline)
            self.builder.update_identities()
        for query in queries:
            if query.every > 1 and time.monotonic() > deadline:
                self._problems_by_query[SLOW] = (slow(self._seconds).problem,)
                break  # it has its turn again
            self._ask(query, deadline)

    def _moment(self, deadline: float) -> RefreshMoment:
        """Ask the server for its time, as the clock of this machine may differ."""
        data, _ = self.client.ask(
            "query", {"query": CLOCK.text}, deadline - time.monotonic()
        )
        moment = moment_of(data)
        if moment is None:
            why = "it does not tell its time"
            raise AskError(
                Problem("No answer of Prometheus", why, "Check what is at that URL")
            )
        return moment

    def _dated(self, fleet: Fleet, deadline: float) -> Fleet:
        """Return the fleet with start times of its findings, as far as one query tells."""
        end, times = fleet.moment, self._start_times
        left = min(DATING_SECONDS, deadline - time.monotonic())
        all_asked = self._turn >= EVERYTHING and left > 0
        if asked := times.undated(fleet, self.builder.known) if all_asked else {}:
            keys = {key for key, _ in asked}
            some = f"=~{one_of(sorted({gpu.uuid for gpu in fleet.gpus if gpu.key in keys}))}"
            readings = sorted(
                {name for condition in asked.values() for name in condition}
            )
            query = all_of(self._match, some, readings)
            period = _range(end - LOOK_BACK_SECONDS, end, STEP_SECONDS)
            with contextlib.suppress(AskError):  # the readings matter more
                data, _ = self.client.ask(
                    "query_range", {"query": query, **period}, left
                )
                times.add_answer(asked, self.builder.past_readings(data), end)
        return times.dated(fleet, end if self.is_complete else None)

    def _ask_in_parallel(self, queries: list[Query], deadline: float) -> None:
        """Ask for the first screen in parallel: labels, and a value of each GPU."""
        fetch = partial(
            self._fetched, deadline=deadline, most_bytes=ANSWERS_BYTES // len(queries)
        )
        asked = deque(
            (query, call_in_thread(partial(fetch, query))) for query in queries
        )
        while asked:
            query, future = asked.popleft()
            if not asked:
                self.builder.update_identities()
            try:
                answer = future.result(max(0.0, deadline - time.monotonic()))
            except futures.TimeoutError:
                answer = slow(self._seconds)
            # One at a time: an answer takes several times as much memory when it is unpacked.
            self._add_answer(query, answer)

    def _ask(self, query: Query, deadline: float) -> None:
        """Ask one query. If it cannot be answered, that is a problem, and the rest goes on."""
        self._add_answer(query, self._fetched(query, deadline))

    def _fetched(
        self, query: Query, deadline: float, most_bytes: int = ANSWER_BYTES
    ) -> Answer:
        left = deadline - time.monotonic()
        if left <= 0:
            return slow(self._seconds)
        try:
            asked = {"query": query.text, "time": f"{self.builder.moment.at:.3f}"}
            return self.client.fetch("query", asked, left, most_bytes)
        except AskError as error:
            return error.with_traceback(None)  # which holds what was read so far

    def _add_answer(self, query: Query, answer: Answer) -> None:
        problems: list[Problem] = []
        warnings: tuple[str, ...] = ()
        try:
            if isinstance(answer, AskError):
                raise answer
            data, warnings = self.client.parse_answer(answer)
            self.builder.add_answer(query.name, data)
        except AskError as error:
            if error.whole:
                raise
            problems.append(error.problem)
        for warning in warnings[:MOST_PROBLEMS]:
            why = visible(warning, 160).rstrip(".")
            problems.append(
                Problem("Prometheus warns", why, "Some GPUs may be missing")
            )
        self._problems_by_query[query.name] = tuple(problems)


def due(queries: Iterable[Query], turn: int) -> list[Query]:
    """Return the queries of a refresh: what a map needs in the first, all in the second.

    Later ones take turns, so that no refresh is much longer than another.
    """
    if turn < EVERYTHING:
        return [query for query in queries if query.name in FIRST]
    return [
        query
        for query in queries
        if turn == EVERYTHING or (query.phase + turn) % query.every == 0
    ]


def _range(start: float, end: float, step: float) -> dict[str, str]:
    return {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}


def _old(fleet: Fleet | None, *problems: Problem) -> Fleet:
    """Return the last fleet, if any, with the reasons why there is no newer one."""
    return replace(fleet or Fleet(time=time.time()), problems=problems, fresh=False)


class FleetWatch:
    """Watch of a fleet: refreshes it again and again, for any number of readers.

    It has a thread of its own, as a large answer takes longer than a key may wait. The thread lives
    as long as the watch, even if screens with event loops of their own read it in turn.
    """

    def __init__(
        self,
        server: PrometheusServer,
        match: str = "",
        interval: float = 10.0,
        *,
        seconds: float = SECONDS,
        refresh_seconds: float = REFRESH_SECONDS,
        at_once: bool = False,
    ) -> None:
        """Allow `seconds` for one answer and `refresh_seconds` for all answers of a refresh.

        With `at_once` already the first fleet has everything.
        """
        self.interval = interval
        self.match = match
        self.fleet: Fleet | None = None
        self._patience = refresh_seconds + GRACE_SECONDS
        client = Client(server, seconds)
        self._refresher = Refresher(
            client, match, refresh_seconds, interval=interval, at_once=at_once
        )
        self._other = Client(server, seconds)
        """Client for questions that must not wait for a refresh."""
        self._one_at_a_time = threading.Lock()
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._readers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        """Events that tell readers of a new fleet, with their loops."""

    @property
    def stale_after(self) -> float:
        """Seconds after which a reading is stale."""
        return self._refresher.builder.stale_after

    async def fleets(self) -> AsyncGenerator[Fleet]:
        """Yield the fleet as soon as it is known, and after each refresh, until closed.

        Never raises: problems are in `Fleet.problems`.
        """
        new = asyncio.Event()
        self._readers[new] = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
            self._thread.start()
        seen: Fleet | None = None
        try:
            while not self._closed.is_set():
                if self.fleet is seen:
                    patience = self.interval + self._patience
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(new.wait(), patience)
                    if not new.is_set():  # name servers can outlast all time limits
                        yield _old(
                            seen,
                            Problem(AWAY, f"no answer for {patience:.0f} s", LATER),
                        )
                        continue
                new.clear()
                newest = self.fleet
                if (
                    newest is not None
                    and newest is not seen
                    and not self._closed.is_set()
                ):
                    seen = newest
                    yield newest
        finally:
            del self._readers[new]

    def refresh(self) -> None:
        """Refresh at once, or again as soon as the present refresh has ended."""
        self._wanted.set()

    async def ranges(self, uuids: str, seconds: float) -> dict[str, Moments]:
        """Return the readings of some GPUs over the last seconds, by GPU; raises `AskError`.

        `uuids` is the matcher of the UUID label.
        """
        step = max(SHORTEST_STEP, seconds / MOST_POINTS)
        end = self.fleet.moment if self.fleet is not None else time.time()
        data = await self._ask("query_range", uuids, _range(end - seconds, end, step))
        return self._refresher.builder.past_readings(data)

    async def details(self, uuids: str, moment: float) -> dict[str, Checked]:
        """Return all readings of some GPUs at that moment, by GPU; raises `AskError`."""
        data = await self._ask("query", uuids, {"time": f"{moment:.3f}"})
        return self._refresher.builder.readings(data)

    async def _ask(self, path: str, uuids: str, when: dict[str, str]) -> Any:
        """Return the data on all readings of some GPUs at some time."""

        def asked() -> Any:
            with self._one_at_a_time:
                self._other.load_credentials()
                query = all_of(self.match, uuids)
                return self._other.ask(path, {"query": query, **when})[0]

        return await asyncio.wrap_future(call_in_thread(asked))

    async def close(self) -> None:
        """End what is under way, and all readers."""
        self._closed.set()
        self._wanted.set()
        self._refresher.client.stop()
        self._other.stop()
        self._tell()

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            self._wanted.clear()
            self._publish(self._refresher.refresh(self._publish))
            assert self.fleet is not None
            if self.fleet.fresh and not self._refresher.is_complete:
                continue  # ask the rest
            self._wanted.wait(max(0.0, self.interval - (time.monotonic() - began)))
        self._refresher.client.close()
        self._other.close()

    def _publish(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._tell()

    def _tell(self) -> None:
        for new, loop in [*self._readers.items()]:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(new.set)
