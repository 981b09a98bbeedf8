"""The list of results: what fits, what is marked, and how one looks through it."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from textual.events import MouseEvent, MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot
from textual.widgets import Select

from gputop.agent.problem import Problem, ProblemError
from gputop.bench.results import store
from gputop.ui.benchmark.readout import TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.cells import width_of
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.palette import FAULT, STRONG, WARN
from gputop.ui.shell.app import GputopApp
from gputop.ui.telemetry import Telemetry
from tests.bench.kept import BASE, COPY, soak, table, with_comparisons
from tests.bench.workers import RESULT
from tests.runs import gpu_run
from tests.streams import PreparedStream, inventory, sample
from tests.ui.pilots import (
    app_with,
    ended,
    keep_in,
    lines,
    open_form,
    settle,
    settled,
    shown,
    text_of,
    until,
)

if TYPE_CHECKING:
    from gputop.bench.events import Result
    from gputop.ui.drawing.cells import Row
    from tests.sessions import PreparedSession


def view(*results: Result) -> ResultsView:
    made = ResultsView(Telemetry())
    made.show(with_comparisons(results, results), None)
    return made


def texts(rows: list[Row]) -> list[str]:
    return ["".join(span.text for span in row) for row in rows]


def many(count: int) -> list[Result]:
    """Newest first; the mean says which."""
    return [soak(800.0 + count - n, ago=60.0 * n) for n in range(count)]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_row_has_the_width(width: int) -> None:
    odd = replace(BASE, device="\x1b[2J長い名前" * 9, dtype="float8_e4m3fn", m=1, n=65536, k=128)
    rows = view(BASE, odd, RESULT, table("copy", COPY)).draw(width, 10)
    assert len(rows) == 5
    assert [width_of(row) for row in rows] == [width] * 5
    assert all(text.isprintable() for text in texts(rows))


def test_more_width_is_more_columns() -> None:
    heads = {width: texts(view(BASE).draw(width, 5))[0] for width in (60, 80, 120, 200)}
    assert heads[60].split() == ["WHEN", "DEVICE", "KIND", "TFLOP/s", "VERDICT"]
    assert {"TYPE", "SIZE"} <= set(heads[80].split())
    assert {"DROOP", "TIME"} <= set(heads[120].split())
    assert "OF PEAK" in heads[120]
    assert {"POWER", "TORCH", "DRIVER"} <= set(heads[200].split())


def style_of(row: Row, text: str) -> object:
    return next(span.style for span in row if span.text.strip() == text)


def test_what_is_slower_than_usual_is_marked() -> None:
    usual = [soak(800.0, ago=2.0 + n) for n in range(4)]
    made = view(soak(700.0), soak(780.0, ago=1), *usual, soak(790.0, ago=9, wrong_elements=1))
    made.show([BASE, *made.results], None)  # the selected one looks the same all over
    _, _, slow, fine, best, *_, faulty = made.draw(100, 9)
    assert style_of(slow, "700") is WARN
    assert style_of(slow, "12 % under") is WARN
    assert style_of(fine, "780") is STRONG
    assert style_of(best, "800") is STRONG
    assert {span.style for span in faulty if span.text.strip()} == {FAULT}
    assert "FAULTY" in texts([faulty])[0]


def selected(pilot: Pilot[None]) -> str:
    """The row under the cursor."""
    (row,) = (each for each in shown(pilot, ResultsView).splitlines() if each.startswith("▌"))
    return row


async def loaded(pilot: Pilot[None]) -> None:
    """Until the results of earlier runs are there."""
    loading = [each for each in pilot.app.workers if each.group == "results"]
    if loading:  # an empty list would be all of them
        await pilot.app.workers.wait_for_complete(loading)
    await settle(pilot)


def wheel(event: type[MouseEvent], view: ResultsView) -> MouseEvent:
    """A step of the wheel over the list."""
    return event(view, 1, 1, 0, 0, 0, False, False, False)


async def test_keys_and_the_wheel_look_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "recent", lambda _: many(30))
    async with settled(app_with(inventory(1), sample(1, [])), (80, 24)) as (app, pilot):
        await pilot.press("2")
        await loaded(pilot)
        assert " 830 " in selected(pilot)
        keys = "j 829|down 828|up 829|pagedown 827|pageup 829|end 801|j 801|home 830|k 830"
        for key, mean in (each.split() for each in keys.split("|")):
            await pilot.press(key)
            assert f" {mean} " in selected(pilot), key
        view = app.query_one(ResultsView)
        for event, mean in ((MouseScrollDown, "827"), (MouseScrollUp, "830")):
            view.post_message(wheel(event, view))
            await settle(pilot)
            assert f" {mean} " in selected(pilot)


async def test_a_result_is_drawn_again_compared_and_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = gpu_run(60.0, 45.0, ended=True)
    assert earlier.result is not None
    results = [earlier.result, *many(3)]
    forgotten: list[Result] = []
    monkeypatch.setattr(store, "recent", lambda _: results)
    monkeypatch.setattr(
        store, "curves_of", lambda one: earlier.kept_curves() if one is results[0] else None
    )
    monkeypatch.setattr(store, "forget", forgotten.append)
    app = GputopApp(PreparedStream(inventory(1), sample(1, processes=[])))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("2")
        await loaded(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "TFLOP/s over time" in shown(pilot, ThroughputChart))
        assert "power      690/700 W" in shown(pilot, ThroughputChart), "its readings, too"
        assert "Done: bfloat16" in shown(pilot, TitleView)
        await pilot.press("down", "enter")
        await until(pilot, lambda: "no curve of this run" in shown(pilot, ThroughputChart))
        await pilot.press("d", "d", "d", "down", "d")
        said = text_of(lines(app))
        assert re.search(r"TFLOP/s +802 +803 ", said)
        await pilot.press("escape", "delete", "n")
        assert forgotten == []
        await pilot.press("delete")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("y")
        await until(pilot, lambda: bool(forgotten))
        await settle(pilot)
        assert forgotten == [results[2]]
        assert len(app.query_one(ResultsView).results) == 3


async def test_a_new_result_is_shown_wherever_one_had_scrolled_to(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession]
) -> None:
    monkeypatch.setattr(store, "recent", lambda _: many(30))
    app = GputopApp(PreparedStream(inventory(1), sample(1, processes=[])))
    async with app.run_test(size=(80, 24)) as pilot:
        await open_form(pilot)
        await loaded(pilot)
        await pilot.press("end")
        assert " 801 " in selected(pilot)
        await pilot.press("b")
        await until(pilot, lambda: "0.305" in selected(pilot))
        assert selected(pilot) == shown(pilot, ResultsView).splitlines()[1]


async def test_a_file_that_cannot_be_read_is_said_and_runs_go_on(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession]
) -> None:
    def refused(*_: object) -> list[Result]:
        raise ProblemError(Problem("The file cannot be used", "it is <newer>\x1b[2J", "Upgrade"))

    monkeypatch.setattr(store, "recent", refused)
    monkeypatch.setattr(store, "append", refused)
    app = GputopApp(PreparedStream(inventory(1), sample(1, processes=[])))
    async with app.run_test(size=(100, 30)) as pilot:
        await open_form(pilot)
        await loaded(pilot)
        await settle(pilot)
        text = shown(pilot, ResultsView)
        assert "The file cannot be used: it is <newer>␛[2J. Upgrade" in text
        assert "No results yet" in text
        await pilot.press("b")
        await ended(pilot)
        text = shown(pilot, ResultsView)
        assert "Not kept: The file cannot be used" in text
        assert "0.305" in text


async def test_a_run_that_ends_before_earlier_results_are_read_is_listed_once(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession]
) -> None:
    may_go_on = threading.Event()
    kept: list[Result] = []

    def recent(_: int) -> list[Result]:
        may_go_on.wait(60)
        return [*kept, BASE]

    monkeypatch.setattr(store, "recent", recent)
    monkeypatch.setattr(store, "append", keep_in(kept))
    app = GputopApp(PreparedStream(inventory(1), sample(1, processes=[])))
    async with app.run_test(size=(100, 30)):
        pilot = Pilot(app)  # which does not wait for the earlier results
        await pilot.press("2")
        await until(pilot, lambda: bool(app.screen.query("#kind SelectOverlay")))
        app.screen.query_one("#kind", Select).value = "soak"
        await pilot.pause()
        await pilot.press("b")
        await until(pilot, lambda: bool(kept))
        may_go_on.set()
        await loaded(pilot)
        _, first, second, *_ = shown(pilot, ResultsView).splitlines()
        assert " 0.305 " in first
        assert " 780 " in second


async def test_devices_of_this_machine_have_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = inventory(2)
    here = replace(BASE, device_uuid=stream.devices[1].uuid)
    monkeypatch.setattr(store, "recent", lambda _: [here, BASE])
    app = GputopApp(PreparedStream(stream, sample(2)))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("2")
        await loaded(pilot)
        await settle(pilot)
        here_row, elsewhere = shown(pilot, ResultsView).splitlines()[1:3]
        assert " 1 H200 " in here_row
        assert " H200 " in elsewhere
        assert " 1 H200 " not in elsewhere
