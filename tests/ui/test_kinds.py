"""Runs that are tables, in the tab: their rows as they come, a sweep's chart, and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Select

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Failed, Point, Verified
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.ui.benchmark import screen
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.cells import width_of
from gputop.ui.drawing.palette import BUSY, DIM, FAULT, GOOD, MEMORY
from gputop.ui.shell.app import GputopApp
from gputop.ui.telemetry import Telemetry
from tests.sessions import POINTS, table_events, table_result
from tests.streams import PreparedStream, no_driver, sample
from tests.ui.pilots import settle, shown, until

if TYPE_CHECKING:
    from rich.style import Style
    from textual.pilot import Pilot

    from gputop.bench.events import Result
    from gputop.ui.drawing.cells import Row
    from tests.sessions import EndlessSession, PreparedSession

TABLES = ("sweep", "latency", "step", "copy", "peak")


def run_of(kind: str, *events: Any, dtype: str = "float32") -> DeviceRun:
    run = DeviceRun(Request(cpu_target(), dtype, None, 60.0, kind=kind))
    for event in events:
        run.add_event(event)
    return run


def chart_of(run: DeviceRun) -> ThroughputChart:
    chart = ThroughputChart()
    chart.run = Run.of(run)
    return chart


def texts(rows: list[Row]) -> list[str]:
    return ["".join(span.text for span in row).rstrip() for row in rows]


def in_style(rows: list[Row], style: Style) -> str:
    return " ".join(span.text.strip() for row in rows for span in row if span.style == style)


def dotted(rows: list[Row], style: Style) -> int:
    """Cells of a line in that style."""
    return sum("\u2800" < c <= "\u28ff" for c in in_style(rows, style))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("size", [(24, 4), (60, 6), (60, 10), (80, 10), (120, 24), (200, 40)])
def test_at_any_size_nothing_is_wider_or_higher(kind: str, size: tuple[int, int]) -> None:
    width, height = size
    for events in (table_events(kind, 1), table_events(kind, 7), table_events(kind)):
        rows = chart_of(run_of(kind, *events)).draw(width, height)
        assert 0 < len(rows) <= height
        assert all(width_of(row) <= width for row in rows)


def test_a_sweep_has_a_line_for_each_type() -> None:
    run = run_of("sweep", *table_events("sweep"))
    rows = chart_of(run).draw(120, 24)
    assert "1 float32" in in_style(rows[:1], BUSY)
    assert "2 float64" in in_style(rows[:1], MEMORY)
    assert dotted(rows, BUSY) > 60
    assert dotted(rows, MEMORY) > 5
    assert dotted(rows, DIM) == 0


def test_a_sweep_s_axes_are_logarithmic_where_they_span_decades() -> None:
    rows = texts(chart_of(run_of("sweep", *table_events("sweep"))).draw(120, 24))
    assert {"1", "16", "256", "4096"} <= set(rows[-2].split())
    labels = [row.split("┤")[0].strip() for row in rows if "┤" in row]
    assert {"0.1", "0.01", "1e-05"} <= set(labels)
    near = (Point("float32", n, {"tflops": 0.2 + n / 4096}, (n, n, n)) for n in (256, 512, 1024))
    rows = texts(chart_of(run_of("sweep", *near)).draw(120, 24))
    assert [row.split("┤")[0].strip() for row in rows if "┤" in row][-1] == "0"


def test_latency_is_ways_by_sizes_with_the_fastest_marked() -> None:
    rows = chart_of(run_of("latency", *table_events("latency"))).draw(80, 12)
    assert " ".join(texts(rows)[0].split()).endswith("5×5 100×100 1000×1000")
    assert in_style(rows, GOOD) == "1.6 µs 1.9 µs 44 µs", "a launch alone is no running time"
    words = "\n".join(texts(rows)[7:])
    assert "launching costs" in words
    assert rows[-1][0].text.endswith("…"), "there is more to say than there is room for"
    every = "\n".join(texts(chart_of(run_of("latency", *table_events("latency"))).draw(120, 24)))
    assert "synchronising each time" in every
    assert "100×100: a product takes 5.4 µs" in every


def test_a_copy_is_turned_where_it_would_be_too_wide() -> None:
    run = run_of("copy", *table_events("copy"), dtype="bytes")
    wide, narrow = (chart_of(run).draw(width, 12) for width in (140, 60))
    assert texts(wide)[0].split()[:4] == ["GB/s", "device", "to", "device"]
    assert " ".join(texts(narrow)[0].split()) == "GB/s 1.00 MiB 16.0 MiB 256 MiB 1.00 GiB"
    assert in_style(narrow, GOOD).split() == ["3900", "12.0", "9.10", "54.1", "53.0"]
    assert set(in_style(wide, GOOD).split()) == set(in_style(narrow, GOOD).split())


def test_the_best_of_a_search_is_the_best_that_was_confirmed() -> None:
    confirmed = Point("B row-major, confirmed", 512, {"tflops": 0.3, "seconds": 1e-3}, (512,) * 3)
    lucky = Point("B row-major", 256, {"tflops": 0.4, "seconds": 1e-3}, (256,) * 3)
    run = run_of("peak", *table_events("peak", 0), confirmed, lucky)
    assert "best 0.300 TFLOP/s" in readout_of(run)[0]


def test_many_notes_leave_the_chart_its_room() -> None:
    notes = tuple(f"type{n}: no size from 64 on, the time was up" for n in range(9))
    run = run_of("sweep", *table_events("sweep", 20), Done(table_result("sweep", notes=notes)))
    rows = texts(chart_of(run).draw(100, 24))
    assert sum("the time was up" in row for row in rows) == 4
    assert rows[-1].endswith(" …")


def readout_of(run: DeviceRun) -> list[str]:
    view = ReadoutView(Telemetry())
    view.run = Run.of(run)
    return texts(view.draw(120, 6))


def test_how_far_it_is_counts_rows() -> None:
    run = run_of("latency", *table_events("latency", 9))
    assert run.share == pytest.approx(0.5, abs=0.01)
    rows, progress, *_ = readout_of(run)
    assert rows.startswith(" 9 of at most 18 rows ")
    assert progress.endswith(" of at most 1:00")
    run = run_of("latency", *table_events("latency"))
    assert run.share == 1.0
    assert readout_of(run)[0] == " 18 rows"


async def started(pilot: Pilot[None], kind: str) -> None:
    """As somebody does it who has chosen the kind in the list."""
    await settle(pilot)
    await pilot.press("2")
    await settle(pilot)
    pilot.app.query_one("#kind", Select).value = kind
    await settle(pilot)
    await pilot.press("b")
    await settle(pilot)


@pytest.mark.parametrize("kind", TABLES)
async def test_every_kind_runs_and_its_result_is_kept_and_listed(
    session: type[PreparedSession], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    kept: list[Result] = []

    def keep(result: Result, *_: object) -> Result:
        kept.append(result)
        return result

    monkeypatch.setattr(screen, "append", keep)
    session.to_send = table_events(kind)
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        await started(pilot, kind)
        assert [request.kind for request in session.requests] == [kind]
        assert shown(pilot, TitleView).startswith(f" Done {kind}")
        assert f"{len(POINTS[kind])} rows" in shown(pilot, ReadoutView)
        assert shown(pilot, ThroughputChart).strip()
        assert f" {kind} " in shown(pilot, ResultsView)
    assert [(result.kind, result.points) for result in kept] == [(kind, POINTS[kind])]


@pytest.mark.daily(2)
@pytest.mark.parametrize("kind", TABLES)
async def test_x_stops_every_kind(endless: type[EndlessSession], kind: str) -> None:
    some = table_events(kind, 3)
    endless.to_send = (*some, Done(table_result(kind, points=POINTS[kind][:3])))
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        await started(pilot, kind)
        await until(pilot, lambda: shown(pilot, TitleView).startswith(f" Running {kind}"))
        assert f"3 of at most {len(POINTS[kind])} rows" in shown(pilot, ReadoutView)
        await pilot.press("x")
        await settle(pilot)
        assert shown(pilot, TitleView).startswith(f" Stopped {kind}")
        assert "3 rows" in shown(pilot, ReadoutView)
        assert shown(pilot, ResultsView).splitlines()[1].split()[-1] == "stopped"


FAILURE = Problem("The device hangs", "a check has not ended for 12 s", "Look for Xid errors")


@pytest.mark.daily(2)
@pytest.mark.parametrize("rows", [0, 4])
@pytest.mark.parametrize(("status", "red"), [(1, True), (3, False)])
async def test_a_kind_that_fails_says_why_and_a_fault_is_red(
    session: type[PreparedSession], rows: int, status: int, *, red: bool
) -> None:
    session.to_send = (*table_events("sweep", rows), Failed(FAILURE, status))
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        await started(pilot, "sweep")
        views = [app.query_one(view) for view in (TitleView, ThroughputChart, ReadoutView)]
        text = "\n".join(view.text() for view in views)
        assert all(part in text for part in (FAILURE.what, FAILURE.why, FAILURE.remedy))
        faults = in_style([row for view in views for row in view._rows], FAULT)
        assert ("The device hangs" in faults) == red
        assert ("1 float32" in text) == (rows > 0), "what was measured stays"


async def test_a_wrong_element_in_a_table_is_red(session: type[PreparedSession]) -> None:
    wrong = Done(table_result("copy", wrong_elements=2))
    session.to_send = (*table_events("copy", 20), Verified(20, 2), wrong)
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(120, 40)) as pilot:
        await started(pilot, "copy")
        faults = in_style(app.query_one(TitleView)._rows, FAULT)
        assert "FAULTY: 2 wrong elements" in faults
        assert "FAULTY" in in_style(app.query_one(ResultsView)._rows, FAULT)


async def test_at_60_columns_the_kind_of_a_table_is_told(session: type[PreparedSession]) -> None:
    session.to_send = table_events("latency")
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(60, 24)) as pilot:
        await started(pilot, "latency")
        assert " latency " in shown(pilot, ResultsView).splitlines()[1]


@pytest.mark.parametrize("kind", TABLES)
def test_the_table_of_a_kept_result_is_drawn_again(kind: str) -> None:
    kept = table_result(kind)
    run = DeviceRun.of_result(kept, cpu_target(), None)
    rows = texts(chart_of(run).draw(100, 30))
    assert rows == texts(chart_of(run_of(kind, *table_events(kind))).draw(100, 30))
