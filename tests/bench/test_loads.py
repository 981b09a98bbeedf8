"""Loads that are not steady: pulses in phase, and products with copies beside them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import Request
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import burn, loads, throughput
from gputop.bench.worker import main as runs
from gputop.bench.worker import product as products
from gputop.bench.worker.needs import fixed_bytes
from tests.bench.test_worker import cpu, made
from tests.bench.workers import CPU, RecordedRun, needs_torch
from tests.runs import Clock

pytestmark = needs_torch


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def run_of(
    kind: str, seconds: float = 1.0, hertz: float = 2.0
) -> tuple[RecordedRun, list[dict[str, Any]]]:
    """A run in this process, and what it sends."""
    asked = Request(CPU, "float32", 128, seconds, kind=kind, hertz=hertz)
    run = RecordedRun(worker_request(asked))
    return run, run.sent


class Device:
    """A device whose products take some time of a clock; it keeps when they ran."""

    most_in_flight = 1
    place = "cpu"
    first_window = throughput.FIRST_WINDOW_SECONDS
    share_of_checks, least_interval = 0.01, 1e9

    def __init__(self, clock: Clock, product_seconds: float) -> None:
        self.clock, self.product_seconds = clock, product_seconds
        self.ended: list[throughput.EndedBatch] = []
        self.spans: list[tuple[float, float]] = []

    @property
    def in_flight(self) -> int:
        return len(self.ended)

    def launch(self, _: object, count: int, *, check: bool) -> None:
        assert not check
        began = self.clock.time
        self.clock.time += count * self.product_seconds
        self.spans.append((began, self.clock.time))
        self.ended.append(throughput.EndedBatch(count, began, self.clock.time))

    def poll(self) -> throughput.EndedBatch | None:
        return self.ended.pop() if self.ended else None

    def check(self, _: object) -> tuple[int, float]:
        return 0, 0.0


@pytest.mark.parametrize("frequency", [0.5, 20.0])
def test_the_load_is_a_square_wave(frequency: float, monkeypatch: pytest.MonkeyPatch) -> None:
    product = made(n=64)
    run, sent = run_of("pulse", hertz=frequency, seconds=4 / frequency)
    clock = Clock(1000.0)
    monkeypatch.setattr(time, "time", clock)
    monkeypatch.setattr(time, "perf_counter", clock)

    def wait(seconds: float) -> bool:
        clock.time += max(seconds, 1e-6)
        return False

    monkeypatch.setattr(run.halt, "wait", wait)
    device = Device(clock, 1e-4)
    totals = run.totals = throughput.SoakTotals(product.flop)
    totals.pulsed = True
    pace = throughput.Pace(device, 1e-4, 0.0)
    pace.batch_seconds /= loads.fineness(run.request)
    pace.pause = partial(loads.pause, frequency)
    loads.measure(device, run, product, pace)
    edges = [(began * frequency % 1.0, ended * frequency % 1.0) for began, ended in device.spans]
    assert all(began <= ended <= 0.5 + 1e-6 for began, ended in edges)
    seconds, count, busy = totals.now
    assert seconds == pytest.approx(4 / frequency, rel=0.06)
    assert 0.43 < busy / seconds <= 0.55
    assert busy == pytest.approx(count * 1e-4)
    full = product.flop / 1e-4 / 1e12
    assert totals.figures().tflops_mean == pytest.approx(full * busy / seconds)
    rates = [event["tflops"] for event in sent if event["event"] == "sample"]
    if frequency == 0.5:  # the windows show the edges
        assert sum(rate < 0.01 * full for rate in rates) > 0.4 * len(rates)
        assert sum(rate > 0.99 * full for rate in rates) > 0.4 * len(rates)
    if frequency == 20:  # or the mean
        assert all(0.3 * full < rate < 0.7 * full for rate in rates)


def ring(monkeypatch: pytest.MonkeyPatch) -> tuple[burn.Ring, runs.WorkerRun]:
    monkeypatch.setitem(burn.COPIED_BYTES, "cpu", 1 << 20)
    run, _ = run_of("burn")
    run.request = replace(run.request, free_bytes=fixed_bytes("cpu") + (8 << 20))
    product = made(n=192)
    product.keep_first()
    product.judge()
    return burn.Ring(product, cpu(), run), run


def operands(product: products.Product, times: int) -> list[int]:
    """Where the operands of so many products lie."""
    found = []
    for _ in range(times):
        product.multiply()
        found.append(product.a.data_ptr())
    return found


def test_the_ring_takes_operands_from_all_over_the_memory_it_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    product, run = ring(monkeypatch)
    count = int(run.notes[-1].split()[2])
    taken = operands(product, 2 * count)
    assert len(set(taken)) == count > 3
    assert taken[:count] == taken[count:]
    each = 2 * 192 * 192 * 4
    needed = products.bytes_needed(run.request, "float32", (192, 192, 192))
    left = (8 << 20) - needed - 2 * burn.COPIED_BYTES["cpu"]
    assert (count - 1) * each <= left < count * each
    assert cpu().compare(product) == 0


def test_every_kind_of_the_worker_is_offered() -> None:
    assert set(runs.KINDS) == set(KINDS) - {"check"}
