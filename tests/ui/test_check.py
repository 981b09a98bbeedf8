"""A check in the tab: it is offered first, is one row that unfolds, and has a report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Button, Select

from gputop.agent.snapshot import Source
from gputop.bench.events import Result, Verdict, VerdictPart
from gputop.bench.plan.kinds import CHECK
from gputop.bench.results import store
from gputop.ui.benchmark.form import Form
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.shell.app import GputopApp
from tests.bench.kept import COPY, soak, table
from tests.streams import PreparedStream, inventory, sample
from tests.ui.pilots import ended, keep_in, open_form, settle, settled, shown, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sessions import EndlessSession

AT = 1_763_640_000.0


def parts() -> list[Result]:
    """A check as it is stored, newest first: the soak found the device degraded."""
    slow = Verdict((VerdictPart("throttling", "degraded", "too hot"),), "Too hot.")
    made = [soak(700.0, verdict=slow), table("copy", COPY)]
    return [dataclasses.replace(each, check_started_at=AT) for each in made]


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("source", [Source.NVML, Source.SIMULATED])
async def test_a_check_is_offered_first(size: tuple[int, int], source: Source) -> None:
    app = GputopApp(PreparedStream(inventory(2, source=source), sample(2, [])))
    async with settled(app, size) as (_, pilot):
        await pilot.press("2")
        assert app.query_one("#kind", Select).value == CHECK
        assert app.query_one(Form).kinds[0] == CHECK
        assert "is this GPU all right?" in shown(pilot, ThroughputChart)


async def test_the_parts_of_a_check_are_one_row_that_unfolds_and_has_a_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "recent", lambda _: [*parts(), soak(800.0, ago=9.0)])
    monkeypatch.setattr(store, "curves_of", lambda _: None)
    app = GputopApp(PreparedStream(inventory(1), sample(1, [])))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("2")
        await until(pilot, lambda: "check" in shown(pilot, ResultsView))
        rows = shown(pilot, ResultsView).splitlines()[1:]
        assert len(rows) == 2
        assert "▸" in rows[0]
        assert rows[0].endswith("DEGRADED")
        await pilot.press("enter")
        await until(pilot, lambda: len(shown(pilot, ResultsView).splitlines()) == 5)
        assert "Too hot." in shown(pilot, ThroughputChart)
        await pilot.press("e")
        await until(pilot, lambda: bool(app._notifications))
        path = only_file(tmp_path)
        (note,) = app._notifications
        assert str(path) in note.message
        assert "Too hot." in path.read_text()
        await pilot.press("enter")
        await until(pilot, lambda: len(shown(pilot, ResultsView).splitlines()) == 3)


async def test_the_button_stops_what_it_started(endless: type[EndlessSession]) -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1, [])))
    async with app.run_test(size=(80, 24)) as pilot:
        await open_form(pilot)
        button = app.query_one("#start", Button)
        for label in ("Start", "Stop"):
            assert str(button.label) == label
            button.press()
            await settle(pilot)
        await ended(pilot)
        assert str(button.label) == "Start"


async def test_q_keeps_what_was_measured(
    endless: type[EndlessSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Result] = []
    monkeypatch.setattr(store, "append", keep_in(kept))
    app = GputopApp(PreparedStream(inventory(1), sample(1, [])))
    async with settled(app, (80, 24)) as (_, pilot):
        await pilot.press("b")
        await pilot.press("q")
        await pilot.pause()
    assert not app.is_running
    assert [each.stopped for each in kept] == ["user"]


async def test_the_chart_keeps_its_height_when_the_run_ends(
    endless: type[EndlessSession],
) -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1, [])))
    async with settled(app, (80, 24)) as (_, pilot):
        await pilot.press("b")
        before = app.query_one(ThroughputChart).region
        await pilot.press("x")
        await ended(pilot)
        assert app.query_one(ThroughputChart).region == before
