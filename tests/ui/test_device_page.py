"""The device page: what the driver says is what is read there, and why something is missing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from textual.app import App

from gputop.agent.device import Absence, DeviceSample
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.snapshot import Event, Sample
from gputop.ui.device.bound_map import BoundMap
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.screen import DevicePage
from gputop.ui.device.title import DeviceTitle
from gputop.ui.drawing.cells import text_of
from gputop.ui.shell.app import GputopApp
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.agent.reader import Clock
from tests.agent.readings import A_SECOND_LATER, device
from tests.ui.pilots import settle, shown

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.pilot import Pilot

    from gputop.agent.snapshot import Record
    from tests.driver import FakeDriver

UUID = streams.device(0).uuid
WHOLE = (100, 600)
"""A terminal in which every row of one device fits, in one column."""


class PageApp(App[None]):
    """The page alone, with all that the device does not have."""

    CSS_PATH = GputopApp.CSS_PATH
    HORIZONTAL_BREAKPOINTS = GputopApp.HORIZONTAL_BREAKPOINTS
    VERTICAL_BREAKPOINTS = GputopApp.VERTICAL_BREAKPOINTS

    def __init__(self, *records: Record) -> None:
        super().__init__()
        self.telemetry = Telemetry()
        for record in records:
            self.telemetry.receive(record)

    def compose(self) -> ComposeResult:
        yield DevicePage(self.telemetry)

    def on_mount(self) -> None:
        self.query_one(DetailsView).folded = False

    @property
    def page(self) -> DevicePage:
        return self.query_one(DevicePage)

    def send(self, *records: Record) -> None:
        for record in records:
            self.telemetry.receive(record)
        self.page.show_telemetry()


def said_by(*devices: DeviceSample, seconds: float = 0.0, events: tuple[Event, ...] = ()) -> Sample:
    """Return readings of these devices, that long after the start."""
    return Sample(streams.NOW + seconds, streams.host(), devices, events=events)


async def page_of(app: PageApp, pilot: Pilot[None], uuid: str = UUID) -> str:
    """Everything on the page, one space between two words."""
    app.page.show(uuid)
    await settle(pilot)
    return " ".join(shown(pilot, DetailsView).split())


def read(nvml: FakeDriver) -> tuple[Record, Record]:
    """The device of the table of readings, a second after its first reading."""
    nvml.write(device(fail={}))
    start()
    clock = Clock()
    reader = NvmlReader(0, "580.95.05", clock)
    reader.read(gpm=True)
    nvml.change(0, values={**nvml.devices[0].values, **A_SECOND_LATER})
    clock.seconds += 1.0
    reading = reader.read(gpm=True)[0]
    inventory = dataclasses.replace(streams.inventory(), devices=(reading.device,))
    return inventory, said_by(reading.sample)


@pytest.mark.driver
async def test_every_value_of_the_driver_is_on_the_page(nvml: FakeDriver, snapshot: Any) -> None:
    app = PageApp(*read(nvml))
    async with app.run_test(size=WHOLE) as pilot:
        await page_of(app, pilot, "GPU-aaaa")
        lines = shown(pilot, DetailsView).rstrip().splitlines()
    assert "\n".join(line.rstrip() for line in lines) == snapshot


async def test_one_line_says_which_device_and_what_is_wrong() -> None:
    app = PageApp(streams.inventory(2), said_by(streams.readings(0), streams.readings(1)))
    async with app.run_test(size=(100, 30)) as pilot:
        assert shown(pilot, DeviceTitle).startswith("No device")
        await page_of(app, pilot)
        assert shown(pilot, DeviceTitle).startswith("0 H100 80GB HBM3 ──")
        for second in range(40):
            idle = streams.readings(0, gpu_utilization_percent=0)
            app.send(said_by(idle, streams.readings(1), seconds=1.0 + second))
        await settle(pilot)
        title = shown(pilot, DeviceTitle)
        assert title.splitlines()[1].startswith(
            "busy 0 %   memory 3.0 of 80.0 GiB   power 100/700 W"
        )
        assert title.splitlines()[2].startswith("bound by idle ")
        assert title.splitlines()[3] == "Nothing to improve: it has hardly any work"
        app.send(said_by(streams.lost(0), streams.readings(1), seconds=42.0))
        await settle(pilot)
        assert shown(pilot, DeviceTitle).splitlines()[2:] == [
            "LOST: it no longer answers on its bus.",
            "Usually only a reboot helps; `dmesg` has the Xid",
        ]
        app.send(streams.inventory(0), said_by(seconds=2.0))
        await settle(pilot)
        assert shown(pilot, DeviceTitle).splitlines()[2].startswith("GONE: ")
        app.send(streams.inventory(2), said_by(streams.readings(0), seconds=3.0))
        await settle(pilot)
        assert shown(pilot, DeviceTitle).splitlines()[2].startswith("bound by ")


async def test_what_happened_to_the_device() -> None:
    xid = Event(streams.NOW + 1, UUID, "xid", 79)
    elsewhere = Event(streams.NOW + 1, streams.device(1).uuid, "xid", 13)
    somewhere = Event(streams.NOW + 1.5, None, "xid", 74)
    ok, lost = streams.readings(0), streams.lost(0)
    app = PageApp(streams.inventory(2), said_by(ok))
    async with app.run_test(size=(200, 50)) as pilot:
        await page_of(app, pilot)
        assert shown(pilot, EventsView).strip() == "Events none so far"
        app.send(
            said_by(ok, seconds=1.0, events=(xid, elsewhere, somewhere)),
            said_by(lost, seconds=2.0),
            said_by(lost, seconds=3.0),
            said_by(ok, seconds=64.0),
        )
        await settle(pilot)
        lines = [line.split("  ")[0] for line in shown(pilot, EventsView).strip().splitlines()]
        assert lines == [
            "Events",
            "12:01:04 Answers again",
            "12:00:02 LOST: it no longer answers on its bus",
            "12:00:01 Xid 74: an NVLink failed (the driver does not say on which device)",
            "12:00:01 Xid 79: the GPU has fallen off the bus",
        ]
        assert "Xids seen 1, the last one 79" in await page_of(app, pilot)
        app.page.action_device(1)
        await settle(pilot)
        assert "Xid 13" in shown(pilot, EventsView)
        assert "Xid 79" not in shown(pilot, EventsView)


async def test_readings_that_the_device_does_not_have_are_one_line() -> None:
    lacks = {"fan_percent": Absence.NOT_SUPPORTED}
    lacks |= dict.fromkeys(("sm_active_percent", "sm_occupancy_percent"), Absence.NOT_SUPPORTED)
    lacks |= {"encoder_utilization_percent": Absence.NO_PERMISSION}
    said = streams.readings(0, **dict.fromkeys(lacks), absent=lacks)
    app = PageApp(streams.inventory(1), said_by(said))
    async with app.run_test(size=WHOLE) as pilot:
        assert "fan – no fan" in await page_of(app, pilot)
        app.query_one(DetailsView).action_absent()
        page = await page_of(app, pilot)
        needs = "2 more (needs GPM: Hopper or later, GeForce from the 50 series)"
        assert page.endswith(f"{needs}, 1 for other reasons · a shows them")
        assert "fan – no fan" not in page
        assert "encoder – " in page  # which it should have
        assert "busy 97 %" in page
        app.query_one(DetailsView).action_absent()
        page = await page_of(app, pilot)
        assert "fan – no fan" in page
        assert "a shows them" not in page


def three_seconds() -> Telemetry:
    """Return a device that reads memory and computes more and more, with an Xid each second."""
    telemetry = Telemetry()
    telemetry.receive(streams.inventory(1))
    for n in range(3):
        shares = {"dram_active_percent": 50.0 * n, "tensor_active_percent": 25.0 * n}
        shares["fp32_active_percent"] = 100.0 if n == 2 else 0.0
        event = Event(streams.NOW + n, UUID, "xid", 79)
        telemetry.receive(said_by(streams.readings(0, **shares), seconds=n, events=(event,)))
    return telemetry


@pytest.mark.parametrize(
    ("height", "title", "times"),
    [
        (1, "Events 12:00:02 Xid 79: the GPU has fallen off the bus", 0),
        (2, "Events the newest 1 of 3", 1),
        (3, "Events the newest 2 of 3", 2),
        (4, "Events ", 3),
    ],
)
def test_as_many_events_as_fit_the_newest_first(height: int, title: str, times: int) -> None:
    view = EventsView(three_seconds())
    view.device = streams.device(0)
    first, *rows = [text_of(row).split("  ")[0] for row in view.draw(90, height)]
    assert first == title
    assert [row[:8] for row in rows] == [f"12:00:0{2 - n}" for n in range(times)]


def test_the_map_shows_the_last_seconds_as_points_and_the_newest_as_a_dot() -> None:
    telemetry = three_seconds()
    view = BoundMap(telemetry)
    view.device = streams.device(0)
    assert [text_of(row).rstrip() for row in view.draw(40, 6)] == [
        " memory bandwidth ↑ compute →",
        " 100 %│                               ●",
        "      │",
        "      │        .",
        "      │.",
        "     0└───────────────────────────100 %",
    ]
    assert [len(view.draw(40, height)) for height in (5, 30)] == [0, 16]
    assert [len(view.draw(width, 9)) for width in (13, 14)] == [0, 9]
    telemetry.receive(said_by(streams.lost(0), seconds=3.0))
    assert "●" not in "".join(text_of(row) for row in view.draw(40, 6))
