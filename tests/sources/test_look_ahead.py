"""What costs the driver much is asked where nobody waits for it."""

from __future__ import annotations

import pytest

from gputop.schema.device import DeviceState
from gputop.sources.nvml.driver import NvmlReader, start
from tests.driver import GPU_IS_LOST, FakeDevice, FakeDriver
from tests.sources.test_nvml import Clock

pytestmark = pytest.mark.driver

SLOW = (
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
)
MEASURED = {"pcie_throughput_kib.0": 3, "pcie_throughput_kib.1": 4}


def ticks(
    nvml: FakeDriver, reader: NvmlReader, clock: Clock, interval: float, count: int
) -> list[str]:
    """What of `SLOW` was called while somebody waited for the reading."""
    waited = []
    for _ in range(count):
        clock.seconds += interval
        nvml.forget_calls()
        reader.read(gpm=True)
        waited += [name for name in SLOW if name in nvml.calls(0)]
        reader.look_ahead(interval)
    return waited


@pytest.mark.parametrize("interval", [0.25, 1.0, 2.0])
def test_a_reading_waits_for_nothing_slow_but_the_first_time(
    nvml: FakeDriver, interval: float
) -> None:
    nvml.write(FakeDevice(values=MEASURED, fans=2, fan_percent=38))
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    assert set(ticks(nvml, reader, clock, interval, 1)) == set(SLOW)
    assert ticks(nvml, reader, clock, interval, round(20 / interval)) == []


def test_it_is_asked_all_the_same_and_no_more_often_than_need_be(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(values=MEASURED, pcie_width=16))
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    calls = 0
    for tick in range(1, 21):
        clock.seconds += 1.0
        nvml.change(0, pcie_width=tick)
        nvml.forget_calls()
        sample = reader.read(gpm=False)[0].sample
        assert sample.pcie_width is not None
        assert tick - sample.pcie_width <= 5
        reader.look_ahead(1.0)
        calls += nvml.calls(0)["nvmlDeviceGetPcieThroughput"]
    assert calls == 2 * 5  # every four seconds, both directions


def test_a_device_with_byte_counters_is_never_measured(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice())
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    for _ in range(12):
        clock.seconds += 1.0
        reader.read(gpm=False)
        reader.look_ahead(1.0)
    assert "nvmlDeviceGetPcieThroughput" not in nvml.calls(0)


def test_a_loss_that_is_found_meanwhile_is_said_by_the_next_reading(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(values=MEASURED))
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    reader.look_ahead(1.0)  # before it was ever attached to
    assert "nvmlDeviceGetComputeMode" not in nvml.calls()
    reader.read(gpm=False)
    nvml.change(0, code=GPU_IS_LOST)
    clock.seconds += 4.0
    reader.look_ahead(1.0)
    assert reader.read(gpm=False)[0].sample.state is DeviceState.LOST
