import os
import re

import pytest

from tests.bench.workers import needs_torch
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import GIB, dashboard
from tests.terminal import Terminal


def eight(process: int) -> list[FakeDevice]:
    return [
        FakeDevice(
            name=f"NVIDIA Test {index}",
            gpu_utilization_percent=11 * index + 3,
            memory_used_bytes=(index + 1) * 7 * GIB,
            temperature_celsius=41 + index,
            power_milliwatts=101_000 + 51_000 * index,
            sm_clock_mhz=1005 + 15 * index,
            processes=(FakeProcess(process, memory_bytes=(index + 1) * GIB),),
        )
        for index in range(8)
    ]


@pytest.mark.driver
def test_eight_panels_show_the_driver_s_numbers(driver: FakeDriver) -> None:
    pid = os.getpid()
    devices = eight(pid)
    driver.write(*devices)
    with dashboard(env=driver.environment()) as terminal:
        terminal.wait_for(lambda t: "7 Test 7" in t.text and t.text.count(f" {pid} ") == 8)
        text = terminal.text
    for index, fake in enumerate(devices):
        watts = (fake.power_milliwatts or 0) / 1000
        panel = panel_of(text, index)
        assert f"{fake.gpu_utilization_percent} %" in panel
        assert f"{(index + 1) * 7:.1f} of 79.6 GiB" in panel
        assert f"{fake.temperature_celsius}°C" in panel
        assert f"{watts:.0f} of 700 W" in panel
        assert f"SM {fake.sm_clock_mhz}/1980 MHz" in panel


def panel_of(text: str, index: int) -> str:
    lines = text.splitlines()
    title = f"{index} Test {index} "
    top = next(n for n, line in enumerate(lines) if title in line)
    left = lines[top].index(title) < 60
    return "\n".join(line[:60] if left else line[60:] for line in lines[top : top + 7])


@pytest.mark.driver
def test_the_screen_is_there_while_the_driver_still_starts(driver: FakeDriver) -> None:
    driver.write(FakeDevice(), init_delay_ms=1500)
    with dashboard(env=driver.environment()) as terminal:
        terminal.wait_for("Waiting for the NVIDIA driver")
        terminal.wait_for("load ")  # the host meanwhile
        assert "H100" not in terminal.text
        terminal.wait_for("H100")
        terminal.wait_for(lambda t: "Waiting" not in t.text)  # a frame is more than one piece


def workers(terminal: Terminal) -> list[int]:
    lines = terminal.processes().items()
    return [pid for pid, line in lines if "worker/__main__.py" in line]


@needs_torch
def test_the_cpu_is_stressed_and_drawn_where_there_is_no_driver() -> None:
    with dashboard(columns=80, rows=24) as terminal:
        terminal.wait_for("No NVIDIA driver: libnvidia-ml.so.1 is not found")
        terminal.wait_for("Press b")
        terminal.send("b")
        terminal.wait_for("Running: float32", timeout=60)
        terminal.wait_for(lambda t: re.search(r"running +\d", t.text) is not None)
        terminal.wait_for(lambda t: any("\u2801" <= c <= "\u28ff" for c in t.text))
        assert len(workers(terminal)) == 1
        terminal.send("x")
        terminal.wait_for("Stopped: float32")
        assert workers(terminal) == []
        terminal.wait_for(" stopped")
        terminal.send("1")
        terminal.wait_for("No NVIDIA driver:")
