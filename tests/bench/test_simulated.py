import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gputop.agent import simulated as sources
from gputop.agent.device import DeviceSample
from gputop.agent.simulated import COOLED_CELSIUS, HOT_DEVICE, SimulatedLoad, SimulatedReader
from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.events import Result, Verified
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request
from gputop.bench.results.verdict import with_verdicts
from gputop.bench.run import simulation as simulated
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.simulation import Simulation
from tests.runs import Clock
from tests.streams import inventory, sample


class Machine:
    """A simulated GPU under a clock that only this test turns, and a run on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float, index: int = 0) -> None:
        self.clock = Clock(1000.0)
        time = SimpleNamespace(monotonic=self.clock, time=self.clock)
        monkeypatch.setattr(simulated, "time", time)
        monkeypatch.setattr(sources, "time", time)
        turned = SimpleNamespace(Event=asyncio.Event, sleep=self.sleep)
        monkeypatch.setattr(simulated, "asyncio", turned)
        self.published: list[Mapping[str, tuple[float, float]]] = []
        self.loads: dict[str, SimulatedLoad] = {}
        self.reader = SimulatedReader(index, 1000.0, self.loads)
        gpu = self.reader.device
        self.inventory: Inventory = replace(inventory(1), devices=(gpu,))
        target = replace(target_choice.targets(self.inventory, None)[0], simulated=True)
        self.run = DeviceRun(Request(target, "bfloat16", None, seconds), self.clock)
        self.looked_at, self.stop_at = 0.0, 1e9
        self.simulation = Simulation(lambda _: self.read().temperature_celsius or 0, self.publish)
        self.runner = self.simulation.runner(self.run.request, self.run)

    def publish(self, loads: Mapping[str, tuple[float, float]]) -> None:
        self.published.append(loads)
        self.loads.clear()
        self.loads |= {uuid: SimulatedLoad(*each) for uuid, each in loads.items()}

    async def sleep(self, seconds: float) -> None:
        self.clock.time += seconds
        if self.run.elapsed_seconds >= self.stop_at:
            await self.runner.stop()
        if self.clock.time - self.looked_at >= 1.0:
            self.looked_at = self.clock.time
            self.simulation.add_sample(self.inventory, self.sample())

    def read(self) -> DeviceSample:
        return self.reader.read(gpm=False)[0].sample

    def sample(self) -> Sample:
        return replace(sample(1, [], time=self.clock.time), devices=(self.read(),))

    async def follow(self, stop_at: float = 1e9) -> Result:
        self.stop_at = stop_at
        await self.runner.run(self.run.add_event)
        assert self.run.result is not None
        (judged,) = with_verdicts([self.run.result])
        return judged


async def test_a_device_with_good_cooling_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    result = await Machine(monkeypatch, 60.0, HOT_DEVICE - 1).follow()
    assert result.verdict is not None
    states = {part.name: part.state for part in result.verdict.parts}
    assert set(states.values()) <= {"ok", "not judged"}, result.verdict
    assert (result.known_conditions.temperature_celsius_max or 99) <= COOLED_CELSIUS


async def test_a_throttle_by_heat_is_judged_as_one_and_readings_agree_with_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, 60.0, HOT_DEVICE)
    result = await machine.follow()
    assert result.verdict is not None
    states = {part.name: (part.state, part.why) for part in result.verdict.parts}
    assert states["results"][0] == "ok"
    assert states["results"][1].startswith("no wrong element in 60 of ")
    assert states["datasheet"][0] == "ok"
    assert states["throttling"][0] == "degraded"
    assert "software thermal slowdown for" in states["throttling"][1]
    assert states["droop"][0] == "ok"
    assert "below the burst, by software thermal slowdown for" in states["droop"][1]
    assert 10 < (result.droop_percent or 0) < 25
    assert result.verified_products == 60
    assert f"`sudo nvidia-smi -i {HOT_DEVICE} -pl " in result.verdict.summary
    known = result.known_conditions
    assert known.temperature_celsius_max == 86
    assert known.energy_joules == pytest.approx((known.power_watts_mean or 0) * 60, rel=0.05)
    # What is fast has a clock for it: the share of the peak at the live clock is constant.
    live = known.percent_of_peak["formula at the live clock"]
    assert live == pytest.approx(100 * simulated.SHARE_OF_PEAK, rel=0.02)
    assert known.other_load == (), "the training waits meanwhile"


async def test_it_stops_and_leaves_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 60.0)
    result = await machine.follow(stop_at=5.0)
    assert result.stopped == "user"
    assert result.seconds < 6.0
    assert [len(loads) for loads in machine.published] == [1, 0]
    assert isinstance(machine.run.verified, Verified)
