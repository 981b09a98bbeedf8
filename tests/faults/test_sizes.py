"""Terminals of any size, and environments that tell another one than the terminal has."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.console import COLUMNS, ROWS, terminal_size
from tests.e2e.shipped import dashboard, device, see
from tests.terminal import set_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.driver import FakeDriver
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver

MOST_MIB = 200
"""Of the dashboard; it takes about 60."""
PLACE = re.compile(rb"\x1b\[(\d+);(\d+)H")


def opened(driver: FakeDriver, env: Mapping[str, str], columns: int, rows: int) -> Terminal:
    driver.write(device(0))
    return dashboard(env={**driver.environment(), **env}, columns=columns, rows=rows)


def peak_mib(pid: int) -> int:
    """Return the most memory that the process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def ends_at(terminal: Terminal, columns: int, rows: int) -> bool:
    """Return True if the screen is drawn for that size: its last line is there, and so wide."""
    lines = [line.rstrip() for line in terminal.screen.display]
    widest = max(map(len, lines))
    return len(lines) == rows and bool(lines[-1]) and columns - 4 <= widest <= columns


def last_row(terminal: Terminal) -> int:
    """Return the last row that was drawn."""
    return max(int(row) for row, _ in PLACE.findall(terminal.raw))


def test_a_size_in_the_environment_takes_no_memory(driver: FakeDriver) -> None:
    env = {"COLUMNS": "999999", "LINES": "999999"}
    with opened(driver, env, 100, 30) as terminal:
        see(terminal, "0 Test 0")
        terminal.wait_for(lambda t: ends_at(t, 100, 30), what="a screen of 100 x 30")
        assert peak_mib(terminal.pid) < MOST_MIB
        terminal.send("q")
        assert terminal.wait() == 0


@pytest.mark.daily(1)
@pytest.mark.parametrize("size", [(5000, 50), (150, 3000)])
def test_a_giant_terminal_is_drawn_within_the_bound(
    driver: FakeDriver, size: tuple[int, int]
) -> None:
    with opened(driver, {}, *size) as terminal:
        terminal.screen.resize(24, 80)  # where it draws is told by what it sends
        terminal.wait_for(lambda t: b"Test 0" in t.raw, timeout=120)
        terminal.send("2")
        terminal.wait_for(lambda t: b"Press" in t.raw, timeout=120)
        terminal.wait_for(lambda t: last_row(t) == min(ROWS, size[1]), timeout=120)
        assert peak_mib(terminal.pid) < MOST_MIB
        assert max(int(column) for _, column in PLACE.findall(terminal.raw)) <= COLUMNS
        terminal.resize(120, 40)
        terminal.wait_for(lambda t: ends_at(t, 120, 40), what="a screen of 120 x 40")
        terminal.send("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize(
    ("real", "exported", "size"),
    [
        ((120, 40), {"COLUMNS": "80", "LINES": "24"}, (120, 40)),
        ((5000, 3000), {}, (COLUMNS, ROWS)),
        ((0, 0), {"COLUMNS": "999999", "LINES": "999999"}, (COLUMNS, ROWS)),
        ((0, 0), {"COLUMNS": "100", "LINES": "30"}, (100, 30)),
        ((0, 0), {"COLUMNS": "-1", "LINES": "x"}, (80, 24)),
    ],
)
def test_the_size_of_a_terminal(
    real: tuple[int, int],
    exported: dict[str, str],
    size: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    master, slave = os.openpty()
    try:
        set_size(slave, *real)
        assert terminal_size(slave) == size
    finally:
        os.close(master)
        os.close(slave)
