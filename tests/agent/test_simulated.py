"""The simulation: the same at every start, and physically possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gputop.agent import simulated
from gputop.agent.device import READINGS, DeviceSample
from gputop.agent.simulated import (
    CHECKPOINT_EVERY_SECONDS,
    DEVICES,
    HOT_DEVICE,
    NOTEBOOK_DEVICE,
    STARVED_DEVICE,
    STARVED_WORK,
    SimulatedDriver,
    SimulatedReader,
)
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
        yield tuple(reader.read(gpm=False)[0].sample for reader in readers)
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
            assert 50 < s.power_watts <= s.power_limit_watts
            assert 20 <= s.temperature_celsius < 90
            assert 0 < s.sm_clock_mhz <= 1980


def test_the_devices_train_in_step_one_waits_and_one_does_nothing(clock: Time) -> None:
    runs = list(run(clock, FIVE_MINUTES))
    busy = [[sample.gpu_utilization_percent or 0 for sample in samples] for samples in runs]
    assert {row[NOTEBOOK_DEVICE] for row in busy} == {0}
    starved = sum(row[STARVED_DEVICE] > 0 for row in busy)
    assert starved == pytest.approx(STARVED_WORK * FIVE_MINUTES, rel=0.1)
    training = [row[:STARVED_DEVICE] for row in busy]
    assert all(max(row) - min(row) < 20 for row in training)
    checkpoints = FIVE_MINUTES // CHECKPOINT_EVERY_SECONDS
    assert sum(max(row) < 10 for row in training) == pytest.approx(
        checkpoints * simulated.CHECKPOINT_SECONDS, abs=6
    )
    assert sum(min(row) > 90 for row in training) > FIVE_MINUTES / 2
    hottest = max(runs[80], key=lambda sample: sample.temperature_celsius or 0)
    assert hottest == runs[80][HOT_DEVICE]
