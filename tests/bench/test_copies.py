"""`copy`: on a CPU, and between GPUs: who makes a copy, what is compared, whose turn it is."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.bench.events import Point
from gputop.bench.results.tables import pair_tables
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import backends, copies, copy_paths, rows
from tests.bench.forked import load_torch
from tests.bench.workers import RecordedRun, needs_torch, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = needs_torch

MIB, FREE_BYTES = 1 << 20, 1 << 30
COPIES: list[tuple[int, int]] = []
"""Bytes and stream of each copy of the driver."""
COPYING: list[FakeTorch] = []
"""Those that have chosen a stream, the last one at the end."""


class FakeTorch:
    """torch, with GPUs whose memories are the host's; the names of the devices are kept."""

    def __init__(self, torch: Any, free: Callable[[int], int], *, access: bool) -> None:
        self._torch, self.stream = torch, 0
        self.made_on: list[str] = []
        self.cuda = SimpleNamespace(
            Stream=FakeStream,
            stream=self._using,
            synchronize=lambda *_: None,
            can_device_access_peer=lambda *_: access,
            mem_get_info=lambda number: (free(number), FREE_BYTES),
            _sleep=lambda _: None,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def arange(self, *numbers: int, device: str, **options: Any) -> Any:
        self.made_on.append(device)
        return self._torch.arange(*numbers, **options)

    def randint(self, *numbers: Any, device: str) -> Any:
        return self._torch.randint(*numbers)

    def empty(self, *sides: Any, device: str, **options: Any) -> Any:
        return self._torch.empty(*sides, **options)

    @contextlib.contextmanager
    def _using(self, stream: FakeStream) -> Iterator[None]:
        before, self.stream = self.stream, stream.cuda_stream
        COPYING.append(self)
        yield
        COPYING.pop()
        self.stream = before


class FakeStream:
    """A stream, whose handle is its GPU's number and 100."""

    def __init__(self, device: str) -> None:
        self.cuda_stream = 100 + int(device.removeprefix("cuda:"))

    def wait_stream(self, other: FakeStream) -> None:
        assert other is not self


class Gpu(backends.Cpu):
    def free_bytes(self) -> int:
        return FREE_BYTES


def gpu(free: Callable[[int], int] = lambda _: FREE_BYTES, *, access: bool = True) -> Any:
    made: Any = Gpu(load_torch(), threading.Event())
    made.torch, made.place = FakeTorch(load_torch(), free, access=access), "cuda"
    return made


def driver_copy(to: int, source: int, size: int, stream: int) -> None:
    """What the driver does, at once."""
    assert stream == COPYING[-1].stream, "its GPU is the current one"
    COPIES.append((size, stream))
    ctypes.memmove(to, source, size)


@pytest.fixture(autouse=True)
def _gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has GPUs, and torch gets back what it had."""
    COPIES.clear()
    torch = load_torch()
    monkeypatch.setattr(copy_paths, "driver_copy", lambda: driver_copy)
    monkeypatch.setattr(copies, "DEVICE_SIZES", (1 << 16, MIB))
    monkeypatch.setattr(rows, "LEAST_BLOCKS", 1)
    monkeypatch.setattr(rows, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(rows, "REPEATABLE", math.inf)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)


def run_of(folder: Path, seconds: float = 60.0) -> RecordedRun:
    lock = folder / "lock"
    lock.touch()
    run = RecordedRun(worker_request(request(seconds=seconds, kind="copy")))
    peers = ("GPU 0", "GPU 1")
    run.request = replace(run.request, label="GPU 2", peers=peers, turns=3, rendezvous=str(lock))
    return run


def points_of(run: RecordedRun) -> list[dict[str, Any]]:
    return [each for each in run.sent if each["event"] == "point"]


def test_on_a_cpu_one_thread_and_all_copy_what_is_read_and_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "HOST_SIZES", (1 << 16, MIB))
    run = RecordedRun(worker_request(request(seconds=60.0, kind="copy")))
    copies.copy(backends.Cpu(load_torch(), threading.Event()), run)
    points = points_of(run)
    assert {point["x"] for point in points} == {1 << 16, MIB}
    assert points[0]["series"] == "host, 1 thread"
    for point in points:
        rate = 2 * point["x"] / point["values"]["seconds"]
        assert point["values"]["bytes_per_second"] == pytest.approx(rate)
    assert run.totals.wrong == 0
    assert run.totals.verified == len(points) == run.sent[0]["rows"]


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
    path = copy_paths.PairPath(copy_paths.Pair(device, 3, MIB), way, copy_paths.PAIR_WAYS[way])
    assert device.torch.made_on == [f"cuda:{3 * end}" for to in (1, 0) for end in (1 - to, to)]
    path.clear()
    assert path.wrong() >= len(receivers) * (MIB // 8 - 1), "the word of number 0 is 0"
    path.copy(1)
    assert [(MIB, stream) for stream in streams] == COPIES
    assert path.counted == len(receivers)
    assert path.wrong() == 0
    for _, received, source, _ in path.transfers:
        assert (received == source).all()
    device.torch.made_on.clear()
    path.transfers[0][1][77] ^= 1
    assert path.wrong() == 1
    places = [f"cuda:{3 * to}" for to in receivers]
    assert device.torch.made_on == places, "what is expected did not come over the link"


@pytest.mark.parametrize("access", [True, False])
def test_rows_of_every_other_gpu(tmp_path: Path, *, access: bool) -> None:
    run = run_of(tmp_path)
    copies.copy(gpu(access=access), run)
    points = points_of(run)
    assert run.sent[0]["rows"] == 5 * 2 + 2 * 4
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


def test_a_wrong_word_between_two_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(to: int, source: int, size: int, stream: int) -> None:
        driver_copy(to, source, size, stream)
        ctypes.c_uint8.from_address(to + 9).value ^= 4

    monkeypatch.setattr(copy_paths, "driver_copy", lambda: broken)
    run = run_of(tmp_path)
    copies.copy(gpu(), run)
    assert run.totals.wrong == 2 * 5, "one for each receiver, and in small copies"


def test_one_copies_between_gpus_at_a_time_and_after_all_others(tmp_path: Path) -> None:
    run = run_of(tmp_path)
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


def test_peers_that_there_was_no_time_for_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def late(rows: Any, way: Any, *_: Any) -> None:
        measured.append(way.series)
        rows.until = 0.0

    monkeypatch.setattr(copies, "_copy_alone", lambda *_: None)
    monkeypatch.setattr(copies, "_row", late)
    run = run_of(tmp_path, seconds=5.0)
    copies.copy(gpu(), run)
    assert measured == [f"GPU 2: {way} GPU 0" for way in copy_paths.PAIR_WAYS], "all of one peer"
    *_, note = run.notes
    assert note == "GPU 1: copies not measured, the time was up: give --seconds 12 or more"


BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"


@pytest.mark.parametrize(
    ("free", "why", "expected"),
    [
        (RuntimeError(f"{BUSY}\nand advice"), BUSY, 4),
        (MemoryError("no room"), "no room", 4),
        (MIB // 8, "0.0312 MiB may be used for each", 8),
    ],
)
def test_a_peer_that_cannot_be_used_is_named_and_costs_no_other_row(
    tmp_path: Path, free: int | Exception, why: str, expected: int
) -> None:
    run = run_of(tmp_path)

    def free_of(number: int) -> int:
        if number == 1 and isinstance(free, Exception):
            raise free
        return free if number == 1 and isinstance(free, int) else FREE_BYTES

    copies.copy(gpu(free_of), run)
    assert f"GPU 0: copies not measured, {why}" in run.notes
    assert "GPU 1: peer access" in run.notes
    assert run.sent[0]["rows"] == 5 * 2 + expected
    series = [each["series"] for each in points_of(run)]
    assert len(series) == 5 * 2 + 3
    assert sum(each.endswith("GPU 1") for each in series) == 3
