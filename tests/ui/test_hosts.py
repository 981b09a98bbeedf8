"""Several hosts on the screen: a section each, and what is said of those that are away."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.snapshot import Event, Inventory, Sample, Source
from gputop.schema.derived import label_of
from gputop.settings import Settings
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.screen import DevicePage
from gputop.ui.device.title import DeviceTitle
from gputop.ui.monitor.device_list import DevicesView, first_visible
from gputop.ui.processes.process_page import ProcessDetailsView
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.processes.signal_dialog import SendSignal
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from tests import streams
from tests.streams import NOW, PreparedStream
from tests.ui import fleets, scenes
from tests.ui.pilots import app_with, dashboard_of, settle, shown, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.agent.snapshot import Record
    from tests.sessions import PreparedSession

NARROW, USUAL = (80, 24), (120, 40)


async def monitor(pilot: Pilot[None]) -> None:
    """Until the monitor shows the devices of all hosts."""
    await settle(pilot)
    await pilot.press("1")
    await settle(pilot)


# Sections.


async def test_each_host_has_a_title_with_what_is_its_own() -> None:
    app = app_with(*fleets.two(away=None))
    async with app.run_test(size=USUAL) as pilot:
        await monitor(pilot)
        text = shown(pilot, DevicesView)
        for name in ("gpu-1", "gpu-2"):
            (title,) = [row for row in text.splitlines() if row.startswith(f"─ {name} ")]
            assert "CPU" in title
            assert "load 3.20" in title
            assert "mem 120/512 GiB" in title
            assert "driver 580.65.06" in title
        assert text.count("0 H100 80GB HBM3") == text.count("1 H100 80GB HBM3") == 2
        header = shown(pilot, Header)
        assert "4 GPUs" in header
        assert "2 hosts" in header


async def test_one_that_is_away_says_why_and_what_to_do_and_nothing_moves() -> None:
    stream = PreparedStream(*fleets.two(away=None))
    async with GputopApp(stream).run_test(size=(200, 60)) as pilot:
        await monitor(pilot)
        before = shown(pilot, DevicesView).splitlines()
        stream.send(fleets.two(fleets.NO_KEY)[-1])
        await settle(pilot)
        after = shown(pilot, DevicesView).splitlines()
        for old, new in zip(before, after, strict=False):
            assert ("H100" in old, old[:1] == "─") == ("H100" in new, new[:1] == "─")
        (title,) = [row for row in after if row.startswith("─ gpu-2 ")]
        assert "it needs a password or another key. `ssh-copy-id gpu-2`, or" in title
        assert title.endswith("UNREACHABLE for 12 s, next try in 5 s")
        assert "▲ Host gpu-2: unreachable" in shown(pilot, Header)


async def test_a_host_without_devices_says_why_below_its_title() -> None:
    hosts: dict[str, Any] = {"gpu-1": [fleets.died(fleets.NO_KEY)], "gpu-3": []}
    async with app_with(*fleets.merged(hosts)).run_test(size=NARROW) as pilot:
        await monitor(pilot)
        rows = shown(pilot, DevicesView).splitlines()
        assert rows[1] == "  it needs a password or another key."
        assert rows[2].startswith("  `ssh-copy-id gpu-1`, or")
        assert rows[3].startswith("─ gpu-3 ")
        assert rows[3].endswith(" connecting")


async def test_a_new_host_that_is_away_rings() -> None:
    stream = PreparedStream(*fleets.two(away=None))
    app = GputopApp(stream, settings=Settings(bell=True))
    async with app.run_test(size=USUAL) as pilot:
        await monitor(pilot)
        rung: list[bool] = []
        app.bell = lambda: rung.append(True)  # type: ignore[method-assign]
        stream.send(fleets.two()[-1])
        stream.send(fleets.two()[-1])
        await settle(pilot)
        assert rung == [True]


def behind(seconds: float) -> list[Record]:
    """Two hosts, and what there is of the second one is so old."""
    *before, last = fleets.two(away=None)
    assert isinstance(last, Sample)
    late = dataclasses.replace(last.machines[1], age_seconds=seconds)
    devices = tuple(
        dataclasses.replace(d, age_seconds=seconds) if d.uuid.startswith("gpu-2/") else d
        for d in last.devices
    )
    machines = (last.machines[0], late)
    return [*before, dataclasses.replace(last, machines=machines, devices=devices)]


@pytest.mark.parametrize(
    ("seconds", "said"), [(1.8, None), (2.0, "2.0 s behind"), (95.0, "1:35 behind")]
)
async def test_a_host_that_is_behind_says_by_how_much(seconds: float, said: str | None) -> None:
    async with app_with(*behind(seconds)).run_test(size=USUAL) as pilot:
        await monitor(pilot)
        text = shown(pilot, DevicesView)
        assert text.count(" behind") == (said is not None)
        if said is not None:
            (title,) = [row for row in text.splitlines() if said in row]
            assert title.startswith("─ gpu-2 ")
            assert text.count(f"{said.removesuffix(' behind')} old") == 2  # its devices look old
            assert "Xid" not in text  # which is no fault of theirs


async def test_the_page_of_a_device_whose_host_is_behind_says_so() -> None:
    async with app_with(*behind(2.0)).run_test(size=USUAL) as pilot:
        await monitor(pilot)
        await pilot.press("end", "enter")
        await settle(pilot)
        assert "gpu-2 is 2.0 s behind.\nThese are the last readings received" in shown(
            pilot, DeviceTitle
        )


async def test_simulated_hosts_are_marked_each() -> None:
    machine, *others = scenes.job(2, 5)
    assert isinstance(machine, Inventory)
    simulated = [dataclasses.replace(machine, source=Source.SIMULATED), *others]
    records = fleets.merged({"a": simulated, "b": scenes.job(2, 5)})
    async with app_with(*records).run_test(size=USUAL) as pilot:
        await monitor(pilot)
        a, _, b = shown(pilot, DevicesView).partition("─ b ")
        assert "SIMULATED" in a
        assert "SIMULATED" not in b
        assert "SIMULATED" not in shown(pilot, Header)


# Moving among them.


async def test_the_selection_goes_from_host_to_host_and_shows_its_place() -> None:
    hosts = {name: scenes.job(8, 3) for name in ("a", "b", "c", "d")}
    app = app_with(*fleets.merged(hosts))
    async with app.run_test(size=NARROW) as pilot:
        await monitor(pilot)
        devices = app.query_one(DevicesView)
        assert "of 32 devices: ↓ ↑ for the others" in shown(pilot, DevicesView)
        for number in range(32):
            assert devices.selected is not None
            assert label_of(devices.selected) == f"{'abcd'[number // 8]}:{number % 8}"
            rows = [row for row in shown(pilot, DevicesView).splitlines() if row[:1] == "▌"]
            assert len(rows) == 1
            await pilot.press("down")
            await settle(pilot)


@pytest.mark.parametrize(
    ("heights", "at", "first", "room", "expected"),
    [
        ([1, 3, 3, 1, 3], 1, 0, 11, 0),
        ([1, 3, 3, 1, 3], 4, 0, 7, 2),
        ([1, 3, 3, 1, 3], 1, 4, 7, 1),
        ([1, 3, 3, 1, 3], 4, 0, 2, 4),
        ([1, 1], 0, 0, 1, 0),
        ([], 0, 0, 5, 0),
        ([3, 3, 3, 1], 2, 2, 9, 1),
    ],
)
def test_the_first_line_that_shows(
    heights: list[int], at: int, first: int, room: int, expected: int
) -> None:
    assert first_visible(heights, at, first, room) == expected


# Processes.


async def test_processes_say_which_host_they_run_on() -> None:
    app = app_with(*fleets.two(away=None))
    async with app.run_test(size=USUAL) as pilot:
        await monitor(pilot)
        heading, *rows = shown(pilot, ProcessesView).splitlines()
        assert heading.split()[:2] == ["HOST", "GPU▲"]
        assert sum("gpu-1" in row for row in rows) == sum("gpu-2" in row for row in rows) == 3
        await pilot.press("slash", *"gpu-2")
        await settle(pilot)
        assert "gpu-1" not in shown(pilot, ProcessesView)


async def test_the_age_of_a_process_goes_by_the_clock_of_its_host() -> None:
    ahead = streams.process(100, 0, start_time=NOW + 86_400 - 60)
    behind = streams.process(200, 0, start_time=NOW - 86_400 - 60)
    hosts: dict[str, list[Record]] = {
        "a": [streams.inventory(1), streams.sample(1, [ahead], time=NOW + 86_400)],
        "b": [streams.inventory(1), streams.sample(1, [behind], time=NOW - 86_400)],
    }
    async with app_with(*fleets.merged(hosts)).run_test(size=USUAL) as pilot:
        await monitor(pilot)
        assert shown(pilot, ProcessesView).count("1m00s") == 2


# What is for this machine alone.


async def test_no_process_of_another_machine_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(
        "gputop.ui.processes.process_page.read_details", lambda *each: read.append(each)
    )
    app = app_with(*fleets.two(away=None))
    async with app.run_test(size=USUAL) as pilot:
        await monitor(pilot)
        await pilot.press("f9")
        await settle(pilot)
        assert not isinstance(app.screen, SendSignal)
        (note,) = app._notifications
        assert "`ssh -t gpu-1 gputop`" in note.message
        await pilot.press("e")
        await until(pilot, lambda: bool(app.screen.query(ProcessDetailsView)))
        await settle(pilot)
        assert "`ssh -t gpu-1 gputop`" in shown(pilot, ProcessDetailsView)
        assert read == []


async def test_no_device_of_another_machine_is_put_under_stress(
    session: type[PreparedSession],
) -> None:
    app = app_with(*fleets.two(away=None))
    async with app.run_test(size=USUAL) as pilot:
        await monitor(pilot)
        await pilot.press("b")
        await settle(pilot)
        assert session.requests == []
        (note,) = app._notifications
        assert note.title == "GPU gpu-1:0 cannot be stress-tested from here"
        await pilot.press("2")
        await settle(pilot)
        offered = (await dashboard_of(app).tabs.get_benchmark())._form.choice.offered
        assert [target.kind for target in offered] == ["cpu"]
        assert "GPUs of other hosts are not offered here" in shown(pilot, ThroughputChart)


# Pages, events, help, and what all are asked.


async def test_the_page_of_a_device_says_its_host_and_its_own_uuid() -> None:
    app = app_with(*fleets.two(away=None))
    async with app.run_test(size=(200, 100)) as pilot:
        await monitor(pilot)
        await pilot.press("end", "enter")
        await settle(pilot)
        assert app.query_one(DevicePage).selected is not None
        assert shown(pilot, DeviceTitle).startswith("gpu-2:1 H100")
        text = shown(pilot, DetailsView)
        assert "host" in text
        assert "gpu-2/" not in text
        assert streams.device(1).uuid in text


async def test_the_page_of_a_device_that_is_away_says_why() -> None:
    app = app_with(*fleets.two())
    async with app.run_test(size=USUAL) as pilot:
        await monitor(pilot)
        await pilot.press("end", "enter")
        await settle(pilot)
        assert "gpu-2 is unreachable: connect to host gpu-2 port 22: Connection refused" in shown(
            pilot, DeviceTitle
        )
        assert "its host is unreachable" in shown(pilot, DetailsView)


async def test_an_event_of_no_device_is_not_told_of_other_hosts() -> None:
    event = Event(NOW, None, "xid", 79)
    hosts: dict[str, list[Record]] = {
        "a": [streams.inventory(1), streams.sample(1, events=(event,))],
        "b": [streams.inventory(1), streams.sample(1)],
    }
    app = app_with(*fleets.merged(hosts))
    async with app.run_test(size=USUAL) as pilot:
        await monitor(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "Xid 79" in shown(pilot, EventsView)
        await pilot.press("n")
        await settle(pilot)
        assert "Xid 79" not in shown(pilot, EventsView)
