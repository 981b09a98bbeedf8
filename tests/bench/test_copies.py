import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.bench.events import Point
from gputop.bench.results.tables import pair_tables, table
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import backends, copies, copy_paths, rows
from tests.bench.cuda import Runs
from tests.bench.forked import load_torch
from tests.bench.test_cuda_kinds import LITTLE
from tests.bench.workers import QUICK, RecordedRun, needs_torch, request
from tests.fake_cuda.settings import Fault

pytestmark = needs_torch

MIB = 1 << 20


WRONG_WORD = """
wrong = copy_paths.PairPath.wrong
def flipped(self):
    self._pair.synchronize()
    self.transfers[-1][1][1] ^= 4
    return wrong(self)
copy_paths.PairPath.wrong = flipped
"""
LATE = """
def late(rows, way, *arguments):
    row(rows, way, *arguments)
    rows.until = 0.0
row = copies._row
copies._copy_alone, copies._row = lambda *_: None, late
copies.reachable_peers = lambda *_: {1: "GPU 1", 2: "GPU 2"}
"""
NO_ROOM = """
alone = copies._copy_alone
def then(*arguments):
    alone(*arguments)
    copies.DEVICE_SIZES = (1 << 40,)
copies._copy_alone = then
"""
NO_CONTEXT = Fault("context", device=1, message="CUDA error: busy or unavailable\nand advice")


@pytest.mark.parametrize(
    ("fault", "faults", "wrong", "note"),
    [
        (WRONG_WORD, (), 4, "peer access"),
        (LATE, (), 0, "GPU 2: copies not measured, the time was up: give --seconds 8 or more"),
        (NO_ROOM, (), 0, "MiB may be used for each"),
        ("", (NO_CONTEXT,), 0, "copies not measured, CUDA error: busy or unavailable"),
    ],
)
async def test_what_goes_wrong_between_two_is_counted_or_named(
    runs: Runs, fault: str, faults: tuple[Fault, ...], wrong: int, note: str
) -> None:
    machine = replace(LITTLE, faults=faults)
    for heard in await runs.together("copy", 2, 20.0, settings=machine, fault=QUICK + fault):
        assert heard.result.wrong_elements == wrong
        assert note in heard.result.notes[-1]


@pytest.mark.slow
async def test_a_link_that_kills_a_gpu_is_a_fault(runs: Runs) -> None:
    machine = replace(LITTLE, faults=(Fault("peer copy", "die"),))
    ends = await runs.together("copy", 2, 4.0, settings=machine, fault=QUICK)
    assert 1 in [getattr(heard.last, "status", 0) for heard in ends]


def test_a_copy_that_does_not_arrive_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, run = load_torch(), RecordedRun(worker_request(request(seconds=0.1, kind="copy")))
    device = backends.Cpu(torch, threading.Event())
    source = copies.random_words(torch, MIB)
    assert len(source.unique()) == len(source) == MIB // 8
    way = copy_paths.CopyPath("", torch.empty_like(source), source, device.timed, 1)
    table = rows.Rows(device, run, 1)
    copies._row(table, way, MIB, {})
    assert (run.totals.wrong, run.totals.verified) == (0, 1)
    monkeypatch.setattr(way, "copy", lambda _: None)
    copies._row(table, way, MIB, {})
    assert run.totals.wrong == len(source)


def test_copies_between_gpus_have_a_part_of_the_run() -> None:
    def seconds(whole: float, peers: int, turns: int) -> float:
        run: Any = SimpleNamespace(request=SimpleNamespace(seconds=whole, turns=turns))
        return copies.seconds_between(run, peers)

    assert [seconds(60.0, 0, 2), seconds(60.0, 1, 2), seconds(8.0, 1, 2)] == [0.0, 15.0, 3.0]
    assert [seconds(60.0, 7, 8), seconds(2.0, 1, 2)] == [45.0, 1.5], "at most three quarters"


def test_one_copies_between_gpus_at_a_time_and_after_all_others(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    run: Any = SimpleNamespace(request=SimpleNamespace(rendezvous=str(lock)))
    first, second = copies.share_lock(run), copies.share_lock(run)
    alone = threading.Event()

    def wait() -> None:
        first()
        alone.set()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert not alone.wait(0.05), "the second one still copies by itself"
    os.close(second.args[0])  # type: ignore[attr-defined] # what the end of a process does
    assert alone.wait(10)
    os.close(first.args[0])  # type: ignore[attr-defined]
    waiting.join()


def test_several_have_a_matrix_for_each_direction() -> None:
    points = []
    for number, rate in ((0, 4e11), (1, 3e11)):  # and GPU 2 has failed
        for peer in {0, 1, 2} - {number}:
            values = {"bytes_per_second": rate + peer * 1e9, "spread_percent": 0.2}
            further = values | {"latency_seconds": 3e-6}
            points.append(Point(f"GPU {number}: write to GPU {peer}", 1 << 28, further))
            points.append(Point(f"GPU {number}: read from GPU {peer}", 1 << 28, values))
    sizes = table("copy", [*points, replace(points[0], x=MIB)]).lines[0]
    assert sizes == ["GB/s", "1.00 MiB", "256 MiB", "latency", "±"]
    write, latency, read = pair_tables(points)
    assert write.lines == [
        ["write to, GB/s", "GPU 0", "GPU 1", "GPU 2"],
        ["GPU 0", "–", "401", "402"],
        ["GPU 1", "300", "–", "302"],
    ]
    assert latency.lines[1] == ["GPU 0", "–", "3 µs", "3 µs"]
    assert read.lines[0][0] == "read from, GB/s"
    assert pair_tables([Point("device to device", MIB, {"bytes_per_second": 2e12})]) == []


def test_sizes_that_the_host_does_not_hold_are_left_out_and_noted() -> None:
    run: Any = SimpleNamespace(request=SimpleNamespace(host_bytes=2 << 30), notes=[])
    assert copies.fitting_host([MIB, 1 << 28, 1 << 30], run) == [MIB, 1 << 28]
    (note,) = run.notes
    assert note.startswith("no copies of 1024 MiB and more: they take 4 times as much")
