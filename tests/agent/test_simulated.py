"""The demo: nothing impossible, and every number as in `simulated.txt`.

`python -m tests.agent.test_simulated` writes that file anew, for a change that is meant.
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gputop.agent import simulated
from gputop.agent.device import READINGS
from gputop.agent.lines import json_value
from gputop.agent.sampler import Sampler
from gputop.agent.simulated import (
    STRESS_PID,
    SimulatedDriver,
    SimulatedLoad,
    SimulatedReader,
    simulated_owners,
)
from gputop.agent.snapshot import Sample
from tests.agent.fakes import Time

PICTURE = Path(__file__).with_name("simulated.txt")


def check(s: Any) -> None:
    """Check that nothing in the readings is impossible."""
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


@patch.object(simulated, "_BEGAN", 100_000.0)
@patch.object(simulated, "time", new_callable=Time)
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
            check(found.sample)
            values = {**asdict(found.device), **asdict(found.sample)}
            for each in found.processes:
                ((_, owner),) = simulated.simulated_owners([each.pid])
                values[f"process {each.pid}"] = {**asdict(each), **owner}
            if second in (1, 3, 86, 249, 250, 252, 329):
                columns.append(values)
    text = ""
    for name in sorted({name for column in columns for name in column}):
        shown = [json.dumps(json_value(column[name])) for column in columns if name in column]
        if set(shown) != {"null"}:
            text += f"{name}: {' '.join(shown if len({*shown}) > 1 else shown[:1])}\n"
    return text


def test_a_load_ends_when_it_is_no_longer_wanted() -> None:
    driver = SimulatedDriver()
    first, second, *_ = driver.readers()
    for name in ("index", "uuid", "pci_bus_id"):
        assert len({getattr(reader.device, name) for reader in driver.readers()}) == 8
    driver.simulate({first.device.uuid: (0.0, 50.0)})
    driver.simulate({second.device.uuid: (0.0, 50.0)})
    assert [*first.loads] == [second.device.uuid]


def test_every_number_of_the_demo_is_as_it_was() -> None:
    assert picture() == PICTURE.read_text()


if __name__ == "__main__":
    PICTURE.write_text(picture())


def test_a_load_shows_in_a_sample_that_comes_at_once() -> None:
    driver = SimulatedDriver()
    sampler = Sampler(
        lambda: driver, 60.0, owners=simulated_owners, simulate=driver.simulate, gpm=False
    )
    samples = (each for each in sampler.records() if isinstance(each, Sample) and each.devices)
    first = next(samples)
    sampler.simulate({first.devices[7].uuid: (time.time(), 60.0)})
    began = time.monotonic()
    assert any(process.pid >= STRESS_PID for process in next(samples).processes)
    assert time.monotonic() - began < 30.0
