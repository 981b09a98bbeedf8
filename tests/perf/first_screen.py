"""How soon there is something to see: `python -m tests.perf.first_screen`.

Starts the shipped command in a pty against the fake driver, again and again, and prints when the
first cell was painted and when the first device's numbers were, in seconds since the start; then
what a dashboard of eight busy devices sends and computes in ten seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import psutil

from tests.driver import FakeDevice, FakeDriver, FakeProcess, build
from tests.perf.measure import compile_package
from tests.terminal import Terminal

GPUTOP = [str(Path(sys.executable).with_name("gputop"))]
SECONDS = 10.0


def first_screen(driver: FakeDriver, delay_ms: int) -> tuple[float, float]:
    """Seconds to the first painted cell, and to the first device."""
    driver.write(FakeDevice(), init_delay_ms=delay_ms)
    with Terminal(GPUTOP, env=driver.environment(), columns=120, rows=40) as terminal:
        terminal.wait_for(lambda t: bool(t.text.strip()), timeout=30)
        painted = terminal.first_paint_seconds
        numbers = terminal.wait_for("of 700 W", timeout=30)
    return painted, numbers


def running_cost(driver: FakeDriver) -> tuple[float, float, float]:
    """kB/s sent, share of a core and MiB (PSS) of the whole tree: 8 devices, 3 processes each."""
    names = [FakeProcess(1, memory_bytes=(n + 1) << 30) for n in range(3)]
    devices = [FakeDevice(processes=tuple(names)) for _ in range(8)]
    driver.write(*devices)
    with Terminal(GPUTOP, env=driver.environment(), columns=160, rows=50) as terminal:
        terminal.wait_for("COMMAND", timeout=30)
        terminal.collect(2)
        tree = [psutil.Process(pid) for pid in terminal.processes()]
        before = cpu_seconds(tree)
        sent = 0
        for second in range(round(SECONDS)):
            for index in range(8):  # every number moves a little, as on a machine at work
                step = (second * 7 + index * 3) % 10
                driver.change(
                    index,
                    gpu_utilization_percent=90 + step,
                    power_milliwatts=600_000 + 7_000 * step,
                    temperature_celsius=60 + step // 4,
                    sm_clock_mhz=1_700 + 15 * step,
                )
            sent += terminal.collect(1)
        share = (cpu_seconds(tree) - before) / SECONDS
        memory = sum(process.memory_full_info().pss for process in tree)
    return sent / SECONDS / 1000, share, memory / (1 << 20)


def cpu_seconds(tree: list[psutil.Process]) -> float:
    """User and system time of all of them."""
    return sum(sum(process.cpu_times()[:2]) for process in tree)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    compile_package()
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder), build(Path(folder), "cc"))
        print(f"seconds since the start, {runs} runs   median    max")
        for delay in (0, 2000):
            times = [first_screen(driver, delay) for _ in range(runs)]
            for name, column in zip(
                ("first cell painted", "first numbers"), zip(*times, strict=True), strict=True
            ):
                label = f"{name}, nvmlInit takes {delay / 1000:g} s"
                print(f"{label:<42}{statistics.median(column):6.3f} {max(column):6.3f}")
        sent, share, memory = running_cost(driver)
        print("8 busy devices x 3 processes, 160x50, 1 s, dashboard and sampler together:")
        print(f"{sent:.1f} kB/s, {100 * share:.1f} % of a core, {memory:.0f} MiB PSS")


if __name__ == "__main__":
    main()
