"""Users and command lines that cannot be looked up: the readings of the devices stay complete."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import run
from tests.faults.pretend import Pretended, pretended

pytestmark = pytest.mark.driver

PID, OTHER, USER = 4_000_001, 4_000_002, 4242
GIB = 1 << 30


@pytest.fixture
def machine(driver: FakeDriver, tmp_path: Path) -> Pretended:
    """Two GPUs, each with a process of another user."""
    machine = pretended(tmp_path / "pretended", driver.library)
    machine.write("user.4243", b"ada")
    machine.write(f"user.{USER}", b"bob")
    machine.add(PID, b"python\0train.py\0", uid=USER)
    machine.add(OTHER, b"python\0other.py\0", uid=4243)
    driver.write(
        FakeDevice(processes=(FakeProcess(PID, memory_bytes=3 * GIB),)),
        FakeDevice(processes=(FakeProcess(OTHER, memory_bytes=2 * GIB),)),
    )
    machine.environment |= driver.environment()
    return machine


def block(file: Path) -> None:
    """Make whoever opens the file wait for ever."""
    file.unlink()
    os.mkfifo(file)


def check_readings(samples: list[dict[str, Any]]) -> None:
    """Every reading of both GPUs is there, also after the time in which a hang is noticed."""
    assert len(samples) >= 5
    for sample in samples:
        for device in sample["devices"]:
            assert device["state"] == "ok"
            assert device["temperature_celsius"] == 64
            assert device["age_seconds"] < 2.0
            assert "timed_out" not in device.get("absent", {}).values()
        held = {each["pid"]: each["memory_used_bytes"] for each in sample["processes"]}
        assert held == {PID: 3 * GIB, OTHER: 2 * GIB}


def samples_of(machine: Pretended) -> list[dict[str, Any]]:
    """Samples of four seconds, once the devices have answered; a hang counts after three."""
    words = ("stream", "--count", "9", "--interval", "0.5")
    lines = run(*words, env=machine.environment).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    samples = [each for each in records if each["type"] == "sample" and each["devices"]]
    while any(device.get("age_seconds") is None for device in samples[0]["devices"]):
        samples.pop(0)
    return samples


def owners_in(sample: dict[str, Any]) -> dict[int, tuple[str, str]]:
    return {each["pid"]: (each["user"], each["command"]) for each in sample["processes"]}


def test_a_user_whose_name_is_never_answered(machine: Pretended) -> None:
    block(machine.folder / f"user.{USER}")
    samples = samples_of(machine)
    check_readings(samples)
    wanted = {PID: ("4242", "python train.py"), OTHER: ("ada", "python other.py")}
    assert owners_in(samples[-1]) == wanted
    page = run("status", "--processes", env=machine.environment).stdout
    assert "NOT RESPONDING" not in page
    assert "4242" in page
