import os
import select
import sys

import pytest

from tests.bench.workers import needs_torch
from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import GIB, dashboard, fill_terminal
from tests.fake_cuda import PYTHON
from tests.fake_cuda.settings import Settings

pytestmark = [pytest.mark.driver, needs_torch]

FREE = FakeDevice(
    memory_total_bytes=4 * GIB, memory_used_bytes=int(3.36 * GIB), memory_reserved_bytes=0
)
"""Room for small products, which a CPU makes in time."""
SETTINGS = {
    **Settings(memory_gib=4).environment(),
    "FAKE_CUDA_PYTHON": sys.executable,
    "OMP_NUM_THREADS": "1",
}


def test_heat_ends_a_run_on_a_terminal_that_nobody_reads(driver: FakeDriver) -> None:
    driver.write(FREE)
    environment = {**driver.environment(), **SETTINGS}
    options = ("--interval", "0.25", "--python", str(PYTHON))
    with dashboard(*options, env=environment, columns=200, rows=60) as terminal:
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
