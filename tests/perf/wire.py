"""Bytes on the wire, and what is seen over a slow line: `python -m tests.perf.wire`.

Eight devices of the fake driver. On a fast line: bytes a second where every number moves and where
nothing does, and bytes of the first five seconds. On a line of 2 kB/s: seconds to the first number
of a device, from a key to its effect, and the age of what is shown.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.driver import FakeDriver, build
from tests.perf.machine import Machine, Scene
from tests.perf.measure import SETTLED, Recorder, compile_package
from tests.perf.peers import MAIN
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

GPUTOP = [str(Path(sys.executable).with_name("gputop"))]
SIZES = ((160, 50), (80, 24))
FIRST_SECONDS = 5.0
LINE = 2000
"""Bytes a second of the slow line."""
PIECE = 40
"""Bytes that it carries at once."""
KEYS = 2 * (("2", "Press b"), ("1", "occupancy")) + (("?", "Main keys"),)
"""Keys, and what each brings on the screen."""
WATTS = re.compile(r"(\d+) of 700 W")


class SlowTerminal(Terminal):
    """Terminal that reads no more than the line carries, and shows what came of a frame."""

    synchronizes = False

    def _read(self, timeout: float) -> bool:
        time.sleep(min(timeout, PIECE / LINE))
        return super()._read(0.0)

    def _take(self, data: bytes) -> None:
        assert len(data) <= PIECE
        super()._take(data)


def on_fast_line(machine: Machine, seconds: float) -> tuple[int, float, float]:
    """Return bytes of the first seconds, and bytes and milliseconds of processor time a second."""
    machine.rest()
    columns, rows = machine.scene.columns, machine.scene.rows
    with Recorder(GPUTOP, machine.driver.environment(), columns, rows) as terminal, machine.work():
        first = terminal.collect(FIRST_SECONDS)
        terminal.collect(SETTLED)
        before = _nanoseconds(terminal.pid)
        sent = terminal.collect(seconds)
        used = _nanoseconds(terminal.pid) - before
    return first, sent / seconds, used / seconds / 1e6


def _nanoseconds(pid: int) -> int:
    """Processor time of the dashboard alone, without its sampler."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def on_slow_line(machine: Machine, seconds: float) -> tuple[float, list[float], list[float]]:
    """Return seconds to the first number, from each key to its effect, and ages of a number."""
    machine.rest()
    driver = machine.driver
    columns, rows = machine.scene.columns, machine.scene.rows
    real = os.read
    os.read = lambda descriptor, _: real(descriptor, PIECE)
    try:
        with SlowTerminal(GPUTOP, driver.environment(), columns, rows) as terminal:
            numbers = terminal.wait_for(lambda t: WATTS.search(t.text), timeout=60)
            ages = [*_ages(machine, driver, terminal, seconds)]
            with machine.work():
                keys = []
                for key, text in KEYS:
                    began = terminal.elapsed
                    terminal.send(key)
                    keys.append(terminal.wait_for(lambda t, x=text: x in t.text) - began)  # type: ignore[misc]
                    terminal.collect(3.0)
    finally:
        os.read = real
    return numbers, keys, ages


def _ages(
    machine: Machine, driver: FakeDriver, terminal: Terminal, seconds: float
) -> Iterator[float]:
    """Yield ten times a second how long the number on the screen has not been the newest.

    The first device's power is the number of seconds; all else moves as on a busy machine.
    """
    replaced: dict[int, float] = {}
    began = terminal.elapsed
    for second in itertools.count(101):
        first, *others = machine.state(second)
        driver.write(dataclasses.replace(first, power_milliwatts=1000 * second), *others)
        replaced[second - 1] = terminal.elapsed
        while terminal.elapsed - began < second - 100:
            terminal.collect(0.1)
            found = WATTS.search(terminal.text)
            shown = int(found[1]) if found else 0
            if terminal.elapsed - began > seconds:
                return
            if replaced.keys() >= {100, shown} or shown == second:
                yield terminal.elapsed - replaced.get(shown, terminal.elapsed)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    compile_package()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = FakeDriver(folder, build(folder, "cc"))
        print(f"8 devices x 3 processes{'':13}first 5 s, B       B/s      ms/s")
        for (columns, rows), busy in itertools.product(SIZES, (True, False)):
            scene = Scene(busy=busy, devices=8, columns=columns, rows=rows)
            with Machine(scene, driver, folder) as machine:
                first, rate, used = on_fast_line(machine, seconds)
            print(f"{scene!s:40}{first:9,}{rate:10,.0f}{used:10.1f}", flush=True)
        print(f"busy, on a line of {LINE} B/s, s      numbers  key median  key worst  age worst")
        with Machine(MAIN, driver, folder) as machine:
            numbers, keys, ages = on_slow_line(machine, seconds)
        row = f"{numbers:10.1f}{statistics.median(keys):12.1f}{max(keys):11.1f}{max(ages):11.1f}"
        print(f"{'160x50':32}{row}")


if __name__ == "__main__":
    main()
