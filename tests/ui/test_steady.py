"""Nothing jumps: findings come and go, and every panel stays where it is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from gputop.agent.snapshot import Event, Sample
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from tests import streams
from tests.streams import NOW, PreparedStream
from tests.ui import scenes
from tests.ui.pilots import dashboard_of, settle, shown

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.agent.device import DeviceSample

SECONDS = 60
DEVICES = 8


def readings(index: int, tick: int) -> DeviceSample:
    """Return readings of a job in which one device is hot for a while, and another one starves.

    One has an ECC error for ten seconds, one is lost for ten, and processes come and go.
    """
    made = scenes.training(index, 10)
    if index == 1 and 10 < tick < 30:
        made = dataclasses.replace(made, clock_event_reasons=("hw_thermal",), sm_clock_mhz=1215)
    if index == 2:
        busy = 97 if tick % 10 < 3 else 0
        made = dataclasses.replace(made, gpu_utilization_percent=busy)
    if index == 4 and 20 < tick <= 30:
        made = dataclasses.replace(made, ecc_uncorrected=2)
    if index == 5 and 35 < tick <= 45:
        made = scenes.gone(index)
    return made


def stream_of_findings() -> list[Sample]:
    samples = []
    for tick in range(SECONDS):
        devices = tuple(readings(index, tick) for index in range(DEVICES))
        processes = [scenes.rank(n) for n in range(DEVICES)]
        processes += [scenes.notebook(n) for n in range(tick % 7)]
        events: tuple[Event, ...] = ()
        if tick == 36:
            events = (Event(NOW + tick, scenes.device(5).uuid, "xid", 79),)
        host = dataclasses.replace(streams.host(32), cpu_percent=99.0)
        samples.append(Sample(NOW + tick, host, devices, tuple(processes), events=events))
    return samples


Mark = tuple[str, int, int]


def places(pilot: Pilot[None]) -> tuple[tuple[object, ...], tuple[Mark, ...]]:
    """Return where each widget is, and where in the list each panel and each bar begins."""
    app = pilot.app
    regions = {str(widget): widget.region for widget in app.screen.query("#header,#devices,#keys")}
    marks: list[Mark] = []
    for y, line in enumerate(shown(pilot, DevicesView).splitlines()):
        for number in range(DEVICES):
            for mark in (f"{number} H100 80GB HBM3", "GPU  "):
                if mark in line:
                    marks.append((mark, y, line.index(mark)))
    return tuple(regions.items()), tuple(marks)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50), (200, 60)])
async def test_every_panel_stays_where_it_is_while_findings_come_and_go(
    size: tuple[int, int],
) -> None:
    machine = scenes.job(DEVICES, 1)[0]
    first, *others = stream_of_findings()
    app = GputopApp(PreparedStream(machine, first))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        dashboard = dashboard_of(app)
        seen = {places(pilot)}
        status = set()
        for record in others:
            dashboard.telemetry.receive(record)
            dashboard.show()
            await pilot.pause(0)
            seen.add(places(pilot))
            status.add(shown(pilot, Header).splitlines()[1].split(":")[0].strip())
        ((_, marks),) = seen
        assert len([name for name, _, _ in marks if "H100" in name]) == DEVICES
        assert {"▲ GPU 1", "▲ GPU 4", "▲ GPU 5", "▲ GPU 2", "No problem so far"} <= status
