"""Several devices in the tab: begun by one key, stopped by one, each with its result."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Select

from gputop.agent.device import DeviceState
from gputop.agent.problem import Problem, ProblemError
from gputop.bench.events import Done, Failed, RunLimit
from gputop.bench.results.store import judged
from gputop.ui.benchmark import screen
from gputop.ui.benchmark.device_choice import ALL, MORE, DevicesDialog
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.palette import FAULT
from gputop.ui.shell.action_screen import KeysView
from gputop.ui.shell.app import GputopApp
from tests.bench.machines import divided, seen
from tests.streams import PreparedStream, device, inventory, process, readings, sample
from tests.ui.pilots import dashboard_of, reason, settle, shown, until, wrong_fields
from tests.ui.together import GPUS, begun, result, table, whole

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.bench.events import Result
    from tests.ui.together import Scripted

SIZE = (120, 40)
PROBLEM = Problem("The products do not fit", "too little is free", "Choose a smaller size")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """What is kept, in the order in which it is."""
    results: list[Result] = []

    def keep(result: Result, *_: object) -> Result:
        results.append(result)
        return result

    monkeypatch.setattr(screen, "append", keep)
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
    await settle(pilot)


async def ended(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: not pilot.app.query_one(BenchmarkTab).running)
    await settle(pilot)


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
        assert shown(pilot, TitleView).startswith(" Done bfloat16 8192×8192×8192 on 4 × H100")
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
        assert shown(pilot, TitleView).startswith(" Running bfloat16")
        assert "x Stop" in shown(pilot, KeysView)
        await pilot.press("b")
        await settle(pilot)
        assert len(scripted.requests) == 3, "no second one"
        await pilot.press("x")
        await ended(pilot)
        assert states(pilot, 3) == ["stopped"] * 3
        assert shown(pilot, TitleView).startswith(" Stopped bfloat16")
        assert "x Stop" not in shown(pilot, KeysView)
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
        (note,) = app._notifications
        assert "of GPU 1, NVIDIA H100 80GB HBM3 ends" in note.title
        assert app.query_one(BenchmarkTab).running
        await pilot.press("x")
        await ended(pilot)
        assert states(pilot, 3) == ["stopped", "hot", "stopped"]


@pytest.mark.parametrize("status", [1, 3])
async def test_one_that_fails_does_not_end_the_others(
    scripted: type[Scripted], kept: list[Result], status: int
) -> None:
    scripted.script = {"1": [*begun(GPUS[1], 5.0), Failed(PROBLEM, status)]}
    app = quiet(3)
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        await ended(pilot)
        title = shown(pilot, TitleView)
        assert "GPU 1" in title
        assert states(pilot, 3)[1] == ("FAULTY" if status == 1 else "failed")
        assert (FAULT in {span.style for span in app.query_one(TitleView)._rows[0]}) == (
            status == 1
        )
        assert "GPU 1: The products do not fit: too little is free." in shown(pilot, ReadoutView)
    assert {each.device_uuid for each in kept} == {GPUS[0].uuid, GPUS[2].uuid}


async def test_what_all_fail_by_has_the_space_of_the_chart(scripted: type[Scripted]) -> None:
    scripted.script = {gpu.number: [Failed(PROBLEM, 3)] for gpu in GPUS}
    async with quiet(2).run_test(size=(80, 24)) as pilot:
        await started(pilot)
        await ended(pilot)
        text = shown(pilot, ThroughputChart)
        assert all(part in text for part in (PROBLEM.what, PROBLEM.why, PROBLEM.remedy))
        assert "Not run: The products do not fit" in shown(pilot, TitleView)


async def test_a_result_that_cannot_be_kept_is_said(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise ProblemError(Problem("It is not kept", "the disk is full", "Make room"))

    monkeypatch.setattr(screen, "append", full)
    async with quiet(2).run_test(size=SIZE) as pilot:
        await started(pilot)
        await ended(pilot)
        assert "the disk is full" in shown(pilot, ResultsView)
        assert states(pilot, 2) == ["ok", "ok"]


async def test_an_end_while_results_are_judged_loses_none(
    scripted: type[Scripted], kept: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on, judge = threading.Event(), threading.Event(), judged

    def judge_later(results: list[Result]) -> list[Result]:
        begun.set()
        may_go_on.wait(60)
        return judge(results)

    monkeypatch.setattr(screen, "judged", judge_later)
    app = quiet(2)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        await pilot.press("b")
        await until(pilot, begun.is_set)
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Done"))
        await pilot.press("q")
    assert (kept, app.return_code) == ([], 0)
    may_go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # as asyncio does at the end
    assert len(kept) == 2


@pytest.mark.parametrize("kind", ["soak", "pairs"])
async def test_an_end_while_workers_still_end_loses_no_result(
    scripted: type[Scripted], kept: list[Result], kind: str
) -> None:
    scripted.lingers = True
    app = quiet(2)
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot, kind)
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Done"))
        assert app.query_one(BenchmarkTab).running, "the workers have not ended"
        await pilot.press("q")
    await asyncio.get_running_loop().shutdown_default_executor()  # as asyncio does at the end
    assert [each.kind for each in kept] == [kind] * 2
    assert app.return_code == 0


async def test_one_question_names_the_processes_of_all(scripted: type[Scripted]) -> None:
    held = [process(72, 0, command="train"), process(72, 2, command="train"), process(9, 1)]
    app = GputopApp(PreparedStream(inventory(3), sample(3, held)))
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot)
        assert isinstance(app.screen, ConfirmScreen)
        assert app.screen._title == "3 of 3 devices are in use. A stress test would slow down:"
        assert [line.split()[:2] for line in app.screen._lines] == [["GPU", "0,"], ["GPU", "1"]]
        await pilot.press("n")
        await settle(pilot)
        assert scripted.requests == []
        await pilot.press("b")
        await settle(pilot)
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


async def test_several_are_picked_from_a_list(scripted: type[Scripted]) -> None:
    app = quiet(4)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, device=MORE)
        assert isinstance(app.screen, DevicesDialog)
        assert [each.text[:5] for each in app.screen.choices] == [
            "[x] 0",
            "[ ] 1",
            *(f"[ ] {n}" for n in "23C"),
        ]
        await pilot.press("down", "down", "space", "down", "down", "space", "space", "enter")
        await settle(pilot)
        assert app.screen_stack == [app.screen]
        assert app.query_one("#device", Select).value == "some"
        await pilot.press("b")
        await ended(pilot)
        assert [each.target.number for each in scripted.requests] == ["0", "2"]
        choose_look(pilot, "device", MORE)
        await settle(pilot)
        await pilot.press("space", "escape")
        await settle(pilot)
        assert app.query_one("#device", Select).value == "some", "as it was"


async def test_pairs_run_each_alone_and_then_all(
    scripted: type[Scripted], kept: list[Result]
) -> None:
    async with quiet(2).run_test(size=SIZE) as pilot:
        await started(pilot, "pairs")
        await ended(pilot)
        assert [each.target.number for each in scripted.requests] == ["0", "1", "0", "1"]
        assert [each.size for each in scripted.requests] == [None, None, 8192, 8192]
        head, first, second, *_ = shown(pilot, ReadoutView).splitlines()
        assert head.split()[:4] == ["DEVICE", "ALONE", "TOGETHER", "COST"]
        assert first.split()[2:6] == ["700", "700", "0.0", "%"]
        assert second.split()[-1] == "ok"
        assert shown(pilot, TitleView).startswith(" Done pairs, bfloat16")
    assert [each.kind for each in kept] == ["pairs", "pairs"]
    assert [len(each.points) for each in kept] == [2, 2]


async def test_a_gpu_and_the_cpu_are_a_pair(scripted: type[Scripted]) -> None:
    app = quiet(1)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("2")
        kinds = [value for _, value in app.query_one("#kind", Select)._options]
        assert kinds == [
            "check",
            "soak",
            "sweep",
            "latency",
            "peak",
            "step",
            "copy",
            "memory",
            "pulse",
            "burn",
            "pairs",
        ]
        assert app.query_one("#kind", Select).value == "check", "the right one for most"
        choose_look(pilot, "kind", "pairs")
        await settle(pilot)
        assert app.query_one("#dtype", Select).value == "float32", "which both have"
        await pilot.press("b")
        await ended(pilot)
        assert [each.target.number for each in scripted.requests[:2]] == ["0", None]


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_suite_runs_its_parts_and_lists_their_verdicts(
    scripted: type[Scripted], kept: list[Result], size: tuple[int, int]
) -> None:
    app = quiet(1)
    async with app.run_test(size=size) as pilot:
        await opened(pilot, "check", GPUS[0].uuid or "")
        await pilot.press("b")
        await settle(pilot)
        await ended(pilot)
        page = shown(pilot, ThroughputChart)
    kinds = ["copy", "latency", "memory", "soak", "burn"]
    assert [each.kind for each in scripted.requests] == kinds
    assert len(kept) == 5
    summary, title, _, _, *rows = page.splitlines()
    assert summary.startswith(" No fault found. Computes correctly, 71 % of its datasheet")
    assert title.startswith(" check quick on GPU 0, NVIDIA H100 80GB HBM3: ")
    assert [line.split()[0] for line in rows[:6]] == [*kinds, "collective"]
    left = "collective: left out, GPU 0, NVIDIA H100 80GB HBM3 is the only device"
    assert left in " ".join(page.split())


async def test_x_ends_a_suite_with_all_of_its_parts(scripted: type[Scripted]) -> None:
    scripted.script = {"0": begun(GPUS[0], 20.0)}
    app = quiet(1)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, "check", GPUS[0].uuid or "")
        await pilot.press("b")
        await settle(pilot)
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Part 1 of 6, 1:"))
        await pilot.press("x")
        await ended(pilot)
        page = shown(pilot, ThroughputChart)
    assert [each.kind for each in scripted.requests] == ["copy"]
    assert "1 of 6 parts ran: stopped" in page


async def test_pairs_that_are_too_short_are_refused(scripted: type[Scripted]) -> None:
    app = quiet(4)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, "pairs")
        app.query_one("#seconds").value = "1"  # type: ignore[attr-defined]
        await pilot.press("b")
        await settle(pilot)
        assert "4 runs alone and one together take 2.5 s at least" in reason(app)
        assert wrong_fields(app) == ["seconds"]
        assert scripted.requests == []


async def test_instances_are_refused_as_ranks(scripted: type[Scripted]) -> None:
    app = GputopApp(PreparedStream(divided(), seen()))
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, "collective")
        await pilot.press("b")
        await settle(pilot)
        assert "it runs between whole GPUs, or between ranks of the CPU" in reason(app)
        assert scripted.requests == []


@pytest.mark.daily(2)
@pytest.mark.parametrize("kind", ["sweep", "latency", "peak", "step", "copy", "collective"])
@pytest.mark.parametrize("size", [(80, 24), SIZE])
async def test_tables_of_several_run_to_their_ends(
    scripted: type[Scripted], kept: list[Result], kind: str, size: tuple[int, int]
) -> None:
    scripted.script = {gpu.number: table(kind, gpu) for gpu in GPUS}
    app = quiet(2)
    async with app.run_test(size=size) as pilot:
        await opened(pilot, kind)
        assert "all" not in {value for _, value in app.query_one("#dtype", Select)._options}
        await pilot.press("b")
        await ended(pilot)
        assert shown(pilot, TitleView).startswith(f" Done {kind}")
        assert states(pilot, 2) == ["ok", "ok"]
        assert "GPU 1" in shown(pilot, ThroughputChart)
    assert [each.kind for each in kept] == [kind, kind]
    copied = kind in ("copy", "collective")
    peers = [[peer.number for peer in each.peers] for each in scripted.requests]
    assert peers == ([["1"], ["0"]] if copied else [[], []])


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
        assert "Done bfloat16 8192×8192×8192 on GPU 0 H100" in shown(pilot, TitleView)
        assert shown(pilot, ReadoutView).startswith(" now –      mean 700")


async def test_what_is_not_ok_is_said_part_by_part(scripted: type[Scripted]) -> None:
    scripted.script["3"] = whole(GPUS[3], tflops_mean=420.0)
    async with quiet(8).run_test(size=(120, 40)) as pilot:
        await started(pilot)
        await ended(pilot)
        said = shown(pilot, ReadoutView)
        assert said.count("DEGRADED") == 1
        assert "GPU 3: like devices: 38.6 % under the median of 7 others like it" in said
        scripted.script["0"] = whole(GPUS[0], stopped="limit")
        choose_look(pilot, "device", device(0).uuid)
        await settle(pilot)
        await pilot.press("b")
        await ended(pilot)
        line = "Verdict: degraded, throttling: ended by the temperature limit"
        await until(pilot, lambda: line in shown(pilot, ReadoutView))
        results = shown(pilot, ResultsView)
        assert (results.count("DEGRADED"), results.count("too hot")) == (1, 1)


@pytest.mark.parametrize("count", [1, 2])
async def test_each_run_takes_in_what_its_own_device_says(
    scripted: type[Scripted], count: int
) -> None:
    records = [inventory(2), sample(2, [], time=time.time() + 3600)]
    scripted.script = {gpu.number: [*begun(gpu, 20.0), *records] for gpu in GPUS}
    app = quiet(count)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, device=ALL if count > 1 else device(0).uuid)
        await pilot.press("b")
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Running"))
        tabs = dashboard_of(app).tabs
        await until(pilot, lambda: tabs.benchmark._run.first.readings.moments != [])  # type: ignore[union-attr]
        view = TitleView if count > 1 else ReadoutView
        await until(pilot, lambda: "heat limit: 86°C" in shown(pilot, view))
        await pilot.press("x")
        await ended(pilot)
        runs = tabs.benchmark._run.devices.values()  # type: ignore[union-attr]
        powers = [run.readings.power.value for run in runs]
        assert powers == [100.0, 137.0][:count]
