from typing import Any

import pytest

from gputop.agent.snapshot import Sample
from gputop.ui.device.timeline import TimelineView
from gputop.ui.drawing.cells import text_of, width_of
from gputop.ui.drawing.charts import CHARTS, GUTTER, WIDTHS
from gputop.ui.telemetry import Telemetry
from tests import streams

GIB = 1 << 30
UUID = streams.device(0).uuid


def said(second: float, **readings: Any) -> Sample:
    busy = {"gpu_utilization_percent": int(second) % 101}
    return Sample(streams.NOW + second, streams.host(), (streams.readings(0, **busy | readings),))


def telemetry_of(*samples: Sample) -> Telemetry:
    telemetry = Telemetry()
    telemetry.receive(streams.inventory(1))
    for sample in samples:
        telemetry.receive(sample)
    return telemetry


def drawn(view: TimelineView, width: int, height: int) -> list[str]:
    return [text_of(row) for row in view.draw(width, height)]


def view_of(telemetry: Telemetry) -> TimelineView:
    view = TimelineView(telemetry)
    view.device = telemetry.devices[0]
    view.action_zoom(-len(WIDTHS))
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
    ("height", "many", "rows_drawn"),
    [(3, 1, 3), (7, 3, 7), (17, 8, 17), (18, 5, 16), (40, 11, 34), (99, 11, 56)],
)
def test_as_many_charts_as_there_is_room_for(height: int, many: int, rows_drawn: int) -> None:
    view = view_of(telemetry_of(said(7, **ALL)))
    rows = view.draw(80, height)
    assert len(rows) == rows_drawn
    assert labels(drawn(view, 80, height)) == [chart.label for chart in CHARTS[:many]]
    assert {width_of(row) for row in rows[:-1]} == {80}
    assert width_of(rows[-1]) <= 80


def test_the_gutter_has_the_newest_values() -> None:
    rows = drawn(view_of(telemetry_of(said(0), said(42, **ALL))), 100, 40)
    assert value(rows, "busy") == "42 %"
    assert value(rows, "tensor") == "52.5 %"
    assert value(rows, "memory") == "3.00 GiB"
    assert value(rows, "PCIe rx") == "3.00 GiB/s"
    scales = [row[:GUTTER].strip() for row in rows if row.strip().startswith("of ")]
    assert ", ".join(scales) == (
        "of 100 %, of 80.0 GiB, of 700 W, of 100°C, of 1980 MHz, of 4.00 GiB/s, of 100 %, "
        "of 512 GiB, of 1.00 GiB/s, of 100 %, of 100 %"
    )


def test_zoomed_out_a_dot_is_the_mean_of_its_samples() -> None:
    busy = [{"gpu_utilization_percent": 0 if n % 2 else 100} for n in range(500)]
    view = view_of(telemetry_of(*(said(n, **each) for n, each in enumerate(busy))))
    assert drawn(view, 80, 3)[-1].startswith("last 4 min")
    marks = "╵12:04:20 ╵12:05:08 ╵12:05:56 ╵12:06:44 ╵12:07:32"
    assert drawn(view, 80, 3)[-1][GUTTER:].split() == marks.split()
    view.action_zoom(3)
    rows = drawn(view, 80, 3)
    assert value(rows, "busy") == "0 %"  # the newest, not a mean
    assert rows[-1].startswith("last 20 min")
    assert {row[-9:] for row in rows[:2]} == {" " * 9, "⣿" * 9}
