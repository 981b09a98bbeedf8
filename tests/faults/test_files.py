"""Two gputops at once: neither loses what the other keeps, and who comes second is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.workers import fake_interpreter
from tests.driver import FakeDriver, FakeProcess
from tests.e2e.pretender import worker
from tests.e2e.shipped import GPUTOP, see
from tests.e2e.test_together import workers
from tests.faults.processes import RUNNING, free
from tests.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.driver


def opened(driver: FakeDriver, folder: Path, *further: str) -> Terminal:
    argv = [*GPUTOP, "--python", str(folder / "python"), "--interval", "0.25", *further]
    environment = {**driver.environment(), "XDG_DATA_HOME": str(folder / "kept")}
    return Terminal(argv, environment, columns=120, rows=40)


def test_who_stresses_a_device_second_is_told_of_the_first(
    driver: FakeDriver, tmp_path: Path
) -> None:
    fake_interpreter(tmp_path, worker())
    driver.write(*free(0))
    with opened(driver, tmp_path) as first, opened(driver, tmp_path) as second:
        for each in (first, second):
            see(each, "2 Test 2")
        first.send("b")
        see(first, RUNNING)
        (pid,) = workers(first)
        driver.change(0, processes=(FakeProcess(pid),))
        see(second, f" {pid} ")
        second.send("b")
        see(second, "Start anyway", str(pid))
        second.send("n")
        see(second, without=("Start anyway",))
        assert workers(second) == []
