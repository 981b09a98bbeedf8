"""`copy` between GPUs: who makes each copy, what is compared, whose turn it is, and the matrix."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.bench.events import Point
from gputop.bench.results.outliers import DeviceOutcome
from gputop.bench.results.tables import pair_tables
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import backends, copies, copy_paths, rows
from tests.bench import gpus
from tests.bench.forked import load_torch
from tests.bench.pages import devices_text
from tests.bench.workers import RecordedRun, needs_torch, request
from tests.sessions import RESULT

MIB = 1 << 20


def gpu(**options: Any) -> Any:
    return gpus.on_gpus(backends.Cpu, load_torch(), threading.Event(), **options)


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has GPUs, and torch gets back what it had."""
    gpus.COPIES.clear()
    monkeypatch.setattr(copy_paths, "driver_copy", lambda: gpus.copy)
    monkeypatch.setattr(copies, "DEVICE_SIZES", (1 << 16, MIB))
    monkeypatch.setattr(rows, "LEAST_BLOCKS", 1)
    monkeypatch.setattr(rows, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(rows, "REPEATABLE", math.inf)
    if devices_have_torch():
        torch = load_torch()
        changed = (
            (torch.Tensor, "cuda"),
            (torch.Tensor, "pin_memory"),
            (torch.cuda, "get_device_name"),
        )
        for where, name in changed:
            monkeypatch.setattr(where, name, getattr(where, name))


def devices_have_torch() -> bool:
    return not needs_torch.args[0]


def path_of(device: Any, way: str, peer: int = 1) -> copy_paths.PairPath:
    return copy_paths.PairPath(copy_paths.Pair(device, peer, MIB), way, copy_paths.PAIR_WAYS[way])


@needs_torch
@pytest.mark.parametrize(
    ("way", "streams", "receivers"),
    [
        ("write to", [100], [1]),
        ("read from", [100], [0]),
        ("both directions with", [100, 103], [1, 0]),
    ],
)
def test_who_makes_a_copy_and_who_has_it_then(
    way: str, streams: list[int], receivers: list[int]
) -> None:
    device = gpu()
    path = path_of(device, way, 3)
    assert device.torch.made_on == [f"cuda:{3 * end}" for to in (1, 0) for end in (1 - to, to)]
    path.clear()
    assert path.wrong() >= len(receivers) * (MIB // 8 - 1), "the word of number 0 is 0"
    path.copy(1)
    assert [(MIB, stream) for stream in streams] == gpus.COPIES
    assert path.counted == len(receivers)
    assert path.wrong() == 0
    for _, received, source, _ in path.transfers:
        assert (received == source).all()


@needs_torch
def test_what_is_expected_did_not_come_over_the_link() -> None:
    """A link that always gives the same wrong words gives them when they are compared, too."""
    device = gpu()
    path = path_of(device, "write to")
    path.copy(1)
    path.transfers[0][1][77] ^= 1
    device.torch.made_on.clear()
    assert path.wrong() == 1
    assert device.torch.made_on == ["cuda:1"], "where it was received"


def run_of(lock: Path, seconds: float = 60.0) -> RecordedRun:
    lock.touch()
    run = RecordedRun(worker_request(request(seconds=seconds, kind="copy")))
    peers = ("GPU 0", "GPU 1")
    run.request = replace(run.request, label="GPU 2", peers=peers, turns=3, rendezvous=str(lock))
    return run


@needs_torch
@pytest.mark.parametrize("access", [True, False])
def test_rows_of_every_other_gpu(tmp_path: Path, *, access: bool) -> None:
    run = run_of(tmp_path / "lock")
    copies.copy(gpu(access=access), run)
    plan, *events = run.sent
    points = [each for each in events if each["event"] == "point"]
    assert plan["rows"] == 5 * 2 + 2 * 4
    assert len(points) == 5 * 2 + 2 * 3, run.notes
    between = {each["series"]: each for each in points if each["series"].startswith("GPU 2: ")}
    assert list(between) == [
        f"GPU 2: {way} GPU {peer}"
        for peer in (0, 1)
        for way in ("write to", "read from", "both directions with")
    ]
    for series, point in between.items():
        values, directions = point["values"], 2 if "both" in series else 1
        rate = directions * MIB / values["seconds"]
        assert (point["x"], values["bytes_per_second"]) == (MIB, pytest.approx(rate))
        assert ("latency_seconds" in values) is ("write to" in series)
    assert run.totals.verified == run.totals.checks == len(points) + 2, "and the small copies"
    assert run.totals.wrong == 0
    how = "peer access" if access else "no peer access, by the host"
    assert run.notes == [f"GPU 0: {how}", f"GPU 1: {how}"]


@needs_torch
def test_a_wrong_word_between_two_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(to: int, source: int, size: int, stream: int) -> None:
        gpus.copy(to, source, size, stream)
        ctypes.c_uint8.from_address(to + 9).value ^= 4

    monkeypatch.setattr(copy_paths, "driver_copy", lambda: broken)
    run = run_of(tmp_path / "lock")
    copies.copy(gpu(), run)
    assert run.totals.wrong == 2 * 5, "one for each receiver, and in small copies"


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


def rows_of(number: int, rate: float) -> tuple[Point, ...]:
    """Its own copies, and those to the other two."""
    found = [Point("device to device", MIB, {"bytes_per_second": 2e12, "spread_percent": 0.1})]
    for peer in {0, 1, 2} - {number}:
        values = {"bytes_per_second": rate + peer * 1e9, "spread_percent": 0.2}
        way = f"GPU {number}: write to GPU {peer}"
        found += [
            Point(way, 1 << 28, {**values, "latency_seconds": 3e-6}),
            Point(way.replace("write to", "read from"), 1 << 28, values),
        ]
    return tuple(found)


def test_several_have_a_matrix_for_each_direction() -> None:
    points = [*rows_of(0, 4e11), *rows_of(1, 3e11)]  # and GPU 2 has failed
    write, latency, read = pair_tables(points)
    assert write.lines == [
        ["write to, GB/s", "GPU 0", "GPU 1", "GPU 2"],
        ["GPU 0", "–", "401", "402"],
        ["GPU 1", "300", "–", "302"],
    ]
    assert latency.lines[1] == ["GPU 0", "–", "3 µs", "3 µs"]
    assert read.lines[0][0] == "read from, GB/s"
    members = []
    for n in range(3):
        result = replace(RESULT, kind="copy", points=rows_of(n, 4e11), tflops_peak=None)
        members.append(DeviceOutcome("", None, f"GPU {n}", "GPU", result))
    assert "\n  write to, GB/s  GPU 0  GPU 1  GPU 2\n" in devices_text(members)
    assert pair_tables(rows_of(0, 4e11)[:1]) == []


def test_sizes_that_the_host_does_not_hold_are_left_out_and_noted() -> None:
    run: Any = SimpleNamespace(request=SimpleNamespace(host_bytes=2 << 30), notes=[])
    assert copies.fitting_host([MIB, 1 << 28, 1 << 30], run) == [MIB, 1 << 28]
    (note,) = run.notes
    assert note.startswith("no copies of 1024 MiB and more: they take 4 times as much")


@needs_torch
def test_peers_that_there_was_no_time_for_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def late(rows: Any, way: Any, *_: Any) -> None:
        measured.append(way.series)
        rows.until = 0.0

    monkeypatch.setattr(copies, "_copy_alone", lambda *_: None)
    monkeypatch.setattr(copies, "_row", late)
    run = run_of(tmp_path / "lock", seconds=5.0)
    copies.copy(gpu(), run)
    assert measured == [f"GPU 2: {way} GPU 0" for way in copy_paths.PAIR_WAYS], "all of one peer"
    *_, note = run.notes
    assert note == "GPU 1: copies not measured, the time was up: give --seconds 12 or more"


@needs_torch
def test_a_peer_without_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, run = gpu(), run_of(tmp_path / "lock")
    free = {1: MIB // 8}
    monkeypatch.setattr(
        made.torch.cuda,
        "mem_get_info",
        lambda number: (free.get(number, gpus.FREE_BYTES), gpus.FREE_BYTES),
    )
    copies.copy(made, run)
    assert run.notes[-1] == "GPU 0: copies not measured, 0.0312 MiB may be used for each"


BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"


@needs_torch
@pytest.mark.parametrize("error", [RuntimeError(f"{BUSY}\nand advice"), MemoryError("no room")])
def test_a_peer_without_a_context_costs_no_other_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    made, run = gpu(), run_of(tmp_path / "lock")

    def info(number: int) -> tuple[int, int]:
        if number == 1:
            raise error
        return gpus.FREE_BYTES, gpus.FREE_BYTES

    monkeypatch.setattr(made.torch.cuda, "mem_get_info", info)
    copies.copy(made, run)
    said = str(error).splitlines()[0]
    assert run.notes == [f"GPU 0: copies not measured, {said}", "GPU 1: peer access"]
    assert run.sent[0]["rows"] == 5 * 2 + 4
    series = [each["series"] for each in run.sent if each["event"] == "point"]
    assert len(series) == 5 * 2 + 3
    assert sum(each.endswith("GPU 1") for each in series) == 3
