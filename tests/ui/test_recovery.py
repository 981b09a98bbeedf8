"""What the screen says while something is missing, and what it keeps."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Static

from gputop.agent.device import DeviceState
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Event, Sample
from gputop.settings import Settings
from gputop.stream.child import Interruption
from gputop.ui.device.title import DeviceTitle
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.host import HostView
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests.streams import NOW, PreparedStream, device, inventory, lost, readings, sample
from tests.ui.pilots import app_with, at_second, dashboard_of, settle, settled, shown

if TYPE_CHECKING:
    from tests.sessions import PreparedSession


STARTING: dict[str, Any] = {"driver_state": DriverState.STARTING, "driver_version": None}


async def test_a_sampler_that_is_started_again_takes_no_device_from_the_screen() -> None:
    stream = PreparedStream(inventory(2), sample(2))
    async with settled(GputopApp(stream)) as (app, pilot):
        stream.send(Interruption(Problem("The sampler stopped", "it was killed", "")))
        stream.send(inventory(**STARTING))
        stream.send(sample(0))
        await settle(pilot)
        assert "1 H100 80GB HBM3" in shown(pilot, DevicesView)
        assert "it was killed. Restarting the sampler" in shown(pilot, Header)
        assert not app.query_one(HostView).display
        stream.send(inventory(2))
        stream.send(sample(2))
        await settle(pilot)
        assert "No data" not in shown(pilot, Header)


@pytest.mark.usefixtures("counts_silence")
async def test_a_dashboard_that_was_stopped_blames_no_sampler() -> None:
    """It draws before it has read what came meanwhile. Silence counts from when it runs again."""
    async with settled(GputopApp(PreparedStream(inventory(1), sample(1)))) as (app, pilot):
        telemetry = dashboard_of(app).telemetry
        telemetry.received_at -= 60
        telemetry._ticked_at -= 60
        dashboard_of(app).show()
        assert "No data" not in shown(pilot, Header)
        app._tick()
        assert "No data" not in shown(pilot, Header)
        telemetry.received_at -= 5
        app._tick()
        assert re.search(r"No data for 1:\d\d", shown(pilot, Header))
        telemetry.receive(sample(1))
        telemetry.received_at -= 5
        app._tick()
        assert re.search(r"No data for \d+ s", shown(pilot, Header))


CRASH = Problem("The NVIDIA library crashed", "SIGSEGV", "Reinstall the driver", "nvml")


@pytest.mark.parametrize("devices", [0, 2])
async def test_a_crash_is_named_with_its_remedy_until_the_driver_answers_again(
    devices: int,
) -> None:
    """Also while the next sampler has not come further than the one that crashed."""
    stream = PreparedStream(inventory(devices), sample(devices))
    if not devices:
        stream = PreparedStream(inventory(**STARTING), sample())
    async with settled(GputopApp(stream), (80, 24)) as (_, pilot):
        for _ in range(2):
            stream.send(Interruption(CRASH))
            stream.send(inventory(**STARTING))
            stream.send(sample())
            await settle(pilot)
            assert "The NVIDIA library crashed: no data for" in shown(pilot, Header)
            place = Header if devices else HostView
            assert "SIGSEGV. Reinstall the driver" in shown(pilot, place)
            assert "Waiting" not in shown(pilot, HostView)
        stream.send(inventory(2))
        stream.send(sample(2))
        await settle(pilot)
        assert "crashed" not in shown(pilot, Header)
        assert "Reinstall" not in shown(pilot, Header)
        assert "1 H100 80GB HBM3" in shown(pilot, DevicesView)


def late(age: float | None, **changes: Any) -> Any:
    """Two devices, of which the second has last answered so long ago."""
    found = sample(2)
    second = dataclasses.replace(found.devices[1], age_seconds=age, **changes)
    return dataclasses.replace(found, devices=(found.devices[0], second))


@pytest.mark.parametrize("size", [(160, 50), (80, 12)])
async def test_old_readings_do_not_look_like_new_ones(size: tuple[int, int]) -> None:
    """From the second tick that a device missed; in whatever density."""
    stream = PreparedStream(inventory(2), late(1.6))
    async with settled(GputopApp(stream), size) as (_, pilot):
        assert " old" not in shown(pilot, DevicesView)
        assert "slow" not in shown(pilot, Header)
        stream.send(late(2.0))
        await settle(pilot)
        assert "2.0 s old" in shown(pilot, DevicesView)
        assert ("1 slow" in shown(pilot, Header)) == (size[1] >= 20)
        await pilot.press("down", "enter")
        assert "Readings are 2.0 s old." in shown(pilot, DeviceTitle)
        await pilot.press("escape")
        stream.send(late(0.1))
        await settle(pilot)
        assert " old" not in shown(pilot, DevicesView)
        assert "slow" not in shown(pilot, Header)


async def test_a_driver_that_takes_its_time_is_waited_for_with_a_number_and_then_a_hint() -> None:
    app = GputopApp(PreparedStream(inventory(**STARTING), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        at_second(app, 0)
        await settle(pilot)
        assert "Waiting for the NVIDIA driver to answer." in shown(pilot, HostView)
        assert "dmesg" not in shown(pilot, HostView)
        at_second(app, 5)
        dashboard_of(app).show()
        assert "Waiting for 5 s for the NVIDIA driver" in shown(pilot, HostView)
        assert "Xid in `dmesg`" in shown(pilot, HostView)


async def test_the_selection_stays_when_a_device_says_who_it_is() -> None:
    unknown = device(1, uuid="unknown:1", name="unknown device")
    first = dataclasses.replace(inventory(3), devices=(device(0), unknown, device(2)))
    silent = readings(1, uuid="unknown:1", state=DeviceState.NOT_RESPONDING)
    stream = PreparedStream(
        first, dataclasses.replace(sample(3), devices=(readings(0), silent, readings(2)))
    )
    async with settled(GputopApp(stream)) as (app, pilot):
        await pilot.press("down")
        stream.send(inventory(3))
        stream.send(sample(3))
        await settle(pilot)
        selected = app.query_one(DevicesView).device
        assert selected is not None
        assert selected.index == 1


async def test_a_device_that_does_not_answer_is_not_put_under_stress(
    session: type[PreparedSession],
) -> None:
    silent = dataclasses.replace(sample(1, []), devices=(lost(0, DeviceState.NOT_RESPONDING),))
    async with settled(app_with(inventory(1), silent)) as (app, pilot):
        await pilot.press("b")
        assert session.requests == []
        assert "GPU 0" in str(app.query_one("#reason", Static).content)


# A paused picture: what goes on behind it, and how it catches up.


def warm(celsius: int, seconds: float = 0.0, **changes: Any) -> Sample:
    """The only device at that temperature, that long after the beginning."""
    devices = (readings(0, temperature_celsius=celsius),)
    return dataclasses.replace(sample(1), devices=devices, time=NOW + seconds, **changes)


async def test_the_picture_stays_and_then_shows_the_newest() -> None:
    stream = PreparedStream(inventory(1), warm(41))
    async with settled(GputopApp(stream)) as (_, pilot):
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
    async with settled(GputopApp(stream, settings=Settings(bell=True))) as (_, pilot):
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
