"""The host side of the rules with real processes, which the fake driver lists on its device.

What a process gets of the processor depends on what else runs here: the limit is lowered to what
a busy loop gets in any case (one core for thirty of them), and a process that waits never does.
Their samples are taken four times a second, and told as if they were five seconds apart: a minute
of evidence in three seconds.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gputop.agent.snapshot import Inventory, Sample
from gputop.health import thresholds
from gputop.health.findings import Finding
from gputop.health.judge import Judge, Judgement, Verdict
from gputop.health.thresholds import Limit
from gputop.schema.decode import decode
from gputop.schema.derived import PROCESS_CPU
from gputop.stream.history import History
from gputop.stream.launch import module_command
from tests.driver import FakeDevice, FakeDriver, FakeProcess

pytestmark = pytest.mark.driver

SAMPLES, APART = 16, 5.0
BOUND = 120.0
BUSY_LOOP = f"""
import time
end = time.monotonic() + {BOUND}
print(flush=True)
while time.monotonic() < end: pass
"""
"""It ends by itself, should nobody be left to end it."""
LOADER = f"""
import subprocess, sys
command = [sys.executable, "-S", "-c", {BUSY_LOOP!r}]
with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
    worker.stdout.readline()
    print(flush=True)
    sys.stdin.read()
    worker.kill()
"""
"""A trainer that waits for its worker, which transforms images without end."""


@contextmanager
def process(script: str) -> Iterator[int]:
    """A Python that has begun to do what it does; its pid."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", script], stdin=pipe, stdout=pipe) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline()
            yield child.pid
        finally:
            assert child.stdin is not None
            child.stdin.close()
            if script != LOADER:  # it ends its worker, then itself
                child.kill()
            child.wait(BOUND)


def watched(driver: FakeDriver) -> tuple[Judgement, float | None]:
    """What the rules say in the end, and the CPU of the fullest process on average."""
    command = [*module_command("gputop"), "stream", "--interval", "0.25"]
    done = subprocess.run(
        [*command, "--count", str(SAMPLES)],
        env=driver.environment() | {"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=BOUND,
    )
    history, judge, judgement = History(), Judge(), Judgement()
    inventory: Inventory | None = None
    taken = 0
    for line in done.stdout.splitlines():
        record = decode(line)
        if isinstance(record, Sample):
            if inventory is None or not record.devices:
                continue
            taken += 1
            sample = dataclasses.replace(record, time=1e9 + taken * APART, uptime_seconds=None)
            history.add(sample)
            judgement = judge.judge(history, inventory, sample)
        else:
            inventory = dataclasses.replace(record, interval_seconds=APART)
    assert inventory is not None
    assert taken >= SAMPLES - 3
    values = [v for v in history.series(inventory.devices[0].uuid, PROCESS_CPU) if v is not None]
    return judgement, sum(values) / len(values) if values else None


def input_bound(driver: FakeDriver, pid: int, busy: int = 45) -> tuple[Verdict, float | None]:
    driver.write(FakeDevice(gpu_utilization_percent=busy, processes=(FakeProcess(pid),)))
    judgement, cpu = watched(driver)
    (verdict,) = (v for v in judgement.verdicts if v.rule == "input_bound")
    return verdict, cpu


@pytest.fixture(autouse=True)
def _on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "FULL_CORE", Limit(3, 2))
    monkeypatch.setattr(thresholds, "FULL_HOST", Limit(101, 101))


@pytest.mark.slow
def test_a_busy_loop_that_starves_its_device(driver: FakeDriver) -> None:
    with process(BUSY_LOOP) as pid:
        verdict, cpu = input_bound(driver, pid)
    assert isinstance(verdict, Finding)
    assert verdict.line.endswith("a CPU core is full: idle 55 %")
    assert "main thread" in verdict.remedy
    assert cpu is not None
    assert cpu > 3


@pytest.mark.slow
def test_a_loader_whose_worker_is_full(driver: FakeDriver) -> None:
    """The process on the device takes nothing itself."""
    with process(LOADER) as pid:
        verdict, _ = input_bound(driver, pid)
    assert isinstance(verdict, Finding)
    assert "workers of its loader" in verdict.remedy
