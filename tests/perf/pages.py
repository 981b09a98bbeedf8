"""What a page and a tick cost over SSH: `python -m tests.perf.pages`.

The shipped command shows eight busy devices of the fake driver in a pty. Each page is opened while
the picture is paused, so that nothing else is sent: frames, bytes, and milliseconds from the key to
the last of them. Then bytes and processor time of the dashboard itself for each second of work.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from tests.driver import FakeDriver, build
from tests.perf.machine import Machine, Scene
from tests.perf.measure import Recorder, compile_package, has_values, processor_seconds

GPUTOP = [str(Path(sys.executable).with_name("gputop"))]
FRAME = b"\x1b[?2026h"
PAGES = {"device page": b"\r", "tab 2": b"2", "tab 3": b"3", "help": b"?", "why": b"w"}
KEYS = {"arrow": b"\x1b[B", "sort": b"."}
SECONDS, ROUNDS = 24.0, 8


class Frames(Recorder):
    """A terminal that is told where each frame begins."""

    synchronizes = True


def sent(terminal: Frames, key: bytes) -> tuple[int, int, float]:
    """Return frames, bytes and milliseconds of what a key has sent."""
    first, began = len(terminal.pieces), terminal.elapsed
    terminal.send(key)
    terminal.collect(0.8)
    pieces = terminal.pieces[first:]
    data = b"".join(piece for _, piece in pieces)
    return data.count(FRAME), len(data), 1000 * (pieces[-1][0] - began) if pieces else 0.0


def pages(terminal: Frames) -> None:
    """Print what each page sends: at first, and then the median and the longest of some times."""
    print(
        f"{'':12}{'first: frames':>14}{'bytes':>8}{'ms':>7}{'again: frames':>15}{'bytes':>8}",
        end="",
    )
    print(f"{'ms':>7}{'longest':>9}")
    for name, key in {**PAGES, **KEYS}.items():
        rows = []
        for _ in range(ROUNDS):
            rows.append(sent(terminal, key))
            if name in PAGES:
                sent(terminal, b"1" if name.startswith("tab") else b"\x1b")
        frames, size, ms = rows[0]
        print(f"{name:12}{frames:14}{size:8}{ms:7.0f}", end="")
        columns = [statistics.median(column) for column in zip(*rows[1:], strict=True)]
        longest = max(row[2] for row in rows[1:])
        print(f"{columns[0]:15.0f}{columns[1]:8.0f}{columns[2]:7.0f}{longest:9.0f}", flush=True)


def ticks(terminal: Frames, machine: Machine) -> str:
    """Return bytes and processor time of each second of work."""
    with machine.work():
        terminal.collect(6)
        dashboard = dict([min(terminal.processes().items())])
        size, used = terminal.bytes_received, processor_seconds(dashboard)
        terminal.collect(SECONDS)
        used = processor_seconds(dashboard) - used
    size = terminal.bytes_received - size
    return f"{size / SECONDS:.0f} B/s, {1000 * used / SECONDS:.1f} ms/s of the dashboard"


def main() -> None:
    """Print the tables."""
    compile_package()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = FakeDriver(folder, build(folder, "cc"))
        for busy, columns, rows in ((True, 160, 50), (True, 80, 24), (False, 160, 50)):
            scene = Scene(busy, 8, columns, rows)
            with Machine(scene, driver, folder) as machine:
                machine.rest()
                env = {**driver.environment(), "HOME": name}
                with Frames(GPUTOP, env=env, columns=columns, rows=rows) as terminal:
                    terminal.when(has_values, first=1.0)
                    print(f"{scene}: {ticks(terminal, machine)}", flush=True)
                    if (busy, columns) == (True, 160):
                        terminal.send(b" ")
                        terminal.collect(1.0)
                        pages(terminal)


if __name__ == "__main__":
    main()
