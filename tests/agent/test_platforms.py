"""The machines of `platforms`: never a wrong number, and each absence has its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.device import GPM_READINGS, READINGS, SERIES_READINGS, Absence, DeviceState
from gputop.agent.lines import to_line
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.nvml.integrated import memory_is_shared
from gputop.agent.snapshot import Host, Sample
from gputop.schema.decode import decode
from tests.agent.readings import WITHOUT_A_DEFAULT
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.driver.platforms import PLATFORMS, h100, n1x, orin_of_zeros

if TYPE_CHECKING:
    from gputop.agent.interface import DeviceReading

pytestmark = pytest.mark.driver

MEMORY = (
    "memory_used_bytes",
    "memory_total_bytes",
    "memory_free_bytes",
    "memory_reserved_bytes",
    "memory_unattributed_bytes",
)
ENGINES = (
    "encoder_utilization_percent",
    "decoder_utilization_percent",
    "jpeg_utilization_percent",
    "ofa_utilization_percent",
)
FANS = ("fan_percent", "fans_percent")
POWER_AVERAGES = ("power_average_watts", "power_instant_watts")
REMAPS = ("remapped_rows", "remapped_rows_uncorrected", "remap_pending", "remap_failed")
ECC = ("ecc_corrected", "ecc_uncorrected", "ecc_corrected_lifetime", "ecc_uncorrected_lifetime")
PCIE_RATES = ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second")
NVLINK = (
    "nvlink_rx_bytes_per_second",
    "nvlink_tx_bytes_per_second",
    "nvlink_link_rx_bytes_per_second",
    "nvlink_link_tx_bytes_per_second",
)
GEFORCE = (*NVLINK, *REMAPS, "memory_temperature_celsius")

NOT_THERE: dict[str, tuple[str, ...]] = {
    "h100": FANS,
    "a100_mig": (
        *FANS,
        *ENGINES,
        *SERIES_READINGS,
        *POWER_AVERAGES,
        "gpu_utilization_percent",
        "memory_utilization_percent",
        "temperature_margin_celsius",
    ),
    "rtx4090": GEFORCE,
    "v100": (
        *FANS,
        *POWER_AVERAGES,
        *REMAPS,
        "jpeg_utilization_percent",
        "ofa_utilization_percent",
        "temperature_margin_celsius",
        "recovery_action",
    ),
    "gb10": (
        *FANS,
        *MEMORY,
        *GEFORCE,
        *ECC,
        *PCIE_RATES,
        "bar1_used_bytes",
        "temperature_margin_celsius",
        "power_limit_watts",
        "power_limit_requested_watts",
        "energy_joules",
        "memory_clock_mhz",
        "pcie_replays",
    ),
    "orin": (*(name for name in READINGS if name not in GPM_READINGS), "processes"),
    "wsl": (
        *FANS,
        *GEFORCE,
        *PCIE_RATES,
        "memory_attributed_bytes",
        "memory_unattributed_bytes",
        "pcie_replays",
        "recovery_action",
    ),
    "vgpu_guest": (
        *FANS,
        *POWER_AVERAGES,
        *GEFORCE,
        *PCIE_RATES,
        "temperature_celsius",
        "temperature_margin_celsius",
        "power_watts",
        "power_limit_watts",
        "power_limit_requested_watts",
        "energy_joules",
        "sm_clock_mhz",
        "memory_clock_mhz",
        "video_clock_mhz",
        "clock_event_reasons",
        "clock_event_seconds",
        "pcie_generation",
        "pcie_width",
        "pcie_replays",
        "recovery_action",
    ),
}
"""What NVML does not have there; besides, GPM was not asked for and rates need a second reading."""
DISABLED = {"rtx4090": ECC, "wsl": ECC}
IDENTITY = {
    # virtualization, memory_is_shared, memory in MiB
    "h100": ("none", False, 81_559),
    "a100_mig": ("none", False, 40_960),
    "rtx4090": ("none", False, 24_564),
    "v100": ("none", False, 32_768),
    "gb10": ("none", True, None),
    "orin": (None, True, None),
    "wsl": ("none", False, 24_564),
    "vgpu_guest": ("vgpu", False, 24_576),
}


def said(device: FakeDevice) -> dict[str, Any]:
    """What the preset gives the driver to say, by the reading's name; None for what it has not."""

    def thousandths(number: int | None) -> float | None:
        return None if number is None else number / 1000

    listed = [*device.processes]
    listed += [p for instance in device.instances if instance for p in instance.processes]
    known = all(p.memory_bytes is not None for p in listed) and not device.fail
    held = sum(p.memory_bytes or 0 for p in listed) if known else None
    used = device.memory_used_bytes
    reasons = {None: None, 0: (), 4: ("sw_power_cap",)}
    numbers: dict[str, Any] = {
        **{name: getattr(device, name) for name in READINGS if hasattr(device, name)},
        "power_watts": thousandths(device.power_milliwatts),
        "power_limit_watts": thousandths(device.power_limit_enforced_milliwatts),
        "power_limit_requested_watts": thousandths(device.power_limit_milliwatts),
        "energy_joules": thousandths(device.values.get("field.83")),
        "power_average_watts": thousandths(device.values.get("field.185")),
        "power_instant_watts": thousandths(device.values.get("field.186")),
        "memory_temperature_celsius": device.values.get("field.82"),
        "pcie_replays": device.values.get("field.94"),
        "memory_attributed_bytes": held,
        "memory_unattributed_bytes": None if used is None or held is None else used - held,
        "clock_event_reasons": reasons[device.clock_event_reasons],
    }
    if "field.197" not in device.values:  # counters that a first reading only begins with
        for direction, name in ((0, PCIE_RATES[1]), (1, PCIE_RATES[0])):
            kib = device.values.get(f"pcie_throughput_kib.{direction}")
            numbers[name] = None if kib is None else kib * 1024
    return numbers


def read(nvml: FakeDriver, *devices: FakeDevice) -> tuple[DeviceReading, ...]:
    nvml.write(*devices)
    start()
    readings = tuple(
        r for n in range(len(devices)) for r in NvmlReader(n, "580.95.05").read(gpm=False)
    )
    record = Sample(1.0, Host(), tuple(reading.sample for reading in readings))
    assert decode(to_line(record)) == record
    for reading in readings:
        missing = {name for name in READINGS if getattr(reading.sample, name) is None}
        assert missing == set(reading.sample.absent) - {"processes"}
    return readings


@pytest.mark.parametrize("platform", PLATFORMS)
def test_no_number_is_a_wrong_one_and_each_absence_has_its_reason(
    nvml: FakeDriver, platform: str
) -> None:
    preset = PLATFORMS[platform]()
    reading = read(nvml, preset)[0]
    numbers = said(preset)
    assert len(numbers) > 20
    assert {name: getattr(reading.sample, name) for name in numbers} == numbers
    counters = PCIE_RATES if "field.197" in preset.values else ()
    links = NVLINK if "field.91" in preset.values else ()
    assert reading.sample.absent == {
        **dict.fromkeys(GPM_READINGS, Absence.DISABLED),
        **dict.fromkeys((*counters, *links, *SERIES_READINGS), Absence.NO_DATA_YET),
        **dict.fromkeys((*NOT_THERE[platform], *WITHOUT_A_DEFAULT), Absence.NOT_SUPPORTED),
        **dict.fromkeys(DISABLED.get(platform, ()), Absence.DISABLED),
    }
    device, (virtualization, shared, mib) = reading.device, IDENTITY[platform]
    assert (device.name, device.virtualization) == (preset.name, virtualization)
    assert device.memory_is_shared is shared
    assert device.memory_total_bytes == (None if mib is None else mib << 20)
    assert reading.sample.state is DeviceState.OK


NO = Absence.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("name", "capability", "total", "shared"),
    [
        ("NVIDIA GB10", "12.1", NO, True),
        ("Orin (nvgpu)", None, NO, True),
        ("Orin (nvgpu)", "8.7", NO, True),
        # A driver that says the host's memory as the device's does not make it the device's.
        ("NVIDIA GB10", "12.1", 128 << 30, True),
        # Beside a chip that is known by its name alone, what the driver says counts more.
        ("NVIDIA Thor Something", None, 16 << 30, False),
        ("NVIDIA H100 80GB HBM3", "9.0", 80 << 30, False),
        ("NVIDIA GH200 480GB", "9.0", 96 << 30, False),
        ("NVIDIA GB100", "10.0", NO, NO),
        # A discrete device whose memory is not said: nobody knows.
        ("NVIDIA H100 80GB HBM3", "9.0", NO, NO),
        ("Orin (nvgpu)", None, Absence.NO_PERMISSION, Absence.NO_PERMISSION),
        (None, None, Absence.ERROR, Absence.ERROR),
    ],
)
def test_whether_the_hosts_memory_is_the_devices(
    name: str | None, capability: str | None, total: int | Absence, shared: bool | Absence
) -> None:
    assert memory_is_shared(name, capability, total) is shared


def test_numbers_of_the_hosts_memory_are_not_the_devices(nvml: FakeDriver) -> None:
    (reading,) = read(nvml, n1x())
    assert {reading.sample.absent[name] for name in MEMORY} == {Absence.NOT_SUPPORTED}
    assert reading.device.absent["memory_total_bytes"] is Absence.NOT_SUPPORTED
    assert reading.device.memory_is_shared is True
    assert [process.memory_used_bytes for process in reading.processes] == [43 << 20, 61 << 30]
    assert reading.sample.memory_attributed_bytes == (43 << 20) + (61 << 30)


SMALL = {"memory_total_bytes": 1 << 30, "memory_used_bytes": 1 << 29, "memory_reserved_bytes": 0}


def test_a_total_below_what_processes_hold_is_not_the_devices(nvml: FakeDriver) -> None:
    """No table has every chip: this one has a new compute capability."""
    unknown = h100(name="NVIDIA New", **SMALL, processes=(FakeProcess(4101, memory_bytes=3 << 30),))
    nvml.write(unknown)
    (reader,) = start().readers()
    readings = [reader.read(gpm=False)[0] for _ in range(4)]
    assert {reading.sample.memory_total_bytes for reading in readings} == {None}
    assert readings[0].device.memory_is_shared is False
    assert readings[0].sample.absent["memory_used_bytes"] is Absence.ERROR
    assert readings[-1].device.memory_is_shared is True
    assert readings[-1].device.memory_total_bytes is None
    assert readings[-1].sample.absent["memory_used_bytes"] is Absence.NOT_SUPPORTED


def test_a_jetson_that_answers_with_zeros_has_no_readings(nvml: FakeDriver) -> None:
    (reading,) = read(nvml, orin_of_zeros())
    there = {name for name in READINGS if getattr(reading.sample, name) is not None}
    assert there == set()
    assert reading.sample.absent["gpu_utilization_percent"] is Absence.NOT_SUPPORTED
    assert reading.sample.absent["temperature_celsius"] is Absence.NOT_SUPPORTED
    assert reading.device.sm_clock_max_mhz is None
