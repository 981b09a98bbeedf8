"""Files of /proc and /sys as kinds of machines have them, for `fake_root`."""

from __future__ import annotations

from tests.fake_root import LINK

Files = dict[str, str]


def stat(*cpus: str) -> Files:
    """Content of /proc/stat with these lines of CPUs; the first line is their sum on real ones."""
    lines = ["cpu  9 9 9 9 9 9 9 9 9 9", *cpus, "intr 123 0 0", "btime 1700000000"]
    return {"/proc/stat": "\n".join(lines) + "\n"}


def meminfo(**kibibytes: int) -> Files:
    rows = [f"{name}:{amount:>16} kB\n" for name, amount in kibibytes.items()]
    return {"/proc/meminfo": "".join([*rows, "HugePages_Total:       0\n"])}


def cpuinfo(*clocks: str) -> Files:
    """Content of /proc/cpuinfo on x86."""
    rows = [f"processor\t: 0\nmodel name\t: x\ncpu MHz\t\t: {clock}\n\n" for clock in clocks]
    return {"/proc/cpuinfo": "".join(rows)}


def policy(number: int, current: str | None, cpuinfo: str | None = None) -> Files:
    """Folder of the frequency of some CPUs; None for a file that is not there."""
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


MEMORY = meminfo(MemTotal=1000, MemFree=300, MemAvailable=600, Shmem=50)
LOAD = {"/proc/loadavg": "0.51 1.25 2.00 3/456 789\n"}
NVME = chip(0, "nvme", "91850", "95850")
CORETEMP = chip(1, "coretemp", "51000", "58000", "49000")
PLATFORM = "/sys/devices/platform/coretemp.0/hwmon/hwmon1"

CONTAINER_WITHOUT_SYS = {
    **stat("cpu0 10 0 5 80 5 0 0 0 0 0", "cpu1 10 0 5 80 5 0 0 0 0 0"),
    **MEMORY,
    **LOAD,
    **cpuinfo("2600.000", "3400.500"),
}
INTEL = {
    **CONTAINER_WITHOUT_SYS,
    **policy(0, "2600000"),
    **policy(1, "3400500"),
    **NVME,
    **CORETEMP,
}
AMD = {
    **MEMORY,
    **cpuinfo("2450.000"),
    **chip(0, "acpitz", "16800"),
    **chip(1, "k10temp", "67375", "61500"),
    **chip(2, "mlx5", "45000"),
}
BOARD = {
    **MEMORY,
    "/proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 62.50\nModel\t\t: NVIDIA Jetson\n",
    **zone(0, "cpu-thermal", "48500"),
    **zone(1, "gpu-thermal", "70000"),
}
LINKED = {f"{PLATFORM}/{key.rpartition('/')[2]}": value for key, value in CORETEMP.items()}
LINKED["/sys/class/hwmon/hwmon1"] = f"{LINK}../../devices/platform/coretemp.0/hwmon/hwmon1"
"""Sensors as they are in a kernel: the folder of all chips has links."""
