"""A device under stress that becomes too hot, or that nobody can watch: its run ends in time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gputop.stream.launch import module_command
from tests.bench.workers import FAKE_WORKER, fake_interpreter
from tests.driver import GPU_IS_LOST, FakeDevice, FakeDriver
from tests.faults.terminals import fill_terminal
from tests.terminal import Terminal

pytestmark = pytest.mark.driver

GPUTOP = module_command("gputop")
WORKER = """
import json, os, select, sys, time
asked = json.loads(sys.stdin.readline())
def say(event, **fields): print(json.dumps({"event": event, **fields}), flush=True)
say("hello", python="3.11.0", torch_version="9.9.9", device_name="a GPU", threads=1, pid=1)
say("plan", m=1024, n=1024, k=1024, dtype=asked["dtype"], accumulate="float32", layout="any",
    data="none", relative_error=1e-6,
    method="by hand")
began, n, stopped = time.monotonic(), 0, "time"
while time.monotonic() - began < asked["seconds"]:
    if select.select([0], [], [], 0.1)[0]:
        if not os.read(0, 100): os._exit(1)
        stopped = "user"
        break
    n += 1
    say("sample", elapsed_seconds=time.monotonic() - began, window_seconds=0.1, iterations=n,
        tflops=700.0, tflops_device=700.0)
    open(__file__ + ".begun", "w").close()
say("done", tflops_mean=700.0, tflops_peak=700.0, tflops_sustained=None, droop_percent=None,
    tflops_device=700.0, seconds=time.monotonic() - began, iterations=n, wrong_elements=0,
    checks=1, stopped=stopped)
"""
"""A worker that does no work, and stops when it is told to. A file says that it has measured."""


def bench(driver: FakeDriver, folder: Path, seconds: float) -> subprocess.Popen[str]:
    """The shipped command on the first device of that driver."""
    path = fake_interpreter(folder, WORKER)
    arguments = ["bench", "--device", "0", "--seconds", f"{seconds:g}", "--json", "--python", path]
    return subprocess.Popen(
        [*GPUTOP, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **driver.environment()},
        text=True,
    )


def wait_until_begun(folder: Path) -> None:
    """Until the run has something for a result."""
    path, pause = folder / f"{FAKE_WORKER}.begun", threading.Event()
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        pause.wait(0.05)


def result_of(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    with process:
        out, err = process.communicate(timeout=60)
    document: dict[str, Any] = json.loads(out)
    return document, err


def test_a_result_has_the_conditions_of_its_device(driver: FakeDriver, tmp_path: Path) -> None:
    driver.write(FakeDevice(clock_event_reasons=0x20, fail={"field.75": 3, "field.269": 3}))
    process = bench(driver, tmp_path, 3.0)
    result, err = result_of(process)
    assert process.returncode == 4
    assert "throttling: software thermal slowdown for" in err
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


def test_heat_ends_a_run_without_the_dashboard(driver: FakeDriver, tmp_path: Path) -> None:
    driver.write(FakeDevice())
    process = bench(driver, tmp_path, 600.0)
    wait_until_begun(tmp_path)
    driver.change(0, temperature_celsius=88)
    result, err = result_of(process)
    assert process.returncode == 4
    assert result["stopped"] == "limit"
    (line,) = err.splitlines()
    assert "too hot, it reached 88°C, and its limit is 86°C" in line


@pytest.mark.parametrize(
    ("changes", "why", "limits"),
    [
        (
            {"temperature_celsius": 84, "temperature_margin_celsius": 3},
            "its margin fell to 3°C, and its limit is 3°C (slowdown at -2°C)",
            "margin 3°C (slowdown at -2°C)",
        ),
        (
            {"temperature_celsius": 81, "temperature_margin_celsius": None},
            "it reached 81°C, and its limit is 80°C (the driver reports none)",
            "default 80°C (the driver reports none)",
        ),
    ],
)
def test_a_device_without_absolute_thresholds_ends_by_its_margin_or_the_default(
    driver: FakeDriver, tmp_path: Path, changes: dict[str, Any], why: str, limits: str
) -> None:
    """As an H100 with its driver, and with one that is too old to tell the margin."""
    margins = {"field.193": -8, "field.194": -2, "field.195": 0, "field.196": 0}
    margin = changes["temperature_margin_celsius"] and 23
    driver.write(FakeDevice(values=margins, temperature_margin_celsius=margin))
    process = bench(driver, tmp_path, 600.0)
    wait_until_begun(tmp_path)
    driver.change(0, **changes)
    result, err = result_of(process)
    assert process.returncode == 4
    assert result["stopped"] == "limit"
    (line,) = err.splitlines()
    assert f"too hot, {why}" in line
    assert result["conditions"]["heat_limit"] == limits


def test_a_device_that_is_lost_ends_the_run_of_a_worker_that_goes_on(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.write(FakeDevice())
    shorter = (
        "import gputop.bench.run.supervision as w; w.START_SECONDS = w.SILENCE_SECONDS = 3.0\n"
    )
    command = f"{shorter}from gputop.cli import main; import sys; sys.exit(main())"
    monkeypatch.setattr(f"{__name__}.GPUTOP", [sys.executable, "-c", command])
    process = bench(driver, tmp_path, 600.0)
    wait_until_begun(tmp_path)
    driver.change(0, code=GPU_IS_LOST)
    result, err = result_of(process)
    assert process.returncode == 4
    assert result["stopped"] == "silent"
    assert "not watched, it did not answer for 3 s" in err


def test_heat_ends_a_run_on_a_terminal_that_nobody_reads(
    driver: FakeDriver, tmp_path: Path
) -> None:
    driver.write(FakeDevice())
    argv = [*GPUTOP, "--interval", "0.25", "--python", fake_interpreter(tmp_path, WORKER)]
    with Terminal(argv, env=driver.environment(), columns=200, rows=60) as terminal:
        terminal.wait_for("H100")
        terminal.send("b")
        terminal.wait_for("Running")
        (worker,) = (pid for pid, line in terminal.processes().items() if "fake_worker" in line)
        fill_terminal(terminal)
        pidfd = os.pidfd_open(worker)
        assert not select.select([pidfd], [], [], 0)[0], "a stalled terminal alone ends nothing"
        driver.change(0, temperature_celsius=88)
        ended = select.select([pidfd], [], [], 20)[0]
        os.close(pidfd)
        assert ended, "the worker goes on on a device that is too hot"
        terminal.collect(0.5)  # the notification may have gone by the time that it can be shown
        terminal.send("2")
        terminal.wait_for("Too hot it reached 88°C, and its limit is 86°C")


def test_a_paused_picture_does_not_hide_the_heat(driver: FakeDriver, tmp_path: Path) -> None:
    driver.write(FakeDevice())
    argv = [*GPUTOP, "--interval", "60", "--python", fake_interpreter(tmp_path, WORKER)]
    with Terminal(argv, env=driver.environment(), columns=120, rows=40) as terminal:
        terminal.wait_for("H100")
        terminal.send("b")
        terminal.wait_for("Running")
        terminal.wait_for("612/700 W")
        terminal.send(" ")
        driver.change(0, temperature_celsius=88)
        terminal.wait_for("Too hot it reached 88°C, and its limit is 86°C")
        terminal.wait_for("too hot")
        terminal.send("q")
        assert terminal.wait() == 0
        terminal.wait_until_gone()
