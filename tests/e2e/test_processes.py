"""The list of processes by keys and mouse, and what can be done to real ones."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from tests.driver import FakeDriver, FakeProcess
from tests.e2e.shipped import (
    ENTER,
    ESCAPE,
    F9,
    SOON,
    child,
    children,
    dashboard,
    device,
    held_by,
    see,
    selected,
)

if TYPE_CHECKING:
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver

NAMES = ("train-alpha", "train-beta", "serve-gamma")
NOBODY = 4_190_000
"""A pid that no process here has: above the highest that Linux gives out by default."""

Children = Mapping[str, subprocess.Popen[bytes]]


@pytest.fixture
def running(driver: FakeDriver) -> Iterator[Children]:
    """Three real processes, on the only device."""
    with children(*NAMES) as processes:
        driver.write(device(0, processes=held_by(processes)))
        yield processes


def order(terminal: Terminal) -> list[str]:
    """The names in the order of their rows."""
    return re.findall("|".join(NAMES), terminal.text)


def listed(driver: FakeDriver, *arguments: str) -> Terminal:
    return dashboard("--interval", "0.25", *arguments, env=driver.environment())


def shown(terminal: Terminal) -> Terminal:
    """When the processes are there, largest first."""
    terminal.wait_for(lambda t: len(order(t)) == 3)
    return terminal


def choose(terminal: Terminal, name: str) -> None:
    """Selects that process, by looking for it."""
    shown(terminal).send(f"3/{name}\r")
    terminal.wait_for(lambda t: name in selected(t))


def test_a_signal_is_sent_after_the_question_and_the_list_follows(
    driver: FakeDriver, running: Children
) -> None:
    victim = running["train-beta"]
    with listed(driver) as terminal:
        choose(terminal, "train-beta")
        terminal.send(F9)
        see(terminal, "Send a signal", f"● {victim.pid} ", "asks it to end")
        terminal.send(ENTER)
        see(terminal, f"Send TERM to {victim.pid}", "y sends it")
        terminal.send("n")
        see(terminal, "Enter chooses", without=(f"Send TERM to {victim.pid}",))
        assert victim.poll() is None
        terminal.send(ESCAPE)
        terminal.wait_for(lambda t: "Send a signal" not in t.text)
        assert victim.poll() is None
        terminal.send(f"{F9}{ENTER}")
        see(terminal, f"Send TERM to {victim.pid}", "y sends it")
        terminal.send("y")
        assert victim.wait(SOON) == -signal.SIGTERM
        terminal.wait_for(f"{victim.pid} ended after ")
        driver.change(0, processes=held_by({k: v for k, v in running.items() if v is not victim}))
        terminal.wait_for(lambda t: "train-beta -" not in t.text)
    assert [process.poll() for process in running.values()] == [None, -signal.SIGTERM, None]


def test_a_process_that_ended_meanwhile_gets_nothing(driver: FakeDriver, running: Children) -> None:
    victim = running["train-alpha"]
    with listed(driver) as terminal:
        choose(terminal, "train-alpha")
        terminal.send(f"{F9}{ENTER}")
        see(terminal, f"Send TERM to {victim.pid}", "y sends it")
        victim.kill()
        victim.wait(SOON)
        terminal.send("y")
        see(terminal, "Not sent", f"Process {victim.pid} got no signal")


def test_readonly_has_no_signals(driver: FakeDriver, running: Children) -> None:
    with listed(driver, "--readonly") as terminal:
        choose(terminal, "train-alpha")
        assert "F9" not in terminal.text
        terminal.send(f"{F9}{ENTER}y")
        # Enter is for what it is for elsewhere, and y for nothing.
        see(terminal, "Enter GPU", without=("Send",))
        terminal.send("?")
        see(terminal, "Main keys", "Sort processes by the next column", without=("Send a signal",))
    assert [process.poll() for process in running.values()] == [None] * 3


def test_the_environment_is_inert_and_secrets_are_masked(driver: FakeDriver) -> None:
    env = {
        "CUDA_VISIBLE_DEVICES": "0,3",
        "HF_TOKEN": "hf_abcdef",
        "TITLE": "a\x1b]0;owned\x07b\x1b[31mc",
    }
    with child("train-alpha", env) as process:
        driver.write(device(0, processes=(FakeProcess(process.pid),)))
        with listed(driver) as terminal:
            terminal.wait_for("train-alpha")
            terminal.send("3e")
            see(
                terminal,
                f"{process.pid} ",
                "Environment  / filter",
                "Parents    python",
                "CUDA_VISIBLE_DEVICES=0,3",
                "TITLE=a␛]0;owned␇b␛[31mc",
                "HF_TOKEN=********",
            )
            terminal.send("v")
            terminal.wait_for("HF_TOKEN=hf_abcdef")
            terminal.send(ESCAPE)
            see(terminal, without=("Environment",))
            assert b"\x1b]0;owned" not in terminal.raw


def test_a_process_of_another_pid_namespace_says_so_and_gets_no_signal(driver: FakeDriver) -> None:
    driver.write(device(0, processes=(FakeProcess(NOBODY),)))
    with listed(driver) as terminal:
        terminal.wait_for("gone, or in another namespace: try --pid=host")
        terminal.send(f"3{F9}")
        see(terminal, f"No signal to {NOBODY}", without=("Send a signal",))
        terminal.send("e")
        see(terminal, f"{NOBODY} ──", "No details: gone, or in another namespace")
