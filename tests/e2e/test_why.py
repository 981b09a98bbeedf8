"""Why is it slow: the page, and the line on the monitor, as the shipped command shows them."""

from __future__ import annotations

import pytest

from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import ESCAPE, dashboard, device, see

pytestmark = pytest.mark.driver


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_an_xid_is_a_finding_at_once(driver: FakeDriver, columns: int, rows: int) -> None:
    """It needs no history; what does is said to need more."""
    driver.write(device(0), device(1))
    with dashboard(env=driver.environment(), columns=columns, rows=rows) as terminal:
        see(terminal, "0 Test 0", "1 Test 1")
        terminal.send("w")
        see(terminal, "all 2 devices", "No problem so far: ", "Checked, no problem")
        see(terminal, "not watched for long enough yet")
        terminal.send("w")
        see(terminal, "Why is it slow? GPU 0 Test 0", "No problem so far: ", "Checked, no problem")
        driver.report_xid(1, 79)
        terminal.send("n")
        see(
            terminal,
            "GPU 1 Test 1",
            "▲ Xid 79: the GPU has fallen off the bus",
            "Usually only a reboot helps; look at its power, heat and seating",
            without=("No problem so far: ",),
        )
        terminal.send("w")
        see(terminal, "all 2 devices", "▲ GPU 1: Xid 79")
        terminal.send(ESCAPE)
        see(terminal, "0 Test 0", "▲ Xid 79: the GPU has fallen off", without=("Why is it slow?",))


def test_a_reading_that_is_missing_says_why(driver: FakeDriver) -> None:
    driver.write(FakeDevice(gpm_supported=0, clock_event_reasons=None))
    with dashboard(env=driver.environment()) as terminal:
        see(terminal, "0 H100")
        terminal.send("w")
        see(terminal, "Not enough data", "no held back by (not supported by this device")
