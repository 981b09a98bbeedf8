import dataclasses
from typing import Any

import pytest

from gputop.agent.device import Absence, DeviceSample
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.snapshot import Event, Record, Sample
from gputop.ui.device.bound_map import BoundMap
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.title import DeviceTitle
from gputop.ui.drawing.cells import text_of
from gputop.ui.drawing.palette import FAULT, GOOD
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.agent.fakes import Time
from tests.agent.readings import A_SECOND_LATER, device
from tests.driver import FakeDriver
from tests.ui.pilots import rendered

UUID = streams.device(0).uuid


def telemetry_of(*records: Record) -> Telemetry:
    telemetry = Telemetry()
    for record in records:
        telemetry.receive(record)
    return telemetry


def said_by(*devices: DeviceSample, seconds: float = 0.0, events: tuple[Event, ...] = ()) -> Sample:
    return Sample(streams.NOW + seconds, streams.host(), devices, events=events)


def details_of(telemetry: Telemetry, *, folded: bool = False) -> str:
    view = DetailsView(telemetry)
    view.device = telemetry.devices[0]
    view.folded = folded
    return rendered(view.page(), 100).rstrip()


@pytest.mark.driver
def test_every_value_of_the_driver_is_on_the_page(nvml: FakeDriver, snapshot: Any) -> None:
    nvml.write(device(fail={}))
    start()
    clock = Time()
    reader = NvmlReader(0, "580.95.05", clock.monotonic)
    reader.read(gpm=True)
    nvml.change(0, values={**nvml.devices[0].values, **A_SECOND_LATER})
    clock.now += 1.0
    reading = reader.read(gpm=True)[0]
    inventory = dataclasses.replace(streams.inventory(), devices=(reading.device,))
    assert details_of(telemetry_of(inventory, said_by(reading.sample))) == snapshot


def test_the_title_says_which_device_and_what_is_wrong() -> None:
    telemetry = Telemetry()
    view = DeviceTitle(telemetry)

    def title(*records: Record) -> list[str]:
        for record in records:
            telemetry.receive(record)
        return [text_of(row) for row in view.draw(100, 4)]

    assert title() == ["No device"]
    view.device = streams.device(0)
    idle, other = streams.readings(0, gpu_utilization_percent=0), streams.readings(1)
    first = [said_by(idle, other, seconds=n) for n in range(40)]
    name, sums, bound, advice = title(streams.inventory(2), *first)
    assert name.startswith("0 H100 80GB HBM3 ──")
    assert sums.startswith("busy 0 % · memory 3.0 of 80.0 GiB · power 100/700 W")
    assert bound.startswith("bound by idle ")
    assert advice == "Nothing to improve: it has hardly any work"
    assert title(said_by(streams.lost(0), other, seconds=42.0))[2:] == [
        "LOST: it no longer answers on its bus.",
        "Usually only a reboot helps; `dmesg` has the Xid",
    ]
    assert title(streams.inventory(0), said_by(seconds=43.0))[2].startswith("GONE: ")
    assert title(streams.inventory(2), said_by(idle, other, seconds=44.0))[2].startswith(
        "bound by "
    )


def test_what_happened_to_the_device() -> None:
    xid = Event(streams.NOW + 1, UUID, "xid", 79)
    elsewhere = Event(streams.NOW + 1, streams.device(1).uuid, "xid", 13)
    somewhere = Event(streams.NOW + 1.5, None, "xid", 74)
    ok, lost = streams.readings(0), streams.lost(0)
    telemetry = telemetry_of(streams.inventory(2), said_by(ok))
    view = EventsView(telemetry)

    def events(index: int) -> list[str]:
        view.device = streams.device(index)
        return [text_of(row).split("  ")[0] for row in view.draw(200, 50)]

    assert events(0) == ["Events none so far"]
    telemetry.receive(said_by(ok, seconds=1.0, events=(xid, elsewhere, somewhere)))
    for second, readings in ((2.0, lost), (3.0, lost), (64.0, ok)):
        telemetry.receive(said_by(readings, seconds=second))
    assert events(0) == [
        "Events ",
        "12:01:04 Answers again",
        "12:00:02 LOST: it no longer answers on its bus",
        "12:00:01 Xid 74: an NVLink failed (the driver does not say on which device)",
        "12:00:01 Xid 79: the GPU has fallen off the bus",
    ]
    assert [row[1].style for row in view.draw(200, 50)[1:]] == [GOOD, FAULT, FAULT, FAULT]
    assert "Xids seen     1, the last one 79" in details_of(telemetry)
    assert ["Xid 13" in each for each in events(1)] == [False, False, True]


def test_readings_that_the_device_does_not_have_are_one_line() -> None:
    lacks = {"fan_percent": Absence.NOT_SUPPORTED}
    lacks |= dict.fromkeys(("sm_active_percent", "sm_occupancy_percent"), Absence.NOT_SUPPORTED)
    lacks |= {"encoder_utilization_percent": Absence.NO_PERMISSION}
    said = streams.readings(0, **dict.fromkeys(lacks), absent=lacks)
    telemetry = telemetry_of(streams.inventory(1), said_by(said))
    *_, last = folded = details_of(telemetry, folded=True).splitlines()
    assert last == "3 more are not supported · a shows them"
    assert not [line for line in folded if line.startswith(("fan ", "SM active "))]
    assert "encoder       – " in "\n".join(folded)  # which it should have
    whole = details_of(telemetry)
    assert "fan           – no fan" in whole
    assert "a shows them" not in whole


def three_seconds() -> Telemetry:
    """Return a device that reads memory and computes more and more, with an Xid each second."""
    telemetry = telemetry_of(streams.inventory(1))
    before = streams.readings(0, dram_active_percent=100.0, tensor_active_percent=0.0)
    telemetry.receive(said_by(before, seconds=-31.0))  # the trail has 30 s
    for n in range(3):
        shares = {"dram_active_percent": 50.0 * n, "tensor_active_percent": 25.0 * n}
        shares["fp32_active_percent"] = 130.0 if n == 2 else 0.0
        event = Event(streams.NOW + n, UUID, "xid", 79)
        telemetry.receive(said_by(streams.readings(0, **shares), seconds=n, events=(event,)))
    return telemetry


@pytest.mark.parametrize(
    ("height", "title", "times"),
    [
        (1, "Events 12:00:02 Xid 79: the GPU has fallen off the bus", 0),
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
