import os
import random
import signal
from pathlib import Path

import pytest

from tests.bench.workers import broken_worker, fake_interpreter
from tests.driver import FakeDriver
from tests.e2e.pretender import worker
from tests.e2e.shipped import GPUTOP, dashboard
from tests.e2e.test_exporter import exporting
from tests.fake_ssh import HANGING, FakeSsh
from tests.faults.scenario import free
from tests.terminal import Terminal

pytestmark = pytest.mark.driver

RUN_SECONDS = 3
BENCH = ("bench", "--device", "all", "--seconds", f"{RUN_SECONDS}")
SAMPLER, WORKER = "gputop stream", "fake_worker"
DICE = random.Random(7)  # noqa: S311 - it hides nothing
MOMENTS = [round(DICE.uniform(0.0, RUN_SECONDS + 1.5), 2) for _ in range(3)]
"""Seconds after the start of a run, in it and after its end."""


@pytest.fixture
def python(nvml: FakeDriver, tmp_path: Path) -> str:
    nvml.write(*free(0))
    return fake_interpreter(tmp_path, worker().replace('asked["seconds"]:', f"{RUN_SECONDS}:"))


@pytest.mark.slow
@pytest.mark.parametrize("after_seconds", MOMENTS)
@pytest.mark.parametrize("victim", ["", SAMPLER, WORKER], ids=["itself", "sampler", "worker"])
@pytest.mark.parametrize("words", [(), BENCH], ids=["dashboard", "bench"])
def test_whatever_is_killed_nothing_stays_or_it_is_back(
    driver: FakeDriver, python: str, words: tuple[str, ...], victim: str, after_seconds: float
) -> None:
    argv = [*GPUTOP, *words, "--python", python]
    with Terminal(argv, columns=100, rows=40) as terminal:
        if not words:
            terminal.wait_for("2 Test 2")
            terminal.send("b")
        terminal.collect(after_seconds)
        pid = terminal.pid_of(victim) if victim else terminal.pid
        if pid in terminal.processes():
            os.kill(pid, signal.SIGKILL)
        if not victim:
            terminal.wait_until_gone()
        elif words:
            assert terminal.wait() == (3 if "SIGKILL" in terminal.text else 0), terminal.text
        else:
            terminal.wait_for(lambda t: "SIGKILL" in t.text or "Done" in t.text)
            driver.change(0, gpu_utilization_percent=67)
            terminal.send("1")
            terminal.wait_for("67 %")
            terminal.send("q")
            assert terminal.wait() == 0
        terminal.wait_until_gone()


def test_the_exporter_starts_a_sampler_that_is_killed_again(driver: FakeDriver) -> None:
    driver.write(*free(0))
    with exporting(env=driver.environment()) as exporter:
        exporter.until(exporter.up)
        exporter.sampler().kill()
        driver.change(0, gpu_utilization_percent=67)
        exporter.until(lambda: exporter.value("gputop_gpu_utilization_ratio", index="0") == 0.67)


def stop(terminal: Terminal, word: str) -> None:
    """Stop the process with that word in its command line; it hears of nothing any more."""
    pid = terminal.pid_of(word)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)


def kill(terminal: Terminal) -> None:
    assert len(terminal.processes()) > 1
    terminal.kill(signal.SIGKILL)
    terminal.wait_until_gone()


def test_a_sampler_that_is_stopped_ends_with_its_dashboard(python: str) -> None:
    with dashboard(env={"LANG": "C.UTF-8"}) as terminal:
        terminal.wait_for("2 Test 2")
        stop(terminal, SAMPLER)
        kill(terminal)


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("torch", "is_stopped"),
    [
        ("import time\ntime.sleep(600)", True),
        ("import ctypes\nctypes.PyDLL(None).sleep(600)", False),  # no thread of Python's runs
    ],
    ids=["stopped", "held up"],
)
def test_a_worker_that_does_not_listen_ends_with_its_dashboard(
    driver: FakeDriver, tmp_path: Path, torch: str, is_stopped: bool
) -> None:
    driver.write(*free(0))
    begun = tmp_path / "begun"
    (tmp_path / "torch.py").write_text(f"open({str(begun)!r}, 'w').close()\n{torch}")
    python = fake_interpreter(tmp_path, broken_worker(""))
    with dashboard("--python", python, env=driver.environment()) as terminal:
        terminal.wait_for("2 Test 2")
        terminal.send("b")
        terminal.until(begun.exists)
        if is_stopped:
            stop(terminal, WORKER)
        kill(terminal)


def test_an_ssh_that_connects_ends_with_its_dashboard(tmp_path: Path) -> None:
    ssh = FakeSsh(tmp_path)
    ssh.does("far", f"touch {tmp_path}/begun; {HANGING}")
    env = {"PATH": f"{ssh.path}:{os.environ['PATH']}"}
    with dashboard("--host", "far", env=env) as terminal:
        terminal.until((tmp_path / "begun").exists)
        kill(terminal)
