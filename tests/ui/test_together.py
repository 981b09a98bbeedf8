"""Several devices in the tab: begun by one key, stopped by one, each with its result."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import threading
from typing import TYPE_CHECKING

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer, Select

from gputop.agent.device import DeviceState
from gputop.agent.problem import Problem
from gputop.bench.events import Done, Failed, RunLimit
from gputop.bench.results import store
from gputop.bench.results.store import judged
from gputop.ui.benchmark import running
from gputop.ui.benchmark.device_choice import ALL
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.palette import FAULT
from gputop.ui.shell.app import GputopApp
from tests.streams import PreparedStream, device, inventory, process, readings, sample
from tests.ui.pilots import ended, keep_in, lines, settle, shown, text_of, until
from tests.ui.together import GPUS, begun, result, table

if TYPE_CHECKING:
    from gputop.bench.events import Result
    from gputop.bench.results.verdict import VerdictLimits
    from tests.ui.together import Scripted

SIZE = (120, 40)
PROBLEM = Problem("The products do not fit", "too little is free", "Choose a smaller size")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """What is kept, in the order in which it is."""
    results: list[Result] = []
    monkeypatch.setattr(store, "append", keep_in(results))
    return results


def quiet(count: int) -> GputopApp:
    return GputopApp(PreparedStream(inventory(count), sample(count, [])))


def choose_look(pilot: Pilot[None], field: str, value: str) -> None:
    pilot.app.query_one(f"#{field}", Select).value = value


async def opened(pilot: Pilot[None], kind: str = "soak", device: str = ALL) -> None:
    """The tab, with those devices and that kind chosen."""
    await settle(pilot)
    await pilot.press("2")
    choose_look(pilot, "kind", kind)
    await settle(pilot)
    choose_look(pilot, "device", device)
    await settle(pilot)


async def started(pilot: Pilot[None], kind: str = "soak") -> None:
    await opened(pilot, kind)
    await pilot.press("b")


def states(pilot: Pilot[None], count: int) -> list[str]:
    """The last word of each row."""
    rows = shown(pilot, ReadoutView).splitlines()
    return [row.split()[-1] for row in rows[1 : count + 1]]


async def test_all_begin_together_and_each_has_a_row_and_a_result(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    app = quiet(4)
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        await ended(pilot)
        assert [each.target.number for each in scripted.requests] == ["0", "1", "2", "3"]
        assert {each.dtype for each in scripted.requests} == {"bfloat16"}
        assert shown(pilot, TitleView).startswith(" Done: bfloat16 8192×8192×8192 on 4 × H100")
        assert states(pilot, 4) == ["ok"] * 4
        assert "GPU 3" in shown(pilot, ThroughputChart)
        listed = shown(pilot, ResultsView).splitlines()[1:5]
        assert all(any(f" {n} H100" in row for row in listed) for n in range(4))
    assert {each.device_uuid for each in kept} == {gpu.uuid for gpu in GPUS[:4]}
    assert len(kept) == 4


async def test_x_stops_all(scripted: type[Scripted], kept: list[Result]) -> None:
    scripted.script = {gpu.number: begun(gpu, 20.0) for gpu in GPUS}
    async with quiet(3).run_test(size=(80, 24)) as pilot:
        await started(pilot)
        await until(pilot, lambda: states(pilot, 3) == ["running"] * 3)
        assert shown(pilot, TitleView).startswith(" Running: bfloat16")
        assert "x Stop" in shown(pilot, Footer)
        await pilot.press("b")
        assert len(scripted.requests) == 3, "no second one"
        await pilot.press("x")
        await ended(pilot)
        assert states(pilot, 3) == ["stopped"] * 3
        assert shown(pilot, TitleView).startswith(" Stopped: bfloat16")
        assert "x Stop" not in shown(pilot, Footer)
    assert [each.stopped for each in kept] == ["user"] * 3


async def test_a_limit_ends_one_and_says_which(
    scripted: type[Scripted],
) -> None:
    scripted.script = {gpu.number: begun(gpu, 20.0) for gpu in GPUS}
    last = Done(result(GPUS[1], stopped="limit"))
    scripted.script[GPUS[1].number] += [RunLimit("limit", "Too hot", "it reached 88°C"), last]
    app = quiet(3)
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        await until(pilot, lambda: states(pilot, 3) == ["running", "hot", "running"])
        assert app.query_one(BenchmarkTab).running
        await pilot.press("x")
        await ended(pilot)
        assert states(pilot, 3) == ["stopped", "hot", "stopped"]


async def test_one_that_fails_does_not_end_the_others(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    scripted.script = {"1": [*begun(GPUS[1], 5.0), Failed(PROBLEM, 1)]}
    app = quiet(3)
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        await ended(pilot)
        assert "GPU 1" in shown(pilot, TitleView)
        assert states(pilot, 3)[1] == "FAULTY"
        assert FAULT in {span.style for span in app.query_one(TitleView)._rows[0]}
        assert "GPU 1: The products do not fit: too little is free." in shown(pilot, ReadoutView)
    assert {each.device_uuid for each in kept} == {GPUS[0].uuid, GPUS[2].uuid}


async def test_an_end_while_results_are_judged_loses_none(
    scripted: type[Scripted], kept: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on, judge = threading.Event(), threading.Event(), judged

    def judge_later(results: list[Result], limits: VerdictLimits) -> list[Result]:
        begun.set()
        may_go_on.wait(60)
        return judge(results, limits)

    monkeypatch.setattr(store, "judged", judge_later)
    monkeypatch.setattr(running, "FINISH_SECONDS", 0.1)
    app = quiet(2)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        textual = Pilot(app)  # which does not wait for the results
        await textual.press("b")
        await until(pilot, begun.is_set)
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Done"))
        await textual.press("q")
    assert (kept, app.return_code) == ([], 0)
    may_go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # as asyncio does at the end
    assert len(kept) == 2


async def test_an_end_while_workers_still_end_loses_no_result(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    scripted.lingers = True
    app = quiet(2)
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Done"))
        assert app.query_one(BenchmarkTab).running, "the workers have not ended"
        await pilot.press("q")
    await asyncio.get_running_loop().shutdown_default_executor()  # as asyncio does at the end
    assert [each.kind for each in kept] == ["soak"] * 2
    assert app.return_code == 0


async def test_one_question_names_the_processes_of_all(scripted: type[Scripted]) -> None:
    held = [process(72, 0, command="train"), process(72, 2, command="train"), process(9, 1)]
    app = GputopApp(PreparedStream(inventory(3), sample(3, held)))
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        assert isinstance(app.screen, ConfirmScreen)
        text = text_of(lines(app))
        assert "3 of 3 devices are in use. A stress test would slow down:" in text
        assert re.findall(r"│ +GPU (\d[, 0-9]*?) ", text) == ["0,", "1"]
        await pilot.press("n")
        assert scripted.requests == []
        await pilot.press("b")
        await pilot.press("y")
        await ended(pilot)
        assert len(scripted.requests) == 3


async def test_of_all_a_lost_one_is_left_out_and_said(scripted: type[Scripted]) -> None:
    devices = (readings(0), readings(1, state=DeviceState.LOST), readings(2))
    seen = dataclasses.replace(sample(3, []), devices=devices)
    app = GputopApp(PreparedStream(inventory(3), seen))
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        (note,) = app._notifications
        assert (note.title, note.message) == (
            "Left out",
            "GPU 1, NVIDIA H100 80GB HBM3: its state is lost",
        )
        await ended(pilot)
        assert [each.target.number for each in scripted.requests] == ["0", "2"]


async def test_a_check_runs_its_parts_and_lists_their_verdicts(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    async with quiet(1).run_test(size=(80, 24)) as pilot:
        await opened(pilot, "check", GPUS[0].uuid or "")
        await pilot.press("b")
        await ended(pilot)
        page = shown(pilot, ThroughputChart)
    kinds = ["copy", "memory", "soak", "burn"]
    assert [each.kind for each in scripted.requests] == kinds
    assert len(kept) == 4
    summary, title, _, _, *rows = page.splitlines()
    assert summary.startswith(" No fault found. Computes correctly, 71 % of its datasheet")
    assert title.startswith(" check quick on GPU 0, NVIDIA H100 80GB HBM3")
    assert [line.split()[0] for line in rows[:5]] == [*kinds, "collective"]
    left = "collective: left out, GPU 0, NVIDIA H100 80GB HBM3 is the only device"
    assert left in " ".join(page.split())


@pytest.mark.parametrize("kind", ["step", "copy"])
async def test_tables_of_several_run_to_their_ends(
    scripted: type[Scripted], kept: list[Result], kind: str
) -> None:
    scripted.script = {gpu.number: table(kind, gpu) for gpu in GPUS}
    async with quiet(2).run_test(size=(80, 24)) as pilot:
        await started(pilot, kind)
        await ended(pilot)
        assert shown(pilot, TitleView).startswith(f" Done: {kind}")
        assert states(pilot, 2) == ["ok", "ok"]
        assert "GPU 0" in shown(pilot, ThroughputChart)
    assert [each.kind for each in kept] == [kind, kind]
    peers = [[peer.number for peer in each.peers] for each in scripted.requests]
    assert peers == ([["1"], ["0"]] if kind == "copy" else [[], []])


async def test_one_after_several_looks_as_ever(scripted: type[Scripted]) -> None:
    async with quiet(8).run_test(size=(80, 24)) as pilot:
        await started(pilot)
        await ended(pilot)
        assert not pilot.app.query_one(ResultsView).display, "there is no room for it"
        choose_look(pilot, "device", device(0).uuid)
        await settle(pilot)
        await pilot.press("b")
        await ended(pilot)
        assert pilot.app.query_one(ResultsView).display
        assert pilot.app.query_one(ReadoutView).size.height == 5, "with room for the verdict"
        assert "Done: bfloat16 8192×8192×8192 on GPU 0 H100" in shown(pilot, TitleView)
        assert shown(pilot, ReadoutView).startswith(" now –      mean 700")
