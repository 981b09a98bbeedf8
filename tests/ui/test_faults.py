"""A fault is red wherever its run is shown, with when and how many; a refusal is not."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Conditions, Done, Failed, Progress, Verified
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.ui.benchmark.readout import ReadoutView, TitleView, title
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.palette import FAULT
from gputop.ui.shell.app import GputopApp
from gputop.ui.telemetry import Telemetry
from tests.sessions import EVENTS, PLANNED, RESULT
from tests.streams import PreparedStream, no_driver, sample
from tests.ui.pilots import settle, shown

if TYPE_CHECKING:
    from gputop.ui.drawing.cells import Row
    from tests.sessions import PreparedSession

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
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("b")
        await settle(pilot)
        views = (TitleView, ReadoutView, ThroughputChart, ResultsView)
        return [red(app.query_one(view)._rows) for view in views]


async def test_wrong_elements_are_red_in_title_readout_and_results(
    session: type[PreparedSession],
) -> None:
    late = Verified(3, 7)
    result = dataclasses.replace(RESULT, wrong_elements=7)
    events = (*HALF_WAY, Verified(1, 0), late, *WINDOWS[4:], Verified(4, 7), Done(result))
    title, readout, _, results = await red_after(session, *events)
    assert "FAULTY: 7 wrong elements, first at 2 s" in title
    assert "7 wrong elements, first at 2 s" in readout
    assert "FAULTY" in results


def test_wrong_elements_are_red_while_it_runs() -> None:
    run, heading, readout = DeviceRun(REQUEST), TitleView(), ReadoutView(Telemetry())
    heading.run = readout.run = Run.of(run)
    for event in (*HALF_WAY, Verified(1, 1), *WINDOWS[4:]):
        run.add_event(event)
    assert "FAULTY: 1 wrong element, first at 2 s" in red(heading.draw(100, 1))
    assert "1 wrong element, first at 2 s" in red(readout.draw(100, 2))
    assert "now 0.300" in "".join(span.text for span in readout.draw(100, 2)[0])


@pytest.mark.parametrize("before", [(), HALF_WAY])
async def test_a_device_that_fails_is_red(
    session: type[PreparedSession], before: tuple[Any, ...]
) -> None:
    title, readout, chart, _ = await red_after(session, *before, Failed(HUNG, 1))
    assert "FAULTY" in title
    assert "The device hangs" in title
    assert ("after 2 s" in title) == bool(before)
    said = readout if before else chart
    assert (HUNG.why if before else HUNG.what) in said


async def test_what_a_fault_found_before_it_is_said_too(session: type[PreparedSession]) -> None:
    events = (*HALF_WAY, Verified(1, 5), Failed(HUNG, 1))
    title, *_ = await red_after(session, *events)
    assert "5 wrong elements" in title


@pytest.mark.parametrize(
    ("events", "word"),
    [(EVENTS[:1], "Not run: "), (HALF_WAY[:2], "Ended: "), (HALF_WAY, "Ended after 2 s: ")],
)
def test_a_run_that_had_begun_has_ended(events: tuple[Any, ...], word: str) -> None:
    run = DeviceRun(REQUEST)
    for event in (*events, Failed(REFUSED, 3)):
        run.add_event(event)
    said = "".join(span.text for span in title(Run.of(run), 80))
    assert said.startswith(f"{word}{REFUSED.what}")


@pytest.mark.parametrize("before", [(), HALF_WAY])
async def test_what_is_refused_is_not_red(
    session: type[PreparedSession], before: tuple[Any, ...]
) -> None:
    assert await red_after(session, *before, Failed(REFUSED, 3)) == ["", "", "", ""]


async def test_why_a_run_broke_off_is_said_under_what_it_measured(
    session: type[PreparedSession],
) -> None:
    session.to_send = (*HALF_WAY, Failed(REFUSED, 3))
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("b")
        await settle(pilot)
        text = shown(pilot, ReadoutView)
        assert REFUSED.why in text
        assert REFUSED.remedy in text


def test_the_readout_has_the_share_of_the_peak() -> None:
    conditions = Conditions(percent_of_peak={"datasheet dense": 78.4})
    result = dataclasses.replace(RESULT, conditions=conditions)
    run, readout = DeviceRun(REQUEST), ReadoutView(Telemetry())
    readout.run = Run.of(run)
    for event in (*HALF_WAY, Done(result)):
        run.add_event(event)
    text = "".join(span.text for row in readout.draw(120, 2) for span in row)
    assert "78 % of datasheet peak (dense)" in text
