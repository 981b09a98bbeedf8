"""Processes killed at random moments; and those that cannot listen while their parent is."""

from __future__ import annotations

import itertools
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.bench.workers import broken_worker, fake_interpreter
from tests.e2e.shipped import dashboard
from tests.fake_ssh import HANGING, FakeSsh
from tests.faults.kills import Kill, kills, perform, wait
from tests.faults.scenario import free

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver import FakeDriver
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver

MOMENTS = 8
"""One of each command and each of its processes."""


@pytest.mark.slow
@pytest.mark.parametrize("kill", itertools.islice(kills(7), MOMENTS), ids=str)
def test_whatever_is_killed_nothing_stays_or_it_is_back(
    kill: Kill, driver: FakeDriver, tmp_path: Path
) -> None:
    perform(kill, driver, tmp_path)


def stopped(terminal: Terminal, word: str) -> None:
    """Stops the process with that word in its command line; it hears of nothing any more."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [pid for pid, line in terminal.processes().items() if word in line]
        return bool(found)

    wait(there, terminal)
    os.kill(found[0], signal.SIGSTOP)


def gone(terminal: Terminal) -> None:
    """The dashboard is killed, and all that there is of it with it."""
    assert len(terminal.processes()) > 1
    terminal.kill(signal.SIGKILL)
    terminal.wait_until_gone()


def test_a_sampler_that_is_stopped_ends_with_its_dashboard(driver: FakeDriver) -> None:
    driver.write(*free(0))
    with dashboard(env=driver.environment()) as terminal:
        terminal.wait_for("2 Test 2")
        stopped(terminal, "gputop stream")
        gone(terminal)


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("torch", "stop"),
    [
        ("import time\ntime.sleep(600)", True),
        ("import ctypes\nctypes.PyDLL(None).sleep(600)", False),  # no thread of Python's runs
    ],
    ids=["stopped", "held up"],
)
def test_a_worker_that_does_not_listen_ends_with_its_dashboard(
    driver: FakeDriver, tmp_path: Path, torch: str, stop: bool
) -> None:
    driver.write(*free(0))
    begun = tmp_path / "begun"
    (tmp_path / "torch.py").write_text(f"open({str(begun)!r}, 'w').close()\n{torch}")
    python = fake_interpreter(tmp_path, broken_worker(""))
    with dashboard("--python", python, env=driver.environment()) as terminal:
        terminal.wait_for("2 Test 2")
        terminal.send("b")
        wait(begun.exists, terminal)
        if stop:
            stopped(terminal, "fake_worker")
        gone(terminal)


def test_an_ssh_that_connects_ends_with_its_dashboard(tmp_path: Path) -> None:
    ssh = FakeSsh(tmp_path)
    ssh.does("far", f"touch {tmp_path}/begun; {HANGING}")
    env = {"PATH": f"{ssh.path}:{os.environ['PATH']}"}
    with dashboard("--host", "far", env=env) as terminal:
        wait((tmp_path / "begun").exists, terminal)
        gone(terminal)
