"""The demo: nothing impossible, and every number as in `simulated.txt`.

`python -m tests.agent.test_simulated` writes that file anew, for a change that is meant.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import pytest

from gputop.agent import simulated
from gputop.agent.device import READINGS, DeviceSample
from gputop.agent.lines import json_value
from gputop.agent.simulated import DEVICES, SimulatedDriver, SimulatedLoad, SimulatedReader
from tests.agent.fakes import Time

FIVE_MINUTES = 300
PICTURE = Path(__file__).with_name("simulated.txt")


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


def picture(clock: Time) -> str:
    """Return each value of the devices and of their processes, at several moments."""
    columns: list[dict[str, Any]] = []
    loads: dict[str, SimulatedLoad] = {}
    readers = [SimulatedReader(index, 1000.0, loads) for index in (0, 1, 5, 6, 7)]
    for second in range(330):
        clock.now = 1000.0 + second
        if second == 250:
            for reader, celsius in ((readers[0], 63.0), (readers[2], 80.0)):
                loads[reader.device.uuid] = SimulatedLoad(clock.now - 0.2, celsius)
        for reader in readers:
            (found,) = reader.read(gpm=True)
            values = {**asdict(found.device), **asdict(found.sample)}
            for each in found.processes:
                values |= {f"{each.pid} {name}": value for name, value in asdict(each).items()}
                ((_, owner),) = simulated.simulated_owners([each.pid])
                values |= {f"{each.pid} {name}": value for name, value in owner.items()}
            if second in (1, 3, 86, 249, 250, 252, 329):
                columns.append(values)
    text = ""
    for name in sorted({name for column in columns for name in column}):
        shown = [str(json_value(column[name])) for column in columns if name in column]
        if set(shown) != {"None"}:
            text += f"{name}: {' '.join(shown if len({*shown}) > 1 else shown[:1])}\n"
    return text


def test_a_load_ends_when_it_is_no_longer_wanted() -> None:
    driver = SimulatedDriver()
    first, second, *_ = driver.readers()
    driver.simulate({first.device.uuid: (0.0, 50.0)})
    driver.simulate({second.device.uuid: (0.0, 50.0)})
    assert [*first.loads] == [second.device.uuid]


def test_every_number_of_the_demo_is_as_it_was(clock: Time) -> None:
    with patch.object(simulated, "_BEGAN", 100_000.0):
        assert picture(clock) == PICTURE.read_text()


if __name__ == "__main__":
    with (
        patch.object(simulated, "time", Time()) as now,
        patch.object(simulated, "_BEGAN", 100_000.0),
    ):
        PICTURE.write_text(picture(now))
