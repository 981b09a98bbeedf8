"""`gputop bench` on a fake driver and a fake CUDA, as people run it: exit status and verdict."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.commands import InTerminal, ran
from tests.bench.cuda import GIB, MACHINE
from tests.bench.workers import needs_torch
from tests.driver import FakeDevice, FakeDriver
from tests.fake_cuda import PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fake_cuda.settings import Settings

pytestmark = [needs_torch, pytest.mark.driver]

FREE = FakeDevice(
    memory_total_bytes=4 * GIB, memory_used_bytes=0, memory_reserved_bytes=0, clock_event_reasons=0
)


@pytest.fixture
def command(driver: FakeDriver) -> Callable[..., dict[str, str]]:
    """Set up GPUs for a command, and return the changes of its environment."""

    def environment(
        settings: Settings = MACHINE, device: FakeDevice = FREE, count: int = 1
    ) -> dict[str, str]:
        driver.write(*[device] * count)
        return {
            **driver.environment(),
            **settings.environment(),
            "FAKE_CUDA_PYTHON": sys.executable,
            "OMP_NUM_THREADS": "1",
        }

    return environment


def arguments(text: str, device: str = "0") -> list[str]:
    return [*text.split(), "--device", device, "--python", str(PYTHON), "--json"]


def result_of(text: str, environment: dict[str, str], status: int) -> dict[str, Any]:
    """Run a stress test, and return its result."""
    ended = ran(*arguments(text), **environment)
    assert ended.returncode == status, (ended.stdout, ended.stderr)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_soak_of_a_healthy_gpu_ends_well(command: Any) -> None:
    result = result_of("soak --size 1024 --seconds 1", command(), 0)
    assert result["device"] == MACHINE.name
    assert result["python"] == str(PYTHON)
    assert result["wrong_elements"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soak", "burn", "memory"])
def test_ctrl_c_stops_it_with_the_result_so_far(command: Any, kind: str) -> None:
    size = "" if kind == "memory" else "--size 512"
    environment = command(replace(MACHINE, memory_gib=2.5))
    with InTerminal(*arguments(f"{kind} {size} --seconds 600"), **environment) as run:
        run.until("/s")
        worker = run.worker()
        run.process.send_signal(signal.SIGINT)
        output, _ = run.process.communicate(timeout=30)
        assert run.process.returncode == 130
        result = json.loads(output)
        assert (result["stopped"], result["wrong_elements"]) == ("user", 0)
        assert not worker.is_running()
