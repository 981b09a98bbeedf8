"""What the screen says while something is missing, and what it keeps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Static

from gputop.agent.device import READINGS, Absence, DeviceSample, DeviceState
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState
from gputop.stream.child import Interruption
from gputop.ui.device.title import DeviceTitle
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.host import HostView
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from tests.streams import PreparedStream, device, inventory, lost, readings, sample
from tests.ui.pilots import at_second, dashboard_of, settle, shown

if TYPE_CHECKING:
    from tests.sessions import PreparedSession

STARTING: dict[str, Any] = {"driver_state": DriverState.STARTING, "driver_version": None}


async def test_a_sampler_that_is_started_again_takes_no_device_from_the_screen() -> None:
    stream = PreparedStream(inventory(2), sample(2))
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
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
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        telemetry = dashboard_of(app).telemetry
        telemetry.received_at -= 60
        telemetry._ticked_at -= 60
        dashboard_of(app).show()
        assert "No data" not in shown(pilot, Header)
        app._tick()
        assert "No data" not in shown(pilot, Header)
        telemetry.received_at -= 5
        app._tick()
        assert "No data for 1:05" in shown(pilot, Header)
        telemetry.receive(sample(1))
        telemetry.received_at -= 5
        app._tick()
        assert "No data for 5 s" in shown(pilot, Header)


CRASH = Problem("The NVIDIA library crashed", "SIGSEGV", "Reinstall the driver", "nvml")


@pytest.mark.parametrize("devices", [0, 2])
async def test_a_crash_is_named_with_its_remedy_until_the_driver_answers_again(
    devices: int,
) -> None:
    """Also while the next sampler has not come further than the one that crashed."""
    stream = PreparedStream(inventory(devices), sample(devices))
    if not devices:
        stream = PreparedStream(inventory(**STARTING), sample())
    app = GputopApp(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for _ in range(2):
            stream.send(Interruption(CRASH))
            stream.send(inventory(**STARTING))
            stream.send(sample())
            await settle(pilot)
            assert "The NVIDIA library crashed: no data for" in shown(pilot, Header)
            assert "Reinstall the driver" in shown(pilot, Header)
            if not devices:
                assert "The NVIDIA library crashed: SIGSEGV." in shown(pilot, HostView)
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


@pytest.mark.parametrize("size", [(160, 50), (120, 24), (80, 12)])
async def test_old_readings_do_not_look_like_new_ones(size: tuple[int, int]) -> None:
    """From the second tick that a device missed; in whatever density."""
    stream = PreparedStream(inventory(2), late(1.6))
    app = GputopApp(stream)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        assert " old" not in shown(pilot, DevicesView)
        assert "slow" not in shown(pilot, Header)
        stream.send(late(2.0))
        await settle(pilot)
        assert "2.0 s old" in shown(pilot, DevicesView)
        assert ("1 slow" in shown(pilot, Header)) == (size[1] >= 20)
        await pilot.press("down", "enter")
        await settle(pilot)
        assert "Readings are 2.0 s old." in shown(pilot, DeviceTitle)
        await pilot.press("escape")
        stream.send(late(0.1))
        await settle(pilot)
        assert " old" not in shown(pilot, DevicesView)
        assert "slow" not in shown(pilot, Header)


async def test_a_device_that_has_not_answered_yet_says_so() -> None:
    absent = dict.fromkeys((*READINGS, "processes"), Absence.NO_DATA_YET)
    found = late(None)
    nothing = DeviceSample(found.devices[1].uuid, absent=absent)
    app = GputopApp(
        PreparedStream(
            inventory(2), dataclasses.replace(found, devices=(found.devices[0], nothing))
        )
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "It has not answered yet" in shown(pilot, DevicesView)
        assert "Slow to answer, or hanging: `dmesg` may have an Xid" in shown(pilot, DevicesView)


async def test_a_driver_that_takes_its_time_is_waited_for_with_a_number_and_then_a_hint() -> None:
    app = GputopApp(PreparedStream(inventory(**STARTING), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        at_second(app, 0)
        await settle(pilot)
        assert "Waiting for the NVIDIA driver to answer …" in shown(pilot, HostView)
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
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("down")
        stream.send(inventory(3))
        stream.send(sample(3))
        await settle(pilot)
        selected = app.query_one(DevicesView).selected
        assert selected is not None
        assert selected.index == 1


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ((readings(0), readings(1)), "No process uses a device"),
        ((readings(0), lost(1)), "No process uses a device"),
        (
            (readings(0), readings(1, absent={"processes": Absence.NO_PERMISSION})),
            "The driver does not list the processes of GPU 1",
        ),
    ],
)
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_no_process_is_told_from_no_list(
    size: tuple[int, int], devices: Any, said: str
) -> None:
    stream = PreparedStream(
        inventory(2), dataclasses.replace(sample(2, processes=[]), devices=devices)
    )
    async with GputopApp(stream).run_test(size=size) as pilot:
        await settle(pilot)
        assert said in shown(pilot, ProcessesView)


async def test_devices_that_do_not_fit_are_counted_and_processes_keep_their_place() -> None:
    app = GputopApp(PreparedStream(inventory(40), sample(40)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "of 40 devices: ↓ ↑ for the others" in shown(pilot, DevicesView)
        assert "train.py --rank 0" in shown(pilot, ProcessesView)
        await pilot.press("end")
        await settle(pilot)
        assert "▌39" in shown(pilot, DevicesView)


@pytest.mark.parametrize("state", [s for s in DeviceState if s is not DeviceState.OK])
async def test_a_device_that_does_not_answer_is_not_put_under_stress(
    session: type[PreparedSession], state: DeviceState
) -> None:
    stream = PreparedStream(
        inventory(1), dataclasses.replace(sample(1, processes=[]), devices=(lost(0, state),))
    )
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("b")
        await settle(pilot)
        assert session.requests == []
        assert "GPU 0" in str(app.query_one("#reason", Static).content)


async def test_a_device_whose_users_are_not_known_is_asked_about(
    session: type[PreparedSession],
) -> None:
    silent = readings(0, absent={"processes": Absence.NO_PERMISSION})
    stream = PreparedStream(
        inventory(1), dataclasses.replace(sample(1, processes=[]), devices=(silent,))
    )
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("b")
        await settle(pilot)
        assert session.requests == []
        await pilot.press("y")
        await settle(pilot)
        assert len(session.requests) == 1
