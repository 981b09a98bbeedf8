"""Charts of a device over one time axis, and the cursor that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App

from gputop.agent.snapshot import Sample
from gputop.ui.device.timeline import TimelineView
from gputop.ui.drawing.cells import Row, width_of
from gputop.ui.drawing.charts import CHARTS, GUTTER, SAMPLES_A_DOT
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.ui.pilots import settle, settled, shown

if TYPE_CHECKING:
    from textual.app import ComposeResult

GIB = 1 << 30
UUID = streams.device(0).uuid


def said(second: float, **readings: Any) -> Sample:
    """Return the readings of the device at that second; by default it is as busy as the second."""
    busy = {"gpu_utilization_percent": int(second) % 101}
    return Sample(streams.NOW + second, streams.host(), (streams.readings(0, **busy | readings),))


def telemetry_of(*samples: Sample) -> Telemetry:
    telemetry = Telemetry()
    telemetry.receive(streams.inventory(1))
    for sample in samples:
        telemetry.receive(sample)
    return telemetry


class TimelineApp(App[None]):
    """Nothing but the charts."""

    CSS = "TimelineView { height: 1fr; }"

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__()
        self.telemetry = telemetry

    def compose(self) -> ComposeResult:
        yield view_of(self.telemetry)

    @property
    def view(self) -> TimelineView:
        return self.query_one(TimelineView)


def drawn(view: TimelineView, width: int, height: int) -> list[str]:
    return ["".join(span.text for span in row) for row in view.draw(width, height)]


def view_of(telemetry: Telemetry) -> TimelineView:
    """Return charts in which each sample has a dot."""
    view = TimelineView(telemetry)
    view.device = telemetry.devices[0]
    view.action_zoom(-len(SAMPLES_A_DOT))
    return view


def labels(rows: list[str]) -> list[str]:
    return [
        name for row in rows for name in (c.label for c in CHARTS) if row.startswith(f"{name} ")
    ]


def value(rows: list[str], label: str) -> str:
    (row,) = (row for row in rows if row.startswith(f"{label} "))
    return row[len(label) : GUTTER].strip()


ALL = {
    "sm_active_percent": 91.0,
    "tensor_active_percent": 52.5,
    "pcie_rx_bytes_per_second": 3 * GIB,
    "pcie_tx_bytes_per_second": GIB,
}


@pytest.mark.parametrize(
    ("height", "shown_"),
    [
        (3, ["busy"]),
        (7, ["busy", "memory", "power"]),
        (11, ["busy", "memory", "power", "temperature", "SM clock"]),
        (40, [chart.label for chart in CHARTS]),
    ],
)
def test_as_many_charts_as_there_is_room_for(height: int, shown_: list[str]) -> None:
    view = view_of(telemetry_of(said(7, **ALL)))
    rows = view.draw(80, height)
    assert height - 10 < len(rows) <= height
    assert labels(drawn(view, 80, height)) == shown_
    assert {width_of(row) for row in rows[:-1]} == {80}
    assert width_of(rows[-1]) <= 80


def test_the_gutter_has_the_newest_values_and_what_the_height_stands_for() -> None:
    rows = drawn(view_of(telemetry_of(said(0), said(42, **ALL))), 100, 40)
    assert value(rows, "busy") == "42 %"
    assert value(rows, "tensor") == "52.5 %"
    assert value(rows, "memory") == "3.00 GiB"
    assert value(rows, "PCIe rx") == "3.00 GiB/s"
    scales = [row[:GUTTER].strip() for row in rows if row.strip().startswith("of ")]
    assert scales == [
        "of 100 %",
        "of 80.0 GiB",
        "of 700 W",
        "of 100°C",
        "of 1980 MHz",
        "of 4.00 GiB/s",
        "of 100 %",
        "of 512 GiB",
        "of 1.00 GiB/s",
        *("of 100 %",) * 2,
    ]


async def test_the_cursor_reads_all_charts_at_a_moment() -> None:
    samples = [said(n, power_watts=100.0 + n, temperature_celsius=30 + n) for n in range(60)]
    async with settled(TimelineApp(telemetry_of(*samples)), (80, 20)) as (app, pilot):
        assert "ago" not in shown(pilot, TimelineView)
        app.view.action_side(-1)
        app.view.action_side(-9)
        await settle(pilot)
        rows = shown(pilot, TimelineView).splitlines()
        assert rows[-1].startswith("12:00:49, 10 s ago")
        read = [value(rows, label) for label in ("busy", "power", "temperature")]
        assert read == ["49 %", "149 W", "79°C"]
        # It stays with its moment when time goes on.
        app.telemetry.receive(said(60))
        app.view.redraw()
        await settle(pilot)
        rows = shown(pilot, TimelineView).splitlines()
        assert rows[-1].startswith("12:00:49, 11 s ago")
        assert value(rows, "busy") == "49 %"
        app.view.action_side(5)
        assert drawn(app.view, 80, 20)[-1].startswith("12:00:54, 6 s ago")
        app.view.action_side(1000)
        await settle(pilot)
        assert "ago" not in shown(pilot, TimelineView)
        assert value(shown(pilot, TimelineView).splitlines(), "busy") == "60 %"


def marked(rows: list[Row]) -> set[int]:
    """The cells that are reversed."""
    cells = set()
    for row in rows:
        x = 0
        for span in row:
            if span.style.reverse:
                cells |= {*range(x, x + len(span.text))}
            x += len(span.text)
    return cells


def test_the_cursor_goes_back_as_far_as_anything_is_kept() -> None:
    telemetry = telemetry_of(*(said(n) for n in range(1500)))
    view = view_of(telemetry)
    view.action_side(-10_000)
    rows = drawn(view, 80, 20)
    assert rows[-1].startswith("12:05:00, 19:59 ago")
    assert value(rows, "busy") == f"{300 % 101} %"
    assert marked(view.draw(80, 20))
    telemetry.receive(said(1500))  # what it was on is no longer kept
    assert drawn(view, 80, 20)[-1].startswith("12:05:01, 19:59 ago")
    view.action_side(699)
    assert value(drawn(view, 80, 20), "busy") == f"{1000 % 101} %"


@given(st.integers(1, 400), st.integers(-500, -1), st.integers(1, 90), st.integers(0, 4))
def test_the_cursor_is_always_seen(samples: int, step: int, room: int, zoom: int) -> None:
    view = view_of(telemetry_of(*(said(n) for n in range(samples))))
    view.action_zoom(zoom)
    view.action_side(step)
    rows = view.draw(GUTTER + room, 9)
    dots = -(-samples // SAMPLES_A_DOT[zoom])
    assert len(marked(rows)) == (1 if dots > 1 else 0)
    assert min(marked(rows), default=GUTTER) >= GUTTER


def test_zoomed_out_a_dot_is_the_mean_of_its_samples() -> None:
    view = view_of(telemetry_of(*(said(n) for n in range(100))))
    view.action_zoom(3)
    assert SAMPLES_A_DOT[3] == 5
    assert value(drawn(view, 80, 20), "busy") == "99 %"  # the newest, not a mean
    view.action_side(-1)
    rows = drawn(view, 80, 20)
    assert value(rows, "busy") == "92 %"
    assert rows[-1].startswith("12:01:32, 7 s ago")
    view.action_zoom(-3)  # the cursor stays where it is in time
    assert drawn(view, 80, 20)[-1].startswith("12:01:30, 9 s ago")
    view.action_zoom(-100)
    view.action_zoom(+100)
    assert drawn(view, 80, 20)[-1].startswith("12:01:")


def test_the_axis_has_times_of_day_and_how_long_it_is() -> None:
    view = view_of(telemetry_of(*(said(n) for n in range(120))))
    axis = drawn(view, 80, 20)[-1]
    assert axis.startswith("last 2 min")
    assert axis[GUTTER:].split() == [
        "╵12:00:02",
        "╵12:00:26",
        "╵12:00:50",
        "╵12:01:14",
        "╵12:01:38",
    ]


def test_the_charts_scroll_and_stand_still_while_the_cursor_reads() -> None:
    telemetry = telemetry_of(*(said(n % 50) for n in range(300)))
    view = view_of(telemetry)
    before = drawn(view, 80, 3)
    for n in (300, 301):
        telemetry.receive(said(n % 50))
    after = drawn(view, 80, 3)
    for row in (0, 1):
        assert after[row][GUTTER:-1] == before[row][GUTTER + 1 :]
    view.action_side(-1)
    rows = drawn(view, 80, 9)
    assert "ago" in rows[-1]
    telemetry.receive(said(302))
    telemetry.receive(said(303))
    assert [row[GUTTER:] for row in drawn(view, 80, 9)] == [row[GUTTER:] for row in rows]
    view.action_side(99)
    assert drawn(view, 80, 9)[-1].startswith("last ")
