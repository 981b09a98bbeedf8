"""CPU, memory, load, clock and temperature of a machine, read from /proc and /sys.

A value that the kernel or a container does not show is None or empty, never 0. No function raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gputop.agent.lines import rounded
from gputop.agent.linux.files import number_in, paths, text_of

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
"""Columns of a CPU in /proc/stat that add up to its time. The columns `guest` and `guest_nice` may
follow, but the kernel counts them in `user` and `nice` as well."""
IDLE = CPU_COLUMNS.index("idle")
IOWAIT = CPU_COLUMNS.index("iowait")

CPU_SENSORS = (
    "coretemp",  # Intel
    "k10temp",  # AMD
    "zenpower",  # AMD, a driver that is not part of the kernel
    "cpu_thermal",  # ARM
    "acpitz",  # the firmware, which may mean another place
)
"""Names of the chips that measure a CPU's temperature, best first."""
CHIPS = (
    "sys/class/hwmon/hwmon*",
    # Containers may hide Intel's chips from the other list.
    "sys/devices/platform/coretemp.*/hwmon/hwmon*",
)
THERMAL_ZONES = ("sys/class/thermal/thermal_zone*",)
"""Places to read if no chip reports a temperature."""
FREQUENCIES = "sys/devices/system/cpu/cpufreq/policy[0-9]*"

CpuTimes = Mapping[int, tuple[int, ...]]
"""Clock ticks since boot in each of `CPU_COLUMNS`, by the number of the CPU."""


class Memory(NamedTuple):
    """Memory of the machine in bytes."""

    total: int | None
    available: int | None
    """Memory that programs can allocate without swapping, as the kernel estimates it."""

    @property
    def used(self) -> int | None:
        """Memory that is not available, including shared memory."""
        if self.total is None or self.available is None:
            return None
        return self.total - self.available


def cpu_times(root: Path = ROOT) -> CpuTimes:
    """Return the times of all CPUs that are online.

    A CPU without any time is left out: a sandbox may list CPUs without counting their time.
    """
    times = {}
    try:
        with (root / "proc/stat").open("rb") as file:
            for line in file:
                if not line.startswith(b"cpu"):
                    # The rest is long and slow for the kernel to produce.
                    break
                name, *columns = line.split()
                ticks = tuple(map(int, columns[: len(CPU_COLUMNS)]))
                if name != b"cpu" and any(ticks):  # `cpu` is the sum of all
                    times[int(name[3:])] = ticks
    except (OSError, ValueError):
        return {}
    return times


def cpu_percents(before: CpuTimes, after: CpuTimes) -> tuple[float, ...]:
    """Return how busy each CPU was between two readings, for the CPUs in both."""
    percents = []
    for number, times in after.items():
        if number in before:
            percent = _busy_percent(before[number], times)
            if percent is not None:
                percents.append(percent)
    return tuple(percents)


def _busy_percent(
    before: tuple[int, ...], after: tuple[int, ...]
) -> float | None:
    """Return how busy a CPU was, or None if its clock stood still."""
    # `iowait` may decrease on any machine. In a container with lxcfs, any
    # column may.
    spent = [max(0, later - earlier) for earlier, later in zip(before, after)]
    total = sum(spent)
    if total == 0:
        return None
    busy = total - sum(spent[IDLE : IOWAIT + 1])
    return round(100 * busy / total, 1)


def memory(root: Path = ROOT) -> Memory:
    """Return the memory of the machine."""
    pattern = r"(?m)^(MemTotal|MemFree|MemAvailable):\s*(\d+) kB$"
    rows = dict(re.findall(pattern, text_of(root / "proc/meminfo")))
    total = _bytes(rows.get("MemTotal"))
    available = _bytes(rows.get("MemAvailable"))
    if (
        total is not None
        and available is not None
        and not 0 < available <= total
    ):
        # This happens in a container with its own total and the host's
        # estimate, or if the kernel miscounts. Free memory is certainly
        # available.
        available = _bytes(rows.get("MemFree"))
    return Memory(total, available)


def _bytes(kibibytes: str | None) -> int | None:
    if kibibytes is None:
        return None
    return int(kibibytes) * 1024


def load_average(root: Path = ROOT) -> tuple[float, ...]:
    """Return the load averages over 1, 5 and 15 minutes, or () if unknown."""
    words = text_of(root / "proc/loadavg").split()
    try:
        return tuple(map(float, words[:3]))
    except ValueError:
        return ()


def cpu_clock_mhz(root: Path = ROOT) -> float | None:
    """Return the mean frequency of the CPUs that are online."""
    clocks = _clocks_in_cpuinfo(root) or _clocks_in_sysfs(root)
    if not clocks:
        return None
    return rounded(sum(clocks) / len(clocks))


def _clocks_in_cpuinfo(root: Path) -> list[float]:
    """Return the frequencies in MHz that /proc/cpuinfo shows on x86."""
    pattern = r"(?m)\n(?:cpu|CPU) MHz\s*:\s*(\d+\.?\d*)$"
    clocks = map(float, re.findall(pattern, text_of(root / "proc/cpuinfo")))
    return list(filter(None, clocks))


def _clocks_in_sysfs(root: Path) -> list[float]:
    """Return the frequencies in MHz that the frequency driver reports."""
    clocks = []
    for folder in paths(root, FREQUENCIES):
        # Reading the file of an offline CPU fails. Some kernels have only the
        # second file.
        for name in ("scaling_cur_freq", "cpuinfo_cur_freq"):
            kilohertz = number_in(folder / name)
            if kilohertz:
                clocks.append(kilohertz / 1000)
                break
    return clocks


def cpu_temperature_celsius(root: Path = ROOT) -> float | None:
    """Return the temperature of the hottest part of the CPU."""
    sensors = _sensors(root, CHIPS, "name", "temp*_input")
    if not sensors:
        sensors = _sensors(root, THERMAL_ZONES, "type", "temp")
    for name in CPU_SENSORS:
        numbers = map(number_in, sensors.get(name, ()))
        millidegrees = [number for number in numbers if number is not None]
        if millidegrees:
            return rounded(max(millidegrees) / 1000)
    return None


def _sensors(
    root: Path, places: tuple[str, ...], name_file: str, pattern: str
) -> dict[str, set[Path]]:
    """Return the temperature files of all sensors, by the name of the chip.

    Read only the files of a CPU: reading a disk's file may wake the disk up.
    """
    sensors: dict[str, set[Path]] = {}
    for place in places:
        for folder in paths(root, place):
            files = paths(folder.resolve(), pattern)
            if files:
                name = text_of(folder / name_file).replace("-", "_")
                sensors.setdefault(name, set()).update(files)
    return sensors


def cpu_name(root: Path = ROOT) -> str | None:
    """Return the processor's marketing name, or None if /proc/cpuinfo has none."""
    pattern = r"(?m)^(?:model name|Model)\s*:(.*)"
    found = re.search(pattern, text_of(root / "proc/cpuinfo"))
    if found is None:
        return None
    return " ".join(found[1].split())
