import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.problem import Problem
from gputop.agent.snapshot import Sample
from gputop.bench.events import Done, Event, Failed, Planned, Progress
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner
from tests.bench.test_session import SAYS_HELLO, WAITS
from tests.bench.workers import CPU, fake_interpreter, needs_torch, request
from tests.runs import Clock, gpu_result, gpu_sample
from tests.sessions import PLANNED, PreparedSession
from tests.streams import NOW, inventory, sample

GPUS = target_choice.targets(inventory(3), sample(3))[:3]


async def ends(
    runs: Runner, act: Callable[[Target, Event], None] = lambda *_: None
) -> dict[Target, Done | Failed]:
    found: dict[Target, Done | Failed] = {}

    def take(target: Target, event: Event) -> None:
        if isinstance(event, Done | Failed):
            found[target] = event
        act(target, event)

    async with asyncio.timeout(100):
        await runs.follow(take)
    return found


class Ready(PreparedSession):
    """Says its first events, waits to begin, and says the others."""

    before: Mapping[Target, tuple[Any, ...]]
    after: Mapping[Target, tuple[Any, ...]]

    def __init__(self, request: Request, device: DeviceRun, *, waits: bool = False) -> None:
        super().__init__(request, device, waits=waits)
        self.target, self.begun = request.target, asyncio.Event()

    def begin(self) -> None:
        self.begun.set()

    async def events(self) -> AsyncGenerator[Any]:
        for event in self.before[self.target]:
            yield event
        if not isinstance(event, Failed):
            await self.begun.wait()
            for event in self.after[self.target]:
                yield event


def ready(before: Mapping[Target, Any], after: Mapping[Target, Any]) -> Any:
    """Return a session whose devices say these events."""
    return type("Made", (Ready,), {"requests": [], "before": before, "after": after})


WAITING = dataclasses.replace(PLANNED, waits=True)
DONE = Done(gpu_result(10.0))
FAILED = Failed(Problem("It died", "it was killed", "Start it again"), 3)


def read(second: int, watts: float) -> Any:
    """A reading of a device with 90 W until second 29."""
    joules = 90.0 * 29 + watts * (second - 29)
    changes: dict[str, Any] = {"power_watts": watts, "energy_joules": joules}
    return gpu_sample(NOW + second, **changes)


@pytest.mark.parametrize("kind", ["soak", "sweep"])
async def test_what_a_device_waits_for_others_is_not_a_part_of_its_run(kind: str) -> None:
    """The readings of 30 s of waiting have 90 W, those of the run 700."""
    waiting = [read(second, 90.0) for second in range(30)]
    running = [read(second, 700.0) for second in range(31, 41)]

    made = ready(
        {GPUS[0]: (inventory(1), WAITING, *waiting), GPUS[1]: (WAITING,)},
        {GPUS[0]: (PLANNED, *running, DONE), GPUS[1]: (PLANNED, DONE)},
    )
    clock = Clock()
    state = Run([Request(gpu, "float32", None, 10.0, kind=kind) for gpu in GPUS[:2]], clock)

    def turn(_: Target, event: Event) -> None:
        if isinstance(event, Sample):
            clock.time = event.time

    async with asyncio.timeout(30):
        await Runner(state, made).follow(turn)
    result = state.first.result
    assert result is not None
    assert result.known_conditions.power_watts_mean == 700.0
    assert result.known_conditions.energy_joules == pytest.approx(7000.0)


async def test_a_device_that_fails_as_it_waits_does_not_hold_up_the_others() -> None:
    made = ready({GPUS[0]: (WAITING, FAILED), GPUS[1]: (WAITING,)}, {GPUS[1]: (PLANNED, DONE)})
    requests = [Request(gpu, "float32", None, 10.0) for gpu in GPUS[:2]]
    found = await ends(Runner(Run(requests), made))
    assert isinstance(found[GPUS[0]], Failed)
    assert isinstance(found[GPUS[1]], Done)


@needs_torch
async def test_a_stop_reaches_those_that_wait_for_others(tmp_path: Path) -> None:
    waiting = request(size=256, seconds=600.0)
    python = fake_interpreter(tmp_path, SAYS_HELLO + WAITS)
    slow = dataclasses.replace(waiting, python=python, target=dataclasses.replace(CPU, name="slow"))
    runs = Runner(Run([slow, waiting]))
    stops: list[asyncio.Task[None]] = []

    def act(target: Target, event: Event) -> None:
        assert not isinstance(event, Progress)
        if isinstance(event, Planned):
            assert target is waiting.target
            stops.append(asyncio.create_task(runs.stop()))

    found = await ends(runs, act)
    await stops[0]
    assert [end.status for end in found.values() if isinstance(end, Failed)] == [130, 130]
