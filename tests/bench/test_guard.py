"""The guard in the worker: heat, a silent driver and a gone parent end the run, whoever reads."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from gputop.agent.device import DeviceState
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request
from gputop.bench.run import worker_launch
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker.events import RunLimit
from gputop.bench.worker.guard import SILENCE_SECONDS, Guard
from tests.bench.cuda import MACHINE, fake_cuda
from tests.bench.machines import divided, seen
from tests.bench.workers import broken_worker, needs_torch
from tests.driver import FakeDevice, FakeDriver
from tests.streams import device, inventory, readings, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputop.agent.snapshot import Record

AGENT_FOLDERS = worker_launch.agent_folders()
ENDS_SECONDS = 60.0
"""Bound of a wait for what would never happen."""
UUID = device(0).uuid


def heated(celsius: int | None, **changes: Any) -> Any:
    read = readings(0, temperature_celsius=celsius, **changes)
    return dataclasses.replace(sample(1), devices=(read,))


class Followed:
    """A guard that has read these records: what it has sent, and the limits that it has set."""

    def __init__(self, *records: Record, uuid: str | None = UUID, of: str = "") -> None:
        self.sent: list[str] = []
        self.limits: list[RunLimit] = []

        class Prepared(Guard):
            def _records(self, uuid: str) -> Iterator[Record]:
                yield from records

        def send(name: str, record: dict[str, Any]) -> None:
            assert json.loads(json.dumps(record)) == record
            self.sent.append(name)

        self.guard = Prepared(uuid, [], of, send, self.limits.append)
        self.guard.run()


def test_heat_ends_the_run_once() -> None:
    followed = Followed(inventory(1), heated(70), heated(90), heated(91))
    why = "it reached 90°C, and its limit is 86°C (slowdown at 89°C)"
    assert followed.limits == [RunLimit("limit", "Too hot", why)]
    assert followed.sent == ["device", "readings", "readings"]


def test_an_instance_is_read_by_its_gpu() -> None:
    part = target_choice.choose(divided(), seen(), "3:1")
    asked = worker_request(Request(part, "float32", None, 1.0))
    followed = Followed(divided(), seen(88), uuid=asked.gpu_uuid, of=asked.part_of)
    assert [limit.why.partition(",")[0] for limit in followed.limits] == ["GPU 3 reached 88°C"]


UNHEARD = [
    pytest.param(heated(40, state=DeviceState.NOT_RESPONDING), id="hangs"),
    pytest.param(heated(40, state=DeviceState.LOST), id="lost"),
    pytest.param(heated(None, age_seconds=None), id="never answered"),
    pytest.param(sample(), id="left out"),
]


@pytest.mark.parametrize("record", UNHEARD)
def test_a_device_that_does_not_answer_is_silent(record: Any) -> None:
    _, limit = Followed(inventory(1), record).guard.answer_due
    assert (limit.by, limit.why) == ("silent", "it did not answer for 30 s")


def test_an_answer_is_good_for_a_time_from_its_reading_on() -> None:
    before = time.monotonic()
    followed = Followed(inventory(1), heated(40, age_seconds=5.0))
    due, limit = followed.guard.answer_due
    assert before <= due - (SILENCE_SECONDS - 5.0) <= time.monotonic()
    assert limit.why == "it did not answer for 20 s"


def test_a_guard_that_fails_ends_the_run() -> None:
    def send(*_: object) -> None:
        raise RuntimeError("on purpose")

    limits: list[RunLimit] = []
    Guard(None, [], "", send, limits.append).run()
    assert limits == [RunLimit("unwatched", "Not watched", "RuntimeError: on purpose")]


class GuardedWorker:
    """The real worker with its guard, on a fake CUDA and a fake driver. Nobody reads its output."""

    def __init__(self, driver: FakeDriver) -> None:
        driver.write(FakeDevice(uuid=UUID))
        target = target_choice.targets(inventory(1), sample(1))[0]
        target = dataclasses.replace(target, memory_free_bytes=4 << 30)
        asked = Request(target, "bfloat16", 256, 600.0, sys.executable)
        path = Path(driver.environment()["FAKE_NVML"]).with_name("begun")
        noted = (
            "write, said = main.WorkerRun.write, set()\n"
            "def sent(self, event, **fields):\n"
            "    write(self, event, **fields)\n"
            "    said.add(event)\n"
            f"    if {{'sample', 'readings'}} <= said: open({str(path)!r}, 'w').close()\n"
            "main.WorkerRun.write = sent\n"
        )
        self.begun = path
        self.process = subprocess.Popen(
            [sys.executable, "-c", broken_worker(fake_cuda(MACHINE, noted))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **driver.environment(), "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(worker_request(asked, agent_folders=AGENT_FOLDERS).to_line())
        self.process.stdin.flush()

    def wait_until_measuring(self) -> None:
        deadline = time.monotonic() + ENDS_SECONDS
        while not self.begun.exists():
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def events(self) -> list[dict[str, Any]]:
        """What it has written, once it has ended without a reader."""
        self.process.wait(ENDS_SECONDS)
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()


@pytest.mark.driver
@needs_torch
def test_a_device_that_heats_up_ends_the_run_though_nobody_reads(driver: FakeDriver) -> None:
    with GuardedWorker(driver) as worker:
        worker.wait_until_measuring()
        driver.change(0, temperature_celsius=90)
        *_, limit, last = [e for e in worker.events() if e["event"] in ("limit", "done")]
    assert limit["why"] == "it reached 90°C, and its limit is 86°C (slowdown at 89°C)"
    assert (last["event"], last["stopped"]) == ("done", "limit")
    assert last["iterations"] > 0
