"""Runs that are tables, in the tab: their rows as they come, a sweep's chart, and their ends."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Select

from gputop.agent.problem import Problem
from gputop.bench.events import Conditions, Done, Failed, Point, Progress, Verified
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.results import store
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.ui.benchmark.readout import ReadoutView, TitleView, title
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.cells import width_of
from gputop.ui.drawing.palette import BUSY, DIM, FAULT, GOOD, MEMORY
from gputop.ui.shell.app import GputopApp
from gputop.ui.telemetry import Telemetry
from tests.sessions import EVENTS, PLANNED, POINTS, RESULT, table_events, table_result
from tests.streams import PreparedStream, no_driver, sample
from tests.ui.pilots import ended, keep_in, settle, settled, shown, until

if TYPE_CHECKING:
    from rich.style import Style
    from textual.pilot import Pilot

    from gputop.bench.events import Result
    from gputop.ui.drawing.cells import Row
    from tests.sessions import EndlessSession, PreparedSession


TABLES = ("sweep", "step", "copy", "peak")


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
    run = run_of("copy", *table_events("copy", 10))
    assert run.share == pytest.approx(0.5, abs=0.01)
    rows, progress, *_ = readout_of(run)
    assert rows.startswith(" 10 of at most 20 rows ")
    assert progress.endswith(" of at most 1:00")
    run = run_of("copy", *table_events("copy"))
    assert run.share == 1.0
    assert readout_of(run)[0].startswith(" 20 rows ")


async def started(pilot: Pilot[None], kind: str) -> None:
    """As somebody does it who has chosen the kind in the list."""
    await settle(pilot)
    await pilot.press("2")
    pilot.app.query_one("#kind", Select).value = kind
    await settle(pilot)
    await pilot.press("b")


@pytest.mark.parametrize("kind", ["step", "copy"])
async def test_a_table_runs_and_its_result_is_kept_and_listed(
    session: type[PreparedSession], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    kept: list[Result] = []
    monkeypatch.setattr(store, "append", keep_in(kept))
    session.to_send = table_events(kind)
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        await started(pilot, kind)
        await ended(pilot)
        assert [request.kind for request in session.requests] == [kind]
        assert shown(pilot, TitleView).startswith(f" Done: {kind}")
        assert f"{len(POINTS[kind])} rows" in shown(pilot, ReadoutView)
        assert shown(pilot, ThroughputChart).strip()
        assert f" {kind} " in shown(pilot, ResultsView)
    assert [(result.kind, result.points) for result in kept] == [(kind, POINTS[kind])]


async def test_x_stops_a_table(endless: type[EndlessSession]) -> None:
    some = table_events("sweep", 3)
    endless.to_send = (*some, Done(table_result("sweep", points=POINTS["sweep"][:3])))
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        await started(pilot, "sweep")
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Running: sweep"))
        assert f"3 of at most {len(POINTS['sweep'])} rows" in shown(pilot, ReadoutView)
        await pilot.press("x")
        await ended(pilot)
        assert shown(pilot, TitleView).startswith(" Stopped: sweep")
        assert "3 rows" in shown(pilot, ReadoutView)
        assert shown(pilot, ResultsView).splitlines()[1].split()[-1] == "stopped"


FAILURE = Problem("The device hangs", "a check has not ended for 12 s", "Look for Xid errors")


@pytest.mark.parametrize(("rows", "status"), [(0, 1), (4, 3), (4, 1)])
async def test_a_kind_that_fails_says_why_and_a_fault_is_red(
    session: type[PreparedSession], rows: int, status: int
) -> None:
    session.to_send = (*table_events("sweep", rows), Failed(FAILURE, status))
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(80, 24)) as pilot:
        await started(pilot, "sweep")
        await ended(pilot)
        views = [app.query_one(view) for view in (TitleView, ThroughputChart, ReadoutView)]
        text = "\n".join(view.text() for view in views)
        assert all(part in text for part in (FAILURE.what, FAILURE.why, FAILURE.remedy))
        faults = in_style([row for view in views for row in view._rows], FAULT)
        assert ("The device hangs" in faults) == (status == 1)
        assert ("1 float32" in text) == (rows > 0), "what was measured stays"


@pytest.mark.parametrize("kind", TABLES)
def test_the_table_of_a_kept_result_is_drawn_again(kind: str) -> None:
    kept = table_result(kind)
    run = DeviceRun.of_result(kept, cpu_target(), None)
    rows = texts(chart_of(run).draw(100, 30))
    assert rows == texts(chart_of(run_of(kind, *table_events(kind))).draw(100, 30))


# A fault is red wherever its run is shown, with when and how many; a refusal is not.


HUNG = Problem("The device hangs", "a batch had not ended after 3 s", "Look for Xid errors")
REFUSED = Problem("No product ends in time", "one takes 90 s", "Choose a smaller --size")
REQUEST = Request(cpu_target(), "float32", 1024, 60.0)
WINDOWS = tuple(Progress(0.5 * n, 0.5, n, 0.3) for n in range(1, 9))
HALF_WAY: tuple[Any, ...] = (EVENTS[0], PLANNED, *WINDOWS[:4])


def red(rows: list[Row]) -> str:
    """Return the text in the colour of faults."""
    return "".join(span.text for row in rows for span in row if span.style == FAULT)


async def red_after(session: type[PreparedSession], *events: Any) -> list[str]:
    """Return the red text in the four parts of the tab after these events."""
    session.to_send = events
    async with settled(GputopApp(PreparedStream(no_driver(), sample()))) as (app, pilot):
        await pilot.press("b")
        await ended(pilot)
        views = (TitleView, ReadoutView, ThroughputChart, ResultsView)
        return [red(app.query_one(view)._rows) for view in views]


async def test_wrong_elements_are_red_in_title_readout_and_results(
    session: type[PreparedSession],
) -> None:
    late = Verified(3, 7)
    result = dataclasses.replace(RESULT, wrong_elements=7)
    events = (*HALF_WAY, Verified(1, 0), late, *WINDOWS[4:], Verified(4, 7), Done(result))
    title, readout, _, results = await red_after(session, *events)
    assert "FAULTY: float32" in title
    assert "7 wrong elements, first at 2 s" in readout
    assert "FAULTY" in results


def test_wrong_elements_are_red_while_it_runs() -> None:
    run, heading, readout = DeviceRun(REQUEST), TitleView(), ReadoutView(Telemetry())
    heading.run = readout.run = Run.of(run)
    for event in (*HALF_WAY, Verified(1, 1), *WINDOWS[4:]):
        run.add_event(event)
    assert "FAULTY: float32" in red(heading.draw(100, 1))
    assert "1 wrong element, first at 2 s" in red(readout.draw(100, 2))
    assert "now 0.300" in "".join(span.text for span in readout.draw(100, 2)[0])


def test_the_title_of_a_run_without_a_result_is_its_problem() -> None:
    run = DeviceRun(REQUEST)
    for event in (*HALF_WAY, Failed(REFUSED, 3)):
        run.add_event(event)
    said = "".join(span.text for span in title(Run.of(run), 80))
    assert said.startswith(f"Failed: {REFUSED.what}")


def test_the_readout_has_the_share_of_the_peak() -> None:
    conditions = Conditions(percent_of_peak={"datasheet dense": 78.4})
    result = dataclasses.replace(RESULT, conditions=conditions)
    run, readout = DeviceRun(REQUEST), ReadoutView(Telemetry())
    readout.run = Run.of(run)
    for event in (*HALF_WAY, Done(result)):
        run.add_event(event)
    text = "".join(span.text for row in readout.draw(120, 2) for span in row)
    assert "78 % of datasheet peak (dense)" in text
