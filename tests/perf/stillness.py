"""Does anything on the screen move when findings come and go? `python -m tests.perf.stillness`.

Every 12 s another device gets hot or is lost, for 7 s. The screen is looked at once a second.
"""

import dataclasses
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.driver import GPU_IS_LOST, FakeDevice, FakeDriver, build
from tests.e2e.shipped import GPUTOP
from tests.perf.machine import Machine, Scene
from tests.terminal import Terminal

SIZES = ((80, 24), (120, 40), (200, 60))
SECONDS = 60
HEAT = 0x20 | 0x40
TITLE = re.compile(r"(?<!\d)(\d+) (?:NVIDIA )?Test \1\b|\bPID\b")


def state(machine: Machine, second: int) -> list[FakeDevice]:
    devices = machine.state(second)
    turn, part = divmod(second, 12)
    if 2 <= part < 9:
        index = 2 * turn % len(devices)
        if turn % 2:
            devices[index] = dataclasses.replace(devices[index], code=GPU_IS_LOST)
        else:
            devices[index] = dataclasses.replace(devices[index], clock_event_reasons=HEAT)
    return devices


def places(text: str) -> tuple[tuple[str, int, int], ...]:
    """Return the titles of panels and lists with their columns and rows."""
    found = []
    for row, line in enumerate(text.splitlines()):
        found += [(title[0], title.start(), row) for title in TITLE.finditer(line)]
    return tuple(found)


def main() -> int:
    moved = 0
    with tempfile.TemporaryDirectory() as name:
        driver = FakeDriver(Path(name), build(Path(name), "cc"))
        for columns, rows in SIZES:
            with Machine(Scene(8, columns, rows), driver, Path(name)) as machine:
                driver.write(*state(machine, 0))
                layouts: Counter[tuple[tuple[str, int, int], ...]] = Counter()
                headers = set()
                env = {**driver.environment(), "FAKE_NVML_CALLS": ""}
                with Terminal([*GPUTOP, "--interval", "1"], env, columns, rows) as terminal:
                    terminal.wait_for("Test 0", timeout=20)
                    began = time.monotonic()
                    while (elapsed := time.monotonic() - began) < SECONDS:
                        driver.write(*state(machine, int(elapsed)))
                        terminal.collect(1.0)
                        layouts[places(terminal.text)] += 1
                        headers.add(terminal.text.splitlines()[1])
                said = f"{layouts.total()} looks, {len(headers)} texts of the header"
                print(f"{columns}x{rows}: {said}, {len(layouts)} layout", flush=True)
                moved += len(layouts) > 1
    return moved


if __name__ == "__main__":
    sys.exit(main())
