"""The list of several hosts: a line for each, worst first, and what opens from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Sample
from gputop.ui.hosts.host_row import is_free
from gputop.ui.hosts.screen import HostsTitle, HostsView
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.processes.screen import ProcessesTab
from tests.streams import readings
from tests.ui import fleets, pilots, scenes
from tests.ui.pilots import app_with, dashboard_of, settle, shown

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.agent.snapshot import Record

USUAL = (140, 30)


def with_free(records: list[Record], free: int) -> list[Record]:
    """The same machine, where nothing uses the device of that index."""
    made: list[Record] = []
    for record in records:
        if isinstance(record, Sample):
            devices = list(record.devices)
            devices[free] = dataclasses.replace(
                devices[free], memory_used_bytes=1 << 20, gpu_utilization_percent=0
            )
            others = [p for p in record.processes if p.device_uuid != devices[free].uuid]
            record = dataclasses.replace(  # noqa: PLW2901
                record, devices=tuple(devices), processes=tuple(others)
            )
        made.append(record)
    return made


def lost(records: list[Record]) -> list[Record]:
    """The same machine, whose first device is lost in the end."""
    last = records[-1]
    assert isinstance(last, Sample)
    first = dataclasses.replace(last.devices[0], state=DeviceState.LOST)
    return [*records[:-1], dataclasses.replace(last, devices=(first, *last.devices[1:]))]


def four() -> list[Record]:
    """A healthy host, one with a free GPU, one with a lost one, and one that is away."""
    job = [fleets.named(scenes.job(4, 20), f"node{n}") for n in range(4)]
    hosts = {"node0": job[0], "node1": with_free(job[1], 2), "node2": lost(job[2])}
    return fleets.merged(hosts | {"node3": [*job[3][:-9], fleets.died(fleets.NO_KEY, 16.0)]})


async def lines(pilot: Pilot[None]) -> list[str]:
    await settle(pilot)
    return [row for row in shown(pilot, HostsView).splitlines() if row]


async def test_a_line_for_each_host_worst_first_with_its_gpus() -> None:
    async with app_with(*four()).run_test(size=USUAL) as pilot:
        heading, away, faulty, *healthy = await lines(pilot)
        assert heading.split()[:2] == ["HOST", "GPUS"]
        assert "node3" in away
        assert "away for 9 s: it needs a password or another key" in away
        assert "node2" in faulty
        assert "×███" in faulty
        assert "GPU 0: " in faulty
        assert {row.split()[0] for row in healthy} == {"node0", "node1"}
        assert any("██○█" in row for row in healthy)
        title = shown(pilot, HostsTitle)
        assert title == " 4 hosts · 1 away · free 1 of 12 GPUs: node1:2"


async def test_enter_opens_one_host_and_esc_goes_back() -> None:
    app = app_with(*four())
    async with app.run_test(size=USUAL) as pilot:
        await lines(pilot)
        await pilot.press("down", "enter")
        await settle(pilot)
        tabs = dashboard_of(app).tabs
        assert tabs.shown == "monitor"
        text = shown(pilot, DevicesView)
        assert "node2" in text
        assert "node1" not in text
        await pilot.press("3")
        await settle(pilot)
        listed = app.screen.query_one(ProcessesTab).processes.state.lines
        assert {row.process.machine for row in listed} == {"node2"}
        await pilot.press("escape", "escape")
        assert tabs.shown == "hosts"
        assert len(dashboard_of(app).telemetry.devices) == 16
        await pilot.press("escape")
        assert tabs.shown == "hosts"


async def test_hosts_are_filtered_and_sorted() -> None:
    async with app_with(*four()).run_test(size=USUAL) as pilot:
        await lines(pilot)
        await pilot.press("slash", *"node1", "enter")
        assert (await lines(pilot))[1].startswith("▌ node1 ")
        assert "1 of 4 match" in pilots.text_of(pilots.lines(pilot.app))
        await pilot.press("escape", "full_stop")
        heading, *rows = await lines(pilot)
        assert "HOST▲" in heading
        assert [row.replace("▌", "").split()[0] for row in rows] == [f"node{n}" for n in range(4)]


async def test_one_host_needs_no_list() -> None:
    app = app_with(*fleets.merged({"node0": fleets.named(scenes.job(2, 3), "node0")}))
    async with app.run_test(size=USUAL) as pilot:
        await settle(pilot)
        assert dashboard_of(app).tabs.shown == "monitor"
        assert not app.screen.query(HostsView)


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({"gpu_utilization_percent": 0, "memory_used_bytes": 1 << 20}, True),
        ({"gpu_utilization_percent": 60, "memory_used_bytes": 1 << 20}, False),
        ({"gpu_utilization_percent": 0, "memory_used_bytes": None}, False),
        ({"gpu_utilization_percent": 0}, False),
        ({"state": DeviceState.NEEDS_RESET, "memory_used_bytes": 0}, False),
    ],
)
def test_a_free_gpu_is_known_to_do_nothing(changes: dict[str, object], free: bool) -> None:
    changes = {"memory_total_bytes": 80 << 30, "memory_used_bytes": 70 << 30} | changes
    assert is_free(readings(0, **changes)) is free
