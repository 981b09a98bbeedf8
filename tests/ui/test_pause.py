"""A paused picture: what goes on behind it, and how it catches up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gputop.agent.snapshot import Event, Sample
from gputop.settings import Settings
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests.streams import NOW, PreparedStream, inventory, readings, sample
from tests.ui.pilots import settle, shown

if TYPE_CHECKING:
    import pytest


def warm(celsius: int, seconds: float = 0.0, **changes: Any) -> Sample:
    """The only device at that temperature, that long after the beginning."""
    devices = (readings(0, temperature_celsius=celsius),)
    return dataclasses.replace(sample(1), devices=devices, time=NOW + seconds, **changes)


async def test_the_picture_stays_and_then_shows_the_newest() -> None:
    stream = PreparedStream(inventory(1), warm(41))
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("space")
        stream.send(warm(77, 1))
        stream.send(inventory(2))
        stream.send(sample(2))
        await settle(pilot)
        assert "41°C" in shown(pilot, DevicesView)
        assert "1 H100" not in shown(pilot, DevicesView)
        await pilot.press("space")
        assert "1 H100" in shown(pilot, DevicesView)
        assert "PAUSED" not in shown(pilot, Header)


async def test_what_is_wrong_is_said_and_rung_for_also_while_it_is_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rung: list[bool] = []
    monkeypatch.setattr(GputopApp, "bell", lambda _: rung.append(True))
    stream = PreparedStream(inventory(1), warm(41))
    app = GputopApp(stream, settings=Settings(bell=True))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("space")
        for second in (1, 2):
            bad = dataclasses.replace(readings(0), ecc_uncorrected=second)
            stream.send(dataclasses.replace(warm(41, second), devices=(bad,)))
            await settle(pilot)
        assert "GPU 0: 1 uncorrected ECC error" in shown(pilot, Header)
        assert rung == [True]


def test_nothing_that_came_meanwhile_is_lost() -> None:
    telemetry = Telemetry()
    telemetry.receive(inventory(1))
    telemetry.receive(warm(40))
    uuid = inventory(1).devices[0].uuid
    telemetry.pause()
    event = Event(NOW + 1, uuid, "xid", 79)
    telemetry.receive(warm(90, 1, events=(event,)))
    telemetry.receive(warm(42, 2))
    assert telemetry.sample == warm(40)
    assert telemetry.latest == warm(42, 2)
    assert telemetry.events(uuid) == []
    telemetry.pause()
    assert telemetry.sample == telemetry.latest == warm(42, 2)
    assert telemetry.events(uuid) == [event]
    series = telemetry.history.series(uuid, "temperature_celsius")
    assert [value for value in series if value is not None][-3:] == [40, 90, 42]


def test_a_pause_holds_so_much_and_then_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.ui.telemetry.MOST_HELD", 3)
    telemetry = Telemetry()
    telemetry.receive(inventory(1))
    telemetry.receive(warm(40))
    telemetry.pause()
    for second in range(1, 6):
        telemetry.receive(warm(40 + second, second))
    assert telemetry.sample == warm(42, 2)
    assert telemetry.latest == warm(45, 5)
    telemetry.pause()
    assert telemetry.sample == warm(45, 5)
