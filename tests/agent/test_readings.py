import dataclasses
from typing import Any

import pytest

from gputop.agent.device import READINGS, Device
from gputop.agent.lines import to_plain
from gputop.agent.nvml.driver import NvmlReader
from gputop.agent.nvml.fields import signed
from tests.agent.reader import OneDevice
from tests.agent.readings import A_SECOND_LATER, INVENTORY, SAMPLE, Row, device, field, get
from tests.driver import (
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

pytestmark = pytest.mark.driver

ELSEWHERE = {
    "parent_uuid",
    "mig_index",
    "mig_gpu_instance",
    "mig_compute_instance",
    "memory_is_shared",
    "machine",
}
"""What MIG instances, unusual platforms and other machines say has tests of its own."""


def later(
    nvml: FakeDriver, fail: dict[str, int] | None = None
) -> tuple[dict[str, Any], NvmlReader]:
    one = OneDevice(nvml, device(fail=fail or {}), "580.95.05")
    one.read(gpm=True)
    fresh = (FakeSample(1_400_000, 72), FakeSample(1_600_000, 73))
    values = {**nvml.devices[0].values, **A_SECOND_LATER}
    samples = nvml.devices[0].samples + fresh
    return to_plain(one.read(1.0, gpm=True, values=values, samples=samples)), one.reader


def test_the_table_has_every_reading() -> None:
    assert {row.name for row in SAMPLE} == set(READINGS)
    named = {f.name for f in dataclasses.fields(Device)} - {"index", "absent"}
    assert {row.name for row in INVENTORY} == named - ELSEWHERE


def test_every_reading_has_the_drivers_value(nvml: FakeDriver) -> None:
    sample, reader = later(nvml)
    assert "absent" not in sample
    assert {row.name: sample[row.name] for row in SAMPLE} == {row.name: row.value for row in SAMPLE}
    found = to_plain(reader.device)
    assert "absent" not in found
    assert {row.name: found[row.name] for row in INVENTORY} == {
        row.name: row.value for row in INVENTORY
    }


REASONS = {
    NOT_SUPPORTED: "not_supported",
    FUNCTION_NOT_FOUND: "not_supported",
    NO_PERMISSION: "no_permission",
    TIMEOUT: "timed_out",
    NO_DATA: "no_data_yet",
    UNKNOWN: "error",
}
SECOND_FAN = Row("fans_percent", {}, None, get("FanSpeed_v2"))
"""Asked after the number of fans, which the row of the table has."""


@pytest.mark.parametrize("code", REASONS)
@pytest.mark.parametrize("row", [*SAMPLE, SECOND_FAN], ids=lambda row: row.name)
def test_every_reading_says_why_it_is_missing(nvml: FakeDriver, row: Row, code: int) -> None:
    sample, _ = later(nvml, dict.fromkeys(row.fails, code))
    assert sample[row.name] is None
    assert sample["absent"][row.name] == REASONS[code]


def test_errors_are_not_counted_where_ecc_is_off(nvml: FakeDriver) -> None:
    codes = dict.fromkeys(field(3, 4, 5), NOT_SUPPORTED) | {"field.6": NO_PERMISSION}
    one = OneDevice(nvml, device(fail=codes))
    absent = one.read(ecc_mode=0).absent
    names = ("ecc_corrected", "ecc_uncorrected", "ecc_corrected_lifetime")
    assert {absent[name] for name in names} == {"disabled"}
    assert absent["ecc_uncorrected_lifetime"] == "no_permission"


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
        ("575.50", 75.0, ()),
        ("575.51.03", 51.0, (52.0, 53.0)),
        ("580.65.06", 51.0, (52.0, 53.0)),
        ("580.66", 75.0, ()),
        ("580.81", 75.0, ()),  # which numbers it has is not known
        ("580.82.07", 69.0, (70.0, 71.0)),
        ("590.10", 69.0, (70.0, 71.0)),
    ],
)
def test_throttle_times_have_the_numbers_of_the_drivers_version(
    nvml: FakeDriver, version: str | None, heat: float, hardware: tuple[float, ...]
) -> None:
    seconds = OneDevice(nvml, FakeDevice(values=RENUMBERED), version).read().clock_event_seconds
    known = dict(zip(("hw_thermal", "hw_power_brake"), hardware, strict=False))
    assert seconds == {"sw_power_cap": 5.0, "sw_thermal": heat, **known}


def test_a_throttle_time_that_grows_faster_than_time_is_absent(nvml: FakeDriver) -> None:
    device = OneDevice(nvml, FakeDevice())

    def throttled(seconds: float) -> float | None:
        found = device.read(5.0, values={"field.74": round(seconds * 1e9), "field.78": 0})
        assert found.clock_event_seconds is not None
        assert found.clock_event_seconds["low_utilization"] == 0.0
        return found.clock_event_seconds.get("sw_power_cap")

    assert throttled(1000.0) == 1000.0  # it was loaded long ago
    assert throttled(1005.5) == 1005.5  # not read at the very same moments
    assert throttled(1012.0) == 1012.0  # two seconds ahead
    assert throttled(1017.1) is None
    for _ in range(3):  # it does not count seconds, whatever it says now
        assert throttled(1017.1) is None


def test_negative_numbers_of_32_and_64_bits() -> None:
    said = [5, (1 << 31) - 1, 1 << 31, (1 << 32) - 8, 1 << 33, 1 << 63, (1 << 64) - 2]
    found = [5, (1 << 31) - 1, -(1 << 31), -8, 1 << 33, -(1 << 63), -2]
    assert [signed(number) for number in said] == found


@pytest.mark.parametrize(
    ("capability", "cores", "count"),
    [
        ((3, 7), 2_496, 13),  # Tesla K80
        ((6, 0), 3_584, 56),  # Tesla P100
        ((7, 0), 5_120, 80),  # Tesla V100
        ((7, 5), 2_560, 40),  # Tesla T4
        ((8, 0), 6_912, 108),  # A100
        ((8, 9), 18_176, 142),  # L40S
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
    said = FakeDevice(
        gpu_cores=cores, compute_capability_major=major, compute_capability_minor=minor
    )
    device = OneDevice(nvml, said).reading().device
    assert device.sm_count == count
    assert device.absent.get("sm_count") == (None if count else "not_supported")


def test_all_bits_set_is_not_available(nvml: FakeDriver) -> None:
    device = FakeDevice(
        architecture=0xFFFF_FFFF,
        clock_event_reasons=(1 << 64) - 1,
        fans=2,
        fan_percent=0xFFFF_FFFF,
        values={"field.230": 0xFFFF_FFFF, "field.186": 0xFFFF_FFFF, "field_type.186": 1},
    )
    reading = OneDevice(nvml, device).reading()
    names = ("clock_event_reasons", "fans_percent", "recovery_action", "power_instant_watts")
    assert {reading.sample.absent[name] for name in names} == {"not_supported"}
    assert reading.device.absent["architecture"] == "not_supported"


@pytest.mark.parametrize(
    ("used", "held", "expected"),
    [
        (50, (30, 5), [35, 15]),
        (50, (), [0, 50]),
        (10, (30,), [30, 0]),  # the lists are older than the memory
        (50, (30, None), ["not_supported", "not_supported"]),
    ],
)
def test_memory_that_no_listed_process_explains(
    nvml: FakeDriver, used: int, held: tuple[int | None, ...], expected: list[int | str]
) -> None:
    processes = tuple(FakeProcess(pid, memory_bytes=size) for pid, size in enumerate(held, 1))
    sample = OneDevice(nvml, FakeDevice(memory_used_bytes=used, processes=processes)).read()
    names = ("memory_attributed_bytes", "memory_unattributed_bytes")
    assert [sample.absent.get(name, getattr(sample, name)) for name in names] == expected
