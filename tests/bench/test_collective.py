import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Failed
from gputop.bench.plan.request import Request, Target, check_together, cpu_ranks
from gputop.bench.plan.target_choice import targets, with_peers
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner
from gputop.bench.worker import collective
from gputop.commands import bench as command
from tests.bench.commands import parsed
from tests.bench.cuda import together
from tests.bench.forked import load_torch
from tests.bench.machines import divided, seen
from tests.bench.test_group import ends as ends_of
from tests.bench.test_peers import GPUS
from tests.bench.workers import CPU, broken_worker, fake_interpreter, needs_torch
from tests.sessions import EVENTS, EndlessSession

SERIES = (collective.ALL_REDUCE, collective.ALL_GATHER, collective.REDUCE_SCATTER)


def asked(*targets: Target, seconds: float = 30.0, python: str | None = None) -> list[Request]:
    return [Request(each, "float32", None, seconds, python, "collective") for each in targets]


@pytest.mark.parametrize(
    ("series", "ranks", "factor"),
    [("all-reduce", 2, 1.0), ("all-reduce", 8, 1.75), ("all-gather", 8, 0.875)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(series: str, ranks: int, factor: float) -> None:
    assert collective.bus_factor(series, ranks) == factor


def test_the_interface_is_that_by_which_a_host_is_reached() -> None:
    assert collective.interface_to("127.0.0.1") == "lo"
    assert collective.interface_to("no.such.host.invalid") == ""


def test_of_few_times_the_99th_percentile_is_the_longest() -> None:
    assert collective.percentile_99([2.0, 3.0, 1.0]) == 3.0
    assert collective.percentile_99([float(n) for n in range(1, 201)]) == 198.0


@needs_torch
@pytest.mark.parametrize("nodes", [True, False])
def test_ranks_meet_at_the_first_or_by_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, nodes: bool
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "e" * 99)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    begun: list[Any] = []
    real = load_torch().distributed
    dist: Any = SimpleNamespace(TCPStore=real.TCPStore, FileStore=real.FileStore)
    dist.init_process_group = lambda *group: begun.append(group)
    device = SimpleNamespace(torch=SimpleNamespace(distributed=dist), place="cpu")
    meeting = str(tmp_path / "meeting")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        if nodes:
            meeting = f"127.0.0.1:{probe.getsockname()[1]}"

    def join(rank: int) -> Any:
        request = SimpleNamespace(rank=rank, ranks=2, rendezvous=meeting)
        run: Any = SimpleNamespace(request=request, notes=[])
        ranks = collective.Ranks(device, run)
        found = run.notes, ranks.agree(rank, 0.5), ranks.agree(rank)
        assert ranks.store.timeout.total_seconds() == 600
        ranks.leave()
        return found

    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(join, (1, 0))]
    notes = [f"set: NCCL_SOCKET_IFNAME={'e' * 80}"] if nodes else []
    assert found == [(notes, [[0, 0.5], [1, 0.5]], [[0], [1]])] * 2
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert os.environ["NCCL_SOCKET_IFNAME"] == ("e" * 99 if nodes else "lo")
    assert {each[-2] for each in begun} == {0, 1}


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


def one_more(result: Any) -> None:
    result[7] += 1


def shifted(result: Any) -> None:
    result.copy_(result.roll(1))


@needs_torch
@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(
    ("fault", "least"),
    [(lambda _: None, 0), (one_more, 1), (shifted, 80)],
    ids=["none", "one", "shifted"],
)
def test_sums_are_compared_exactly(series: str, fault: Callable[[Any], object], least: int) -> None:
    for rank, count in ((0, 2), (2, 3)):
        device: Any = SimpleNamespace(torch=load_torch(), place="cpu")
        ranks: Any = SimpleNamespace(rank=rank, count=count, dist=Together(rank, count, fault))
        message = collective.Message(device, ranks, 1000)
        assert message.bytes == 1000 // (4 * count) * 4 * count
        wrong = message.wrong(series, message.operations[series])
        assert (wrong == 0) is (least == 0)
        assert wrong >= least
        assert message.wrong(series, lambda: None) > 0, "the sums of before do not count"


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
    asks = parsed("collective", "--ranks", "2")
    command._refuse_misuse(asks)
    assert [each.target.index for each in command._requests(asks, [CPU])] == [0, 1]


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
    ends = await ends_of(Runner(Run(with_peers(asked(*GPUS))), made))
    expected = Failed(Problem("It broke", says, "Mend it"), 1)
    assert ends == dict.fromkeys(GPUS, expected), "each is told"


FEW_SIZES = "collective.SIZES, collective.ROW_SECONDS = (1 << 10, 1 << 17, 1 << 25), 0.1\n"


@needs_torch
async def test_rows_of_two_ranks(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, broken_worker(FEW_SIZES))
    first, second = await together(asked(*cpu_ranks(2), python=python))
    assert [(row.series, row.x) for row in first.rows] == [
        (series, size) for size in (1 << 10, 1 << 17) for series in SERIES
    ]
    assert first.rows == second.rows
    for row in first.rows:
        assert row.values["p99_seconds"] >= 0.5 * row.values["seconds"] > 0
        assert row.values["wrong"] == 0
    assert first.plan.layout == "2 ranks, gloo"
    assert first.plan.method.endswith("; 1 thread")
    for each in (first, second):
        assert each.plan.rows == each.result.checks == len(first.rows)
        assert (each.result.stopped, each.result.wrong_elements) == ("time", 0)
        assert each.result.notes == ()
