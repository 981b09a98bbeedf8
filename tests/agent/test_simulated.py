from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest

from gputop.agent import simulated
from gputop.agent.device import READINGS, DeviceSample
from gputop.agent.simulated import DEVICES, SimulatedDriver, SimulatedReader
from tests.agent.fakes import Time

FIVE_MINUTES = 300


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(simulated, "time", clock)
    return clock


def run(clock: Time, seconds: int) -> Iterator[tuple[DeviceSample, ...]]:
    clock.now = 1000.0
    readers = [SimulatedReader(index, 1000.0, {}) for index in range(DEVICES)]
    for _ in range(seconds):
        yield tuple(reader.read(gpm=True)[0].sample for reader in readers)
        clock.now += 1.0


def test_eight_devices_with_keys_of_their_own() -> None:
    devices = [reader.device for reader in SimulatedDriver().readers()]
    assert [device.index for device in devices] == list(range(8))
    assert len({device.uuid for device in devices}) == 8
    assert len({device.pci_bus_id for device in devices}) == 8
    assert devices == [reader.device for reader in SimulatedDriver().readers()]


def test_nothing_impossible_in_five_minutes(clock: Time) -> None:
    for samples in run(clock, FIVE_MINUTES):
        for sample in samples:
            s: Any = sample
            assert {name for name in READINGS if getattr(s, name) is None} == set(s.absent)
            assert 0 <= s.memory_utilization_percent <= s.gpu_utilization_percent <= 100
            parts = (s.memory_used_bytes, s.memory_free_bytes, s.memory_reserved_bytes)
            assert min(parts) > 0
            assert sum(parts) == s.memory_total_bytes
            assert s.memory_attributed_bytes + s.memory_unattributed_bytes == s.memory_used_bytes
            assert s.nvlink_rx_bytes_per_second == sum(s.nvlink_link_rx_bytes_per_second)
            assert s.pcie_rx_bytes_per_second < 64e9
            assert (s.clock_event_reasons == ("idle",)) == (s.gpu_utilization_percent == 0)
            assert s.power_watts <= s.power_limit_watts


def test_one_device_is_hot_one_waits_and_one_does_nothing(clock: Time) -> None:
    def means(name: str) -> list[float]:
        return [fmean(getattr(each[index], name) for each in runs) for index in range(DEVICES)]

    runs = list(run(clock, FIVE_MINUTES))
    assert means("gpu_utilization_percent") == pytest.approx([93] * 6 + [36, 0], abs=0.3)
    assert means("temperature_celsius") == pytest.approx([63] * 5 + [84, 44, 32], abs=0.3)
    assert means("power_watts") == pytest.approx([606] * 6 + [277, 71], abs=1.5)
    clocks = means("sm_clock_mhz")
    assert min(clocks[:5]) > clocks[5] + 100 > clocks[6] + 500
