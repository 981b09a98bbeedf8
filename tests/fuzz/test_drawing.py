"""What the decoder accepts can be drawn, whatever it says, in a space of any size."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.agent.device import DeviceState
from gputop.settings import AUTO
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.timeline import TimelineView
from gputop.ui.device.title import DeviceTitle
from gputop.ui.device.why_page import FindingsView, WhyTitle
from gputop.ui.drawing.cells import fit, width_of
from gputop.ui.drawing.charts import SAMPLES_A_DOT
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.host import HostView
from gputop.ui.monitor.layout import Density
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.fuzz.strategies import SIZES, machines

if TYPE_CHECKING:
    from gputop.agent.snapshot import Inventory, Sample
    from gputop.ui.drawing.live import LiveView

pytestmark = pytest.mark.slow  # half a minute for all of them

# A machine has hundreds of fields: how long one takes to make and to draw is no test.
many = settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def known(records: list[Inventory | Sample]) -> Telemetry:
    """What the dashboard knows after these."""
    telemetry = Telemetry(lambda: 100.0)
    for record in records:
        telemetry.receive(record)
    return telemetry


def drawn(view: LiveView, width: int, height: int) -> None:
    """Draws it, and sees that it fits and shows nothing but printable text."""
    rows = view.draw(width, height)
    for row in rows[:height]:
        text = "".join(span.text for span in row)
        assert text.isprintable(), f"{type(view).__name__}: {text!r}"
        fitted = fit(row, width)
        assert width_of(fitted) == width, f"{type(view).__name__}: {fitted}"


def monitor(telemetry: Telemetry, width: int, height: int) -> list[LiveView]:
    """The views of the monitor and of the first device's pages."""
    devices = DevicesView(telemetry)
    devices.plan(width, height)
    device = telemetry.devices[0] if telemetry.devices else None
    findings = FindingsView(telemetry)
    processes = ProcessesView(telemetry)
    title, timeline = DeviceTitle(telemetry), TimelineView(telemetry)
    details, events = DetailsView(telemetry), EventsView(telemetry)
    for view in (title, timeline, details, events, findings):
        view.device = device
    of_all = FindingsView(telemetry)
    of_all.of_all = True
    why = WhyTitle(telemetry, findings)
    header, host = Header(telemetry), HostView(telemetry)
    views: list[LiveView] = [devices, title, timeline, details, events, findings, of_all, why]
    return [*views, processes, header, host]


@pytest.mark.slow
@many
@given(machines(), SIZES, st.sampled_from([None, *Density]))
def test_the_monitor_and_the_pages_of_a_device(
    records: list[Inventory | Sample], size: tuple[int, int], density: Density | None
) -> None:
    telemetry = known(records)
    for view in monitor(telemetry, *size):
        if isinstance(view, DevicesView):
            view.density = density.name.lower() if density else AUTO
            view.plan(*size)
        drawn(view, *size)


@many
@given(machines(3), SIZES, st.integers(0, len(SAMPLES_A_DOT)), st.integers(-5, 5))
def test_charts_at_any_zoom_and_cursor(
    records: list[Inventory | Sample], size: tuple[int, int], zoom: int, cursor: int
) -> None:
    telemetry = known([*records, *records[1:]])
    view = TimelineView(telemetry)
    view.device = telemetry.devices[0] if telemetry.devices else None
    view.action_zoom(zoom)
    view.action_side(cursor)
    drawn(view, *size)


@many
@given(machines(4), SIZES, st.text(max_size=5), st.booleans(), st.integers(0, 14))
def test_the_processes_however_they_are_sorted(
    records: list[Inventory | Sample], size: tuple[int, int], words: str, tree: bool, column: int
) -> None:
    view = ProcessesView(known(records))
    view.type(words)
    view.action_sort(column)
    if tree:
        view.action_tree()
    view.action_move(3)
    drawn(view, *size)


@pytest.mark.daily(3)
@pytest.mark.parametrize("width", [*range(1, 13), 40, 250])
def test_faults_in_the_smallest_spaces(width: int) -> None:
    """A lost device has sentences in the place of numbers."""
    states = [state for state in DeviceState if state is not DeviceState.OK]
    readings = tuple(streams.lost(n, state) for n, state in enumerate(states))
    sample = dataclasses.replace(streams.sample(len(states)), devices=readings)
    several: list[Inventory | Sample] = [streams.inventory(len(states)), sample]
    none: list[Inventory | Sample] = [streams.no_driver(), streams.sample(0)]
    for records in (several, none):
        for height in (*range(1, 10), 80):
            for density in (None, *Density):
                telemetry = known(records)
                for view in monitor(telemetry, width, height):
                    if isinstance(view, DevicesView):
                        view.density = density.name.lower() if density else AUTO
                        view.plan(width, height)
                    drawn(view, width, height)
