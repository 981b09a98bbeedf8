"""CSV of the shipped command beside what nvidia-smi printed on real cards, field by field."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from gputop.output.nvidia_smi import COLUMNS
from tests.driver import FakeDevice, FakeDriver
from tests.driver.captures import CAPTURES, Capture, device_of
from tests.e2e.shipped import GPUTOP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.driver

NOW = "timestamp"
"""Another at each time: `tests/output/test_nvidia_smi.py` has its form."""
RENAMED = ("clocks_throttle_reasons.", "clocks_event_reasons.")
"""What drivers before 535 call it, and what all captures have."""


def gputop(driver: FakeDriver, *arguments: str) -> str:
    done = subprocess.run(
        [*GPUTOP, *arguments],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def csv_of(driver: FakeDriver, *names: str) -> tuple[list[str], list[str]]:
    """Return header and row of one sample of one device."""
    query = ["--format", "csv", "--query", ",".join(names)]
    header, row = gputop(driver, "stream", *query, "--count", "1").splitlines()
    return header.split(", "), row.split(", ")


@pytest.mark.daily(6)
@pytest.mark.parametrize("capture", CAPTURES, ids=str)
def test_a_row_is_that_of_the_real_card(driver: FakeDriver, capture: Capture) -> None:
    driver.write(device_of(capture), driver_version=capture.row["driver_version"])
    names = [name for name in COLUMNS if name != NOW]
    titles, row = csv_of(driver, *names)
    assert dict(zip(names, row, strict=True)) == {
        name: capture.row[name.replace(*RENAMED)] for name in names
    }
    assert titles == [capture.titles.get(name, name) for name in names]


def test_the_captures_are_of_all_cards_idle_and_under_load() -> None:
    assert len(CAPTURES) == 16
    cards = {capture.row["name"].removeprefix("NVIDIA ") for capture in CAPTURES}
    geforce = {"GeForce RTX 2080 SUPER", "GeForce RTX 4080 SUPER"}
    assert cards == {*geforce, "L40S", "H100 80GB HBM3", "H200"}
    assert {capture.row["mig.mode.current"] for capture in CAPTURES} == {
        *("[N/A]", "Enabled", "Disabled")
    }


def test_the_requested_limit_is_another_than_the_enforced_one(driver: FakeDriver) -> None:
    driver.write(
        FakeDevice(power_limit_milliwatts=650_000, power_limit_enforced_milliwatts=480_500)
    )
    _, row = csv_of(driver, "power.limit", "enforced.power.limit")
    assert row == ["650.00 W", "480.50 W"]


@pytest.mark.parametrize(
    ("mask", "active"),
    [
        (0x200, "0x0000000000000200"),
        (0x6A4, "0x00000000000006A4"),
        (0x8000_0000_0000_0004, "0x8000000000000004"),
    ],
)
def test_the_mask_is_the_drivers(driver: FakeDriver, mask: int, active: str) -> None:
    """Also bits without a name, and several of them."""
    driver.write(FakeDevice(clock_event_reasons=mask))
    columns = [f"clocks_event_reasons.{name}" for name in ("active", "sw_power_cap", "sync_boost")]
    _, row = csv_of(driver, *columns)
    assert row == [active, "Active" if mask & 0x4 else "Not Active", "Not Active"]


def test_a_driver_that_does_not_tell_reserved_memory_apart(
    build_driver: Callable[..., Path], tmp_path: Path
) -> None:
    """It counts as used, and every output that has a reason says that there is no other number."""
    old = FakeDriver(tmp_path, build_driver("nvmlDeviceGetMemoryInfo_v2"))
    old.write(FakeDevice(memory_used_bytes=(1 << 30) + 1, memory_reserved_bytes=600 << 20))
    _, row = csv_of(old, "memory.used", "memory.reserved", "memory.total")
    assert row == ["1625 MiB", "[N/A]", "81559 MiB"]
    *_, sample = map(json.loads, gputop(old, "stream", "--count", "1").splitlines())
    assert sample["devices"][0]["memory_used_bytes"] == (1 << 30) + 1 + (600 << 20)
    assert sample["devices"][0]["absent"]["memory_reserved_bytes"] == "not_supported"
