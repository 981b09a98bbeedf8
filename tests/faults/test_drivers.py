import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.device import GPM_READINGS
from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import run
from tests.faults.scenario import three

pytestmark = pytest.mark.driver

LACKING: dict[str, tuple[str, ...]] = {
    "535.183.06": (
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetProcessesUtilizationInfo",
        "nvmlDeviceGetTemperatureV",
    )
}
LACKING["470.256.02"] = (
    *LACKING["535.183.06"],
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetNumGpuCores",
    "nvmlGpmMetricsGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
)
"""By driver version, which of the functions that the fake driver has it has not.

From the `nvml.h` of CUDA 12.2 and 11.4, which came with these, as go-nvml's history has them:
https://github.com/NVIDIA/go-nvml/commits/main/gen/nvml/nvml.h.
"""
FIELDS_END = {"535.183.06": 197, "470.256.02": 161}
"""The first field that each does not have: `NVML_FI_MAX` in those headers."""


def older(version: str) -> tuple[FakeDevice, ...]:
    def known(key: str) -> bool:
        kind, _, number = key.partition(".")
        return kind != "field" or int(number.partition(".")[0]) < FIELDS_END[version]

    return tuple(
        replace(each, values={key: n for key, n in each.values.items() if known(key)})
        for each in three(os.getpid())
    )


RATES = {"pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"}
LEFT_OUT = {"uuid", "age_seconds", "slow_age_seconds", "absent"}
SINCE_550 = {"temperature_margin_celsius", "recovery_action"}
SINCE_535 = {
    "power_average_watts",
    "power_instant_watts",
    "jpeg_utilization_percent",
    "ofa_utilization_percent",
}
SINCE_510 = {"memory_reserved_bytes", "fans_percent", *GPM_READINGS}
MISSING = {
    "535.183.06": SINCE_550,
    "470.256.02": SINCE_550 | SINCE_535 | SINCE_510,
}
"""The readings that such a driver has no function or field for."""


def read(driver: FakeDriver) -> tuple[dict[str, Any], dict[str, Any]]:
    done = run("stream", "--interval", "0.5", "--count", "5", env=driver.environment())
    records = [json.loads(line) for line in done.stdout.splitlines()]
    inventories = [record for record in records if record["type"] == "inventory"]
    return inventories[-1], records[-1]


@pytest.mark.daily(1)
@pytest.mark.parametrize("version", LACKING)
def test_what_an_old_driver_has_is_read_and_the_rest_has_its_reason(
    version: str, driver: FakeDriver, build_driver: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    old = FakeDriver(folder, build_driver(*LACKING[version]))
    driver.write(*three(os.getpid()))
    old.write(*older(version), driver_version=version)
    with ThreadPoolExecutor() as both:
        (_, today), (inventory, then) = both.map(read, (driver, old))
    assert inventory["driver_version"] == version
    missing = MISSING[version]
    for now, before in zip(today["devices"], then["devices"], strict=True):
        assert now["absent"].keys() <= {"fan_percent", "fans_percent"}
        absent = before["absent"]
        assert absent == dict.fromkeys(missing | now["absent"].keys(), "not_supported")
        names = now.keys() - missing - LEFT_OUT - RATES - {"memory_used_bytes"}
        changed = {"clock_event_seconds"} | {name for name in names if name.startswith("memory_un")}
        assert {n: before[n] for n in names - changed} == {n: now[n] for n in names - changed}
        # Measured, where there are no counters; in the fake these stand still.
        assert (before["pcie_rx_bytes_per_second"], now["pcie_rx_bytes_per_second"]) == (
            23_000 * 1024,
            0,
        )
        # Version 1 of the call has the reserved part in it.
        reserved = now["memory_reserved_bytes"] if "memory_reserved_bytes" in missing else 0
        assert before["memory_used_bytes"] == now["memory_used_bytes"] + reserved
        assert before["clock_event_seconds"].items() <= now["clock_event_seconds"].items()
    for now, before in zip(today["processes"], then["processes"], strict=True):
        same = ("pid", "memory_used_bytes", "sm_utilization_percent", "command", "kind")
        assert {n: before[n] for n in same} == {n: now[n] for n in same}
