"""Instructions beside another version: `python -m tests.perf.instructions --before FOLDER`.

They are those of Python's bytecode. On a shared machine times differ by a half from one minute to
the next, and these numbers by a few percent. A tracer counts them in all threads of the dashboard
and of its sampler, with eight busy devices whose readings change. What C code does is not counted,
such as to compare lists or to read JSON.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from tests.driver import FakeDevice, FakeDriver, FakeProcess, build
from tests.perf.first_second import ROOT, command
from tests.terminal import Terminal

HOOK = """
import os, signal, sys, threading
count = 0
def trace(frame, event, argument):
    global count
    if event == "call":
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
    elif event == "opcode":
        count += 1
    return trace
def write(*_):
    with open(f"{os.environ['COUNTS']}/{os.getpid()}", "a") as file:
        print(count, file=file)
signal.signal(signal.SIGUSR1, write)
threading.settrace(trace)
sys.settrace(trace)
"""
SETTLED_SECONDS = 12.0
SECONDS = 20
PROCESSES = tuple(FakeProcess(1, memory_bytes=gib << 30) for gib in (1, 2, 3))


def counted(pids: list[int], counts: Path) -> list[int]:
    """Return the instructions of each process so far."""
    found = []
    for pid in pids:
        file = counts / str(pid)
        before = file.read_text() if file.exists() else ""
        os.kill(pid, signal.SIGUSR1)
        while not file.exists() or file.read_text() == before or file.read_text()[-1] != "\n":
            time.sleep(0.01)
        found.append(int(file.read_text().split()[-1]))
    return found


def change(driver: FakeDriver, numbers: random.Random) -> None:
    """Give all devices other readings."""
    devices = [
        FakeDevice(
            processes=PROCESSES,
            gpu_utilization_percent=numbers.randrange(30, 99),
            power_milliwatts=numbers.randrange(200_000, 690_000),
            temperature_celsius=numbers.randrange(50, 80),
            sm_clock_mhz=numbers.randrange(1200, 1900),
            memory_used_bytes=numbers.randrange(10, 70) << 30,
        )
        for _ in range(8)
    ]
    driver.write(*devices)


def measure(folder: Path, driver: FakeDriver, site: Path) -> list[float]:
    """Return those until the first numbers, and those of a second, in thousands.

    Each of the dashboard and of the sampler.
    """
    (site / "sitecustomize.py").write_text(HOOK)
    paths = {"PYTHONPATH": f"{folder}:{site}", "COUNTS": str(site), "PYTHONHASHSEED": "0"}
    numbers = random.Random(1)  # noqa: S311 - the same ones for both versions
    change(driver, numbers)
    with Terminal(command(folder), {**driver.environment(), **paths}, 160, 50) as terminal:
        terminal.wait_for("of 700 W")
        pids = [terminal.pid, *(pid for pid in terminal.processes() if pid != terminal.pid)]
        start = counted(pids, site)
        terminal.collect(SETTLED_SECONDS)
        before, began = counted(pids, site), time.monotonic()
        for _ in range(SECONDS):
            terminal.collect(1)
            change(driver, numbers)
        after, elapsed = counted(pids, site), time.monotonic() - began
    seconds = [(end - begin) / elapsed for begin, end in zip(before, after, strict=True)]
    return [each / 1000 for each in (*start, *seconds)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="a folder with the other version")
    before = parser.parse_args().before
    print(f"{'thousands':12}{'until the first numbers':>30}{'each second':>30}")
    print(f"{'':12}" + f"{'dashboard':>15}{'sampler':>15}" * 2)
    for name, folder in (("before", before), ("now", ROOT)):
        if folder is not None:
            with tempfile.TemporaryDirectory() as site:
                driver = FakeDriver(Path(site), build(Path(site), "cc"))
                figures = measure(folder.resolve(), driver, Path(site))
            print(f"{name:12}" + "".join(f"{each:15,.0f}" for each in figures))


if __name__ == "__main__":
    main()
