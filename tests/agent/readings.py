"""The table of readings: what the driver and the JSON say of each, and what makes it missing."""

import dataclasses
from typing import Any, NamedTuple

from tests.driver import ALL_LINKS, GPM, FakeDevice, FakeProcess, FakeSample

GIB = 1 << 30
OLDER = {
    "nvmlDeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTemperatureV": "nvmlDeviceGetTemperature",
    "nvmlDeviceGetCurrentClocksEventReasons": "nvmlDeviceGetCurrentClocksThrottleReasons",
}
"""Functions that are asked where the first is not supported."""


class Row(NamedTuple):
    """A reading: what the driver says, what the JSON says, and what makes it missing."""

    name: str
    driver: dict[str, Any]
    value: Any
    fails: tuple[str, ...]


def same(name: str, value: Any, fails: tuple[str, ...]) -> Row:
    return Row(name, {name: value}, value, fails)


def watts(name: str, key: str, milliwatts: int, function: str) -> Row:
    said = {f"{key}_milliwatts": milliwatts}
    return Row(f"{name}_watts", said, milliwatts / 1000, get(function))


def threshold(number: int, name: str, value: int) -> Row:
    return Row(name, {f"temperature_threshold.{number}": value}, value, THRESHOLD)


def get(function: str) -> tuple[str, ...]:
    """The function, and the older one that is asked in its place."""
    name = f"nvmlDeviceGet{function}"
    return (name, OLDER[name]) if name in OLDER else (name,)


THRESHOLD = get("TemperatureThreshold")


def field(*numbers: int) -> tuple[str, ...]:
    return tuple(f"field.{number}" for number in numbers)


MEMORY = {"memory_total_bytes": 80 * GIB, "memory_used_bytes": 50 * GIB}
HELD = (FakeProcess(11, memory_bytes=30 * GIB), FakeProcess(12, "graphics", 5 * GIB))
LISTS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses_{version}"
    for kind in ("Compute", "Graphics")
    for version in ("v2", "v3")
)
EVENTS = {74: 5_000_000_000, 75: 1, 76: 2_000_000_000, 77: 0, 78: 0, 79: 0, 269: 4_100_000, 270: 0}
SECONDS = {
    "sw_power_cap": 5.0,
    "sync_boost": 2.0,
    "board_limit": 0.0,
    "low_utilization": 0.0,
    "reliability": 0.0,
    "sw_thermal": 0.004,
    "hw_thermal": 0.0,
    "hw_power_brake": 7.0,
}

SAMPLE = (
    same("gpu_utilization_percent", 93, get("UtilizationRates")),
    Row(
        "gpu_utilization_samples_percent",
        {"samples": (FakeSample(1_000_000, 70), FakeSample(1_200_000, 71))},
        [72, 73],
        get("Samples"),
    ),
    Row("gpu_utilization_samples_seconds", {}, 0.2, get("Samples")),
    same("memory_utilization_percent", 42, get("UtilizationRates")),
    same("encoder_utilization_percent", 11, get("EncoderUtilization")),
    same("decoder_utilization_percent", 12, get("DecoderUtilization")),
    same("jpeg_utilization_percent", 13, get("JpgUtilization")),
    same("ofa_utilization_percent", 14, get("OfaUtilization")),
    Row("graphics_active_percent", {"gpm.1": 80.5}, 80.5, ("gpm.1",)),
    Row("sm_active_percent", {"gpm.2": 81.5}, 81.5, ("gpm.2",)),
    Row("sm_occupancy_percent", {"gpm.3": 82.5}, 82.5, ("gpm.3",)),
    Row("tensor_active_percent", {"gpm.5": 83.5}, 83.5, ("gpm.5",)),
    Row("dram_active_percent", {"gpm.10": 84.5}, 84.5, ("gpm.10",)),
    Row("fp64_active_percent", {"gpm.11": 85.5}, 85.5, ("gpm.11",)),
    Row("fp32_active_percent", {"gpm.12": 86.5}, 86.5, ("gpm.12",)),
    Row("fp16_active_percent", {"gpm.13": 87.5}, 87.5, ("gpm.13",)),
    Row("memory_used_bytes", MEMORY, 50 * GIB, get("MemoryInfo_v2")),
    Row("memory_total_bytes", MEMORY, 80 * GIB, get("MemoryInfo_v2")),
    Row("memory_free_bytes", MEMORY, 29 * GIB, get("MemoryInfo_v2")),
    same("memory_reserved_bytes", GIB, get("MemoryInfo_v2")),
    Row("memory_attributed_bytes", {"processes": HELD}, 35 * GIB, LISTS),
    Row("memory_unattributed_bytes", MEMORY, 15 * GIB, get("MemoryInfo_v2")),
    same("bar1_used_bytes", 3 * GIB, get("BAR1MemoryInfo")),
    same("temperature_celsius", 61, get("TemperatureV")),
    same("temperature_margin_celsius", -1, get("MarginTemperature")),
    Row("memory_temperature_celsius", {"field.82": 77}, 77, field(82)),
    same("fan_percent", 33, get("FanSpeed")),
    Row("fans_percent", {"fans": 2, "fan_percent.1": 44}, [33, 44], get("NumFans")),
    watts("power", "power", 301_250, "PowerUsage"),
    Row("power_average_watts", {"field.185": 302_250}, 302.25, field(185)),
    Row("power_instant_watts", {"field.186": 303_250}, 303.25, field(186)),
    watts("power_limit", "power_limit_enforced", 650_500, "EnforcedPowerLimit"),
    watts("power_limit_requested", "power_limit", 660_500, "PowerManagementLimit"),
    Row("energy_joules", {"field.83": 12_345_678}, 12_345.678, field(83, 191)),
    same("sm_clock_mhz", 1701, get("ClockInfo")),
    same("graphics_clock_mhz", 1704, get("ClockInfo")),
    same("memory_clock_mhz", 1702, get("ClockInfo")),
    same("video_clock_mhz", 1703, get("ClockInfo")),
    same("performance_state", 2, get("PerformanceState")),
    Row(
        "clock_event_reasons",
        {"clock_event_reasons": 0x1000_0000_0144},
        ["sw_power_cap", "hw_thermal", "display_clocks", "bit_0x100000000000"],
        get("CurrentClocksEventReasons"),
    ),
    Row(
        "clock_event_seconds",
        {f"field.{n}": ns for n, ns in EVENTS.items()} | {"field.271": 7_000_000_000},
        SECONDS,
        field(74, 75, 76, 77, 78, 79, 269, 270, 271),
    ),
    same("pcie_generation", 4, get("CurrPcieLinkGeneration")),
    same("pcie_width", 8, get("CurrPcieLinkWidth")),
    Row("pcie_rx_bytes_per_second", {}, 3_000_000_000, (*field(198), *get("PcieThroughput"))),
    Row("pcie_tx_bytes_per_second", {}, 1_000_000_000, (*field(197), *get("PcieThroughput"))),
    Row("pcie_replays", {"field.94": 6}, 6, field(94)),
    Row("nvlink_rx_bytes_per_second", {}, 5 * 1024, field(139, 204)),
    Row("nvlink_tx_bytes_per_second", {}, 7 * 1024, field(138, 202)),
    Row("nvlink_link_rx_bytes_per_second", {}, [2 * 1024, 3 * 1024], field(139, 204)),
    Row("nvlink_link_tx_bytes_per_second", {}, [3 * 1024, 4 * 1024], field(138, 202)),
    Row("ecc_corrected", {"field.3": 21}, 21, field(3)),
    Row("ecc_uncorrected", {"field.4": 22}, 22, field(4)),
    Row("ecc_corrected_lifetime", {"field.5": 23}, 23, field(5)),
    Row("ecc_uncorrected_lifetime", {"field.6": 24}, 24, field(6)),
    Row("remapped_rows", {"field.142": 3, "field.143": 4}, 7, field(143)),
    Row("remapped_rows_uncorrected", {"field.143": 4}, 4, field(143)),
    Row("remap_pending", {"field.144": 1}, True, field(144)),
    Row("remap_failed", {"field.145": 1}, True, field(145)),
    Row("recovery_action", {"field.230": 4}, "drain_and_reset", field(230)),
)
INVENTORY = (
    same("uuid", "GPU-aaaa", get("UUID")),
    same("name", "NVIDIA Fake", get("Name")),
    same("pci_bus_id", "00000001:2A:00.0", get("PciInfo_v3")),
    same("pci_device_id", "26b5", get("PciInfo_v3")),
    same("minor_number", 5, get("MinorNumber")),
    Row("architecture", {"architecture": 8}, "ada", get("Architecture")),
    Row("compute_capability", {"compute_capability_major": 8}, "8.0", get("CudaComputeCapability")),
    Row("sm_count", {"gpu_cores": 142 * 64}, 142, get("NumGpuCores")),
    Row("memory_total_bytes", MEMORY, 80 * GIB, get("MemoryInfo_v2")),
    same("bar1_total_bytes", 64 * GIB, get("BAR1MemoryInfo")),
    same("sm_clock_max_mhz", 2001, get("MaxClockInfo")),
    same("graphics_clock_max_mhz", 2004, get("MaxClockInfo")),
    same("memory_clock_max_mhz", 2002, get("MaxClockInfo")),
    same("video_clock_max_mhz", 2003, get("MaxClockInfo")),
    watts("power_limit_default", "power_limit_default", 350_000, "PowerManagementDefaultLimit"),
    watts("power_limit_min", "power_limit_min", 100_000, "PowerManagementLimitConstraints"),
    watts("power_limit_max", "power_limit_max", 400_000, "PowerManagementLimitConstraints"),
    threshold(1, "temperature_slowdown_celsius", 88),
    threshold(0, "temperature_shutdown_celsius", 91),
    threshold(2, "memory_temperature_max_celsius", 97),
    Row("temperature_shutdown_margin_celsius", {"field.193": -8}, -8, field(193)),
    Row("temperature_slowdown_margin_celsius", {"field.194": -2}, -2, field(194)),
    Row("memory_temperature_max_margin_celsius", {"field.195": 1}, 1, field(195)),
    Row("temperature_max_margin_celsius", {"field.196": 0}, 0, field(196)),
    same("pcie_generation_max", 6, get("MaxPcieLinkGeneration")),
    same("pcie_width_max", 32, get("MaxPcieLinkWidth")),
    Row("compute_mode", {"compute_mode": 3}, "exclusive_process", get("ComputeMode")),
    Row("persistence_mode", {"persistence_mode": 0}, "disabled", get("PersistenceMode")),
    Row("mig_mode", {"mig_mode": 1}, "enabled", get("MigMode")),
    Row("virtualization", {"virtualization_mode": 2}, "vgpu", get("VirtualizationMode")),
    Row("ecc_enabled", {"ecc_mode": 1}, True, get("EccMode")),
)
RATES = [row.name for row in SAMPLE if row.name.endswith("_bytes_per_second")]
"""Readings that need a second look."""
LINKS = {
    "field.91": 2,
    "field.139.0": 100,
    "field.139.1": 200,
    f"field.139.{ALL_LINKS}": 300,
    "field.138.0": 400,
    "field.138.1": 500,
    f"field.138.{ALL_LINKS}": 900,
    "field.197": (1 << 40) + 1_000,
    "field.198": (1 << 40) + 2_000,
}
A_SECOND_LATER = {
    "field.139.0": 102,
    "field.139.1": 203,
    f"field.139.{ALL_LINKS}": 305,
    "field.138.0": 403,
    "field.138.1": 504,
    f"field.138.{ALL_LINKS}": 907,
    "field.197": (1 << 40) + 1_000_001_000,
    "field.198": (1 << 40) + 3_000_002_000,
}

_OWN = {f.name for f in dataclasses.fields(FakeDevice)} | {f"gpm.{number}" for number in GPM}
_OWN |= FakeDevice().values.keys()
WITHOUT_A_DEFAULT = [r.name for r in SAMPLE if r.driver and _OWN.isdisjoint(r.driver)]
"""Readings that a `FakeDevice` does not support unless a test gives it their values."""


def device(**changes: Any) -> FakeDevice:
    """Every row's values, which all differ, and what counters start with."""
    said = {key: value for row in (*SAMPLE, *INVENTORY) for key, value in row.driver.items()}
    own = {f.name for f in dataclasses.fields(FakeDevice)}
    values = {key: value for key, value in said.items() if key not in own} | LINKS
    return FakeDevice(
        **{key: value for key, value in said.items() if key in own},
        values=values,
        gpm={},
        **changes,
    )
