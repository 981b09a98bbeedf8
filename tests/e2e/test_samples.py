"""The driver's own samples through the shipped command: none is lost, and none comes twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from tests.agent.fakes import BOUND
from tests.driver import FakeDevice, FakeDriver, FakeSample

pytestmark = pytest.mark.driver

STEP = 100_000
NAME = "gpu_utilization_samples_percent"


def rows(last: int) -> tuple[FakeSample, ...]:
    """What the ring has when that many were taken: their values go round from 0 to 100."""
    return tuple(FakeSample(n * STEP, n % 101) for n in range(max(1, last - 99), last + 1))


@contextmanager
def streaming(driver: FakeDriver, *arguments: str) -> Iterator[IO[str]]:
    """The lines of `gputop stream` as they come."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gputop", "stream", *arguments],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.stdin.close()  # at which it ends by itself
        process.stdout.close()
        try:
            process.wait(BOUND)
        finally:
            process.kill()


def test_each_sample_comes_once_however_late_the_device(driver: FakeDriver) -> None:
    """Every third tick finds the device late, and is told its readings of before."""
    driver.write(FakeDevice(samples=rows(10)))
    taken, told, late, begun = 10, list[int](), 0, False
    with streaming(driver, "--interval", "0.25") as lines:
        for count, line in enumerate(lines):
            record = json.loads(line)
            for device in record["devices"] if record["type"] == "sample" else ():
                begun = begun or device[NAME] is not None
                told += device[NAME] or ()
                late += (device.get("age_seconds") or 0.0) > 0.1
            if told[-1:] == [60]:
                break
            if begun:
                taken = min(60, taken + (1 if count % 2 else 3))
            slow = {"nvmlDeviceGetPowerUsage": 400} if count % 3 == 0 else {}
            driver.change(0, samples=rows(taken), delays=slow)
            assert count < 300, told
    assert late
    assert told == [*range(11, 61)]
