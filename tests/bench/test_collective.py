"""`collective`: what its rows say, how ranks find what is wrong, and what ends all of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Failed, Hello
from gputop.bench.plan.request import Request, Target, check_together, cpu_ranks
from gputop.bench.plan.target_choice import targets, with_peers
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner
from gputop.bench.worker import collective
from gputop.commands import bench as command
from tests.bench.commands import parsed, ran
from tests.bench.forked import load_torch
from tests.bench.machines import divided, seen
from tests.bench.test_peers import GPUS
from tests.bench.workers import CPU, broken_worker, fake_interpreter, needs_torch
from tests.sessions import EVENTS, EndlessSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from gputop.bench.run.device_run import DeviceRun

SERIES = (collective.ALL_REDUCE, collective.ALL_GATHER, collective.REDUCE_SCATTER)


def asked(*targets: Target, seconds: float = 30.0, python: str | None = None) -> list[Request]:
    return [Request(each, "float32", None, seconds, python, "collective") for each in targets]


@pytest.mark.parametrize(
    ("series", "ranks", "factor"),
    [("all-reduce", 2, 1.0), ("all-reduce", 8, 1.75), ("all-gather", 8, 0.875)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(series: str, ranks: int, factor: float) -> None:
    assert collective.bus_factor(series, ranks) == factor


def test_of_few_times_the_99th_percentile_is_the_longest() -> None:
    assert collective.percentile_99([2.0, 3.0, 1.0]) == 3.0
    assert collective.percentile_99([float(n) for n in range(1, 201)]) == 198.0


class Together:
    """A torch.distributed of one process, which knows what the other ranks have."""

    def __init__(self, rank: int, count: int, fault: Callable[[Any], object]) -> None:
        self.rank, self.count, self.fault = rank, count, fault

    def all_reduce(self, full: Any) -> None:
        full.sub_(self.rank).mul_(self.count).add_(self.count * (self.count - 1) // 2)
        self.fault(full)

    def all_gather_into_tensor(self, full: Any, part: Any) -> None:
        for rank, own in enumerate(full.view(self.count, -1)):
            places = range(rank * len(part), (rank + 1) * len(part))
            own.copy_(own.new_tensor([place % 97 + rank for place in places]))
        full.view(self.count, -1)[self.rank].copy_(part)
        self.fault(full)

    def reduce_scatter_tensor(self, part: Any, full: Any) -> None:
        self.all_reduce(full)
        part.copy_(full.view(self.count, -1)[self.rank])
        self.fault(part)


def nothing(_: Any) -> None:
    """No fault."""


def one_more(result: Any) -> None:
    result[7] += 1


def shifted(result: Any) -> None:
    result.copy_(result.roll(1))


@needs_torch
@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(
    ("fault", "least"), [(nothing, 0), (one_more, 1), (shifted, 80)], ids=["none", "one", "shifted"]
)
def test_sums_are_compared_exactly(series: str, fault: Callable[[Any], object], least: int) -> None:
    for rank, count in ((0, 2), (2, 3)):
        device: Any = SimpleNamespace(torch=load_torch(), place="cpu")
        ranks: Any = SimpleNamespace(rank=rank, count=count, dist=Together(rank, count, fault))
        message = collective.Message(device, ranks, 1000)
        assert message.bytes == 1000 // (4 * count) * 4 * count
        wrong = message.wrong(series, message.operations[series])
        assert (wrong == 0) is (fault is nothing)
        assert wrong >= least


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        (GPUS[:2], None),
        (cpu_ranks(2), None),
        (GPUS[:1], "GPU 0, .* is the only device"),
        ((GPUS[0], CPU), "between whole GPUs"),
        ([each for each in targets(divided(), seen()) if each.parent_uuid], "between whole GPUs"),
    ],
)
def test_who_can_be_ranks(ranks: Sequence[Target], says: str | None) -> None:
    problem = check_together(asked(*ranks))
    assert (problem is None) is (says is None)
    if problem is not None and says is not None:
        assert re.search(says, problem.why)
        assert "--ranks 4" in problem.remedy


def test_the_cpu_becomes_as_many_ranks_as_are_asked_for() -> None:
    requests = command._requests(parsed("collective", "--ranks", "3"), [CPU])
    assert [each.target.index for each in requests] == [0, 1, 2]


async def ends_of(
    requests: list[Request], make: Any = None
) -> tuple[dict[Target, Done | Failed], list[int]]:
    """How each rank ended, and the workers' pids."""
    ends: dict[Target, Done | Failed] = {}
    pids: list[int] = []

    def take(target: Target, event: Event) -> None:
        if isinstance(event, Hello):
            pids.append(event.pid)
        if isinstance(event, Done | Failed):
            assert target not in ends, "a rank ends once"
            ends[target] = event

    async with asyncio.timeout(100):
        await Runner(Run(with_peers(requests)), make).follow(take)
    return ends, pids


class Rank(EndlessSession):
    """A rank that runs until it is stopped, unless it ends by itself."""

    by_itself: Mapping[str, Done | Failed]
    stuck: Collection[str] = ()

    def __init__(self, request: Request, device: DeviceRun, *, waits: bool = False) -> None:
        super().__init__(request, device, waits=waits)
        self.number = request.target.number or ""
        self.was_stuck = self.number in self.stuck

    async def events(self) -> AsyncGenerator[Any]:
        if self.number not in self.by_itself:
            async for event in super().events():
                yield event
            return
        yield EVENTS[0]
        yield self.by_itself[self.number]


BROKEN = Failed(Problem("It broke", "it did", "Mend it"), 1)


@pytest.mark.parametrize(
    ("stuck", "says"),
    [
        (set(), f"{GPUS[1].label}: it did"),
        ({"1"}, f"{GPUS[1].label}: it did"),
        ({"2"}, f"{GPUS[2].label}: it does not answer any more"),
    ],
)
async def test_what_one_rank_fails_by_is_the_end_of_all(stuck: Collection[str], says: str) -> None:
    made = type("Made", (Rank,), {"by_itself": {"1": BROKEN}, "stuck": stuck, "requests": []})
    ends, _ = await ends_of(asked(*GPUS), make=made)
    (end,) = set(ends.values())
    assert end == Failed(Problem("It broke", says, "Mend it"), 1)
    assert list(ends) == list(dict.fromkeys(ends)), "each is told"


QUICK = """
import os, signal
collective.SIZES, collective.ROW_SECONDS = (1 << 10, 1 << 14), 0.1
send = main.WorkerRun.send
"""
AT_A_CHECK = """
def failing(self, event):
    send(self, event)
    if isinstance(event, main.Verified) and self.request.rank == 1:
        os.kill(os.getpid(), signal.{signal})
main.WorkerRun.send = failing
"""
"""Rank 1 ends, or stops, where it has told of its first check."""
IMPATIENT = "main.HANG_SECONDS = 5.0\n"


def python_of(folder: Path, fault: str = "") -> str:
    return fake_interpreter(folder, broken_worker(QUICK + fault))


@pytest.mark.slow
@needs_torch
def test_four_ranks_of_a_cpu(tmp_path: Path) -> None:
    done = ran(
        *("collective", "--device", "cpu", "--ranks", "4", "--seconds", "30", "--json"),
        *("--python", python_of(tmp_path)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = json.loads(done.stdout)
    assert [each["points"] for each in others] == [first["points"]] * 3
    assert {(each["wrong_elements"], each["checks"]) for each in (first, *others)} == {(0, 6)}
    rows = [(row["series"], row["x"]) for row in first["points"]]
    assert rows == [(series, size) for size in (1 << 10, 1 << 14) for series in SERIES]
    for row in first["points"]:
        values, factor = row["values"], collective.bus_factor(row["series"], 4)
        rate = row["x"] / values["seconds"]
        assert values["algorithm_bytes_per_second"] == pytest.approx(rate)
        assert values["bytes_per_second"] == pytest.approx(factor * rate)
        assert values["p99_seconds"] > 0
        assert values["wrong"] == 0


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (AT_A_CHECK.format(signal="SIGKILL"), "it was ended by SIGKILL"),
        (AT_A_CHECK.format(signal="SIGSTOP") + IMPATIENT, "it does not answer any more"),
    ],
    ids=["killed", "stopped"],
)
async def test_a_rank_that_is_gone_ends_all(tmp_path: Path, fault: str, says: str) -> None:
    ranks = cpu_ranks(3)
    ends, pids = await ends_of(asked(*ranks, python=python_of(tmp_path, fault)))
    (end,) = set(ends.values())
    assert isinstance(end, Failed)
    assert end.problem.why == f"{ranks[1].label}: {says}"
    assert len(ends) == len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
