import dataclasses
from typing import Any

import pytest

from gputop.agent.device import Absence, DeviceState
from gputop.agent.snapshot import Event, Record, Sample
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.title import DeviceTitle
from gputop.ui.drawing.palette import ACCENT, BUSY, FAULT, GOOD, TEXT
from gputop.ui.hosts import host_row
from gputop.ui.hosts.screen import HostsView
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.screen import HostView
from gputop.ui.processes.screen import ProcessesTab
from gputop.ui.processes.signal_dialog import SendSignal
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.sessions import PreparedSession
from tests.streams import NOW, PreparedStream, readings
from tests.ui import fleets, scenes
from tests.ui.conftest import Same
from tests.ui.pilots import app_with, dashboard_of, settle, settled, shown

USUAL, WIDE = (120, 40), (140, 30)


async def test_one_that_goes_away_says_why_and_what_to_do_and_nothing_moves() -> None:
    stream = PreparedStream(*fleets.two(away=None))
    async with settled(GputopApp(stream), (200, 60)) as (_, pilot):
        await pilot.press("end", "1")
        before = shown(pilot, DevicesView).splitlines()
        stream.send(fleets.two(fleets.NO_KEY)[-1])
        await settle(pilot)
        after = shown(pilot, DevicesView).splitlines()
        assert ["H100" in row for row in before] == ["H100" in row for row in after]
        assert "AWAY for 12 s: it needs a password or another key" in after[1]
        assert "`ssh-copy-id gpu-2`, or" in after[2]
        assert "▲ Host gpu-2: unreachable" in shown(pilot, Header)


async def test_a_host_without_devices_says_why() -> None:
    hosts: dict[str, Any] = {"gpu-1": [fleets.died(fleets.NO_KEY)], "gpu-3": []}
    async with settled(app_with(*fleets.merged(hosts)), (80, 24)) as (_, pilot):
        await pilot.press("1")
        text = shown(pilot, HostView)
        assert "it needs a password or another key." in text
        assert "`ssh-copy-id gpu-1`, or" in text
        await pilot.press("escape", "end", "1")
        assert shown(pilot, HostView).strip() == "Connecting."


def behind(seconds: float) -> list[Record]:
    *before, last = fleets.two(away=None)
    assert isinstance(last, Sample)
    late = dataclasses.replace(last.machines[0], age_seconds=seconds)
    devices = tuple(
        dataclasses.replace(d, age_seconds=seconds) if d.uuid.startswith("gpu-1/") else d
        for d in last.devices
    )
    machines = (late, last.machines[1])
    return [*before, dataclasses.replace(last, machines=machines, devices=devices)]


@pytest.mark.parametrize(
    ("seconds", "said"), [(1.8, None), (2.0, "2.0 s behind"), (95.0, "1:35 behind")]
)
async def test_a_host_that_is_behind_says_by_how_much(seconds: float, said: str | None) -> None:
    async with settled(app_with(*behind(seconds)), USUAL) as (_, pilot):
        assert shown(pilot, HostsView).count(" behind") == (said is not None)
        await pilot.press("home", "1")
        text = shown(pilot, DevicesView)
        assert (" behind" in shown(pilot, Header)) is (said is not None)
        if said is not None:
            assert said in shown(pilot, Header)
            assert text.count(f"{said.removesuffix(' behind')} old") == 2  # its devices look old
            assert "The connection is slow" in text
            assert "Xid" not in text  # which is no fault of theirs


async def test_processes_say_which_host_they_run_on() -> None:
    app = app_with(*fleets.two(away=None))
    async with settled(app, USUAL) as (_, pilot):
        await pilot.press("3")
        view = app.screen.query_one(ProcessesTab).processes
        heading, *rows = view.text().splitlines()
        assert heading.split()[:2] == ["HOST", "GPU▲"]
        assert sum("gpu-1" in row for row in rows) == sum("gpu-2" in row for row in rows) == 3
        await pilot.press("slash", *"gpu-2")
        assert "gpu-1" not in view.text()


async def test_the_age_of_a_process_goes_by_the_clock_of_its_host() -> None:
    ahead = streams.process(100, 0, start_time=NOW + 86_400 - 60)
    behind = streams.process(200, 0, start_time=NOW - 86_400 - 60)
    hosts: dict[str, list[Record]] = {
        "a": [streams.inventory(1), streams.sample(1, [ahead], time=NOW + 86_400)],
        "b": [streams.inventory(1), streams.sample(1, [behind], time=NOW - 86_400)],
    }
    app = app_with(*fleets.merged(hosts))
    async with settled(app, USUAL) as (_, pilot):
        await pilot.press("3")
        assert app.screen.query_one(ProcessesTab).processes.text().count(" 1m ") == 2


async def test_no_process_of_another_machine_gets_a_signal() -> None:
    app = app_with(*fleets.two(away=None))
    async with settled(app, USUAL) as (_, pilot):
        await pilot.press("1", "f9")
        assert not isinstance(app.screen, SendSignal)
        (note,) = app._notifications
        assert "`ssh -t gpu-1 gputop`" in note.message


async def test_no_device_of_another_machine_is_put_under_stress(
    session: type[PreparedSession],
) -> None:
    app = app_with(*fleets.two(away=None))
    async with settled(app, USUAL) as (_, pilot):
        await pilot.press("b")
        assert session.requests == []
        (note,) = app._notifications
        assert note.title == "GPU gpu-1:0 cannot be stress-tested from here"
        await pilot.press("2")
        offered = (await dashboard_of(app).tabs.get_benchmark())._form.targets
        assert [target.kind for target in offered] == ["cpu"]
        assert "GPUs of other hosts are not offered here" in shown(pilot, ThroughputChart)


async def test_the_page_of_a_device_says_its_host_its_own_uuid_and_why_it_is_away() -> None:
    stream = PreparedStream(*fleets.two(away=None))
    async with settled(GputopApp(stream), (200, 100)) as (_, pilot):
        await pilot.press("1", "escape", "end", "1", "end", "enter")
        assert shown(pilot, DeviceTitle).startswith("gpu-2:1 H100")
        text = shown(pilot, DetailsView)
        assert "gpu-2/" not in text
        assert streams.device(1).uuid in text
        stream.send(fleets.two()[-1])
        await settle(pilot)
        why = "AWAY for 12 s: connect to host gpu-2 port 22: Connection refused."
        assert why in shown(pilot, DeviceTitle)
        assert "its host is unreachable" in shown(pilot, DetailsView)


def test_an_event_of_no_device_is_not_told_of_other_hosts() -> None:
    event = Event(NOW, None, "xid", 79)
    hosts: dict[str, list[Record]] = {
        "a": [streams.inventory(1), streams.sample(1, events=(event,))],
        "b": [streams.inventory(1), streams.sample(1)],
    }
    telemetry = Telemetry()
    for record in fleets.merged(hosts):
        telemetry.receive(record)
    assert [len(telemetry.events(device.uuid)) for device in telemetry.devices] == [1, 0]


def four_hosts() -> list[Record]:
    """A large host, one with a free GPU, one with two lost ones, and one that is away."""
    hosts: dict[str, list[Any]] = {f"node{n}": scenes.job(4, 20) for n in range(4)}
    hosts["node0"] = scenes.job(10, 20)
    free = scenes.training(2, 0, memory_used_bytes=1 << 20, gpu_utilization_percent=0)
    ranks = tuple(scenes.rank(n) for n in (0, 1, 3))
    hosts["node1"] = scenes.changed(hosts["node1"], free, processes=ranks)
    hosts["node2"] = scenes.changed(hosts["node2"], scenes.gone(0), scenes.gone(1))
    hosts["node3"] = [*hosts["node3"][:-9], fleets.died(fleets.NO_KEY, 16.0)]
    return fleets.merged({name: fleets.named(told, name) for name, told in hosts.items()})


@pytest.mark.parametrize("width", [60, 150])
def test_a_line_for_each_host_worst_first(same_text: Same, width: int) -> None:
    app = app_with(*four_hosts())
    assert same_text(app, terminal_size=(width, 12), run_before=settle)


def test_what_is_wrong_and_what_is_free_is_coloured() -> None:
    telemetry = Telemetry()
    for record in four_hosts():
        telemetry.receive(record)
    view = HostsView()
    view.state.fill(host_row.host_rows(telemetry))
    view.state.select(1)  # the selected row has one style
    spans = [span for row in view.draw(150, 12)[1:] for span in row if span.text.strip()]
    styles = {span.text.strip(): span.style for span in spans}
    shown = [styles[text] for text in ("node1", "○", "×", "█", "98 %")]
    assert shown == [ACCENT, GOOD, FAULT, BUSY, TEXT]
    assert styles["GPU 0: LOST: it no longer answers on its bus (+1 GPU)"] == FAULT


async def test_hosts_are_filtered_and_sorted() -> None:
    async with settled(app_with(*four_hosts()), WIDE) as (app, pilot):
        await pilot.press("slash", *"node1", "enter")
        view = app.screen.query_one(HostsView)
        assert [row.machine.name for row in view.state.lines] == ["node1"]
        await pilot.press("escape", "full_stop")
        assert [row.machine.name for row in view.state.lines] == [f"node{n}" for n in range(4)]
        assert "HOST▲" in view.text()
        await pilot.press(*["full_stop"] * 7)
        assert view.state.sorted_by is host_row.WORST


async def test_enter_opens_one_host_and_esc_goes_back() -> None:
    async with settled(app_with(*fleets.two(away=None)), WIDE) as (app, pilot):
        await pilot.press("end", "enter")
        tabs = dashboard_of(app).tabs
        assert tabs.shown == "monitor"
        assert shown(pilot, DevicesView).count("0 H100 80GB HBM3") == 1
        header = shown(pilot, Header)
        assert " gpu-2 · " in header
        assert "load 3.20" in header
        assert "host mem 120/512 GiB" in header
        await pilot.press("3")
        listed = app.screen.query_one(ProcessesTab).processes.state.lines
        assert {row.process.machine for row in listed} == {"gpu-2"}
        await pilot.press("escape", "escape")
        assert tabs.shown == "hosts"
        assert len(dashboard_of(app).telemetry.devices) == 4
        await pilot.press("escape")
        assert tabs.shown == "hosts"


async def test_one_host_needs_no_list() -> None:
    app = app_with(*fleets.merged({"node0": scenes.job(2, 3)}))
    async with settled(app, WIDE):
        assert dashboard_of(app).tabs.shown == "monitor"
        assert not app.screen.query(HostsView)


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, True),
        ({"gpu_utilization_percent": None}, True),
        ({"gpu_utilization_percent": 6}, False),
        ({"memory_used_bytes": 4 << 30}, True),
        ({"memory_used_bytes": (4 << 30) + 1}, False),
        ({"memory_used_bytes": None}, False),
        ({"state": DeviceState.NEEDS_RESET}, False),
        ({"absent": {"processes": Absence.NO_PERMISSION}}, False),
    ],
)
def test_a_free_gpu_is_known_to_do_nothing(changes: dict[str, object], free: bool) -> None:
    idle = {"memory_total_bytes": 80 << 30, "memory_used_bytes": 0, "gpu_utilization_percent": 5}
    assert host_row.is_free(readings(0, **(idle | changes))) is free
