"""The monitor while it runs: pause, interval, what is asked of the driver, alerts, sizes."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.e2e.shipped import ENTER, SOON, dashboard, device, see

if TYPE_CHECKING:
    from tests.driver import FakeDriver
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver

TICK, GPM = "nvmlDeviceGetUtilizationRates", "nvmlGpmSampleGet"


def opened(
    driver: FakeDriver, *arguments: str, columns: int = 120, rows: int = 40, interval: str = "0.25"
) -> Terminal:
    env = driver.environment()
    return dashboard("--interval", interval, *arguments, env=env, columns=columns, rows=rows)


def calls_of(terminal: Terminal, driver: FakeDriver, ticks: int = 3) -> Counter[str]:
    """What the first device is asked in some ticks from now on."""
    driver.forget_calls()
    deadline = time.monotonic() + 2 * SOON
    while driver.calls(0)[TICK] < ticks:
        assert time.monotonic() < deadline, terminal.text
        terminal.collect(0.05)  # there may be nothing to draw
    return driver.calls(0)


def test_gpm_is_read_only_where_it_is_shown(driver: FakeDriver) -> None:
    driver.write(device(0))
    with opened(driver) as terminal:
        see(terminal, "tensor  69 %")
        assert calls_of(terminal, driver)[GPM] > 0
        terminal.send("2")
        see(terminal, "Press b to start")
        terminal.wait_for(lambda t: not calls_of(t, driver)[GPM], timeout=2 * SOON)
        terminal.send("1")
        terminal.wait_for(lambda t: calls_of(t, driver)[GPM], timeout=2 * SOON)
        terminal.send("3")
        see(terminal, "No process uses a device")
        terminal.wait_for(lambda t: not calls_of(t, driver)[GPM], timeout=2 * SOON)
        terminal.send(ENTER)
        see(terminal, "Power and temperature")
        terminal.wait_for(lambda t: calls_of(t, driver)[GPM], timeout=2 * SOON)
