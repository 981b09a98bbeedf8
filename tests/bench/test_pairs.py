"""`pairs`: each device alone, then all at once."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Conditions, Done, Event, Failed, Planned, Result
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target, check_together
from gputop.bench.results.measures import rates_of_pair, score
from gputop.bench.results.pairs import join_results
from gputop.bench.results.verdict import judge
from gputop.bench.run import runner
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner
from tests.bench.workers import CPU, fake_interpreter
from tests.e2e.pretender import worker
from tests.sessions import EVENTS, RESULT, PreparedSession
from tests.streams import inventory, sample

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from gputop.bench.run.device_run import DeviceRun

GPUS = target_choice.targets(inventory(2), sample(2))[:2]
ALONE = {"0": 700.0, "1": 650.0, "2": 600.0}
TOGETHER = {"0": 630.0, "1": 520.0, "2": 600.0}
"""Mean TFLOP/s by the number of the GPU."""


def asked(*targets: Target, seconds: float = 30.0, size: int | None = None) -> list[Request]:
    return [Request(target, "bfloat16", size, seconds, None, "pairs") for target in targets]


class Measured(PreparedSession):
    """A session whose result is known; those that wait run together."""

    opened: list[tuple[Request, bool]]
    changes: dict[tuple[str, bool], dict[str, Any] | Failed]
    """Of results, by the number of the GPU and whether it runs together."""

    def __init__(self, asked_for: Request, device: DeviceRun, *, waits: bool = False) -> None:
        self.request, self.waits = asked_for, waits
        self.opened.append((asked_for, waits))

    async def events(self) -> AsyncGenerator[Any]:
        for event in EVENTS[:-1]:
            yield event
        number = self.request.target.number or ""
        changes = self.changes.get((number, self.waits), {})
        if isinstance(changes, Failed):
            yield changes
            return
        mean = (TOGETHER if self.waits else ALONE)[number]
        fields: dict[str, Any] = {
            "tflops_mean": mean,
            "tflops_peak": 900.0,
            "dtype": "bfloat16",
            "n": 8192,
        }
        yield Done(dataclasses.replace(RESULT, **(fields | changes)))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> type[Measured]:
    class Session(Measured):
        opened, changes = [], {}

    monkeypatch.setattr(runner, "DeviceRunner", Session)
    return Session


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


async def ends_of(runs: Runner, stop_at: Target | None = None) -> dict[Target, Done | Failed]:
    """How each device ended; stopped where that one is planned."""
    found: dict[Target, Done | Failed] = {}
    stops: list[asyncio.Task[None]] = []

    def take(target: Target, event: Event) -> None:
        if isinstance(event, Done | Failed):
            assert target not in found, "a device ends once"
            found[target] = event
        if isinstance(event, Planned) and target is stop_at:
            stops.append(asyncio.create_task(runs.stop()))

    async with asyncio.timeout(100):
        await runs.follow(take)
        await asyncio.gather(*stops)
    return found


def result_of(end: Done | Failed) -> Result:
    assert isinstance(end, Done), end
    return end.result


async def test_workers_run_a_soak_for_each_part(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, worker())
    requests = [Request(each, "bfloat16", None, 1.5, python, "pairs") for each in GPUS]
    found = await ends_of(Runner(Run(requests)))
    results = [result_of(end) for end in found.values()]
    assert [each.kind for each in results] == ["pairs", "pairs"]
    assert [[row.series for row in each.points] for each in results] == 2 * [["alone", "together"]]


async def test_each_alone_and_then_all_at_once(measured: type[Measured]) -> None:
    found = await ends_of(Runner(Run(asked(*GPUS))))
    assert [(each.target.number, waits) for each, waits in measured.opened] == [
        ("0", False),
        ("1", False),
        ("0", True),
        ("1", True),
    ]
    assert {(each.kind, each.seconds) for each, _ in measured.opened} == {("soak", 10.0)}
    assert [each.size for each, _ in measured.opened] == [None, None, 8192, 8192]
    first, second = (result_of(found[target]) for target in GPUS)
    assert [(p.series, p.x, p.values["tflops"]) for p in first.points] == [
        ("alone", 1, 700.0),
        ("together", 2, 630.0),
    ]
    assert (first.kind, first.tflops_mean, first.tflops_peak) == ("pairs", 630.0, 700.0)
    assert score(first) == 630.0
    assert rates_of_pair(first.points)[2] == pytest.approx(10.0)
    assert rates_of_pair(second.points)[2] == pytest.approx(20.0)
    assert first.notes == ("running together costs 10.0 % of 700 TFLOP/s",)
    assert (first.iterations, first.checks) == (2 * RESULT.iterations, 2 * RESULT.checks)


async def test_a_fault_alone_is_kept_and_the_device_left_out(measured: type[Measured]) -> None:
    measured.changes["1", False] = {"wrong_elements": 3}
    three = target_choice.targets(inventory(3), sample(3))[:3]
    found = await ends_of(Runner(Run(asked(*three))))
    assert result_of(found[three[1]]).wrong_elements == 3
    assert "not run together" in result_of(found[three[1]]).notes[0]
    assert rates_of_pair(result_of(found[three[1]]).points)[2] is None
    assert rates_of_pair(result_of(found[three[2]]).points)[2] == 0.0
    assert [each.target.number for each, waits in measured.opened if waits] == ["0", "2"]


@pytest.mark.parametrize("end", [{"stopped": "limit"}, Failed(Problem("W", "y", "R"), 3)])
async def test_nobody_runs_together_with_nobody(
    measured: type[Measured], end: dict[str, Any] | Failed
) -> None:
    measured.changes["0", False] = end
    found = await ends_of(Runner(Run(asked(*GPUS))))
    assert not any(waits for _, waits in measured.opened)
    assert isinstance(found[GPUS[0]], Failed) == isinstance(end, Failed)
    left = result_of(found[GPUS[1]])
    assert left.notes == ("not run together: no other device was left",)
    assert (left.stopped, [point.series for point in left.points]) == ("time", ["alone"])


async def test_a_stop_begins_nothing_more(measured: type[Measured]) -> None:
    measured.changes["0", False] = {"stopped": "user"}
    found = await ends_of(Runner(Run(asked(*GPUS))), stop_at=GPUS[0])
    assert len(measured.opened) == 1
    assert result_of(found[GPUS[0]]).stopped == "user"
    other = found[GPUS[1]]
    assert isinstance(other, Failed)
    assert other.status == 130


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        (asked(CPU), f"pairs needs two devices, but {CPU.label} is the only device"),
        (asked(*GPUS, seconds=1.0), "--seconds 1.5"),
        (asked(*GPUS), "None"),
    ],
)
def test_what_cannot_be_paired(requests: list[Request], says: str) -> None:
    assert says in str(check_together(requests))


@pytest.mark.parametrize(
    ("alone", "together", "bad"),
    [
        ({"clock_event_seconds": {"sw_thermal": 60.0}}, {}, ["throttling"]),
        ({}, {"clock_event_seconds": {"sw_thermal": 5.5}}, ["throttling"]),
        ({}, {"clock_event_seconds": {"sw_thermal": 2.5}}, []),
        ({"memory_errors": {"ecc_uncorrected": (0.0, 2.0)}}, {}, ["memory"]),
        ({}, {"memory_errors": {"ecc_uncorrected": (0.0, 2.0)}}, ["memory"]),
        ({"other_load": ("9 (ada: train)",)}, {"clock_event_seconds": {"sw_power_cap": 60.0}}, []),
    ],
)
def test_what_happened_in_either_run_counts(
    alone: dict[str, Any], together: dict[str, Any], bad: list[str]
) -> None:
    known = Conditions(clock_events_known=True)
    first, second = (
        dataclasses.replace(RESULT, seconds=60.0, conditions=dataclasses.replace(known, **each))
        for each in (alone, together)
    )
    joined = join_results(first, second, 2)
    assert [part.name for part in judge(joined, ()).bad] == bad
    assert joined.known_conditions.other_load == alone.get("other_load", ())
