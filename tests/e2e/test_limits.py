"""A device under stress that becomes too hot, or that nobody can watch: its run ends in time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from gputop.stream.launch import module_command
from tests.bench.workers import needs_torch
from tests.driver import FakeDevice, FakeDriver
from tests.fake_cuda import PYTHON
from tests.fake_cuda.settings import Settings
from tests.faults.terminals import fill_terminal
from tests.terminal import Terminal

pytestmark = [pytest.mark.driver, needs_torch]

GPUTOP = module_command("gputop")
GIB = 1 << 30
FREE = FakeDevice(
    memory_total_bytes=4 * GIB, memory_used_bytes=int(3.36 * GIB), memory_reserved_bytes=0
)
"""Room for small products, which a CPU makes in time."""
SETTINGS = {
    **Settings(memory_gib=4).environment(),
    "FAKE_CUDA_PYTHON": sys.executable,
    "OMP_NUM_THREADS": "1",
}
"""A GPU on which the real worker computes."""


class Bench:
    """The shipped command on devices of a driver, with its output."""

    def __init__(self, driver: FakeDriver, seconds: float, device: str = "0") -> None:
        words = f"bench --device {device} --size 256 --seconds {seconds:g} --json --python {PYTHON}"
        self.terminal, stdin = os.openpty()
        self.process = subprocess.Popen(
            [*GPUTOP, *words.split()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stdin,
            env={**os.environ, **driver.environment(), **SETTINGS},
            text=True,
        )
        os.close(stdin)
        self.said = ""

    def wait_until_measuring(self) -> None:
        """Read the line of progress until it has a rate."""
        while "TFLOP/s" not in self.said:
            ready, _, _ = select.select([self.terminal], [], [], 60)
            assert ready
            self.said += os.read(self.terminal, 4096).decode()

    def result(self) -> Any:
        """Wait for the end, and return the result, or a list of those of several devices."""
        reading = threading.Thread(target=self._read)
        reading.start()
        with self.process:
            out, _ = self.process.communicate(timeout=60)
        reading.join()
        os.close(self.terminal)
        return json.loads(out)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # nobody writes any more
            while data := os.read(self.terminal, 4096):
                self.said += data.decode()


def test_a_result_has_the_conditions_of_its_device(driver: FakeDriver) -> None:
    driver.write(replace(FREE, clock_event_reasons=0x20, fail={"field.75": 3, "field.269": 3}))
    run = Bench(driver, 3.0)
    result = run.result()
    assert run.process.returncode == 4
    assert "throttling: software thermal slowdown for" in run.said
    assert result["stopped"] == "time"
    conditions = result["conditions"]
    assert conditions["driver_version"] == "580.95.05"
    assert conditions["pci_device_id"] == "2330"
    assert conditions["power_watts_mean"] == pytest.approx(612.34)
    assert conditions["power_limit_watts"] == 700.0
    assert conditions["sm_clock_mhz_mean"] == 1755.0
    assert conditions["sm_clock_max_mhz"] == 1980
    assert conditions["temperature_celsius_max"] == 64
    assert conditions["clock_event_seconds"].keys() == {"sw_thermal"}
    assert 1.0 <= conditions["clock_event_seconds"]["sw_thermal"] <= result["seconds"] + 1e-6


def test_heat_ends_a_run_without_the_dashboard(driver: FakeDriver) -> None:
    driver.write(FREE)
    run = Bench(driver, 600.0)
    run.wait_until_measuring()
    driver.change(0, temperature_celsius=88)
    result = run.result()
    assert run.process.returncode == 4
    assert result["stopped"] == "limit"
    # Messages beside the line of progress are wrapped at words.
    said = " ".join(run.said.split())
    assert "too hot, it reached 88°C, and its limit is 86°C" in said


def test_heat_ends_a_run_on_a_terminal_that_nobody_reads(
    driver: FakeDriver,
) -> None:
    driver.write(FREE)
    argv = [*GPUTOP, "--interval", "0.25", "--python", str(PYTHON)]
    environment = {**driver.environment(), **SETTINGS}
    with Terminal(argv, env=environment, columns=200, rows=60) as terminal:
        terminal.wait_for("H100")
        terminal.send("b")
        terminal.wait_for("Running")
        (worker,) = (pid for pid, line in terminal.processes().items() if "worker/__main" in line)
        fill_terminal(terminal)
        pidfd = os.pidfd_open(worker)
        assert not select.select([pidfd], [], [], 0)[0], "a stalled terminal alone ends nothing"
        driver.change(0, temperature_celsius=88)
        ended = select.select([pidfd], [], [], 20)[0]
        os.close(pidfd)
        assert ended, "the worker goes on on a device that is too hot"
        terminal.collect(0.5)  # the notification may have gone by the time that it can be shown
        terminal.send("2")
        terminal.wait_for("Too hot: it reached 88°C, and its limit is 86°C")
