from collections.abc import Callable

import pytest

from gputop.agent.device import READINGS, Absence, DeviceState
from gputop.agent.interface import DeviceReading
from gputop.agent.nvml.driver import start
from gputop.agent.nvml.integrated import memory_is_shared
from tests.agent.reader import OneDevice
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.driver.platforms import gb10, n1x, orin, orin_of_zeros

pytestmark = pytest.mark.driver

NO = Absence.NOT_SUPPORTED
MEMORY = tuple(
    f"memory_{which}_bytes" for which in ("used", "total", "free", "reserved", "unattributed")
)


def read(nvml: FakeDriver, device: FakeDevice) -> DeviceReading:
    return OneDevice(nvml, device, "580.95.05").reading()


@pytest.mark.parametrize("platform", [gb10, orin])
def test_a_platform_has_its_own_numbers_and_no_others(
    nvml: FakeDriver, platform: Callable[[], FakeDevice]
) -> None:
    preset = platform()
    reading = read(nvml, preset)
    same = [name for name in READINGS if hasattr(preset, name)]
    same.remove("clock_event_reasons")
    for name in same:
        said = getattr(preset, name)
        assert getattr(reading.sample, name) == said
        assert (reading.sample.absent.get(name) is NO) == (said is None)
    assert reading.device.memory_is_shared
    assert reading.device.memory_total_bytes is None
    assert reading.sample.state is DeviceState.OK


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
    reading = read(nvml, n1x())
    assert {reading.sample.absent[name] for name in MEMORY} == {NO}
    assert reading.device.absent["memory_total_bytes"] is NO
    assert reading.device.memory_is_shared is True
    assert [process.memory_used_bytes for process in reading.processes] == [43 << 20, 61 << 30]
    assert reading.sample.memory_attributed_bytes == (43 << 20) + (61 << 30)


def test_a_total_below_what_processes_hold_is_not_the_devices(nvml: FakeDriver) -> None:
    """No table has every chip: this one has a new compute capability."""
    process = FakeProcess(4101, memory_bytes=3 << 30)
    nvml.write(FakeDevice(memory_total_bytes=1 << 30, memory_used_bytes=100, processes=(process,)))
    (reader,) = start().readers()
    readings = [reader.read(gpm=False)[0] for _ in range(3)]
    assert {reading.sample.memory_total_bytes for reading in readings} == {None}
    assert readings[1].device.memory_is_shared is False
    assert readings[0].sample.absent["memory_used_bytes"] is Absence.ERROR
    assert readings[-1].device.memory_is_shared is True
    assert readings[-1].device.memory_total_bytes is None
    assert readings[-1].sample.absent["memory_used_bytes"] is NO


def test_a_jetson_that_answers_with_zeros_has_no_readings(nvml: FakeDriver) -> None:
    reading = read(nvml, orin_of_zeros())
    assert not [name for name in READINGS if getattr(reading.sample, name) is not None]
    assert reading.sample.absent["gpu_utilization_percent"] is NO
    assert reading.sample.absent["temperature_celsius"] is NO
    assert reading.device.sm_clock_max_mhz is None
