from pathlib import Path
from typing import Any

import pytest

from gputop.agent.linux import machine
from gputop.agent.linux.machine import Memory
from tests.fake_root import LINK, fake_root

KIB = 1024
Files = dict[str, str]


def stat(*cpus: str) -> Files:
    """Content of /proc/stat with these lines of CPUs; the first line is their sum on real ones."""
    lines = ["cpu  9 9 9 9 9 9 9 9 9 9", *cpus, "intr 123 0 0", "btime 1700000000"]
    return {"/proc/stat": "\n".join(lines) + "\n"}


def meminfo(**kibibytes: int) -> Files:
    rows = [f"{name}:{amount:>16} kB\n" for name, amount in kibibytes.items()]
    return {"/proc/meminfo": "".join([*rows, "HugePages_Total:       0\n"])}


def cpuinfo(*clocks: str) -> Files:
    rows = [f"processor\t: 0\nmodel name\t: x\ncpu MHz\t\t: {clock}\n\n" for clock in clocks]
    return {"/proc/cpuinfo": "".join(rows)}


def policy(number: int, current: str | None, cpuinfo: str | None = None) -> Files:
    folder = f"/sys/devices/system/cpu/cpufreq/policy{number}"
    files = {f"{folder}/scaling_max_freq": "3400000\n", f"{folder}/scaling_min_freq": "800000\n"}
    if current is not None:
        files[f"{folder}/scaling_cur_freq"] = f"{current}\n"
    if cpuinfo is not None:
        files[f"{folder}/cpuinfo_cur_freq"] = f"{cpuinfo}\n"
    return files


def chip(number: int, name: str, *millidegrees: str, folder: str | None = None) -> Files:
    folder = folder or f"/sys/class/hwmon/hwmon{number}"
    files = {f"{folder}/name": f"{name}\n"}
    for sensor, content in enumerate(millidegrees, start=1):
        files[f"{folder}/temp{sensor}_input"] = f"{content}\n"
        files[f"{folder}/temp{sensor}_label"] = f"Core {sensor}\n"
        files[f"{folder}/temp{sensor}_max"] = "100000\n"
    return files


def zone(number: int, kind: str, millidegrees: str) -> Files:
    folder = f"/sys/class/thermal/thermal_zone{number}"
    return {f"{folder}/type": f"{kind}\n", f"{folder}/temp": f"{millidegrees}\n"}


CORETEMP = chip(1, "coretemp", "51000", "58000", "49000")
PLATFORM = "/sys/devices/platform/coretemp.0/hwmon/hwmon1"
INTEL = {
    **stat("cpu0 10 0 5 80 5 0 0 0 0 0", "cpu1 10 0 5 80 5 0 0 0 0 0"),
    **meminfo(MemTotal=1000, MemFree=300, MemAvailable=600, Shmem=50),
    "/proc/loadavg": "0.51 1.25 2.00 3/456 789\n",
    **cpuinfo("2600.000", "3400.500"),
    **policy(0, "2600000"),
    **policy(1, "3400500"),
    **chip(0, "nvme", "91850", "95850"),
    **CORETEMP,
}
LINKED = {f"{PLATFORM}/{key.rpartition('/')[2]}": value for key, value in CORETEMP.items()}
LINKED["/sys/class/hwmon/hwmon1"] = f"{LINK}../../devices/platform/coretemp.0/hwmon/hwmon1"
"""Sensors as they are in a kernel: the folder of all chips has links."""


ZERO = " 0 0 0 0 0 0"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        # Each CPU has its own.
        ((f"cpu0 125 0 125 850{ZERO}", f"cpu1 100 0 100 900{ZERO}"), (50.0, 0.0)),
        # Waiting for storage is idle; interrupts and stolen time are not.
        (("cpu0 101 2 103 804 90 0 0 0 0 0", "cpu1 101 2 103 800 4 5 6 7 0 0"), (6.0, 85.7)),
        # Time of guests is counted once.
        (("cpu0 150 30 100 820 0 0 0 0 50 30", f"cpu1 100 0 100 900{ZERO}"), (80.0, 0.0)),
        # An old kernel has fewer columns, a new one more.
        (("cpu0 150 0 100 850", f"cpu1 100 0 100 900{ZERO} 7 8"), (50.0, 0.0)),
        # A CPU went offline, and one was plugged in, which has no time before.
        ((f"cpu1 150 0 100 850{ZERO}", f"cpu7 9999 0 0 1{ZERO}"), (50.0,)),
        # No time went by.
        ((f"cpu0 100 0 100 800{ZERO}", f"cpu1 100 0 100 800{ZERO}"), ()),
        ((), ()),
    ],
)
def test_cpu_percents(tmp_path: Path, after: tuple[str, ...], expected: tuple[float, ...]) -> None:
    before = stat(f"cpu0 100 0 100 800{ZERO}", f"cpu1 100 0 100 800{ZERO}")
    root = fake_root(tmp_path, before)
    earlier = machine.cpu_times(root)
    (root / "proc/stat").write_text(stat(*after)["/proc/stat"])
    assert machine.cpu_percents(earlier, machine.cpu_times(root)) == expected


MEMORYS: dict[str, tuple[Any, ...]] = {
    "as usual": (INTEL, Memory(1000 * KIB, 600 * KIB), 400 * KIB),
    "LXC: the host's estimate": (
        meminfo(MemTotal=1000, MemFree=300, MemAvailable=9000),
        Memory(1000 * KIB, 300 * KIB),
        700 * KIB,
    ),
    "a wrong estimate and no free memory": (
        meminfo(MemTotal=1000, MemAvailable=9000),
        Memory(1000 * KIB, None),
        None,
    ),
    "no total": (meminfo(MemAvailable=600), Memory(None, 600 * KIB), None),
    "none": ({}, Memory(None, None), None),
}


@pytest.mark.parametrize(("files", "expected", "used"), MEMORYS.values(), ids=MEMORYS)
def test_memory(tmp_path: Path, files: Files, expected: Memory, used: int | None) -> None:
    found = machine.memory(fake_root(tmp_path, files))
    assert found == expected
    assert found.used == used


@pytest.mark.parametrize(
    ("files", "expected"),
    [(INTEL, (0.51, 1.25, 2.0)), ({"/proc/loadavg": "a b c\n"}, ()), ({}, ())],
)
def test_load_average(tmp_path: Path, files: Files, expected: tuple[float, ...]) -> None:
    assert machine.load_average(fake_root(tmp_path, files)) == expected


CPU_CLOCKS: dict[str, tuple[Any, ...]] = {
    "a container without /sys": (cpuinfo("2600.000", "3400.500"), 3000.25),
    "one unknown": (cpuinfo("0.000", "2600.000"), 2600.0),
    "unknown to a virtual machine": (cpuinfo("0.000"), None),
    "known to the driver only": (cpuinfo("0.000") | policy(0, "1500000"), 1500.0),
    "ARM with an offline CPU": (policy(0, "1500000") | policy(1, None, None), 1500.0),
    "a word in the first file": (policy(0, "<unknown>", "1600000"), 1600.0),
    "the second file only": (policy(0, None, "1700000"), 1700.0),
    "none": ({}, None),
}


@pytest.mark.parametrize(("files", "expected"), CPU_CLOCKS.values(), ids=CPU_CLOCKS)
def test_cpu_clock(tmp_path: Path, files: Files, expected: float | None) -> None:
    assert machine.cpu_clock_mhz(fake_root(tmp_path, files)) == expected


CPU_TEMPERATURES: dict[str, tuple[Any, ...]] = {
    "AMD": (
        chip(0, "acpitz", "16800") | chip(1, "k10temp", "67375", "61500") | chip(2, "x", "99000"),
        67.375,
    ),
    "a board with thermal zones": (
        zone(0, "cpu-thermal", "48500") | zone(1, "gpu-thermal", "70000"),
        48.5,
    ),
    "chips are links": (LINKED, 58.0),
    "Intel's chip in its own folder only": (
        chip(0, "acpitz", "16800") | chip(1, "coretemp", "40000", folder=PLATFORM),
        40.0,
    ),
    "two sockets": (chip(0, "coretemp", "40000") | chip(1, "coretemp", "62000"), 62.0),
    "a core that cannot be read": (chip(0, "coretemp", "", "x", "41000"), 41.0),
    "zones do not count beside chips": (
        chip(0, "nvme", "50000") | zone(0, "cpu-thermal", "48500"),
        None,
    ),
    "the best zone": (zone(0, "cpu_thermal", "48500") | zone(1, "acpitz", "99000"), 48.5),
    "none": ({}, None),
}


@pytest.mark.parametrize(("files", "expected"), CPU_TEMPERATURES.values(), ids=CPU_TEMPERATURES)
def test_cpu_temperature(tmp_path: Path, files: Files, expected: float | None) -> None:
    assert machine.cpu_temperature_celsius(fake_root(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD  EPYC 7763 \nflags: x\n", "AMD EPYC 7763"),
        ("processor : 0\nHardware : x\nModel\t: Raspberry Pi 5 : B\n", "Raspberry Pi 5 : B"),
        ("processor : 0\n", None),
    ],
)
def test_cpu_name(tmp_path: Path, content: str, name: str | None) -> None:
    assert machine.cpu_name(fake_root(tmp_path, {"/proc/cpuinfo": content})) == name
    assert machine.cpu_name(tmp_path) is None
