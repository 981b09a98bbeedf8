"""Faults of the driver: missing, not loaded, refusing, slow to start, replaced, crashing, old."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.linux.driver_files import inspect_system
from gputop.agent.nvml import diagnosis
from tests.driver import DRIVER_NOT_LOADED, NO_PERMISSION, UNKNOWN, VERSION_MISMATCH
from tests.e2e.shipped import ENTER, ESCAPE
from tests.faults.scenario import KEYS, Key, Scenario, hides, shows, three

if TYPE_CHECKING:
    from gputop.agent.linux.driver_files import System
    from gputop.agent.problem import Problem
    from tests.driver import FakeDevice
    from tests.faults.stage import Stage

    Diagnose = Callable[[System], Problem]
    Deed = Callable[[Stage], None]

WELL = ("0 Test 0", "1 Test 1", "2 Test 2", "44 %")
NO_ZERO = (r"\b0 ?°C", r"\b0 W", r"\b0 MHz")
NO_DEVICE = ("Test 0", *NO_ZERO)


def machine(**changes: object) -> Deed:
    """Lets the whole machine be so."""
    return lambda stage: stage.driver.change_machine(**changes)


def said(diagnose: Diagnose) -> tuple[str, ...]:
    """What is on the screen of such a machine as this one."""
    problem = diagnose(inspect_system())
    return f"  {problem.what}: {problem.why}.", f"  {problem.remedy}."


def refused(name: str, diagnose: Diagnose, code: int) -> Scenario:
    """A driver that cannot be initialized at first."""
    says = said(diagnose)
    return Scenario(
        name=name,
        at_start=True,
        alive=None,
        fault=machine(init_code=code),
        says=says,
        never=NO_DEVICE,
        mend=machine(init_code=0),
        then=WELL,
        then_silent=says,
    )


def library_elsewhere(stage: Stage) -> None:
    """Where the driver's library is to be there is nothing so far."""
    folder = stage.folder / "lib"
    folder.mkdir()
    stage.environment["LD_LIBRARY_PATH"] = str(folder)


def install_library(stage: Stage) -> None:
    (stage.folder / "lib" / stage.driver.library.name).symlink_to(stage.driver.library)


def gone(stage: Stage) -> None:
    """The driver is unloaded: who has it open is told so, and who opens it as well."""
    stage.driver.change_machine(generation=1, init_code=DRIVER_NOT_LOADED)


def back_in_another_order(stage: Stage) -> None:
    """It is loaded again, and has the devices at other indices, and one of them is another."""
    zero, one, two = stage.driver.devices
    one = replace(one, uuid="GPU-11111111-fa4e-4dcf-8a3b-111111111111")
    two = replace(two, uuid="GPU-22222222-fa4e-4dcf-8a3b-222222222222", name="NVIDIA Other")
    zero = replace(zero, uuid="GPU-00000000-fa4e-4dcf-8a3b-000000000000")
    stage.driver.write(two, zero, one, init_code=0, generation=2)


def failing(stage: Stage) -> None:
    """The driver is gone, and says so of itself alone: of its devices every call just fails."""
    for index in range(3):
        stage.driver.change(index, code=UNKNOWN)
    stage.driver.change_machine(fail={"nvmlSystemGetDriverVersion": DRIVER_NOT_LOADED})


def answering(stage: Stage) -> None:
    """It is there again, as it was."""
    stage.driver.write(*(replace(each, code=0) for each in stage.driver.devices), fail={})


def reloaded_at_once(stage: Stage) -> None:
    """Between two samples it was unloaded, and is loaded again with two devices."""
    zero, one, _ = stage.driver.devices
    stage.driver.write(zero, replace(one, temperature_celsius=77), generation=1)


LACKING: dict[str, tuple[str, ...]] = {
    "535.183.06": (
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetPciInfoExt",
        "nvmlDeviceGetProcessesUtilizationInfo",
        "nvmlDeviceGetTemperatureV",
    )
}
LACKING["525.147.05"] = (
    *LACKING["535.183.06"],
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetSupportedClocksEventReasons",
)
LACKING["470.256.02"] = (
    *LACKING["525.147.05"],
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

From the `nvml.h` of CUDA 12.2, 12.0 and 11.4, which came with these, as go-nvml's history has them:
https://github.com/NVIDIA/go-nvml/commits/main/gen/nvml/nvml.h.
"""
FIELDS_END = {"535.183.06": 197, "525.147.05": 170, "470.256.02": 161}
"""The first field that each does not have: `NVML_FI_MAX` in those headers."""


def older(version: str) -> Callable[[int], tuple[FakeDevice, ...]]:
    """Devices as such a driver has them."""
    end = FIELDS_END[version]

    def known(key: str) -> bool:
        kind, _, number = key.partition(".")
        return kind != "field" or int(number.partition(".")[0]) < end

    return lambda pid: tuple(
        replace(each, values={key: n for key, n in each.values.items() if known(key)})
        for each in three(pid)
    )


def old(version: str) -> Scenario:
    """A driver that lacks functions which gputop calls."""
    return Scenario(
        name=f"driver {version.partition('.')[0]}",
        at_start=True,
        fault=lambda _: None,
        driver_without=LACKING[version],
        machine={"driver_version": version},
        devices=older(version),
        says=(*WELL, f"driver {version}", "211 of 700 W", "PCIe ↓ 22.5 MiB/s"),
        never=(*NO_ZERO, "NOT RESPONDING", "too old"),
        keys=(
            *KEYS,
            Key(ENTER, shows("statistics since"), "the page of the device"),
            Key(ESCAPE, hides("statistics since"), "the monitor again"),
        ),
    )


def no_devices(_: int) -> tuple[FakeDevice, ...]:
    return ()


CRASHED = ("The NVIDIA library crashed", "reinstall or update the driver")

SCENARIOS = (
    Scenario(
        name="driver's library missing",
        at_start=True,
        alive=None,
        prepare=library_elsewhere,
        fault=lambda _: None,
        says=said(diagnosis.no_library),
        never=NO_DEVICE,
        mend=install_library,
        then=WELL,
        then_silent=("No NVIDIA",),
    ),
    refused("driver not loaded", diagnosis.not_loaded, DRIVER_NOT_LOADED),
    refused("driver half upgraded", diagnosis.mismatch, VERSION_MISMATCH),
    refused("no permission for the driver", diagnosis.no_permission, NO_PERMISSION),
    Scenario(
        name="driver without devices",
        at_start=True,
        alive=None,
        devices=no_devices,
        fault=lambda _: None,
        says=said(diagnosis.no_devices),
        never=NO_DEVICE,
        mend=lambda stage: stage.driver.write(*three(os.getpid())),
        then=WELL,
        then_silent=("No NVIDIA device",),
    ),
    Scenario(
        name="driver never starts",
        at_start=True,
        alive=None,
        fault=machine(init_hang=True),
        says=(" s for the NVIDIA driver to answer", "dmesg"),
        never=NO_DEVICE,
        mend=machine(init_hang=False),
        then=WELL,
        then_silent=("Waiting",),
    ),
    Scenario(
        name="driver unloaded in mid-run, and loaded anew",
        alive=None,
        fault=gone,
        says=said(diagnosis.not_loaded),
        silent=("Test 0", "44 %", "°C"),
        never=NO_ZERO,
        mend=back_in_another_order,
        then=("0 Other", "1 Test 0", "2 Test 1", "44 %", "59 %"),
        then_silent=("Test 2", "not loaded"),
    ),
    Scenario(
        name="driver gone in mid-run, and every call on its devices fails",
        alive=None,
        fault=failing,
        says=said(diagnosis.not_loaded),
        silent=("Test 0", "44 %", "°C"),
        never=NO_ZERO,
        mend=answering,
        then=WELL,
        then_silent=("not loaded", "NOT RESPONDING"),
    ),
    Scenario(
        name="driver reloaded between two samples",
        fault=reloaded_at_once,
        says=("2 GPUs", "77°C"),
        silent=("Test 2", "59 %"),
        never=NO_ZERO,
    ),
    Scenario(
        name="driver replaced by another version in mid-run",
        alive=None,
        fault=machine(generation=1, init_code=VERSION_MISMATCH),
        says=said(diagnosis.mismatch),
        silent=("Test 0", "44 %"),
        never=NO_ZERO,
        mend=machine(init_code=0),
        then=WELL,
        then_silent=("half upgraded",),
    ),
    Scenario(
        name="NVML crashes in mid-run",
        alive=None,
        fault=machine(crash=("nvmlDeviceGetPowerUsage",)),
        says=CRASHED,
        never=NO_ZERO,
        mend=machine(crash=()),
        then=WELL,
        then_silent=("crashed", "No data"),
    ),
    Scenario(
        name="NVML crashes at every start",
        at_start=True,
        alive=None,
        fault=machine(init_crash=True),
        says=CRASHED,
        never=NO_DEVICE,
        mend=machine(init_crash=False),
        then=WELL,
        then_silent=("crashed", "No data"),
    ),
    old("535.183.06"),
    old("470.256.02"),
)
