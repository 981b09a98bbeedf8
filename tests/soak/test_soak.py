"""The soak, cut short: half a minute of it, and minutes of it without a terminal."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import random
from typing import TYPE_CHECKING

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Event
from gputop.ui.telemetry import EVENTS_KEPT, Telemetry
from tests import streams
from tests.fuzz.test_drawing import monitor
from tests.soak.soak import Footprint, Row, Soak, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gputop.agent.snapshot import Sample
    from tests.driver import FakeDriver

SECONDS, EVERY, WARM = 30.0, 4.0, 0.15


@pytest.mark.slow
@pytest.mark.driver
def test_half_a_minute(driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, files and processes; memory says something only of what goes on for longer."""
    monkeypatch.chdir(tmp_path)  # recordings are written there
    soak = Soak(driver, tmp_path, seed=2)
    rows = list(soak.run(SECONDS, EVERY, kills=(2.0,)))
    assert soak.faults == []
    assert soak.done["sampler killed"] == 1
    assert len({row.sampler.pid for row in rows}) <= 2, "one before it was killed, and one after"
    same = []
    for row in rows:
        feet = (dataclasses.replace(each, bytes=1) for each in (row.dashboard, row.sampler))
        same.append(Row(row.minutes, *feet))
    assert verdict(same, WARM, few=2) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bytes": 106 << 20}, "grew by 6.0%"),
        ({"threads": 10}, "more and more threads"),
        ({"descriptors": 14}, "more and more files"),
    ],
)
def test_growth_is_found(changes: dict[str, int], says: str) -> None:
    small = Footprint(7, 100 << 20, 5, 10)
    large = dataclasses.replace(small, **changes)
    rows = [Row(float(n), small, small if n < 30 else large) for n in range(60)]
    (found,) = verdict(rows, 10.0)
    assert found.startswith("the sampler (process 7) ")
    assert says in found
    assert verdict([Row(float(n), small, small) for n in range(60)], 10.0) == []


def test_a_process_that_began_late_may_still_grow() -> None:
    small, large = Footprint(7, 1 << 20, 1, 1), Footprint(8, 2 << 20, 9, 9)
    rows = [Row(float(n), small, small if n < 45 else large) for n in range(60)]
    assert verdict(rows, 10.0) == []


SAMPLES = 1400
"""More than the histories keep."""


@pytest.mark.slow
def test_a_dashboard_that_has_seen_much_knows_no_more_of_it() -> None:
    """Counted in objects, which is exact: histories, events, findings and what is drawn of them."""
    gc.unfreeze()  # an app of another test would leave few to count, of which some are many
    chance = random.Random(3)  # noqa: S311 - to be had again
    telemetry = Telemetry(lambda: 100.0)
    telemetry.receive(streams.inventory(4))
    views = monitor(telemetry, 160, 50)
    counted = []
    for n, sample in enumerate(_samples(4, chance)):
        telemetry.receive(sample)
        if n % 50 == 0:
            for view in views:
                view.draw(160, 50)
        if n in (SAMPLES, 2 * SAMPLES):
            gc.collect()
            counted.append(len(gc.get_objects()))
        if n == 2 * SAMPLES:
            break
    before, after = counted
    assert after < 1.02 * before
    assert max(len(telemetry.events(d.uuid)) for d in telemetry.devices) <= EVENTS_KEPT


def _samples(devices: int, chance: random.Random) -> Iterator[Sample]:
    """Without an end: readings move, devices come and go, Xids come, and so do processes."""
    for n in itertools.count():
        at = chance.randrange
        readings = tuple(
            streams.readings(
                index,
                state=DeviceState.OK if at(30) else chance.choice(list(DeviceState)),
                gpu_utilization_percent=at(101),
                temperature_celsius=at(30, 95),
                power_watts=float(at(700)),
                clock_event_reasons=(chance.choice(("idle", "sw_power_cap", "hw_thermal")),),
            )
            for index in range(devices)
        )
        pids = range(10_000 + n // 10, 10_005 + n // 10)
        events = [Event(streams.NOW + n, streams.device(at(devices)).uuid, "xid", 31)]
        made = streams.sample(devices, [streams.process(pid, pid % devices) for pid in pids])
        came = tuple(events if at(5) == 0 else ())
        yield dataclasses.replace(made, time=streams.NOW + n, devices=readings, events=came)
