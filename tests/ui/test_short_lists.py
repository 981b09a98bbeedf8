"""A list that does not fit counts the rest, above or below at least one of its rows."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest

from gputop.agent.snapshot import Event
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.layout import Density
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.ui import scenes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.ui.drawing.cells import Row

HEIGHTS = range(1, 9)
COUNTS = re.compile(r"\b(\d+ )?more\b|\bof \d+|below|above|for the others")


def text_of(rows: Sequence[Row]) -> list[str]:
    return ["".join(span.text for span in row).rstrip() for row in rows]


def telemetry() -> Telemetry:
    known = Telemetry()
    known.receive(streams.inventory(12))
    uuid = streams.device(0).uuid
    events = tuple(Event(streams.NOW + n, uuid, "xid", 79) for n in range(9))
    known.receive(streams.sample(12, streams.crowd(30), events=events))
    return known


def processes(height: int) -> list[str]:
    return text_of(ProcessesView(telemetry()).draw(120, height))


def devices(density: Density, width: int, height: int) -> list[str]:
    view = DevicesView(telemetry())
    view.density = density.name.lower()
    view.plan(width, height)
    return text_of(view.draw(width, height)[:height])


def details(height: int) -> list[str]:
    known = telemetry()
    known.receive(dataclasses.replace(streams.inventory(1), devices=(scenes.device(0),)))
    view = DetailsView(known)
    view.device = known.devices[0]
    return text_of(view.draw(100, height))


def happened(height: int) -> list[str]:
    known = telemetry()
    view = EventsView(known)
    view.device = known.devices[0]
    return text_of(view.draw(100, height)[:height])


def rows_of_items(shown: list[str], item: str) -> list[str]:
    return [row for row in shown if re.search(item, row)]


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize(
    ("view", "item"),
    [
        (processes, r"\d{5} .*GiB|\d{5} .*MiB"),
        (details, r"power|limit|Power"),
        (happened, r"Xid"),
    ],
)
def test_no_rest_is_counted_over_nothing(view, item: str, height: int) -> None:  # type: ignore[no-untyped-def]
    shown = view(height)
    assert len(shown) <= height
    if any(COUNTS.search(row) for row in shown):
        assert rows_of_items(shown, item), shown


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("density", list(Density))
def test_no_devices_are_counted_over_nothing(density: Density, width: int, height: int) -> None:
    shown = devices(density, width, height)
    assert len(shown) <= height
    if any(COUNTS.search(row) for row in shown if "for the others" in row):
        bars = rows_of_items(shown, "━|─" if density is Density.ROW else "^▌  mem")
        assert bars, shown
