"""The monitor while it runs: pause, interval, what is asked of the driver, alerts, sizes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.driver import GPU_IS_LOST, FakeDriver
from tests.e2e.shipped import DOWN, END, ENTER, HOME, SOON, UP, dashboard, device, see, selected

if TYPE_CHECKING:
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver

TICK, GPM = "nvmlDeviceGetUtilizationRates", "nvmlGpmSampleGet"
HOT, VERY_HOT = 0x20, 0x40
OSC = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


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


def test_space_freezes_the_picture_and_lets_it_catch_up(driver: FakeDriver) -> None:
    driver.write(device(0, temperature_celsius=41))
    with opened(driver) as terminal:
        see(terminal, "41°C")
        terminal.send(" ")
        see(terminal, "PAUSED")
        driver.change(0, temperature_celsius=77)
        calls_of(terminal, driver, 6)
        see(terminal, "PAUSED", "41°C", without=("77°C",))
        terminal.send(" ")
        see(terminal, "77°C", without=("PAUSED", "41°C"))


def test_what_happened_in_a_pause_is_in_the_statistics(driver: FakeDriver) -> None:
    driver.write(device(0, temperature_celsius=41))
    with opened(driver, columns=160, rows=50) as terminal:
        see(terminal, "41°C")
        terminal.send(ENTER)
        see(terminal, "statistics since")
        terminal.send(" ")
        see(terminal, "PAUSED")
        driver.change(0, temperature_celsius=77)
        calls_of(terminal, driver)
        driver.change(0, temperature_celsius=43)
        calls_of(terminal, driver)
        terminal.send(" ")
        pattern = re.compile(r"temperature +43°C +41°C +[\d.]+°C +77°C")
        terminal.wait_for(lambda t: pattern.search(t.text), what=pattern.pattern)


def test_the_interval_changes_without_another_sampler(driver: FakeDriver) -> None:
    driver.write(device(0))
    with opened(driver, interval="1") as terminal:
        see(terminal, "0 Test 0", without=("every",))
        before = terminal.processes()
        assert len(before) == 2
        terminal.send("+")
        see(terminal, "every 0.5 s", "A sample every 0.5 s")
        terminal.send("+++++")  # 0.25 is the shortest
        see(terminal, "every 0.25 s")
        driver.change(0, temperature_celsius=77)
        see(terminal, "77°C")
        terminal.send("---")
        see(terminal, "every 2 s")
        assert terminal.processes() == before
        assert driver.calls()["nvmlInitWithFlags"] + driver.calls()["nvmlInit_v2"] == 1


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
        see(terminal, "statistics since")
        terminal.wait_for(lambda t: calls_of(t, driver)[GPM], timeout=2 * SOON)


def test_gpm_is_left_alone_where_it_is_not_wanted(driver: FakeDriver) -> None:
    driver.write(device(0))
    with opened(driver, "--no-gpm", columns=160, rows=50) as terminal:
        see(terminal, "0 Test 0")
        calls_of(terminal, driver)
        terminal.send(ENTER)
        see(terminal, "statistics since", "SM active     –")
        assert not calls_of(terminal, driver)[GPM]
        see(terminal, "SM active     – GPM is off")


def test_alerts_come_and_go(driver: FakeDriver) -> None:
    driver.write(*(device(n) for n in range(3)))
    with opened(driver) as terminal:
        see(terminal, "2 Test 2", without=("▲ GPU",))
        driver.change(0, clock_event_reasons=HOT)
        see(terminal, "▲ GPU 0: throttled by heat")
        driver.change(0, clock_event_reasons=VERY_HOT)
        see(terminal, "▲ GPU 0: throttled by heat (hardware)")
        driver.change(1, code=GPU_IS_LOST)
        see(terminal, "▲ GPU 1: LOST", "1 not answering")
        driver.change(2, hang=True)
        see(terminal, "▲ GPU 1: LOST", "▲ GPU 2: NOT RESPONDING", "2 not answering")
        driver.change(0, clock_event_reasons=0)
        driver.change(1, code=0)
        driver.change(2, hang=False)
        see(terminal, "0 Test 0", "1 Test 1", without=("▲ GPU", "not answering"))


def rung(terminal: Terminal) -> int:
    """How often the bell was rung; a BEL may also end a title."""
    return OSC.sub(b"", terminal.raw).count(b"\x07")


@pytest.mark.daily(1)
@pytest.mark.parametrize("bell", [True, False])
def test_the_bell_is_rung_once_for_each_alert_if_at_all(driver: FakeDriver, bell: bool) -> None:
    driver.write(device(0), device(1))
    with opened(driver, *(["--bell"] if bell else [])) as terminal:
        see(terminal, "1 Test 1")
        calls_of(terminal, driver)
        assert rung(terminal) == 0
        driver.change(0, clock_event_reasons=HOT)
        see(terminal, "▲ GPU 0: throttled")
        calls_of(terminal, driver)
        assert rung(terminal) == bell
        driver.report_xid(1, 48)
        see(terminal, "▲ GPU 1: Xid 48")
        calls_of(terminal, driver)
        assert rung(terminal) == 2 * bell


def test_the_sampler_that_is_started_again_knows_interval_and_gpm(driver: FakeDriver) -> None:
    driver.write(device(0))
    with opened(driver, interval="1") as terminal:
        see(terminal, "tensor")
        terminal.send("++")
        see(terminal, "every 0.25 s")
        for pid in set(terminal.processes()) - {terminal.pid}:
            os.kill(pid, signal.SIGKILL)
        driver.change(0, temperature_celsius=77)
        see(terminal, "77°C", "every 0.25 s")
        assert calls_of(terminal, driver)[GPM] > 0


def test_sixty_four_devices_on_sixty_columns(driver: FakeDriver) -> None:
    driver.write(*(device(n) for n in range(64)))
    with opened(driver, columns=60, rows=24) as terminal:
        see(terminal, " 0 ", "of 64 devices")
        for n in range(1, 64):
            terminal.send(DOWN)
            terminal.wait_for(lambda t, n=n: re.match(rf"▌ *{n} ", selected(t)))  # type: ignore[misc]
        see(terminal, "to 64 of 64 devices")
        terminal.send(UP)
        terminal.wait_for(lambda t: re.match(r"▌ *62 ", selected(t)))
        terminal.send(HOME)
        terminal.wait_for(lambda t: re.match(r"▌ *0 ", selected(t)))
        terminal.send(END)
        terminal.wait_for(lambda t: re.match(r"▌ *63 ", selected(t)))
