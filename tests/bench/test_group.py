"""Several devices at once: begun together, stopped together, each with an end of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Failed, Hello, Planned, Progress, Verified
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target
from gputop.bench.run import group, supervision
from gputop.bench.run.group import DeviceGroup, GroupState
from gputop.bench.run.session import worker_request
from tests.bench.workers import CPU, RawWorker, fake_interpreter, needs_torch, request
from tests.runs import Clock, gpu_result, gpu_sample
from tests.sessions import EVENTS, PLANNED, EndlessSession, PreparedSession
from tests.streams import NOW, Lasting, PreparedStream, inventory, readings, sample

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from gputop.bench.run.supervision import RunLimit
    from gputop.bench.run.trace import Trace

HALVES = tuple(dataclasses.replace(CPU, name=f"half {name}") for name in "AB")
"""Of the CPU, each a device: with one thread where a test says so in the environment."""
GPUS = target_choice.targets(inventory(3), sample(3))[:3]
HELLO = (
    '{"event": "hello", "python": "3.11.0", "torch_version": "9.9.9", "device_name": "a CPU", '
    '"threads": 2, "pid": 1}'
)
Happened = list[tuple[Target, Event]]


@pytest.fixture(autouse=True)
def _devices_that_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is watched; and one thread for each half."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = PreparedStream(inventory(3), sample(3))
    monkeypatch.setattr(supervision, "open_stream", lambda: made)


def halves(seconds: float = 1.0, size: int = 256, **changes: Any) -> list[Request]:
    asked = request(size=size, seconds=seconds)
    return [dataclasses.replace(asked, target=target, **changes) for target in HALVES]


async def heard(
    runs: DeviceGroup, act: Callable[[Target, Event], None] = lambda *_: None
) -> tuple[Happened, list[tuple[Target, RunLimit]]]:
    """All that happened, and the limits that were reached."""
    limits: list[tuple[Target, RunLimit]] = []
    happened: Happened = []

    def take(target: Target, event: Event) -> None:
        happened.append((target, event))
        act(target, event)

    async with asyncio.timeout(100):
        with supervision.Supervisor() as together:
            await runs.follow(together, lambda *each: limits.append(each), take)
    return happened, limits


def ends(happened: Happened) -> dict[str, Done | Failed]:
    """By the device's name."""
    return {target.name: event for target, event in happened if isinstance(event, Done | Failed)}


def pids(happened: Happened) -> list[int]:
    return [event.pid for _, event in happened if isinstance(event, Hello)]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Hand:
    """Supervises two runs by a clock: the second is ready 30 s after the first."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.first_waits = clock, asyncio.Event()

    async def follow(self, session: Any, trace: Trace, _: object, take: Any) -> None:
        """Say all that happens, with a sample each second: 90 W until the run begins, then 700."""
        trace.now = self.clock
        if first := trace.target is GPUS[0]:
            trace.add_event(PLANNED)
            take(PLANNED)
            for second in range(30):
                self.add_sample(trace, second, 90.0)
            self.first_waits.set()
        else:
            await self.first_waits.wait()
            trace.add_event(PLANNED)
            take(PLANNED)
        await session.begun.wait()
        if first:
            for second in range(31, 41):
                self.add_sample(trace, second, 700.0)
            take(Done(trace.completed(gpu_result(10.0))))

    def add_sample(self, trace: Trace, second: int, watts: float) -> None:
        self.clock.time = NOW + second
        changes: dict[str, Any] = {"power_watts": watts, "energy_joules": watts * second}
        trace.add_sample(inventory(1), gpu_sample(NOW + second, **changes))


@pytest.mark.parametrize("kind", ["soak", "sweep"])
async def test_what_a_device_waits_for_others_is_not_a_part_of_its_run(kind: str) -> None:
    class Session:
        def __init__(self, *_: object, waits: bool) -> None:
            assert waits
            self.begun = asyncio.Event()
            self.begin = self.begun.set

    clock = Clock()
    state = GroupState([Request(gpu, "float32", None, 10.0, kind=kind) for gpu in GPUS[:2]], clock)
    traces = [run.trace for run in state.runs.values()]
    runs: Any = DeviceGroup(state.requests, traces, cast("Any", Session))
    async with asyncio.timeout(30):
        await runs.follow(Hand(clock), lambda *_: None, state.add_event)
    result = state.first.result
    assert result is not None
    assert result.known_conditions.power_watts_mean == 700.0
    assert result.known_conditions.energy_joules == pytest.approx(7000.0)
    assert state.first.elapsed_seconds == pytest.approx(10.0, abs=1)


async def test_a_device_that_fails_as_it_waits_does_not_begin() -> None:
    class Watch:
        async def follow(self, _: object, trace: Trace, __: object, take: Any) -> None:
            if trace.target is not GPUS[0]:
                await failed.wait()
            take(PLANNED)
            if trace.target is GPUS[0]:
                take(Failed(Problem("It died", "it was killed", "Start it again"), 3))
                failed.set()

    failed, happened = asyncio.Event(), list[tuple[Target, Event]]()
    runs: Any = DeviceGroup([Request(gpu, "float32", None, 10.0) for gpu in GPUS[:2]])
    async with asyncio.timeout(30):
        await runs.follow(Watch(), lambda *_: None, lambda *each: happened.append(each))
    kinds = [type(event) for target, event in happened if target is GPUS[0]]
    assert kinds == [Planned, Failed]
    assert len(happened) == 4, "the plan of the other came again"


@pytest.mark.slow
@needs_torch
async def test_none_begins_before_all_are_ready() -> None:
    happened, _ = await heard(DeviceGroup(halves()))
    kinds = [type(event) for _, event in happened]
    ready = [n for n, kind in enumerate(kinds) if kind is Planned]
    begun = [n for n, kind in enumerate(kinds) if kind in (Progress, Verified)]
    assert len(ready) == 4, "each plan comes again as all begin"
    assert max(ready) < min(begun)
    assert {target for target, _ in happened} == set(HALVES)
    for name, end in ends(happened).items():
        assert isinstance(end, Done)
        assert end.result.device == name
        assert end.result.stopped == "time"
        assert end.result.iterations > 0
    assert all(map(gone, pids(happened)))


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("kind", ["sweep", "copy"])
async def test_tables_begin_together_too(kind: str) -> None:
    asked = halves(2.0, 64, kind=kind)
    happened, _ = await heard(DeviceGroup(asked))
    assert all(isinstance(end, Done) and end.result.points for end in ends(happened).values())


@pytest.mark.slow
@needs_torch
async def test_a_stop_reaches_all() -> None:
    runs, stops = DeviceGroup(halves(600.0)), list[asyncio.Task[None]]()

    def act(_: Target, event: Event) -> None:
        if isinstance(event, Progress) and not stops:
            stops.append(asyncio.create_task(runs.stop()))

    happened, _ = await heard(runs, act)
    await stops[0]
    found = ends(happened).values()
    assert [end.result.stopped for end in found if isinstance(end, Done)] == ["user", "user"]
    assert all(map(gone, pids(happened)))


@pytest.mark.slow
@needs_torch
async def test_a_stop_reaches_those_that_wait_for_others(tmp_path: Path) -> None:
    body = f"import threading\nprint({HELLO!r}, flush=True)\nthreading.Event().wait()\n"
    slow, waiting = halves(600.0)
    slow = dataclasses.replace(slow, python=fake_interpreter(tmp_path, body))
    runs = DeviceGroup([slow, waiting])
    stops: list[asyncio.Task[None]] = []

    def act(target: Target, event: Event) -> None:
        if isinstance(event, Planned):
            assert target is waiting.target
            stops.append(asyncio.create_task(runs.stop()))

    happened, _ = await heard(runs, act)
    await stops[0]
    found = ends(happened)
    assert len(found) == 2
    assert [end.status for end in found.values() if isinstance(end, Failed)] == [130, 130]
    assert not any(isinstance(event, Progress) for _, event in happened)


@pytest.mark.slow
@needs_torch
async def test_one_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    broken, whole = halves()
    broken = dataclasses.replace(broken, python=fake_interpreter(tmp_path, "print('nonsense')"))
    happened, _ = await heard(DeviceGroup([broken, whole]))
    found = ends(happened)
    assert isinstance(found["half A"], Failed)
    assert isinstance(found["half B"], Done)
    assert found["half B"].result.stopped == "time"


@pytest.mark.slow
@needs_torch
async def test_who_leaves_in_the_middle_leaves_no_worker() -> None:
    begun: list[int] = []
    measured = asyncio.Event()

    def take(_: Target, event: Event) -> None:
        if isinstance(event, Hello):
            begun.append(event.pid)
        if isinstance(event, Progress):
            measured.set()

    with supervision.Supervisor() as together:
        runs = DeviceGroup(halves(600.0))
        async with asyncio.timeout(60):
            following = asyncio.create_task(runs.follow(together, lambda *_: None, take))
            await measured.wait()
            following.cancel()
            await asyncio.wait([following])
    assert len(begun) == 2
    assert all(map(gone, begun))


@pytest.mark.slow
@needs_torch
def test_a_worker_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.bench.workers.worker_request", partial(worker_request, wait_seconds=0.2)
    )
    with RawWorker(request()) as raw:
        *_, last = raw.events()
    assert (last["event"], last["kind"]) == ("error", "not_ready")
    assert "the other devices" in last["why"]


class Told(EndlessSession):
    """Of a GPU: runs until it is stopped, remembers what it is told."""

    requests: list[Request]
    opened: list[Told]

    def __init__(self, asked: Request, *, waits: bool = False, launcher: None = None) -> None:
        super().__init__(asked)
        self.target, self.waits, self.told = asked.target, waits, list[str]()
        self.opened.append(self)

    def begin(self) -> None:
        self.told.append("go")

    async def stop(self, by: str = "user") -> None:
        self.told.append(by)
        await super().stop(by)

    def kill(self) -> None:
        self.told.append("kill")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    """The sessions that are opened."""

    class Session(Told):
        requests, opened = [], []

    monkeypatch.setattr(group, "Session", Session)
    return Session.opened


async def test_a_limit_ends_the_run_of_its_device_alone(
    told: list[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = dataclasses.replace(
        sample(3), devices=(readings(0), readings(1, temperature_celsius=90), readings(2))
    )
    made = Lasting(inventory(3), hot)
    monkeypatch.setattr(supervision, "open_stream", lambda: made)
    runs = DeviceGroup([Request(target, "bfloat16", None, 60.0) for target in GPUS])
    stops: list[asyncio.Task[None]] = []

    def act(target: Target, event: Event) -> None:
        if isinstance(event, Done) and not stops:
            assert target is GPUS[1]
            stops.append(asyncio.create_task(runs.stop()))

    happened, limits = await heard(runs, act)
    await stops[0]
    assert [(target.number, limit.by) for target, limit in limits] == [("1", "limit")]
    stopped = {
        target.number: event.result.stopped for target, event in happened if isinstance(event, Done)
    }
    assert stopped == {"0": "user", "1": "limit", "2": "user"}
    assert [each.told[0] for each in told] == ["go", "go", "go"]
    assert all(each.waits for each in told)


async def test_one_alone_does_not_wait(told: list[Told]) -> None:
    runs = DeviceGroup([Request(GPUS[0], "bfloat16", None, 60.0)])
    stops: list[asyncio.Task[None]] = []

    def act(_: Target, event: Event) -> None:
        if isinstance(event, Planned):
            stops.append(asyncio.create_task(runs.stop("limit")))

    await heard(runs, act)
    await stops[0]
    assert [(each.waits, each.told) for each in told] == [(False, ["limit"])]


async def test_kill_reaches_all(told: list[Told]) -> None:
    runs = DeviceGroup([Request(target, "bfloat16", None, 60.0) for target in GPUS])
    runs.kill()
    assert [each.told for each in told] == [["kill"]] * 3


async def test_what_nobody_foresaw_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(PreparedSession):
        def __init__(self, asked: Request, *, waits: bool = False, launcher: None = None) -> None:
            """Has nothing to remember."""

        async def events(self) -> AsyncGenerator[Any]:
            yield EVENTS[0]
            raise RuntimeError("on purpose")

    monkeypatch.setattr(group, "Session", Broken)
    with pytest.raises(RuntimeError, match="on purpose"):
        await heard(DeviceGroup([Request(target, "bfloat16", None, 60.0) for target in GPUS]))


def test_no_device_is_in_it_twice() -> None:
    asked = request()
    with pytest.raises(ValueError, match="twice"):
        DeviceGroup([asked, dataclasses.replace(asked, dtype="float64")])
