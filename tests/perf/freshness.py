"""How old what is on screen can be: `python -m tests.perf.freshness`.

Eight devices whose PCIe rates cost 20 ms a call, as on GPUs without byte counters. Each device's
power is changed at some moment within the interval, and the time is taken until the dashboard
shows the new one. It should never be longer than the interval and 0.2 s.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.driver import FakeDevice, FakeDriver, build
from tests.terminal import Terminal

GPUTOP = [str(Path(sys.executable).with_name("gputop"))]
DEVICES = 8
ALLOWED_SECONDS = 0.2


def slow_device() -> FakeDevice:
    """Without byte counters, so that the driver is asked to measure."""
    usual = FakeDevice()
    values = {k: v for k, v in usual.values.items() if k not in ("field.197", "field.198")}
    return FakeDevice(values=values, delays={"nvmlDeviceGetPcieThroughput": 20})


def ages(driver: FakeDriver, interval: float, changes: int) -> list[float]:
    """Seconds from a change in the driver to the screen, for each change of one device."""
    driver.write(*(slow_device() for _ in range(DEVICES)))
    command = [*GPUTOP, "--interval", f"{interval:g}"]
    found = []
    moments = random.Random(3)  # noqa: S311 - to spread changes over the interval
    with Terminal(command, env=driver.environment(), columns=160, rows=50) as terminal:
        terminal.wait_for("of 700 W", timeout=30)
        terminal.collect(6.0)  # past the first round of the slow questions
        for change in range(changes):
            watts = 100 + change % 500
            driver.change(change % DEVICES, power_milliwatts=1000 * watts)
            since = time.monotonic()
            terminal.wait_for(f" {watts} of 700 W", timeout=30)
            found.append(time.monotonic() - since)
            terminal.collect(moments.uniform(0, interval))
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=60)
    changes = parser.parse_args().changes
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder), build(Path(folder), "cc"))
        print(f"{DEVICES} devices, PCIe calls of 20 ms, {changes} changes (seconds)")
        print("interval  median   worst   allowed")
        for interval in (0.25, 1.0):
            found = ages(driver, interval, changes)
            allowed = interval + ALLOWED_SECONDS
            row = (
                f"{interval:8.2f} {statistics.median(found):7.3f} {max(found):7.3f} {allowed:9.2f}"
            )
            print(row, "" if max(found) <= allowed else "  TOO OLD")


if __name__ == "__main__":
    main()
