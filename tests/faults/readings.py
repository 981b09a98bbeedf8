"""Faults of readings: numbers that are none, garbage, pids of nobody, leaping counters, clocks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tests.driver import NO_PERMISSION, FakeDevice, FakeProcess
from tests.e2e.shipped import DOWN, ENTER, ESCAPE, GIB
from tests.faults.scenario import KEYS, Key, Scenario, all_shown, hides, shows, three

if TYPE_CHECKING:
    from tests.faults.stage import Stage

BITS_32, BITS_64 = (1 << 32) - 1, (1 << 64) - 1
"""What NVML says instead of a number that there is none of."""
ABSURD = (
    r"429496|214748|1844674|922337",  # all bits but for the sign, or with it
    r"\b\d{4,}(\.\d+)? (W|°C|%|GiB|TiB)",
    r"\bTiB/s",
    r"(?<![\w<])(?<!slowdown )(?<!shutdown )-\d",  # margins (T.Limit) may be below zero
)
"""What no number on the screen begins or looks like."""
ZEROES = (
    r"(?<!T.Limit max   )(?<!of the memory )\b0 ?°C",
    r"\b0 of \d+ W",
    r"\b0\.0 of",
    r"\b0 MHz",
)
NUMBERS = ("44 %", "48°C", "313 of")
"""Of the device in the middle while it is well."""
NOTHING: dict[str, object] = {
    field.name: None for field in dataclasses.fields(FakeDevice) if field.type == "int | None"
}


def page(*texts: str) -> tuple[Key, ...]:
    """Opens the page of the second device, which says these, and closes it."""
    return (
        Key(DOWN, shows("▌1 Test 1"), "the second device is selected"),
        Key(ENTER, all_shown(*texts), "its page says why"),
        Key(ESCAPE, hides("statistics since"), "the monitor again"),
        Key("\x1b[A", shows("▌0 Test 0"), "the first device again"),
    )


def change(**changes: object) -> Scenario:
    """The second device changes so, and back."""
    return Scenario(
        name="",
        fault=lambda stage: stage.driver.change(1, **changes),
        says=("1 Test 1",),
        silent=NUMBERS,
        never=(*ABSURD, *ZEROES),
        mend=lambda stage: stage.driver.write(
            *(stage.driver.devices[0], *three(stage.driver.devices[0].processes[0].pid)[1:])
        ),
        then=("44 %", "48°C"),
    )


def only(name: str, scenario: Scenario, **changes: object) -> Scenario:
    """One like it."""
    return dataclasses.replace(scenario, name=name, **changes)  # type: ignore[arg-type]


REFUSED = dict.fromkeys(
    (
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetProcessesUtilizationInfo",
        "nvmlDeviceGetProcessUtilization",
    ),
    NO_PERMISSION,
)
FIELDS = {f"field.{n}": BITS_64 for n in (3, 4, 5, 6, 83, 94, 142, 143, 197, 198, 230, 269)}
SENTINELS: dict[str, object] = {
    "power_milliwatts": BITS_32,
    "power_limit_milliwatts": BITS_32,
    "power_limit_enforced_milliwatts": BITS_32,
    "temperature_celsius": BITS_32,
    "gpu_utilization_percent": BITS_32,
    "memory_utilization_percent": BITS_32,
    "encoder_utilization_percent": BITS_32,
    "decoder_utilization_percent": 101,
    "memory_used_bytes": BITS_64,
    "memory_reserved_bytes": BITS_64,
    "bar1_used_bytes": BITS_64,
    "sm_clock_mhz": BITS_32,
    "memory_clock_mhz": (1 << 31) - 1,
    "video_clock_mhz": BITS_32,
    "fan_percent": BITS_32,
    "fans": 2,
    "performance_state": 32,
    "pcie_generation": BITS_32,
    "pcie_width": (1 << 31) - 1,
    "energy_millijoules": BITS_64,
    "values": {
        **FIELDS,
        "field.82": (1 << 31) - 1,
        "field.185": BITS_32,
        "field.186": (1 << 31) - 1,
        "field.91": BITS_32,
        "pcie_throughput_kib.0": BITS_32,
        "pcie_throughput_kib.1": (1 << 31) - 1,
    },
}


def clock_is(seconds: int) -> Scenario:
    """The time of day is set while it runs."""
    return Scenario(
        name="",
        pretends=True,
        fault=lambda stage: stage.pretended.set_clock(seconds),
        says=("0 Test 0", "44 %"),
        never=(*ABSURD, r"\d:\d\d:\d\d ?of", r"\blast \d+:", "No data", "NOT RESPONDING"),
        keys=(
            *KEYS,
            Key(ENTER, shows("last 5 min"), "the page, whose charts are as long as ever"),
            Key(ESCAPE, hides("statistics since"), "the monitor again"),
        ),
        mend=lambda stage: stage.pretended.set_clock(0),
        then=("0 Test 0", "44 %"),
    )


OLD, NEW = b"python\0of-ada.py", b"vim\0of-bob.txt"


def reuse(stage: Stage) -> None:
    """The process of a pid ends, and another one gets the pid before the driver is asked again."""
    listed = "nvmlDeviceGetComputeRunningProcesses_v3"
    before = stage.driver.calls(1)[listed]
    stage.until(lambda _: stage.driver.calls(1)[listed] > before, "list of processes")
    stage.pretended.add(REUSED, NEW, start=90_000)
    stage.watch()
    stage.terminal.collect(0.5)
    stage.driver.change(1, processes=())


REUSED = 4_190_001
GHOST = 4_190_000
SCENARIOS = (
    only(
        "readings that are not supported",
        change(**NOTHING | {"values": {}, "gpm_supported": 0, "gpu_cores": None}),
        keys=(*KEYS, *page("used          – of 79.6 GiB  not supported by this")),
        mend=None,  # what a device does not have it is asked for once a minute
    ),
    only(
        "readings without permission",
        change(fail=REFUSED),
        silent=("44 %", "48°C", "2.00 GiB"),
        keys=(*KEYS, *page("no permission: run as root")),
    ),
    only(
        "sentinels instead of numbers",
        change(**SENTINELS),
        says=("1 Test 1", "≥626 W"),
        keys=(*KEYS, *page("memory clock  – of 2619 MHz  the driver failed")),
        then=("44 %", "48°C", "939 W"),
    ),
    only(
        "ghost pids, and pids that are none",
        change(
            processes=(
                FakeProcess(GHOST, memory_bytes=3 * GIB),
                FakeProcess(BITS_32, memory_bytes=GIB),
                FakeProcess(0, memory_bytes=GIB),
            )
        ),
        says=(f"{GHOST} –", "3.00 GiB", "gone, or elsewhere: --pid=host"),
        silent=("2.00 GiB",),
        never=ABSURD,
    ),
    Scenario(
        name="a pid that another process gets",
        pretends=True,
        devices=lambda pid: tuple(
            dataclasses.replace(each, processes=(FakeProcess(REUSED, memory_bytes=5 * GIB),))
            if n == 1
            else each
            for n, each in enumerate(three(pid))
        ),
        prepare=lambda stage: stage.pretended.add(REUSED, OLD, start=500),
        before=("1 Test 1", "of-ada.py", "5.00 GiB"),
        fault=reuse,
        says=("1 Test 1",),
        silent=("of-ada.py", "5.00 GiB"),
        never=("of-bob",),
        # Now it is the new one that the driver lists.
        mend=lambda stage: stage.driver.change(
            1, processes=(FakeProcess(REUSED, memory_bytes=7 * GIB),)
        ),
        then=("vim of-bob.txt", "7.00 GiB"),
        then_silent=("of-ada.py",),
    ),
    only("the clock goes back an hour", clock_is(-3_600)),
)
