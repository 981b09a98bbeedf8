from pathlib import Path

import pytest

from tests.driver import FakeDriver
from tests.e2e.shipped import dashboard, see
from tests.perf.machine import Machine, Scene

pytestmark = pytest.mark.driver

BUSY = Scene(devices=8, columns=160, rows=50)
STATES = 6
BYTES_OF_A_TICK = 1_600
"""Of eight devices whose every number moves: a third more than it is."""
BYTES_OF_THE_START = 26_000
"""Until every number is there, and once more as rates and charts begin: a third more than it is."""


def has_powers(machine: Machine, second: int) -> tuple[str, ...]:
    watts = ((device.power_milliwatts or 0) / 1000 for device in machine.state(second))
    return tuple(f"{each:.0f} of 700 W" for each in watts)


def test_the_start_and_a_tick_of_eight_busy_devices_are_few_bytes(
    driver: FakeDriver, tmp_path: Path
) -> None:
    with Machine(BUSY, driver, tmp_path) as machine:
        driver.write(*machine.state(1))
        with dashboard(env=driver.environment(), columns=160, rows=50) as terminal:
            see(terminal, *has_powers(machine, 1), "job-0")
            terminal.collect(2.2)  # as long as readings are new: rates, the host
            assert terminal.bytes_received < BYTES_OF_THE_START
            sent = 0
            for second in range(2, 2 + STATES):
                before = terminal.bytes_received
                driver.write(*machine.state(second))
                see(terminal, *has_powers(machine, second))
                terminal.collect(0.2)  # the rest of the same picture
                sent += terminal.bytes_received - before
    assert sent / STATES < BYTES_OF_A_TICK
