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
    """All devices' readings, second by second."""
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


MEANS = """\
93.2 607.3 62.8 1922.2 288.8 3218.5 71300.0 84.8 48.4 42.9
93.1 605.7 62.8 1841.2 288.7 3216.9 71337.0 84.7 48.4 42.8
93.2 606.4 62.8 1841.2 288.8 3218.6 71374.0 84.8 48.4 42.8
93.1 606.4 62.8 1841.2 288.7 3217.1 71411.0 84.8 48.5 42.9
93.2 606.8 62.7 1841.2 288.8 3218.6 71448.0 84.9 48.5 42.9
93.0 606.3 83.8 1670.2 288.3 3212.7 71485.0 84.7 48.4 42.8
35.8 277.0 43.9 927.8 110.9 0.0 71522.0 32.8 18.7 16.6
0.0 71.0 32.1 345.0 0.0 0.0 18432.0 0.3 0.2 0.2"""
"""Of each device: busy in %, W, °C, MHz, MB/s by PCIe and by NVLink, MiB, and activity in %."""


def test_the_devices_train_in_step_one_waits_and_one_does_nothing(clock: Time) -> None:
    """The last two. The hot one is slower."""
    names = (
        *("gpu_utilization_percent", "power_watts", "temperature_celsius", "sm_clock_mhz"),
        *("pcie_rx_bytes_per_second", "nvlink_tx_bytes_per_second", "memory_used_bytes"),
        *("sm_active_percent", "tensor_active_percent", "dram_active_percent"),
    )
    scales = (1, 1, 1, 1, 1e6, 1e6, 1 << 20, 1, 1, 1)
    runs = list(run(clock, FIVE_MINUTES))
    rows = []
    for samples in zip(*runs, strict=True):
        means = [fmean(getattr(sample, name) for sample in samples) for name in names]
        rows.append(" ".join(f"{mean / n:.1f}" for mean, n in zip(means, scales, strict=True)))
    assert "\n".join(rows) == MEANS
