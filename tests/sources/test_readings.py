"""Each reading, from the driver to the JSON of the stream: its value, and why it is missing."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from gputop.schema.codec import to_json
from gputop.schema.device import GPM_READINGS, READINGS, SERIES_READINGS, Absence, Device
from gputop.schema.snapshot import Host, Sample, decode, encode
from gputop.sources.nvml.driver import NvmlReader, start
from gputop.sources.nvml.fields import Durations, FieldBatch, FieldKey
from tests.driver import (
    ALL_LINKS,
    FIELDS,
    FUNCTION_NOT_FOUND,
    NO_DATA,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    FakeDevice,
    FakeDriver,
    FakeProcess,
    FakeSample,
)
from tests.sources.test_nvml import OLDER, RATES, Clock

pytestmark = pytest.mark.driver

GIB = 1 << 30


class Row(NamedTuple):
    """A reading: what the driver says, what the JSON says, and what makes it missing."""

    name: str
    driver: dict[str, Any]
    value: Any
    fails: tuple[str, ...]
    """The functions or fields that it comes from."""


def get(function: str) -> tuple[str, ...]:
    """The function, and the older one that is asked in its place."""
    name = f"nvmlDeviceGet{function}"
    return (name, OLDER[name]) if name in OLDER else (name,)


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
    Row("gpu_utilization_percent", {"gpu_utilization_percent": 93}, 93, get("UtilizationRates")),
    Row(
        "gpu_utilization_samples_percent",
        {"samples": (FakeSample(1_000_000, 70), FakeSample(1_200_000, 71))},
        [72, 73],
        get("Samples"),
    ),
    Row("gpu_utilization_samples_seconds", {}, 0.2, get("Samples")),
    Row(
        "memory_utilization_percent",
        {"memory_utilization_percent": 42},
        42,
        get("UtilizationRates"),
    ),
    Row(
        "encoder_utilization_percent",
        {"encoder_utilization_percent": 11},
        11,
        get("EncoderUtilization"),
    ),
    Row(
        "decoder_utilization_percent",
        {"decoder_utilization_percent": 12},
        12,
        get("DecoderUtilization"),
    ),
    Row("jpeg_utilization_percent", {"jpeg_utilization_percent": 13}, 13, get("JpgUtilization")),
    Row("ofa_utilization_percent", {"ofa_utilization_percent": 14}, 14, get("OfaUtilization")),
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
    Row("memory_reserved_bytes", {"memory_reserved_bytes": GIB}, GIB, get("MemoryInfo_v2")),
    Row("memory_attributed_bytes", {"processes": HELD}, 35 * GIB, LISTS),
    Row("memory_unattributed_bytes", MEMORY, 15 * GIB, get("MemoryInfo_v2")),
    Row("bar1_used_bytes", {"bar1_used_bytes": 3 * GIB}, 3 * GIB, get("BAR1MemoryInfo")),
    Row("temperature_celsius", {"temperature_celsius": 61}, 61, get("TemperatureV")),
    Row(
        "temperature_margin_celsius",
        {"temperature_margin_celsius": -1},
        -1,
        get("MarginTemperature"),
    ),
    Row("memory_temperature_celsius", {"field.82": 77}, 77, field(82)),
    Row("fan_percent", {"fan_percent": 33}, 33, get("FanSpeed")),
    Row("fans_percent", {"fans": 2, "fan_percent.1": 44}, [33, 44], get("FanSpeed_v2")),
    Row("power_watts", {"power_milliwatts": 301_250}, 301.25, get("PowerUsage")),
    Row("power_average_watts", {"field.185": 302_250}, 302.25, field(185)),
    Row("power_instant_watts", {"field.186": 303_250}, 303.25, field(186)),
    Row(
        "power_limit_watts",
        {"power_limit_enforced_milliwatts": 650_500},
        650.5,
        get("EnforcedPowerLimit"),
    ),
    Row(
        "power_limit_requested_watts",
        {"power_limit_milliwatts": 660_500},
        660.5,
        get("PowerManagementLimit"),
    ),
    Row("energy_joules", {"field.83": 12_345_678}, 12_345.678, field(83, 191)),
    Row("sm_clock_mhz", {"sm_clock_mhz": 1701}, 1701, get("ClockInfo")),
    Row("memory_clock_mhz", {"memory_clock_mhz": 1702}, 1702, get("ClockInfo")),
    Row("video_clock_mhz", {"video_clock_mhz": 1703}, 1703, get("ClockInfo")),
    Row("performance_state", {"performance_state": 2}, 2, get("PerformanceState")),
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
    Row("pcie_generation", {"pcie_generation": 4}, 4, get("CurrPcieLinkGeneration")),
    Row("pcie_width", {"pcie_width": 8}, 8, get("CurrPcieLinkWidth")),
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
    Row("uuid", {"uuid": "GPU-aaaa"}, "GPU-aaaa", get("UUID")),
    Row("name", {"name": "NVIDIA Fake"}, "NVIDIA Fake", get("Name")),
    Row("pci_bus_id", {"pci_bus_id": "00000001:2A:00.0"}, "00000001:2A:00.0", get("PciInfo_v3")),
    Row("pci_device_id", {"pci_device_id": "26b5"}, "26b5", get("PciInfo_v3")),
    Row("minor_number", {"minor_number": 5}, 5, get("MinorNumber")),
    Row("architecture", {"architecture": 8}, "ada", get("Architecture")),
    Row("compute_capability", {"compute_capability_major": 8}, "8.0", get("CudaComputeCapability")),
    Row("sm_count", {"gpu_cores": 142 * 64}, 142, get("NumGpuCores")),
    Row("memory_total_bytes", MEMORY, 80 * GIB, get("MemoryInfo_v2")),
    Row("bar1_total_bytes", {"bar1_total_bytes": 64 * GIB}, 64 * GIB, get("BAR1MemoryInfo")),
    Row("sm_clock_max_mhz", {"sm_clock_max_mhz": 2001}, 2001, get("MaxClockInfo")),
    Row("memory_clock_max_mhz", {"memory_clock_max_mhz": 2002}, 2002, get("MaxClockInfo")),
    Row("video_clock_max_mhz", {"video_clock_max_mhz": 2003}, 2003, get("MaxClockInfo")),
    Row(
        "power_limit_default_watts",
        {"power_limit_default_milliwatts": 350_000},
        350.0,
        get("PowerManagementDefaultLimit"),
    ),
    Row(
        "power_limit_min_watts",
        {"power_limit_min_milliwatts": 100_000},
        100.0,
        get("PowerManagementLimitConstraints"),
    ),
    Row(
        "power_limit_max_watts",
        {"power_limit_max_milliwatts": 400_000},
        400.0,
        get("PowerManagementLimitConstraints"),
    ),
    Row(
        "temperature_slowdown_celsius",
        {"temperature_threshold.1": 88},
        88,
        get("TemperatureThreshold"),
    ),
    Row(
        "temperature_shutdown_celsius",
        {"temperature_threshold.0": 91},
        91,
        get("TemperatureThreshold"),
    ),
    Row(
        "memory_temperature_max_celsius",
        {"temperature_threshold.2": 97},
        97,
        get("TemperatureThreshold"),
    ),
    Row("temperature_shutdown_margin_celsius", {"field.193": -8}, -8, field(193)),
    Row("temperature_slowdown_margin_celsius", {"field.194": -2}, -2, field(194)),
    Row("memory_temperature_max_margin_celsius", {"field.195": 1}, 1, field(195)),
    Row("temperature_max_margin_celsius", {"field.196": 0}, 0, field(196)),
    Row("pcie_generation_max", {"pcie_generation_max": 6}, 6, get("MaxPcieLinkGeneration")),
    Row("pcie_width_max", {"pcie_width_max": 32}, 32, get("MaxPcieLinkWidth")),
    Row("compute_mode", {"compute_mode": 3}, "exclusive_process", get("ComputeMode")),
    Row("persistence_mode", {"persistence_mode": 0}, "disabled", get("PersistenceMode")),
    Row("mig_mode", {"mig_mode": 1}, "enabled", get("MigMode")),
    Row("virtualization", {"virtualization_mode": 1}, "passthrough", get("VirtualizationMode")),
    Row("ecc_enabled", {"ecc_mode": 1}, True, get("EccMode")),
)
ELSEWHERE = {
    "parent_uuid",
    "mig_index",
    "mig_gpu_instance",
    "mig_compute_instance",
    "memory_is_shared",
    "machine",
}
"""What MIG instances, unusual platforms and other machines say has tests of its own."""
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


def later(
    nvml: FakeDriver, fail: dict[str, int] | None = None
) -> tuple[dict[str, Any], NvmlReader]:
    """The second reading as JSON, GPM included, a second after the first."""
    nvml.write(device(fail=fail or {}))
    start()
    clock = Clock()
    reader = NvmlReader(0, "580.95.05", clock)
    reader.read(gpm=True)
    fresh = (FakeSample(1_400_000, 72), FakeSample(1_600_000, 73))
    nvml.change(
        0,
        values={**nvml.devices[0].values, **A_SECOND_LATER},
        samples=nvml.devices[0].samples + fresh,
    )
    clock.seconds += 1.0
    return to_json(reader.read(gpm=True)[0].sample), reader


def test_the_table_has_every_reading() -> None:
    assert {row.name for row in SAMPLE} == set(READINGS)
    named = {f.name for f in dataclasses.fields(Device)} - {"index", "absent"}
    assert {row.name for row in INVENTORY} == named - ELSEWHERE


def test_every_reading_has_the_drivers_value(nvml: FakeDriver) -> None:
    sample, reader = later(nvml)
    assert "absent" not in sample
    assert {row.name: sample[row.name] for row in SAMPLE} == {row.name: row.value for row in SAMPLE}
    found = to_json(reader.device)
    assert "absent" not in found
    assert {row.name: found[row.name] for row in INVENTORY} == {
        row.name: row.value for row in INVENTORY
    }


@pytest.mark.parametrize("command", [["stream", "--count", "1"], ["status", "--json"]])
def test_the_commands_say_the_same(driver: FakeDriver, command: list[str]) -> None:
    driver.write(device())
    done = subprocess.run(
        [sys.executable, "-m", "gputop", *command],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    documents = (
        [json.loads(line) for line in done.stdout.splitlines()] if command[0] == "stream" else []
    )
    if not documents:
        document = json.loads(done.stdout)
        documents = [document["inventory"], document["sample"]]
    (found,), (sample,) = documents[-2]["devices"], documents[-1]["devices"]
    assert {row.name: found[row.name] for row in INVENTORY} == {
        row.name: row.value for row in INVENTORY
    }
    second = (*RATES, *SERIES_READINGS, *GPM_READINGS)
    """What a second reading is needed for."""
    assert sample["absent"] == dict.fromkeys(second, "no_data_yet")
    assert {row.name: sample[row.name] for row in SAMPLE} == {
        row.name: None if row.name in second else row.value for row in SAMPLE
    }


REASONS = {
    NOT_SUPPORTED: "not_supported",
    FUNCTION_NOT_FOUND: "not_supported",
    NO_PERMISSION: "no_permission",
    TIMEOUT: "timed_out",
    NO_DATA: "no_data_yet",
    UNKNOWN: "error",
}


@pytest.mark.parametrize("code", REASONS)
@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: row.name)
def test_every_reading_says_why_it_is_missing(nvml: FakeDriver, row: Row, code: int) -> None:
    sample, _ = later(nvml, dict.fromkeys(row.fails, code))
    assert sample[row.name] is None
    assert sample["absent"][row.name] == REASONS[code]


@pytest.mark.parametrize("code", REASONS)
@pytest.mark.parametrize("row", INVENTORY[2:], ids=lambda row: row.name)
def test_what_a_device_is_says_why_it_is_missing(nvml: FakeDriver, row: Row, code: int) -> None:
    fails = (*row.fails, *(OLDER[name] for name in row.fails if name in OLDER))
    _, reader = later(nvml, dict.fromkeys(fails, code))
    found = to_json(reader.device)
    assert found[row.name] is None
    assert found["absent"][row.name] == REASONS[code]


def test_a_field_that_an_older_driver_does_not_know(nvml: FakeDriver) -> None:
    sample, _ = later(nvml, {"field.230": 2})
    assert sample["absent"] == {"recovery_action": "not_supported"}


def test_errors_are_not_counted_where_ecc_is_off(nvml: FakeDriver) -> None:
    codes = dict.fromkeys(field(3, 4, 5), NOT_SUPPORTED) | {"field.6": NO_PERMISSION}
    nvml.write(device(ecc_mode_pending=0, fail=codes))
    nvml.change(0, ecc_mode=0)
    start()
    absent = to_json(NvmlReader(0).read(gpm=False)[0].sample)["absent"]
    assert absent["ecc_corrected"] == absent["ecc_uncorrected"] == "disabled"
    assert absent["ecc_corrected_lifetime"] == "disabled"
    assert absent["ecc_uncorrected_lifetime"] == "no_permission"


def test_energy_where_only_the_newer_field_has_it(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(values={"field.191": 5_000}))
    start()
    assert NvmlReader(0).read(gpm=False)[0].sample.energy_joules == 5.0


RENUMBERED = {
    **{f"field.{number}": n * 10**9 for n, number in enumerate((251, 252, 253), 51)},
    **{f"field.{number}": n * 10**9 for n, number in enumerate((269, 270, 271), 69)},
    "field.74": 5 * 10**9,
    "field.75": 75 * 10**9,
}


@pytest.mark.parametrize(
    ("version", "heat", "hardware"),
    [
        (None, 75.0, ()),
        ("570.124.06", 75.0, ()),
        ("575.51.03", 51.0, (52.0, 53.0)),
        ("580.65.06", 51.0, (52.0, 53.0)),
        ("580.76.05", 75.0, ()),  # which numbers it has is not known
        ("580.82.07", 69.0, (70.0, 71.0)),
        ("595.80", 69.0, (70.0, 71.0)),
    ],
)
def test_throttle_times_have_the_numbers_of_the_drivers_version(
    nvml: FakeDriver, version: str | None, heat: float, hardware: tuple[float, ...]
) -> None:
    """Slowdown by heat under two numbers is one counter."""
    nvml.write(FakeDevice(values=RENUMBERED))
    start()
    seconds = NvmlReader(0, version).read(gpm=False)[0].sample.clock_event_seconds
    known = zip(("hw_thermal", "hw_power_brake"), hardware, strict=False)
    assert seconds == {"sw_power_cap": 5.0, "sw_thermal": heat, **dict(known)}


def test_slowdown_by_heat_where_only_the_older_number_has_it(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(values={"field.75": 3 * 10**9}))
    start()
    sample = NvmlReader(0, "595.80").read(gpm=False)[0].sample
    assert sample.clock_event_seconds == {"sw_thermal": 3.0}


def throttled(reader: NvmlReader, nvml: FakeDriver, seconds: float) -> float | None:
    """What it says when the driver has counted that many seconds of a power cap."""
    nvml.change(0, values={"field.74": round(seconds * 1e9), "field.78": 0})
    found = reader.read(gpm=False)[0].sample.clock_event_seconds
    assert found is not None
    assert found["low_utilization"] == 0.0
    return found.get("sw_power_cap")


def test_a_throttle_time_that_grows_faster_than_time_is_absent(nvml: FakeDriver) -> None:
    """A device page said 29:42:57 after three minutes."""
    nvml.write(FakeDevice())
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    assert throttled(reader, nvml, 1000.0) == 1000.0  # it was loaded long ago
    clock.seconds += 5.0
    assert throttled(reader, nvml, 1005.5) == 1005.5  # not read at the very same moments
    clock.seconds += 5.0
    assert throttled(reader, nvml, 1600.0) is None
    for _ in range(3):  # it does not count seconds, whatever it says now
        clock.seconds += 5.0
        assert throttled(reader, nvml, 1601.0) is None


def test_a_throttle_time_that_runs_a_little_too_fast_is_found_out(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice())
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    shown = []
    for n in range(20):
        shown.append(throttled(reader, nvml, 6.0 * n))
        clock.seconds += 5.0
    assert shown[:3] == [0.0, 6.0, 12.0]
    assert shown[3:] == [None] * 17


def test_a_throttle_time_begins_anew_after_a_reset(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice())
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    said = []
    for seconds in (1000.0, 0.0, 5.0):
        said.append(throttled(reader, nvml, seconds))
        clock.seconds += 5.0
    assert said == [1000.0, 0.0, 5.0]


def test_a_call_that_takes_long_is_no_reason_to_doubt_a_throttle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its value may be of any moment of the call."""
    clock = Clock()
    rows = iter([(0.0, 60.0), (125.0, 60.0)])

    def fetch(_: object, keys: tuple[FieldKey, ...]) -> list[int]:
        seconds, took = next(rows)
        clock.seconds += took
        return [round(seconds * 1e9) for _ in keys]

    monkeypatch.setattr("gputop.sources.nvml.fields.fetch", fetch)
    ask = FieldBatch(clock, Durations("clock_event_seconds", clock, {"sw_power_cap": (74,)}))
    assert ask(None) == ({"sw_power_cap": 0.0},)
    clock.seconds += 5.0
    assert ask(None) == ({"sw_power_cap": 125.0},)


def test_causes_that_a_device_does_not_count_are_left_out(nvml: FakeDriver) -> None:
    codes = {"field.76": NOT_SUPPORTED, "field.77": NO_PERMISSION}
    sample, _ = later(nvml, codes)
    gone = {"sync_boost", "board_limit"}
    assert set(sample["clock_event_seconds"]) == set(SECONDS) - gone


@pytest.mark.parametrize(
    ("mask", "words"), [(0, []), (0x1, ["idle"]), (0x60, ["sw_thermal", "hw_thermal"])]
)
def test_reasons_combine_and_none_is_a_value(nvml: FakeDriver, mask: int, words: list[str]) -> None:
    nvml.write(FakeDevice(clock_event_reasons=mask))
    start()
    sample = to_json(NvmlReader(0).read(gpm=False)[0].sample)
    assert sample["clock_event_reasons"] == words


@pytest.mark.parametrize(
    ("capability", "cores", "count"),
    [
        ((3, 7), 2_496, 13),  # Tesla K80
        ((5, 2), 1_024, 8),  # Tesla M4
        ((6, 0), 3_584, 56),  # Tesla P100
        ((6, 1), 3_840, 30),  # Tesla P40
        ((7, 0), 5_120, 80),  # Tesla V100
        ((7, 5), 2_560, 40),  # Tesla T4
        ((8, 0), 6_912, 108),  # A100
        ((8, 6), 10_496, 82),  # GeForce RTX 3090
        ((8, 9), 18_176, 142),  # L40S
        ((9, 0), 16_896, 132),  # H100 SXM
        ((10, 0), 18_944, 148),  # B200
        ((12, 0), 24_064, 188),  # RTX PRO 6000
        ((8, 0), 0, None),
        ((8, 0), 6_911, None),  # no whole number of SMs
        ((99, 0), 6_912, None),  # whose SMs are not known
    ],
)
def test_sms_are_counted_by_their_cores(
    nvml: FakeDriver, capability: tuple[int, int], cores: int, count: int | None
) -> None:
    major, minor = capability
    nvml.write(
        FakeDevice(compute_capability_major=major, compute_capability_minor=minor, gpu_cores=cores)
    )
    start()
    reader = NvmlReader(0)
    reader.read(gpm=False)
    assert reader.device.sm_count == count
    reason = None if count else "not_supported"
    assert reader.device.absent.get("sm_count") == reason


def test_words_of_a_later_driver_keep_their_number(nvml: FakeDriver) -> None:
    values = {"field.230": 12}
    nvml.write(FakeDevice(architecture=21, compute_mode=9, values=values))
    start()
    reader = NvmlReader(0)
    assert reader.read(gpm=False)[0].sample.recovery_action == "unknown_12"
    assert (reader.device.architecture, reader.device.compute_mode) == ("unknown_21", "unknown_9")


def test_all_bits_set_is_not_available(nvml: FakeDriver) -> None:
    nvml.write(
        FakeDevice(
            architecture=0xFFFF_FFFF,
            clock_event_reasons=(1 << 64) - 1,
            fans=2,
            fan_percent=0xFFFF_FFFF,
            values={"field.230": 0xFFFF_FFFF, "field.186": 0xFFFF_FFFF, "field_type.186": 1},
        )
    )
    start()
    reader = NvmlReader(0)
    absent = to_json(reader.read(gpm=False)[0].sample)["absent"]
    names = ("clock_event_reasons", "fans_percent", "recovery_action", "power_instant_watts")
    assert {absent[name] for name in names} == {"not_supported"}
    assert reader.device.absent["architecture"] == "not_supported"


@pytest.mark.parametrize(
    ("type_", "unavailable"), [(1, 0xFFFF_FFFF), (3, 0xFFFF_FFFF), (3, (1 << 64) - 1)]
)
def test_a_field_with_all_bits_set_is_not_available(
    nvml: FakeDriver, type_: int, unavailable: int
) -> None:
    """Neither is it a sum, nor a cause's time, nor true."""
    fields = (74, 83, 142, 144, 145, 197)
    values = {f"field.{number}": value for number, value in FIELDS.items()}
    values |= {f"field.{number}": unavailable for number in fields}
    values |= {f"field_type.{number}": type_ for number in fields}
    nvml.write(FakeDevice(values=values))
    start()
    sample = NvmlReader(0, "580.95.05").read(gpm=False)[0].sample
    missing = ("energy_joules", "remapped_rows", "remap_pending", "remap_failed")
    assert {name: sample.absent.get(name) for name in missing} == dict.fromkeys(
        missing, Absence.NOT_SUPPORTED
    )
    assert sample.clock_event_seconds is not None
    assert "sw_power_cap" not in sample.clock_event_seconds
    assert sample.clock_event_seconds["low_utilization"] == 1.5


def test_what_is_counted_comes_as_an_integer(nvml: FakeDriver) -> None:
    """Or the reader of the stream leaves the whole sample out."""
    values = {f"field.{number}": value for number, value in FIELDS.items()}
    values |= {f"field.{number}": 0x4008 << 48 for number in (94, 142, 143)}  # 3.0
    values |= {f"field_type.{number}": 0 for number in (94, 142, 143)}
    nvml.write(FakeDevice(values=values))
    start()
    sample = NvmlReader(0).read(gpm=False)[0].sample
    assert (sample.pcie_replays, sample.remapped_rows) == (3, 6)
    decode(encode(Sample(0.0, Host(), (sample,))))


@pytest.mark.parametrize("bits", [0x7FF8 << 48, 0x7FF0 << 48], ids=["NaN", "infinity"])
def test_a_field_that_is_no_number_is_an_error(nvml: FakeDriver, bits: int) -> None:
    """JSON has no word for it, and the stream would end."""
    fields = (74, 83, 138, 139, 142, 186, 197, 198)
    values = {f"field.{number}": value for number, value in FIELDS.items()}
    values |= {f"field.{number}": bits for number in fields}
    values |= {f"field_type.{number}": 0 for number in fields}
    nvml.write(FakeDevice(values=values))
    start()
    reader = NvmlReader(0, "580.95.05")
    sample = [reader.read(gpm=False)[0].sample for _ in range(2)][-1]
    encode(Sample(0.0, Host(), (sample,)))
    for name in ("energy_joules", "remapped_rows", "power_instant_watts"):
        assert sample.absent[name] is Absence.ERROR
    assert "sw_power_cap" not in (sample.clock_event_seconds or {})


@pytest.mark.parametrize(
    ("used", "held", "attributed", "unattributed", "reason"),
    [
        (50, (30, 5), 35, 15, None),
        (50, (), 0, 50, None),
        (10, (30,), 30, 0, None),  # the lists are older than the memory
        (50, (30, None), None, None, "not_supported"),
    ],
)
def test_memory_that_no_listed_process_explains(
    nvml: FakeDriver,
    used: int,
    held: tuple[int | None, ...],
    attributed: int | None,
    unattributed: int | None,
    reason: str | None,
) -> None:
    processes = tuple(FakeProcess(pid, memory_bytes=size) for pid, size in enumerate(held, 1))
    nvml.write(FakeDevice(memory_used_bytes=used, processes=processes))
    start()
    sample = to_json(NvmlReader(0).read(gpm=False)[0].sample)
    assert sample["memory_attributed_bytes"] == attributed
    assert sample["memory_unattributed_bytes"] == unattributed
    assert sample["absent"].get("memory_attributed_bytes") == reason
    assert sample["absent"].get("memory_unattributed_bytes") == reason
