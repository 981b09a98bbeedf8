"""CPU, memory, load, clock and temperature of a machine, read from /proc and /sys.

A value that the kernel or a container leaves out is None or empty, never 0. No function raises.
This module imports only the standard library, and its syntax is that of Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
CPU_COLUMNS = (
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
)
"""Columns of a CPU in /proc/stat that add up to its time. Two more may follow, `guest` and
`guest_nice`, but the kernel counts them in `user` and `nice`, too."""
IDLE = CPU_COLUMNS.index("idle")
IOWAIT = CPU_COLUMNS.index("iowait")

CPU_SENSORS = (
    "coretemp",  # Intel
    "k10temp",  # AMD
    "zenpower",  # AMD, a driver that is not part of the kernel
    "cpu_thermal",  # ARM
    "acpitz",  # the firmware, which may mean another place
)
"""Names of the chips that measure the temperature of a CPU, the best first."""
CHIPS = (
    "sys/class/hwmon/hwmon*",
    "sys/class/hwmon/hwmon*/device",  # CentOS 7
)
INTEL_CHIPS = "sys/devices/platform/coretemp.*/hwmon/hwmon*"
"""Where Intel's chips also are, in containers that do not list them with the others."""
THERMAL_ZONES = "sys/class/thermal/thermal_zone*"
FREQUENCIES = (
    "sys/devices/system/cpu/cpufreq/policy[0-9]*",
    "sys/devices/system/cpu/cpu[0-9]*/cpufreq",  # Linux before 4.3
)

CpuTimes = Mapping[int, tuple[int, ...]]
"""Clock ticks since boot in each of `CPU_COLUMNS`, by the number of the CPU."""


class Memory(NamedTuple):
    """Memory of the machine in bytes."""

    total: int | None
    available: int | None
    """Memory that programs can get without swapping, as the kernel estimates it."""

    @property
    def used(self) -> int | None:
        """Memory that is not available, which includes shared memory."""
        if self.total is None or self.available is None:
            return None
        return self.total - self.available


def cpu_times(root: Path = ROOT) -> CpuTimes:
    """Return the times of all CPUs that are online.

    A CPU without any time is left out: a sandbox may list CPUs, but not count their time.
    """
    times = {}
    try:
        with (root / "proc/stat").open("rb") as file:
            for line in file:
                if not line.startswith(b"cpu"):
                    break  # the rest is long, and slow to produce for the kernel
                name, *columns = line.split()
                ticks = tuple(map(int, columns[: len(CPU_COLUMNS)]))
                if name != b"cpu" and any(ticks):  # `cpu` is the sum of all
                    times[int(name[3:])] = ticks
    except (OSError, ValueError):
        return {}
    return times


def cpu_percents(before: CpuTimes, after: CpuTimes) -> tuple[float, ...]:
    """Return how busy each CPU was between two readings, of the CPUs that are in both."""
    percents = [
        _busy_percent(before[number], times)
        for number, times in after.items()
        if number in before
    ]
    return tuple(percent for percent in percents if percent is not None)


def _busy_percent(before: tuple[int, ...], after: tuple[int, ...]) -> float | None:
    """Return how busy a CPU was, or None if its clock stood still."""
    # `iowait` may go backwards on any machine, and every column in a container with lxcfs.
    spent = [max(0, later - earlier) for earlier, later in zip(before, after)]
    total = sum(spent)
    if total == 0:
        return None
    busy = total - sum(spent[IDLE : IOWAIT + 1])
    return round(100 * busy / total, 1)


def memory(root: Path = ROOT) -> Memory:
    """Return the memory of the machine."""
    pattern = r"(?m)^(MemTotal|MemFree|MemAvailable):\s*(\d+) kB$"
    rows = dict(re.findall(pattern, _text(root / "proc/meminfo")))
    total = _bytes(rows.get("MemTotal"))
    available = _bytes(rows.get("MemAvailable"))
    if total is not None and available is not None and not 0 < available <= total:
        # A container with its own total beside the host's estimate, or a kernel's miscount. The
        # free memory is certainly available.
        available = _bytes(rows.get("MemFree"))
    return Memory(total, available)


def _bytes(kibibytes: str | None) -> int | None:
    return None if kibibytes is None else int(kibibytes) * 1024


def load_average(root: Path = ROOT) -> tuple[float, ...]:
    """Return the averages over 1, 5 and 15 minutes, or () if they are unknown."""
    words = _text(root / "proc/loadavg").split()
    try:
        return tuple(map(float, words[:3]))
    except ValueError:
        return ()


def cpu_clock_mhz(root: Path = ROOT) -> float | None:
    """Return the mean frequency of the CPUs that are online."""
    clocks = _clocks_in_cpuinfo(root) or _clocks_in_sysfs(root)
    return sum(clocks) / len(clocks) if clocks else None


def _clocks_in_cpuinfo(root: Path) -> list[float]:
    """Return the frequencies in MHz that /proc/cpuinfo shows on x86."""
    pattern = r"(?m)\n(?:cpu|CPU) MHz\s*:\s*(\d+\.?\d*)$"
    clocks = map(float, re.findall(pattern, _text(root / "proc/cpuinfo")))
    return list(filter(None, clocks))


def _clocks_in_sysfs(root: Path) -> list[float]:
    """Return the frequencies in MHz that the frequency driver reports."""
    clocks = []
    folders = _paths(root, FREQUENCIES[0]) or _paths(root, FREQUENCIES[1])
    for folder in folders:
        # Reading an offline CPU fails. Some kernels have only the second file.
        kilohertz = _number(folder / "scaling_cur_freq") or _number(
            folder / "cpuinfo_cur_freq"
        )
        if kilohertz:
            clocks.append(kilohertz / 1000)
    return clocks


def cpu_temperature_celsius(root: Path = ROOT) -> float | None:
    """Return the temperature of the hottest part of the CPU."""
    sensors = _chip_sensors(root) or _zone_sensors(root)
    for name in CPU_SENSORS:
        numbers = map(_number, sensors.get(name, ()))
        millidegrees = [number for number in numbers if number is not None]
        if millidegrees:
            return max(millidegrees) / 1000
    return None


def _chip_sensors(root: Path) -> dict[str, list[Path]]:
    """Return the temperature files of all chips, by the name of the chip.

    The caller reads only the files of a CPU: reading the file of a disk may wake it up.
    """
    sensors: dict[str, list[Path]] = {}
    for pattern in (*CHIPS, INTEL_CHIPS):
        if pattern == INTEL_CHIPS and "coretemp" in sensors:
            break
        for folder in _paths(root, pattern):
            files = _paths(folder, "temp*_input")
            if files:
                sensors.setdefault(_text(folder / "name"), []).extend(files)
    return sensors


def _zone_sensors(root: Path) -> dict[str, list[Path]]:
    """Return the temperature files of the thermal zones, by the name that a chip would have."""
    sensors: dict[str, list[Path]] = {}
    for folder in _paths(root, THERMAL_ZONES):
        name = _text(folder / "type").replace("-", "_")
        sensors.setdefault(name, []).append(folder / "temp")
    return sensors


def cpu_name(root: Path = ROOT) -> str | None:
    """Return the processor's marketing name, or None if /proc/cpuinfo has none."""
    found = re.search(
        r"^(?:model name|Model)\s*:(.*)",
        _text(root / "proc/cpuinfo"),
        re.MULTILINE,
    )
    return " ".join(found[1].split()) if found else None


def _paths(folder: Path, pattern: str) -> list[Path]:
    try:
        return list(folder.glob(pattern))
    except OSError:
        return []


def _text(file: Path) -> str:
    """Return the content of a file, or "" if it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    """Return the number in a file, or None if there is none."""
    try:
        return int(_text(file))
    except ValueError:
        return None
