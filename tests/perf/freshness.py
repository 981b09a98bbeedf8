"""How old what is on screen can be: `python -m tests.perf.freshness`.

Eight devices. Each one's power is changed at some moment within the interval, and the time is taken
until the dashboard shows the new one. It should never be longer than the interval and 0.2 s. Of the
devices PCIe rates cost 20 ms a call, as on GPUs without byte counters; in a driver that answers all
devices at the same time, and in one that answers one question after the other. Then every call
costs 2 ms.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.driver import FakeDevice, FakeDriver, build
from tests.terminal import Terminal

GPUTOP = [str(Path(sys.executable).with_name("gputop"))]
DEVICES = 8
ALLOWED_SECONDS = 0.2
PCIE = {"nvmlDeviceGetPcieThroughput": 20}


def ages(
    driver: FakeDriver, interval: float, changes: int, delays: Mapping[str, int], delay_ms: int
) -> list[float]:
    """Seconds from a change in the driver to the screen, for each change of one device."""
    usual = FakeDevice()
    # Without byte counters, so that the driver is asked to measure.
    values = {k: v for k, v in usual.values.items() if k not in ("field.197", "field.198")}
    device = FakeDevice(values=values, delays=delays, delay_ms=delay_ms)
    driver.write(*(device for _ in range(DEVICES)))
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
        print(f"{DEVICES} devices, {changes} changes each (seconds)")
        print("driver                          interval  median   worst   allowed")
        for name, serial, delays, delay_ms in (
            ("PCIe 20 ms", False, PCIE, 0),
            ("PCIe 20 ms, one after the other", True, PCIE, 0),
            ("every call 2 ms", False, {}, 2),
        ):
            driver.change_machine(one_at_a_time=serial)
            for interval in (0.25, 1.0):
                found = ages(driver, interval, changes, delays, delay_ms)
                allowed = interval + ALLOWED_SECONDS
                row = f"{name:<32}{interval:8.2f} {statistics.median(found):7.3f}"
                row += f" {max(found):7.3f} {allowed:9.2f}"
                print(row, "" if max(found) <= allowed else "  TOO OLD", flush=True)


if __name__ == "__main__":
    main()
