"""A device under stress is watched, whatever holds up the rest, and its run is ended in time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.device import Absence, DeviceState
from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Planned
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.request import Request
from gputop.bench.run import group, supervision
from gputop.bench.run.progress import run_in_foreground
from gputop.bench.run.trace import Trace
from gputop.commands import bench as command
from gputop.commands.arguments import Parser
from gputop.commands.bench_results import report_runs
from gputop.stream.child import Interruption
from tests.sessions import EVENTS, RESULT
from tests.streams import PreparedStream, inventory, readings, sample

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from gputop.agent.snapshot import Record
    from gputop.bench.run.supervision import RunLimit

GPU = target_choice.targets(inventory(2), sample(2))[0]
CPU = request.cpu_target()


def heated(celsius: int | None, **changes: Any) -> Any:
    of = readings(0, temperature_celsius=celsius, **changes)
    return dataclasses.replace(sample(2), devices=(of,))


class EndlessSession:
    """Runs until it is stopped or killed; remembers by whom, and what had happened by then."""

    def __init__(self) -> None:
        self.stopped_by: str | None = None
        self.stopped = asyncio.Event()
        self.killed = threading.Event()

    async def events(self) -> AsyncGenerator[Any]:
        for event in EVENTS[:-1]:
            yield event
        await self.stopped.wait()
        yield Done(dataclasses.replace(RESULT, stopped=self.stopped_by or ""))

    async def stop(self, by: str = "user") -> None:
        self.stopped_by = by
        self.stopped.set()

    def kill(self) -> None:
        self.killed.set()


def join() -> None:
    """Until nothing is watched any more."""
    for thread in threading.enumerate():
        if thread.name == "watch":
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    join()


def watching(monkeypatch: pytest.MonkeyPatch, *records: Record | Interruption) -> PreparedStream:
    stream = PreparedStream(*records)
    monkeypatch.setattr(supervision, "open_stream", lambda: stream)
    return stream


async def run_of(session: Any, trace: Trace) -> tuple[Event, list[RunLimit]]:
    """The last event of one run that is watched alone, and what ended it."""
    limits: list[RunLimit] = []
    received: list[Event] = []
    async with asyncio.timeout(30):
        with supervision.Supervisor() as together:
            await together.follow(session, trace, limits.append, received.append)
    return received[-1], limits


async def test_heat_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = watching(monkeypatch, inventory(2), heated(70), heated(90))
    session = EndlessSession()
    last, limits = await run_of(session, Trace(GPU))
    assert isinstance(last, Done)
    assert last.result.stopped == session.stopped_by == "limit"
    why = "it reached 90°C, and its limit is 86°C (slowdown at 89°C)"
    assert [limit.why for limit in limits] == [why]
    join()
    assert not session.killed.is_set()
    assert stream.closed


UNHEARD = [
    pytest.param(heated(40, state=DeviceState.NOT_RESPONDING), id="hangs"),
    pytest.param(heated(40, state=DeviceState.LOST), id="lost"),
    pytest.param(heated(None, age_seconds=None), id="never answered"),
    pytest.param(dataclasses.replace(sample(2), devices=()), id="left out"),
    pytest.param(Interruption(Problem("The sampler stopped", "it did", "Wait")), id="broke off"),
]


@pytest.mark.parametrize("record", UNHEARD)
async def test_a_run_that_nobody_can_watch_is_ended(
    monkeypatch: pytest.MonkeyPatch, record: Any
) -> None:
    monkeypatch.setattr(supervision, "START_SECONDS", 0.2)
    watching(monkeypatch, inventory(2), record)
    last, limits = await run_of(EndlessSession(), Trace(GPU))
    assert isinstance(last, Done)
    assert last.result.stopped == "silent"
    assert [limit.title for limit in limits] == ["Not watched"]


async def test_an_answer_is_good_for_a_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "SILENCE_SECONDS", 0.2)
    watching(monkeypatch, inventory(2), heated(40))
    _, limits = await run_of(EndlessSession(), Trace(GPU))
    assert [limit.by for limit in limits] == ["silent"]


@pytest.mark.parametrize(
    ("target", "record"),
    [(CPU, sample()), (GPU, heated(None, absent={"temperature_celsius": Absence.NOT_SUPPORTED}))],
)
async def test_what_has_no_temperature_is_not_ended_for_it(
    monkeypatch: pytest.MonkeyPatch, target: request.Target, record: Any
) -> None:
    monkeypatch.setattr(supervision, "START_SECONDS", 0.1 if target is CPU else 30.0)
    watching(monkeypatch, inventory(2), record)
    trace = Trace(target)
    looked, look = asyncio.Event(), trace.add_sample

    def noticed(*arguments: Any) -> None:
        look(*arguments)
        looked.set()

    monkeypatch.setattr(trace, "add_sample", noticed)
    session = EndlessSession()
    running = asyncio.create_task(run_of(session, trace))
    async with asyncio.timeout(30):
        await looked.wait()
        with contextlib.suppress(TimeoutError):  # as long as it has patience
            await asyncio.wait_for(session.stopped.wait(), 0.3)
        await session.stop()
        _, limits = await running
    assert limits == []
    assert session.stopped_by == "user"


async def test_a_limit_holds_where_the_event_loop_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "HELD_UP_SECONDS", 0.1)
    watching(monkeypatch, inventory(2), heated(90))
    session: Any = EndlessSession()

    def take(event: Event) -> None:
        if isinstance(event, Planned):
            # As Textual does on a terminal that takes no more.
            assert session.killed.wait(30), "nobody ended it"
            assert session.stopped_by is None

    with supervision.Supervisor() as together:
        await together.follow(session, Trace(GPU), lambda _: None, take)
    assert session.stopped_by == "limit", "which is said once it runs again"


async def test_runs_together_share_the_stream_and_end_each_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = target_choice.targets(inventory(2), sample(2))[1]
    hot = dataclasses.replace(sample(2), devices=(readings(0, temperature_celsius=90), readings(1)))
    opened: list[PreparedStream] = []

    def open_stream() -> PreparedStream:
        opened.append(PreparedStream(inventory(2), hot))
        return opened[-1]

    monkeypatch.setattr(supervision, "open_stream", open_stream)
    sessions, traces = (EndlessSession(), EndlessSession()), (Trace(GPU), Trace(other))
    ended: list[Any] = []

    async def one(together: supervision.Supervisor, session: Any, trace: Trace) -> None:
        def ending(limit: RunLimit) -> None:
            ended.append((trace.target.index, limit.by))
            sessions[1].stopped.set()  # the other one goes on until then

        await together.follow(session, trace, ending, lambda _: None)

    async with asyncio.timeout(30):
        with supervision.Supervisor() as together:
            each = zip(sessions, traces, strict=True)
            await asyncio.gather(*(one(together, *pair) for pair in each))
    assert len(opened) == 1
    assert ended == [(0, "limit")]
    assert [session.stopped_by for session in sessions] == ["limit", None]


async def test_a_python_that_ends_starts_no_threads_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)

    class Unclosable(PreparedStream):
        async def close(self) -> None:
            raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(supervision, "open_stream", Unclosable)
    with supervision.Supervisor():
        pass
    await asyncio.to_thread(join)
    assert failed == []


async def test_a_watch_that_fails_ends_what_it_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr("gputop.bench.plan.peaks.reached_limit", fails)
    watching(monkeypatch, inventory(2), heated(40))
    _, limits = await run_of(EndlessSession(), Trace(GPU))
    assert [(limit.by, limit.why) for limit in limits] == [
        ("unwatched", "RuntimeError: on purpose")
    ]


async def test_a_run_that_ends_by_itself_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = watching(monkeypatch, inventory(2), heated(40))
    session = EndlessSession()
    session.stopped.set()
    last, limits = await run_of(session, Trace(GPU))
    assert isinstance(last, Done)
    assert limits == []
    join()
    assert stream.closed


async def test_without_the_dashboard_it_says_which_limit_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watching(monkeypatch, inventory(2), heated(90))
    sessions: list[EndlessSession] = []

    def opened(*_: object, **__: object) -> EndlessSession:
        sessions.append(EndlessSession())
        return sessions[-1]

    monkeypatch.setattr(group, "Session", opened)
    async with asyncio.timeout(30):
        ends = await run_in_foreground([Request(GPU, "bfloat16", None, 60.0)])
    assert capsys.readouterr().err == (
        "gputop: GPU 0, NVIDIA H100 80GB HBM3: too hot, it reached 90°C, "
        "and its limit is 86°C (slowdown at 89°C)\n"
    )
    parser = Parser()
    command.add_arguments(parser)
    assert report_runs(ends, parser.parse_args([])) == 4
    assert "ended by the temperature limit" in capsys.readouterr().out
    ends[0].end = Done(dataclasses.replace(RESULT, stopped="silent"))
    assert report_runs(ends, parser.parse_args([])) == 4
    assert "could not be watched" in capsys.readouterr().out
