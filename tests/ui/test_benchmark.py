import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.events import MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot
from textual.widgets import Footer, Select

from gputop.agent.device import DeviceState
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Source
from gputop.bench.events import Result, Verdict, VerdictPart
from gputop.bench.plan.kinds import CHECK
from gputop.bench.results import store
from gputop.bench.run.run import Run
from gputop.ui.benchmark.form import ALL, Form
from gputop.ui.benchmark.kept_checks import check_result
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.cells import Row, width_of
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.palette import FAULT, STRONG, WARN
from gputop.ui.shell.app import GputopApp
from gputop.ui.telemetry import Telemetry
from tests.bench.kept import BASE, COPY, soak, table, with_comparisons
from tests.bench.workers import RESULT
from tests.runs import gpu_run
from tests.sessions import EndlessSession, PreparedSession
from tests.streams import inventory, process, readings, sample
from tests.ui import together
from tests.ui.pilots import (
    app_with,
    ended,
    keep_in,
    lines,
    noted,
    open_form,
    resize,
    settle,
    settled,
    shown,
    text_of,
    texts,
    until,
)
from tests.ui.together import GPUS, Scripted, begun


def view(*results: Result) -> ResultsView:
    telemetry = Telemetry()
    telemetry.receive(inventory(2))
    made = ResultsView(telemetry)
    made.show(with_comparisons(results, results), None)
    return made


def many(count: int) -> list[Result]:
    return [soak(800.0 + count - n, ago=60.0 * n) for n in range(count)]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_row_has_the_width(width: int) -> None:
    odd = replace(BASE, device="\x1b[2J長い名前" * 9, dtype="float8_e4m3fn", m=1, n=65536, k=128)
    rows = view(BASE, odd, RESULT, table("copy", COPY)).draw(width, 10)
    assert len(rows) == 5
    assert [width_of(row) for row in rows] == [width] * 5
    assert all(text.isprintable() for text in texts(rows))


def test_more_width_is_more_columns(snapshot: Any) -> None:
    made = view(BASE, RESULT, table("copy", COPY))
    rows = [row for width in (60, 80, 120, 160, 200) for row in made.draw(width, 5)]
    assert "\n".join(text.rstrip() for text in texts(rows)) == snapshot


def test_a_check_has_the_figures_of_its_soak_and_the_sum_of_its_times() -> None:
    soaked, copied = parts()
    made = check_result([replace(copied, wrong_elements=2), soaked])
    assert (made.kind, made.seconds, made.tflops_mean, made.started_at) == (CHECK, 120, 700, AT)
    assert (made.wrong_elements, made.verdict) == (2, copied.verdict)
    assert check_result([copied, soaked]).verdict == soaked.verdict
    assert check_result([copied]).dtype == copied.dtype


def style_of(row: Row, text: str) -> object:
    return next(span.style for span in row if span.text.strip() == text)


def test_what_is_slower_than_usual_is_marked() -> None:
    usual = [soak(800.0, ago=2.0 + n) for n in range(4)]
    made = view(soak(700.0), soak(780.0, ago=1), *usual, soak(790.0, ago=9, wrong_elements=1))
    (faulty,) = view(soak(790.0, wrong_elements=1)).draw(100, 9)[1:]
    assert {span.style for span in faulty[1:] if span.text.strip()} == {FAULT}, "also if selected"
    made.show([BASE, *made.results], None)  # the selected one looks the same all over
    _, _, slow, fine, best, *_, faulty = made.draw(100, 9)
    assert style_of(slow, "700") is WARN
    assert style_of(slow, "12 % under") is WARN
    assert style_of(fine, "780") is STRONG
    assert style_of(best, "800") is STRONG
    assert {span.style for span in faulty if span.text.strip()} == {FAULT}
    assert "FAULTY" in texts([faulty])[0]


def test_a_run_that_ends_before_earlier_results_are_read_is_listed_once() -> None:
    made = view()
    early = soak(700.0, ago=9.0)
    made.add([early], None)
    made.add([BASE, early], None)
    assert made.results == [BASE, early]


def selected(pilot: Pilot[None]) -> str:
    (row,) = (each for each in shown(pilot, ResultsView).splitlines() if each.startswith("▌"))
    return row


async def test_keys_and_the_wheel_look_through_them_and_a_new_one_is_selected(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession]
) -> None:
    monkeypatch.setattr(store, "recent", lambda most, _: many(most))
    async with settled(app_with(inventory(1), sample(1, [])), (80, 24)) as (app, pilot):
        await open_form(pilot)
        assert " 1000 " in selected(pilot)
        keys = "j 999|down 998|up 999|pagedown 997|pageup 999|end 801|j 801|home 1000|k 1000"
        for key, mean in (each.split() for each in keys.split("|")):
            await pilot.press(key)
            assert f" {mean} " in selected(pilot), key
        view = app.query_one(ResultsView)
        for event, mean in ((MouseScrollDown, "997"), (MouseScrollUp, "1000")):
            view.post_message(event(view, 1, 1, 0, 0, 0, False, False, False))
            await settle(pilot)
            assert f" {mean} " in selected(pilot)
        await pilot.press("end", "b")
        await ended(pilot)
        assert "0.305" in selected(pilot)
        assert selected(pilot) == shown(pilot, ResultsView).splitlines()[1]


async def test_chart_readout_and_results_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "recent", lambda *_: many(30))
    found = []
    async with settled(app_with(inventory(2), sample(2, [])), (80, 24)) as (app, pilot):
        await open_form(pilot)
        tab = app.query_one(BenchmarkTab)
        views = [app.query_one(each) for each in (ThroughputChart, ReadoutView, ResultsView)]
        for run in (None, Run.of(gpu_run(60.0, 45.0)), together.group(2)):
            tab._show_run(run)
            tab._redraw_run()
            for height in (24, 14, 18, 40, 60, 24):
                await resize(pilot, 80, height)
                found.append([each.size.height * each.display for each in views])
    assert found == [
        *[[11, 0, 5], [8, 0, 0], [6, 0, 5], [12, 0, 20], [19, 0, 33], [11, 0, 5]],
        *[[9, 5, 2], [6, 3, 0], [7, 5, 0], [16, 7, 9], [31, 7, 14], [9, 5, 2]],
        *[[8, 6, 2], [6, 4, 0], [7, 5, 0], [15, 8, 9], [30, 8, 14], [8, 6, 2]],
    ]


async def test_a_result_is_drawn_again_compared_and_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = gpu_run(60.0, 45.0, ended=True)
    assert earlier.result is not None
    results = [earlier.result, *many(3)]
    forgotten: list[Result] = []
    monkeypatch.setattr(store, "recent", lambda *_: results)
    monkeypatch.setattr(
        store, "curves_of", lambda one: earlier.kept_curves() if one is results[0] else None
    )
    monkeypatch.setattr(store, "forget", forgotten.append)
    async with settled(app_with(inventory(1), sample(1, []))) as (app, pilot):
        await pilot.press("2", "enter")
        assert shown(pilot, ThroughputChart).startswith(" TFLOP/s over time")
        assert "power      690/700 W" in shown(pilot, ThroughputChart), "its readings, too"
        assert "Done: bfloat16" in shown(pilot, TitleView)
        await pilot.press("down", "enter")
        assert "no curve of this run" in shown(pilot, ThroughputChart)
        row = selected(pilot)
        await pilot.press("d", "d", "d")
        assert f"={row[1:]}" in shown(pilot, ResultsView).splitlines()
        await pilot.press("down", "d")
        assert re.search(r"TFLOP/s +802 +803 ", text_of(lines(app)))
        assert app.screen.query_one(".box").size.width > 100
        await pilot.press("escape", "delete", "n")
        assert forgotten == []
        await pilot.press("delete", "y")
        assert forgotten == [results[2]]
        assert len(app.query_one(ResultsView).results) == 3
        assert " 801 " in selected(pilot)


async def test_a_file_that_cannot_be_read_is_said_and_runs_go_on(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession]
) -> None:
    def refused(*_: object) -> list[Result]:
        raise ProblemError(Problem("The file cannot be used", "it is <newer>\x1b[2J", "Upgrade"))

    monkeypatch.setattr(store, "recent", refused)
    monkeypatch.setattr(store, "append", refused)
    async with settled(app_with(inventory(1), sample(1, [])), (100, 30)) as (_, pilot):
        await open_form(pilot)
        text = shown(pilot, ResultsView)
        assert "The file cannot be used: it is <newer>␛[2J. Upgrade" in text
        assert "No results yet" in text
        await pilot.press("b")
        await ended(pilot)
        text = shown(pilot, ResultsView)
        assert "Not kept: The file cannot be used" in text
        assert "0.305" in text


# Checks, in the list and in the tab.


AT = 1_763_640_000.0


def parts() -> list[Result]:
    """A check as it is stored, newest first: the soak found the device degraded."""
    slow = Verdict((VerdictPart("throttling", "degraded", "too hot"),), "Too hot.")
    made = [soak(700.0, verdict=slow), table("copy", COPY)]
    return [replace(each, check_started_at=AT) for each in made]


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("source", [Source.NVML, Source.SIMULATED])
async def test_a_check_is_offered_first(source: Source) -> None:
    async with settled(app_with(inventory(2, source=source), sample(2, []))) as (app, pilot):
        await pilot.press("2")
        assert app.query_one("#kind", Select).value == CHECK
        assert app.query_one(Form).kinds[0] == CHECK
        assert "is this GPU all right?" in shown(pilot, ThroughputChart)


async def test_the_parts_of_a_check_are_one_row_that_unfolds_and_has_a_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "recent", lambda *_: [*parts(), *many(30)])
    monkeypatch.setattr(store, "curves_of", lambda _: None)
    async with settled(app_with(inventory(1), sample(1, []))) as (app, pilot):
        await pilot.press("2")
        _, first, second, *_ = shown(pilot, ResultsView).splitlines()
        assert "▸" in first
        assert first.endswith("DEGRADED")
        assert " 830 " in second
        await pilot.press("enter")
        assert shown(pilot, ResultsView).splitlines()[4] == second
        assert "Too hot." in shown(pilot, ThroughputChart)
        await pilot.press("e")
        path = only_file(tmp_path)
        assert str(path) in noted(app)
        assert "Too hot." in path.read_text()
        await pilot.press("enter")
        assert shown(pilot, ResultsView).splitlines()[2] == second


async def test_q_keeps_what_was_measured(endless: type[EndlessSession], kept: list[Result]) -> None:
    async with settled(app_with(inventory(1), sample(1, [])), (80, 24)) as (app, pilot):
        await pilot.press("b", "q")
        await pilot.pause()
    assert not app.is_running
    assert [each.stopped for each in kept] == ["user"]


# Several devices: begun by one key, stopped by one, each with its result.


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    results: list[Result] = []
    monkeypatch.setattr(store, "append", keep_in(results))
    return results


def quiet(count: int) -> GputopApp:
    return app_with(inventory(count), sample(count, []))


async def opened(pilot: Pilot[None], kind: str = "soak", device: str = ALL) -> None:
    await open_form(pilot, kind)
    pilot.app.query_one("#device", Select).value = device
    await settle(pilot)


async def started(pilot: Pilot[None], kind: str = "soak") -> None:
    await opened(pilot, kind)
    await pilot.press("b")


def states(pilot: Pilot[None], count: int) -> list[str]:
    rows = shown(pilot, ReadoutView).splitlines()
    return [row.split()[2] for row in rows[1 : count + 1]]


async def test_all_begin_together_and_each_has_a_row_and_a_result(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    async with settled(quiet(4)) as (_, pilot):
        await started(pilot)
        await ended(pilot)
        assert [each.target.number for each in scripted.requests] == ["0", "1", "2", "3"]
        assert {each.dtype for each in scripted.requests} == {"bfloat16"}
        assert shown(pilot, TitleView).startswith(" Done: bfloat16 8192×8192×8192 on 4 × H100")
        assert states(pilot, 4) == ["ok"] * 4
        assert "GPU 3" in shown(pilot, ThroughputChart)
        listed = shown(pilot, ResultsView).splitlines()[1:5]
        assert all(any(f" {n} H100" in row for row in listed) for n in range(4))
    assert sorted(str(each.device_uuid) for each in kept) == [gpu.uuid for gpu in GPUS[:4]]


async def test_x_stops_all(scripted: type[Scripted], kept: list[Result]) -> None:
    scripted.script = {gpu.number: begun(gpu, 20.0) for gpu in GPUS}
    async with settled(quiet(3), (80, 24)) as (app, pilot):
        await started(pilot)
        await until(pilot, lambda: states(pilot, 3) == ["running"] * 3)
        assert shown(pilot, TitleView).startswith(" Running: bfloat16")
        assert "x Stop" in shown(pilot, Footer)
        await pilot.press("b")
        assert len(scripted.requests) == 3, "no second one"
        assert noted(app) == "A stress test is running: x stops it"
        await pilot.press("x")
        await ended(pilot)
        assert states(pilot, 3) == ["stopped"] * 3
        assert shown(pilot, TitleView).startswith(" Stopped: bfloat16")
        assert "x Stop" not in shown(pilot, Footer)
        await pilot.press("x")
        assert noted(app) == "No stress test is running: b starts one"
    assert [each.stopped for each in kept] == ["user"] * 3


async def test_an_end_while_workers_still_end_loses_no_result(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    scripted.lingers = True
    async with settled(quiet(2)) as (app, pilot):
        await started(pilot)
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Done"))
        assert app.query_one(BenchmarkTab).running, "the workers have not ended"
        await pilot.press("q")
    await asyncio.get_running_loop().shutdown_default_executor()  # as asyncio does at the end
    assert [each.kind for each in kept] == ["soak"] * 2
    assert app.return_code == 0


async def test_one_question_names_the_processes_of_all(scripted: type[Scripted]) -> None:
    held = [process(72, 0, command="train"), process(72, 2, command="train"), process(9, 1)]
    async with settled(app_with(inventory(3), sample(3, held))) as (app, pilot):
        await started(pilot)
        assert isinstance(app.screen, ConfirmScreen)
        text = text_of(lines(app))
        assert "3 of 3 devices are in use. A stress test would slow down:" in text
        assert re.findall(r"│ +GPU (\d[, 0-9]*?) ", text) == ["0,", "1"]
        await pilot.press("n")
        assert scripted.requests == []
        await pilot.press("b", "y")
        await ended(pilot)
        assert len(scripted.requests) == 3


async def test_of_all_a_lost_one_is_left_out_and_said(scripted: type[Scripted]) -> None:
    devices = (readings(0), readings(1, state=DeviceState.LOST))
    seen = replace(sample(2, []), devices=devices)
    async with settled(app_with(inventory(2), seen)) as (app, pilot):
        await started(pilot)
        assert noted(app) == "GPU 1, NVIDIA H100 80GB HBM3: its state is lost"
        await ended(pilot)
        assert [each.target.number for each in scripted.requests] == ["0"]


async def test_a_check_runs_its_parts_and_lists_their_verdicts(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    async with settled(quiet(1), (80, 24)) as (_, pilot):
        await opened(pilot, "check", GPUS[0].uuid or "")
        await pilot.press("b")
        await ended(pilot)
        page = shown(pilot, ThroughputChart)
    kinds = ["copy", "memory", "soak", "burn"]
    assert [each.kind for each in scripted.requests] == kinds
    assert len(kept) == 4
    summary, title, _, *rows = page.splitlines()
    assert summary.startswith(" No fault found. Computes correctly, 71 % of its datasheet")
    assert title.startswith(" check quick on GPU 0, NVIDIA H100 80GB HBM3")
    assert [line.split()[0] for line in rows[:5]] == [*kinds, "collective"]
    left = "collective: left out, GPU 0, NVIDIA H100 80GB HBM3 is the only device"
    assert left in " ".join(page.split())
