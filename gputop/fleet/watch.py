"""Watch of a fleet: a thread that refreshes it from Prometheus for any number of readers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from gputop.bounds import ANSWER_BYTES, ANSWERS_BYTES
from gputop.fleet.builder import FleetBuilder, NotAnAnswerError
from gputop.fleet.client import AWAY, LATER, SECONDS, AskError, Client, slow
from gputop.fleet.model import Fleet, Gpu, GpuSeries
from gputop.fleet.parse import Checked, RefreshMoment, moment_of, readings_of, result_of, series_by
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
from gputop.fleet.server import quoted
from gputop.fleet.start_times import StartTimes, readings_over_time
from gputop.problem import Problem
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.fleet.parse import Identities
    from gputop.fleet.server import PrometheusServer

REFRESH_SECONDS = 20.0
"""Seconds for all answers of one refresh."""
DATING_SECONDS = 5.0
"""Seconds for start times of findings, unless this is the only refresh."""
MOST_PROBLEMS = 5
SLOW, GONE = "slow", "gone"
ONCE = (SLOW, GONE)
"""Problems that are dropped in the next refresh."""
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

T = TypeVar("T")


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
        self._scope = Scope(match)
        self._seconds = seconds
        self._turn = EVERYTHING if at_once else 0
        self._last: Fleet | None = None
        self._at_once = at_once
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
        for once in ONCE:
            self._problems_by_query.pop(once, None)
        try:
            self._ask_all(deadline, tell)
            fleet = self._dated(self.builder.build(self._problems()), deadline)
        except AskError as error:
            return self._previous(error.problem)
        except Exception as error:  # noqa: BLE001 - the screen shows it, and goes on
            return self._previous(_own_fault(error))
        self._turn += 1
        self._last = replace(fleet, took_seconds=time.monotonic() - began)
        return self._last

    def _problems(self, *others: Problem) -> tuple[Problem, ...]:
        """Return the problems, each once, up to a bound."""
        found = dict.fromkeys(chain(others, *self._problems_by_query.values()))
        return tuple(found)[:MOST_PROBLEMS]

    def _previous(self, why: Problem) -> Fleet:
        before = self._last or Fleet(time=time.time())
        return replace(before, problems=self._problems(why), fresh=False)

    def _ask_all(self, deadline: float, tell: Callable[[Fleet], None] | None) -> None:
        self.client.load_credentials()
        self.builder.begin_refresh(self._moment(deadline))
        queries = due(values_of(self._scope), self._turn)
        if not self.builder.is_named:
            first = queries.pop(0)
            self._ask_in_parallel([*names_of(self._scope), first], deadline)
            if self._scope.twins:
                queries = due(values_of(self._scope), self._turn)
            if tell is not None and self._turn < EVERYTHING:
                self._last = self.builder.build(self._problems())
                tell(self._last)
        elif self._turn % SELDOM == 0 or self.builder.unknown:
            for query in names_of(self._scope):
                self._ask(query, deadline)
            self._update_identities()
        if self._turn == EVERYTHING:
            self._ask(gone_of(self._scope), deadline)
            self._update_identities()
        for query in queries:
            if query.every > 1 and time.monotonic() > deadline:
                self._problems_by_query[SLOW] = (slow(self._seconds).problem,)
                break  # it has its turn again
            self._ask(query, deadline)

    def _moment(self, deadline: float) -> RefreshMoment:
        """Ask the server for its time, as the clock of this machine may differ."""
        data, _ = self.client.ask("query", {"query": CLOCK.text}, deadline - time.monotonic())
        moment = moment_of(data)
        if moment is None:
            why = "it does not tell its time"
            raise AskError(Problem("No answer of Prometheus", why, "Check what is at that URL"))
        return moment

    def _dated(self, fleet: Fleet, deadline: float) -> Fleet:
        """Return the fleet with start times of its findings, as far as a few queries tell."""
        whole = self._turn >= EVERYTHING
        if not self._at_once:
            deadline = min(deadline, time.monotonic() + DATING_SECONDS)
        batches = self._start_times.undated(fleet, self.builder.known, every=self._at_once)
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
                    break  # the readings matter more than start times
                continue
            found = readings_over_time(
                result_of(data, "matrix") or [], self.builder.identities.key_of
            )
            self._start_times.add_answer(batch, found)
        return self._start_times.dated(fleet, self.builder.known, whole=whole)

    def _ask_in_parallel(self, queries: list[Query], deadline: float) -> None:
        """Ask for the first screen in parallel: labels, and a value of each GPU."""
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
                self._update_identities()
            # One at a time: an answer takes several times as much memory when it is unpacked.
            self._add_answer(query, answers.pop(query.name, slow(self._seconds)))

    def _update_identities(self) -> None:
        if self.builder.update_identities():
            self._scope = replace(self._scope, twins=self.builder.identities.twins)

    def _ask(self, query: Query, deadline: float) -> None:
        """Ask one query. If it cannot be answered, that is a problem, and the rest goes on."""
        self._add_answer(query, self._fetched(query, deadline))

    def _fetched(self, query: Query, deadline: float, most_bytes: int = ANSWER_BYTES) -> Answer:
        left = deadline - time.monotonic()
        if left <= 0:
            return slow(self._seconds)
        try:
            asked = {"query": query.text, "time": f"{self.builder.moment.at:.3f}"}
            return self.client.fetch("query", asked, left, most_bytes)
        except AskError as error:
            return error.with_traceback(None)  # which holds what was read so far

    def _add_answer(self, query: Query, answer: Answer) -> None:
        try:
            if isinstance(answer, AskError):
                raise answer
            data, warnings = self.client.parse_answer(answer)
        except AskError as error:
            if error.whole:
                raise
            self._problems_by_query[query.name] = (error.problem,)
            return
        problems = []
        try:
            self.builder.add_answer(query.name, data)
        except NotAnAnswerError:
            why = "an answer does not have the form of Prometheus"
            problems.append(Problem("An answer was left out", why, "Check what is at that URL"))
        for warning in warnings[:MOST_PROBLEMS]:
            why = visible(warning, 160).rstrip(".")
            problems.append(Problem("Prometheus warns", why, "Some GPUs may be missing"))
        self._problems_by_query[query.name] = tuple(problems)


def due(queries: Iterable[Query], turn: int) -> list[Query]:
    """Return the queries of a refresh: what a map needs in the first, all in the second.

    Later ones take turns, so that no refresh is much longer than another.
    """
    if turn < EVERYTHING:
        return [query for query in queries if query.name in FIRST]
    return [
        query for query in queries if turn == EVERYTHING or (query.phase + turn) % query.every == 0
    ]


def _own_fault(error: Exception) -> Problem:
    why = visible(f"{type(error).__name__}: {error}", 160)
    return Problem("Internal error of gputop", why, "Please report it")


def stalled(before: Fleet | None, seconds: float) -> Fleet:
    """Return the fleet while a question outlasts its time limits, as name servers can cause."""
    why = f"no answer for {seconds:.0f} s"
    problem = Problem(AWAY, why, LATER)
    return replace(before or Fleet(time=time.time()), problems=(problem,), fresh=False)


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
        """Newest fleet."""
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
        self._readers: set[_Reader] = set()

    @property
    def identities(self) -> Identities:
        """Identities of the GPUs in the newest fleet."""
        return self._refresher.builder.identities

    @property
    def stale_after(self) -> float:
        """Seconds after which a reading is stale."""
        return self._refresher.builder.stale_after

    @property
    def is_complete(self) -> bool:
        """True if everything was asked once. The first fleets lack what seldom changes."""
        return self._refresher.is_complete

    async def fleets(self) -> AsyncGenerator[Fleet]:
        """Yield the fleet as soon as it is known, and after each refresh, until closed.

        Never raises: problems are in `Fleet.problems`.
        """
        reader = _Reader(asyncio.get_running_loop())
        self._readers.add(reader)
        self._start()
        seen: Fleet | None = None
        try:
            while not self._closed.is_set():
                if self.fleet is seen:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.new.wait(), self.interval + self._patience)
                    if not reader.new.is_set():
                        yield stalled(seen, self.interval + self._patience)
                        continue
                reader.new.clear()
                newest = self.fleet
                if newest is not None and newest is not seen and not self._closed.is_set():
                    seen = newest
                    yield newest
        finally:
            self._readers.discard(reader)

    def refresh(self) -> None:
        """Refresh at once, or again as soon as the present refresh has ended."""
        self._wanted.set()

    async def history(self, gpu: Gpu, seconds: float) -> tuple[GpuSeries, ...]:
        """Return the readings of a GPU over the last seconds; raises `AskError`."""
        found = await self.ranges(f"={quoted(gpu.uuid)}", seconds)
        return tuple(
            GpuSeries(name, tuple(t for t, _ in points), tuple(v for _, v in points))
            for (of, name), points in found.items()
            if of == gpu.key and points
        )

    async def ranges(
        self, uuids: str, seconds: float
    ) -> dict[tuple[str, str], list[tuple[float, float]]]:
        """Return times and numbers by GPU and reading; `uuids` is the matcher of the UUID label."""
        step = max(SHORTEST_STEP, seconds / MOST_POINTS)
        end = self.fleet.moment if self.fleet is not None else time.time()
        parameters = {"start": f"{end - seconds:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        data = await self.ask("query_range", {"query": self.all_of(uuids), **parameters})
        return series_by(result_of(data, "matrix") or [], self.identities.key_of)

    async def details(self, uuids: str, moment: float) -> dict[str, Checked]:
        """Return all readings of some GPUs at that moment, by GPU; raises `AskError`."""
        asked = {"query": self.all_of(uuids), "time": f"{moment:.3f}"}
        data = await self.ask("query", asked)
        return readings_of(result_of(data, "vector") or [], self.identities.key_of)

    def all_of(self, uuids: str) -> str:
        """Return the query for all readings of some GPUs."""
        return all_of(Scope(self.match), uuids)

    async def ask(self, path: str, parameters: dict[str, str]) -> Any:
        """Return the data of one more question; raises `AskError`."""

        def asked() -> Any:
            with self._one_at_a_time:
                self._other.load_credentials()
                return self._other.ask(path, parameters)[0]

        return await in_thread(asked)

    async def close(self) -> None:
        """End what is under way, and all readers."""
        self._closed.set()
        self._wanted.set()
        self._refresher.client.stop()
        self._other.stop()
        self._tell()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
            self._thread.start()

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
        for reader in [*self._readers]:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                reader.loop.call_soon_threadsafe(reader.new.set)


class _Reader:
    """Reader that waits for the next fleet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.new = asyncio.Event()


async def in_thread(function: Callable[[], T]) -> T:
    """Return or raise what the function does, from a daemon thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, failed = None, None
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failed = error
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=run, name="fleet-question", daemon=True).start()
    return await future
