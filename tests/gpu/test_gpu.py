"""On a real GPU: readings against nvidia-smi, and a stress test. Skipped where there is none."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gputop.stream.launch import module_command
from tests.bench.commands import InTerminal

GPUTOP = module_command("gputop")
MIB = 1 << 20


def query(*names: str) -> list[dict[str, str]]:
    """What nvidia-smi says of every device; empty where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    done = subprocess.run(
        [command, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    rows = csv.reader(done.stdout.splitlines(), skipinitialspace=True)
    return [dict(zip(names, row, strict=True)) for row in rows] if done.returncode == 0 else []


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not query("uuid"), reason="needs an NVIDIA GPU")]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def run_json(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([*GPUTOP, *arguments], capture_output=True, check=True, timeout=180)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_readings_are_nvidia_smi_s() -> None:
    document = run_json("status", "--json")
    said = query(
        "index",
        "uuid",
        "name",
        "driver_version",
        "pci.bus_id",
        "compute_cap",
        "memory.total",
        "memory.used",
        "memory.reserved",
        "temperature.gpu",
        "enforced.power.limit",
        "clocks.max.sm",
        "clocks.max.mem",
    )
    assert len(said) == len(document["inventory"]["devices"])
    for smi, device in zip(said, document["inventory"]["devices"], strict=True):
        readings = next(d for d in document["sample"]["devices"] if d["uuid"] == device["uuid"])
        assert document["inventory"]["driver_version"] == smi["driver_version"]
        assert (str(device["index"]), device["uuid"]) == (smi["index"], smi["uuid"])
        assert (device["name"], device["pci_bus_id"]) == (smi["name"], smi["pci.bus_id"])
        assert device["compute_capability"] == smi["compute_cap"]
        assert device["sm_clock_max_mhz"] == int(smi["clocks.max.sm"])
        assert device["memory_clock_max_mhz"] == int(smi["clocks.max.mem"])
        assert readings["memory_total_bytes"] // MIB == int(smi["memory.total"])
        assert readings["memory_used_bytes"] / MIB == pytest.approx(int(smi["memory.used"]), abs=64)
        assert readings["memory_reserved_bytes"] / MIB == pytest.approx(
            int(smi["memory.reserved"]), abs=2
        )
        assert readings["temperature_celsius"] == pytest.approx(int(smi["temperature.gpu"]), abs=3)
        assert readings["power_limit_watts"] == pytest.approx(float(smi["enforced.power.limit"]))


@needs_torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "tf32", "float32", "float64"])
def test_a_stress_test_of_every_type(dtype: str) -> None:
    result = run_json(
        "bench", "--device", "0", "--dtype", dtype, "--seconds", "5", "--json", "--ignore-busy"
    )
    assert result["wrong_elements"] == 0
    assert result["checks"] >= 4
    assert result["stopped"] == "time"
    assert result["seconds"] == pytest.approx(5, abs=0.5)
    # The host is not in the way: what the device timed is what the clock on the wall says.
    assert result["tflops_device"] == pytest.approx(result["tflops_mean"], rel=0.03)


@needs_torch
def test_it_stops_at_once_and_leaves_nothing() -> None:
    arguments = ("--device", "0", "--seconds", "60", "--json", "--ignore-busy")
    with InTerminal(*arguments) as run:
        run.until(" left")  # of its time, which begins with the plan
        assert busy(run.process.pid)
        run.process.send_signal(signal.SIGINT)
        output, _ = run.process.communicate(timeout=10)
    assert run.process.returncode == 130
    assert json.loads(output)["stopped"] == "user"
    assert not busy(run.process.pid)


def busy(parent: int) -> bool:
    """Whether a child of that process computes on a device."""
    listed = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    return any(parent_of(pid) == parent for pid in listed.stdout.split())


def parent_of(pid: str) -> int | None:
    """The parent's pid; None where the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])
