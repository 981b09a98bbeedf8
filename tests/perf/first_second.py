"""What a start costs, beside another version: `python -m tests.perf.first_second --before FOLDER`.

FOLDER has the package of the other version, such as `git worktree add FOLDER COMMIT` makes it. Both
are started in turn in a pty against the fake driver with eight busy devices. Times are also given
as multiples of `python -c pass` on this machine at this moment, as the least of all runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.driver import FakeDevice, FakeDriver, FakeProcess, build
from tests.perf.measure import MIB
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]
SETTLED_SECONDS = 4.0


class Start(NamedTuple):
    """One start, in milliseconds and MiB."""

    text: float
    numbers: float
    dashboard: float
    sampler: float
    pss: float


def command(folder: Path) -> list[str]:
    """Return what starts the package in that folder as its installed script does.

    Python looks for modules where it is started before it looks in PYTHONPATH.
    """
    light = "def main" in (folder / "gputop" / "__main__.py").read_text()
    module = "gputop.__main__" if light else "gputop.cli"
    path = f"import sys; sys.path[0] = {str(folder)!r}"
    return [sys.executable, "-c", f"{path}; from {module} import main; sys.exit(main())"]


def start(folder: Path, driver: FakeDriver) -> Start:
    """Start the package in that folder."""
    env = {**driver.environment(), "PYTHONPATH": str(folder)}
    with Terminal(command(folder), env, 160, 50) as terminal:
        text = terminal.first_paint_seconds
        numbers = terminal.wait_for("of 700 W")
        dashboard = milliseconds_of(terminal.pid)
        others = [pid for pid in terminal.processes() if pid != terminal.pid]
        sampler = sum(milliseconds_of(pid) for pid in others)
        terminal.collect(SETTLED_SECONDS)
        pss = sum(psutil.Process(pid).memory_full_info().pss for pid in (terminal.pid, *others))
    return Start(1e3 * text, 1e3 * numbers, dashboard, sampler, pss / MIB)


def milliseconds_of(pid: int) -> float:
    """Return the processor time of a process; `times` counts in steps of ten milliseconds."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e6


def empty_start() -> float:
    """Milliseconds of `python -c pass`."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return 1e3 * (time.monotonic() - began)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="folder with the package to compare with")
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    folders = {"before": arguments.before, "now": ROOT} if arguments.before else {"now": ROOT}
    for folder in folders.values():
        subprocess.run([sys.executable, "-m", "compileall", "-q", folder / "gputop"], check=True)
    busy = FakeDevice(processes=tuple(FakeProcess(1, memory_bytes=n << 30) for n in (1, 2, 3)))
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder), build(Path(folder), "cc"))
        driver.write(*[busy] * 8)
        starts: dict[str, list[Start]] = {name: [] for name in folders}
        empty = []
        for _ in range(arguments.runs):
            for name, where in folders.items():
                starts[name].append(start(where, driver))
            empty.append(empty_start())
    least = min(empty)
    print(f"python -c pass: {least:.1f} ms at least; load {os.getloadavg()[0]:.1f}")
    print(f"{'':8}first text: least, times, median   numbers: least, times, median", end="")
    print("   dashboard, sampler: CPU ms   PSS MiB")
    for name, rows in starts.items():
        columns = [*zip(*rows, strict=True)]
        print(f"{name:<8}", end="")
        for column in columns[:2]:
            shown = f"{min(column):.0f}  {min(column) / least:.1f}  {statistics.median(column):.0f}"
            print(f"{shown:>33}", end="")
        cpu = "  ".join(f"{statistics.median(column):.0f}" for column in columns[2:4])
        print(f"{cpu:>30}{statistics.median(columns[4]):>10.1f}")


if __name__ == "__main__":
    main()
