"""The page of a device, by keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.driver import FakeDevice, FakeDriver, FakeInstance
from tests.e2e.shipped import (
    DOWN,
    ENTER,
    ESCAPE,
    GIB,
    LEFT,
    PAGE_DOWN,
    PAGE_UP,
    RIGHT,
    children,
    dashboard,
    device,
    held_by,
    see,
)

if TYPE_CHECKING:
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver


def opened(driver: FakeDriver, *arguments: str, columns: int = 160, rows: int = 50) -> Terminal:
    return dashboard(
        "--interval", "0.25", *arguments, env=driver.environment(), columns=columns, rows=rows
    )


def test_enter_opens_it_n_and_p_go_round_and_escape_goes_back(driver: FakeDriver) -> None:
    driver.write(*(device(n, temperature_celsius=50 + n) for n in range(3)))
    with opened(driver) as terminal:
        see(terminal, "2 Test 2")
        terminal.send(f"{DOWN}{ENTER}")
        see(terminal, "1 Test 1", "statistics since", "51°C", "Next GPU", without=("2 Test 2",))
        terminal.send("n")
        see(terminal, "2 Test 2", "52°C", without=("1 Test 1",))
        terminal.send("n")
        see(terminal, "0 Test 0", without=("2 Test 2",))
        terminal.send("pp")
        see(terminal, "1 Test 1", without=("0 Test 0",))
        terminal.send(ESCAPE)
        see(terminal, "0 Test 0", "1 Test 1", "2 Test 2", without=("Next GPU",))
        terminal.send("q")
        assert terminal.wait() == 0


def test_it_goes_back_to_where_it_was_opened(driver: FakeDriver) -> None:
    with children("train-alpha") as processes:
        driver.write(device(0), device(1, processes=held_by(processes)))
        with opened(driver) as terminal:
            see(terminal, "train-alpha")
            terminal.send(f"3{ENTER}{ENTER}")
            see(terminal, "1 Test 1", "statistics since", "train-alpha")
            terminal.send(ESCAPE)
            see(terminal, "train-alpha", "F9 Signal", without=("Test 1", "statistics since"))
            terminal.send(f"{ENTER}n")
            see(terminal, "0 Test 0", "statistics since")
            terminal.send("1")
            see(terminal, "0 Test 0", "1 Test 1", without=("statistics since",))


def test_the_cursor_reads_what_was(driver: FakeDriver) -> None:
    driver.write(device(0, power_milliwatts=111_000))
    with opened(driver) as terminal:
        see(terminal, "111 of 700 W")
        terminal.send(ENTER)
        see(terminal, "statistics since")
        terminal.collect(1.0)  # for a few columns of the charts
        driver.change(0, power_milliwatts=222_000)
        terminal.wait_for(lambda t: at_cursor(t, "power") == "222 W")
        moved = 0
        while at_cursor(terminal, "power") != "111 W":
            assert moved < 40, terminal.text
            before, moved = terminal.bytes_received, moved + 1
            terminal.send(LEFT)
            terminal.wait_for(lambda t, before=before: t.bytes_received > before)  # type: ignore[misc]
        see(terminal, " ago")
        terminal.send(RIGHT * (moved + 40))
        terminal.wait_for(lambda t: at_cursor(t, "power") == "222 W")
        see(terminal, without=(" ago",))


def at_cursor(terminal: Terminal, name: str) -> str:
    """The value beside a chart: of the moment that the cursor is at."""
    found = re.search(rf"^{name} +(\d+ W)", terminal.text, re.MULTILINE)
    return found[1] if found else ""


def test_minimum_mean_and_maximum_begin_again(driver: FakeDriver) -> None:
    driver.write(device(0, temperature_celsius=41))
    with opened(driver) as terminal:
        see(terminal, "41°C")
        terminal.send(ENTER)
        see(terminal, "statistics since")
        driver.change(0, temperature_celsius=77)
        terminal.wait_for(lambda t: extremes(t) == ("41", "77"))
        terminal.send("0")
        terminal.wait_for(lambda t: extremes(t) == ("77", "77"))


def extremes(terminal: Terminal) -> tuple[str, str]:
    """Minimum and maximum of the temperature."""
    found = re.search(r"temperature +\d+°C +(\d+)°C +[\d.]+°C +(\d+)°C", terminal.text)
    return (found[1], found[2]) if found else ("", "")


def test_readings_that_do_not_fit_are_scrolled_to(driver: FakeDriver) -> None:
    driver.write(device(0))
    with opened(driver, columns=80, rows=24) as terminal:
        see(terminal, "0 Test 0")
        terminal.send(ENTER)
        see(terminal, "Activity", "PgUp PgDn")
        for _ in range(30):
            terminal.send(PAGE_DOWN)
        see(terminal, "for CUDA up to", without=("Activity",))
        terminal.send(PAGE_UP * 30)
        see(terminal, "Activity")


def test_what_a_device_lacks_says_why_or_is_left_out(driver: FakeDriver) -> None:
    driver.write(device(0, fan_percent=None, temperature_margin_celsius=None))
    with opened(driver) as terminal:
        see(terminal, "0 Test 0")
        terminal.send(ENTER)
        see(terminal, "temperature", without=("no fan that the driver knows of",))
        terminal.send("a")
        see(terminal, "no fan that the driver knows of")
        terminal.send("a")
        see(terminal, "temperature", without=("no fan that the driver knows of",))


def test_an_xid_is_an_alert_and_an_event_with_what_to_do(driver: FakeDriver) -> None:
    driver.write(device(0), device(1))
    with opened(driver) as terminal:
        see(terminal, "1 Test 1")
        terminal.wait_for(lambda _: driver.calls(1)["nvmlDeviceRegisterEvents"] > 0)
        driver.report_xid(1, 79)
        see(terminal, "▲ GPU 1: Xid 79")
        terminal.send(f"{DOWN}{ENTER}")
        see(terminal, "1 Test 1", "Events", "Xid 79: ")
        terminal.send("p")
        see(terminal, "0 Test 0", "none since gputop started", without=("Xid 79: ",))


def test_a_device_lost_while_its_page_is_open(driver: FakeDriver) -> None:
    driver.write(device(0), device(1))
    with opened(driver) as terminal:
        see(terminal, "0 Test 0")
        terminal.send(ENTER)
        see(terminal, "statistics since")
        driver.change(0, code=15)
        see(terminal, "LOST: it no longer answers on its bus", "only a reboot")
        driver.change(0, code=0)
        see(terminal, "0 Test 0", "97 %", without=("only a reboot",))


INSTANCES = tuple(
    FakeInstance(gpu_instance=n, memory_used_bytes=(n + 1) * GIB // 2) for n in range(2)
)


def test_instances_come_and_go_while_it_runs(driver: FakeDriver) -> None:
    driver.write(device(0), device(1))
    with opened(driver) as terminal:
        see(terminal, "0 Test 0", "1 Test 1", "2 GPUs")
        driver.change(1, mig_mode=1, instances=INSTANCES)
        see(terminal, "1:0 └ MIG 1g.10gb", "1:1 └ MIG", "1.00 of 9.75 GiB", "2 GPUs")
        terminal.send(f"{DOWN * 3}{ENTER}")
        see(terminal, "1:1 ", "statistics since", "1.00 of 9.75 GiB")
        driver.change(1, instances=INSTANCES[:1])
        see(terminal, "GONE: the driver no longer lists it")
        terminal.send(ESCAPE)
        see(terminal, "1:0 └ MIG", without=("1:1 └ MIG",))
        driver.change(1, mig_mode=0, instances=())
        see(terminal, "1 Test 1", without=("1:0 └ MIG",))


def test_every_tab_and_back(driver: FakeDriver) -> None:
    driver.write(FakeDevice(), FakeDevice())
    marks = {"1": "1 H100", "2": "Press b to start", ENTER: "statistics since"}

    def at(place: str) -> None:
        """The tab of processes is that which has none of the marks."""
        others = tuple(mark for each, mark in marks.items() if each != place)
        both = ("0 H100",) if place == "1" else ()
        see(terminal, marks.get(place, "No process uses a device"), *both, without=others)

    with opened(driver) as terminal:
        at("1")
        for away in ("2", "3", ENTER):
            for there in ("1", "2", "3"):
                terminal.send("1")
                at("1")
                terminal.send(away)
                at(away)
                terminal.send(there)
                at(there)
        terminal.send("3")
        at("3")
        terminal.send(ESCAPE)
        at("1")
