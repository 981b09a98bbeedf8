"""The shipped command, unmodified, in a real terminal against the fake driver."""

from __future__ import annotations

import json
import os
import re
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import GIB, NO_DRIVER, dashboard, run, see
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.terminal import Terminal

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def eight(process: int) -> list[FakeDevice]:
    """Eight devices with other numbers each."""
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
def test_eight_panels_show_the_driver_s_numbers_and_status_agrees(driver: FakeDriver) -> None:
    pid = os.getpid()
    devices = eight(pid)
    driver.write(*devices)
    with dashboard(env=driver.environment()) as terminal:
        terminal.wait_for(lambda t: "7 Test 7" in t.text and t.text.count(f" {pid} ") == 8)
        text = terminal.text
    document = json.loads(run("status", "--json", env=driver.environment()).stdout)
    for index, fake in enumerate(devices):
        watts = (fake.power_milliwatts or 0) / 1000
        panel = panel_of(text, index)
        assert f"{fake.gpu_utilization_percent} %" in panel
        assert f"{(index + 1) * 7:.1f} of 79.6 GiB" in panel
        assert f"{fake.temperature_celsius}°C" in panel
        assert f"{watts:.0f} of 700 W" in panel
        assert f"SM {fake.sm_clock_mhz}/1980 MHz" in panel
        read = document["sample"]["devices"][index]
        assert document["inventory"]["devices"][index]["name"] == f"NVIDIA Test {index}"
        assert read["uuid"] == document["inventory"]["devices"][index]["uuid"]
        assert read["gpu_utilization_percent"] == fake.gpu_utilization_percent
        assert read["memory_used_bytes"] == fake.memory_used_bytes
        assert read["temperature_celsius"] == fake.temperature_celsius
        assert read["power_watts"] == watts
        assert read["sm_clock_mhz"] == fake.sm_clock_mhz
        process = document["sample"]["processes"][index]
        assert process["pid"] == pid
        assert process["memory_used_bytes"] == (index + 1) * GIB
        assert process["command"].startswith(psutil.Process().cmdline()[0])


def panel_of(text: str, index: int) -> str:
    """The rows of one panel: two columns at this width."""
    lines = text.splitlines()
    top = next((n for n, line in enumerate(lines) if f"{index} Test {index} " in line), None)
    if top is None:  # behind another screen
        return ""
    left = lines[top].index(f"{index} Test {index} ") < 60
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


def start_stress(terminal: Terminal) -> None:
    terminal.wait_for("Press b")
    terminal.send("b")
    terminal.wait_for("Running: float32", timeout=60)
    terminal.wait_for(lambda t: re.search(r"now \d", t.text) is not None)


def worker_pids(terminal: Terminal) -> list[int]:
    found = []
    for pid in terminal.processes():
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - a process may end meanwhile
            if b"worker/__main__.py" in file.read():
                found.append(pid)
    return found


@needs_torch
def test_the_cpu_is_stressed_and_drawn_where_there_is_no_driver() -> None:
    with dashboard(columns=80, rows=24) as terminal:
        terminal.wait_for("No NVIDIA driver: libnvidia-ml.so.1 is not found")
        start_stress(terminal)
        terminal.wait_for(lambda t: any("\u2801" <= c <= "\u28ff" for c in t.text))
        assert len(worker_pids(terminal)) == 1
        terminal.send("x")
        terminal.wait_for("Stopped: float32")
        assert worker_pids(terminal) == []
        terminal.wait_for(" stopped")
        terminal.send("1")
        terminal.wait_for("No NVIDIA driver:")


def send(keys: str) -> Callable[[Terminal], None]:
    def sent(terminal: Terminal) -> None:
        terminal.send(keys)

    return sent


def close_pty(terminal: Terminal) -> None:
    terminal.close_pty()


def kill_with(number: signal.Signals) -> Callable[[Terminal], None]:
    def kill(terminal: Terminal) -> None:
        terminal.kill(number)

    return kill


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(send("q"), id="q"),
        pytest.param(send("\x03"), id="Ctrl+C"),
        pytest.param(close_pty, id="closed-pty"),
        pytest.param(kill_with(signal.SIGTERM), id="SIGTERM"),
        pytest.param(kill_with(signal.SIGHUP), id="SIGHUP"),
        pytest.param(kill_with(signal.SIGKILL), id="SIGKILL"),
    ],
)
def test_however_it_ends_nothing_of_it_is_left(end: Callable[[Terminal], None]) -> None:
    with dashboard(columns=80, rows=24) as terminal:
        start_stress(terminal)
        assert len(terminal.processes()) == 3  # the dashboard, its sampler and the worker
        end(terminal)
        terminal.wait_until_gone()


def test_without_a_terminal_it_is_status() -> None:
    done = run("--demo")
    assert "SIMULATED" in done.stdout
    assert done.stdout.count("H100") == 8


def test_a_demo_simulates_the_stress_test_and_leaves_nothing(tmp_path: Path) -> None:
    env = {**NO_DRIVER, "XDG_DATA_HOME": str(tmp_path)}
    with dashboard("--demo", "--interval", "0.25", env=env) as terminal:
        see(terminal, "SIMULATED", "7 H100")
        before = terminal.processes()
        terminal.send("b")
        see(terminal, "simulated  TFLOP/s over time", "power cap", "98/700 W")
        assert terminal.processes() == before, "no worker, and no second sampler"
        terminal.send("x")
        see(terminal, "Stopped: bfloat16 8192×8192×8192 on GPU 0 simulated H100", " stopped")
        terminal.send("q")
        assert terminal.wait() == 0
    assert [*tmp_path.rglob("results*")] == []
