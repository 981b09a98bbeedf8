"""The burst: what a cold GPU does before it leaves its highest clock, within 100 products."""

from __future__ import annotations

import itertools
import sys

import pytest

from gputop.bench.events import Done, Progress
from gputop.bench.plan.request import Request
from gputop.bench.worker import throughput
from tests import fake_cuda
from tests.bench.test_kinds import heard
from tests.bench.test_peers import GPUS
from tests.bench.workers import needs_torch
from tests.fake_cuda.settings import Settings
from tests.sessions import Session

FLOP = 10**12
PRODUCT, BURST = 0.001, 0.06
"""Seconds of a product in the burst, and the seconds of work until it is over."""


def rate_at(busy: float) -> float:
    return 1.0 if busy < BURST else 0.8


def samples_of(*, device_time: bool, pulsed: bool = False) -> list[Progress]:
    """The samples of a run of 3 s, in batches of 10 ms, whose burst is 25 % faster."""
    totals = throughput.SoakTotals(FLOP // 1000)
    totals.pulsed = pulsed
    found, busy = [], 0.0
    while busy < 3.0:
        seconds = 10 * PRODUCT / rate_at(busy + 1e-9)
        busy += seconds
        sample = totals.add(10, seconds, seconds if device_time else None)
        if sample is not None:
            found.append(sample)
    return found


def test_the_first_windows_of_a_gpu_are_within_the_burst() -> None:
    samples = samples_of(device_time=True)
    lengths = [round(each.window_seconds, 3) for each in samples]
    assert lengths[:3] == [0.01, 0.01, 0.02]
    assert samples[0].tflops == pytest.approx(1.0)
    assert samples[-1].tflops == pytest.approx(0.8)
    ends = list(itertools.accumulate(lengths))
    for end, length in zip(ends, lengths[1:], strict=False):
        if end < throughput.FIRST_SECONDS - 0.2:
            assert length <= max(0.01, end) + 0.015, "no longer than the run before it"
    assert max(lengths) < 0.22


@pytest.mark.parametrize(("device_time", "pulsed"), [(False, False), (True, True)])
def test_windows_by_the_host_s_clock_are_longer(*, device_time: bool, pulsed: bool) -> None:
    """10 ms are noise there, and a pulse has pauses."""
    samples = samples_of(device_time=device_time, pulsed=pulsed)
    assert all(each.window_seconds >= throughput.FIRST_WINDOW_SECONDS - 1e-9 for each in samples)
    assert samples[0].tflops < 0.95


@pytest.mark.slow
@needs_torch
async def test_a_gpu_rests_after_the_warm_up_so_that_its_burst_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Settings(rates={"bfloat16": 2.0}, sustained=0.7, burst_seconds=0.06, rest_seconds=0.5)
    for name, text in made.environment().items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("FAKE_CUDA_PYTHON", sys.executable)
    request = Request(GPUS[0], "bfloat16", 1024, 2.0, str(fake_cuda.PYTHON))
    events = await heard(Session(request))
    last = events[-1]
    assert isinstance(last, Done), last
    windows = [each for each in events if isinstance(each, Progress)]
    assert windows[0].tflops is not None
    assert max(each.tflops or 0.0 for each in windows[:4]) > 1.8
    assert (windows[-1].tflops or 0.0) < 1.5
    assert (last.result.tflops_peak or 0.0) > 1.8
