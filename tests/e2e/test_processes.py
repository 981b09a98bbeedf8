"""The list of processes by keys and mouse, and what can be done to real ones."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from tests.e2e.shipped import ENTER, F9, children, dashboard, device, held_by, see, selected

if TYPE_CHECKING:
    from tests.driver import FakeDriver
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver

NAMES = ("train-alpha", "train-beta", "serve-gamma")

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
