import re
from dataclasses import replace
from typing import Any

import pytest
from rich.style import Style

from gputop.agent.problem import Problem
from gputop.bench.events import (
    Conditions,
    Done,
    Failed,
    Point,
    Progress,
    Verdict,
    VerdictPart,
    Verified,
)
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.check import Check
from gputop.bench.run.check_parts import DEFAULT_LEVEL
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.ui.benchmark import readout as run_title
from gputop.ui.benchmark.plot import COLOURS
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.cells import Row, Span, fit
from gputop.ui.drawing.palette import BUSY, FAULT, GOOD, MEMORY, TEXT, WARN
from gputop.ui.telemetry import Telemetry
from tests.sessions import EVENTS, PLANNED, RESULT, table_events, table_result
from tests.streams import device, inventory, readings, sample
from tests.ui.pilots import texts
from tests.ui.together import GPUS, PLAN, begun, group, result

TABLES = ("sweep", "step", "copy", "peak")


def run_of(kind: str, *events: Any) -> DeviceRun:
    run = DeviceRun(Request(cpu_target(), "float32", None, 60.0, kind=kind))
    for event in events:
        run.add_event(event)
    return run


def in_style(rows: list[Row], style: Style) -> str:
    return " ".join(span.text.strip() for row in rows for span in row if span.style == style)


def dotted(rows: list[Row], style: Style) -> int:
    return sum("\u2800" < c <= "\u28ff" for c in in_style(rows, style))


@pytest.mark.parametrize(
    ("kind", "until", "count", "width", "height"),
    [
        ("soak", 1.0, 1, 60, 10),
        ("soak", 30.0, 1, 100, 20),
        ("soak", None, 3, 80, 14),
        ("soak", 30.0, 8, 73, 10),
        ("sweep", None, 1, 60, 10),
        ("sweep", None, 1, 140, 24),
        ("sweep", None, 3, 100, 20),
        ("step", None, 1, 60, 10),
        ("copy", None, 1, 60, 10),
        ("copy", None, 1, 140, 20),
        ("copy", None, 3, 100, 20),
        ("peak", None, 1, 100, 14),
        ("peak", None, 1, 60, 5),
    ],
)
def test_what_is_drawn_of_a_run(
    snapshot: Any, kind: str, until: float | None, count: int, width: int, height: int
) -> None:
    readout = ReadoutView()
    readout.run = made = group(count, until, kind)
    rows = [*chart(made, width, height), *readout.draw(width, 6)]
    assert "\n".join([title(made, width), *texts(rows)]) == snapshot


def test_a_sweep_s_axis_is_stable_at_first() -> None:
    for count, last in ((6, "1024"), (38, "4096")):
        begun = run_of("sweep", *table_events("sweep", count))
        assert texts(chart(Run.of(begun), 80, 14))[-1].split()[-1] == last


def test_a_part_of_a_check_says_which_it_is_and_how_long_all_take() -> None:
    view, check = TitleView(), Check(DEFAULT_LEVEL)
    view.run, view.check = group(1, 30.0), check
    check.number = 3
    assert texts(view.draw(120, 1))[0].startswith(" Part 3 of 5, 54 s left · Running")


def test_the_best_of_a_search_is_the_best_that_was_confirmed() -> None:
    confirmed = Point("B row-major, confirmed", 512, {"tflops": 0.3, "seconds": 1e-3}, (512,) * 3)
    lucky = Point("B row-major", 256, {"tflops": 0.4, "seconds": 1e-3}, (256,) * 3)
    run = run_of("peak", *table_events("peak", 0), confirmed, lucky)
    assert " 0.300 TFLOP/s " in readout_of(run)[1]


def test_many_notes_leave_the_chart_its_room() -> None:
    notes = tuple(f"type{n}: no size from 64 on, the time was up" for n in range(9))
    run = run_of("sweep", *table_events("sweep", 20), Done(table_result("sweep", notes=notes)))
    rows = texts(chart(Run.of(run), 100, 24))
    assert sum("the time was up" in row for row in rows) == 4


def all_of(run: DeviceRun) -> list[Row]:
    made = Run.of(run)
    return [run_title.title(made), *chart(made, 100), *table(made, 100)]


def readout_of(run: DeviceRun) -> list[str]:
    return texts(table(Run.of(run), 120))


def test_the_progress_has_ten_cells_at_least_and_no_time_left_below_zero() -> None:
    assert texts(table(group(1, 30.0), 24))[2].startswith(" ━━━━━─────  30 s of ")
    assert " 1:02 of 1:00, 0 s left " in readout_of(run_of("soak", Progress(62.0, 0.5, 9, 0.3)))[2]


def test_how_far_it_is_counts_rows() -> None:
    run = run_of("copy", *table_events("copy", 10))
    assert run.share == pytest.approx(0.5, abs=0.01)
    _, rows, progress, *_ = readout_of(run)
    assert " running          10/20 " in rows
    assert " of at most 1:00 " in progress
    run = run_of("copy", *table_events("copy"))
    assert " ok                  20 " in readout_of(run)[1]


FAILURE = Problem("The device hangs", "a check has not ended for 12 s", "Look for Xid errors")


@pytest.mark.parametrize("status", [1, 3])
def test_a_kind_that_fails_says_why_and_a_fault_is_red(status: int) -> None:
    drawn = all_of(run_of("sweep", *table_events("sweep", 4), Failed(FAILURE, status)))
    text = "\n".join(texts(drawn))
    assert all(part in text for part in (FAILURE.what, FAILURE.why, FAILURE.remedy))
    assert ("The device hangs" in in_style(drawn, FAULT)) == (status == 1)
    assert "1 float32" in text, "what was measured stays"


@pytest.mark.parametrize("kind", TABLES)
def test_the_table_of_a_kept_result_is_drawn_again(kind: str) -> None:
    kept = table_result(kind)
    run = DeviceRun.of_result(kept, cpu_target(), None)
    rows = texts(chart(Run.of(run), 100, 30))
    assert rows == texts(chart(Run.of(run_of(kind, *table_events(kind))), 100, 30))


# A fault is red wherever its run is shown, with when and how many; a refusal is not.


WINDOWS = tuple(Progress(0.5 * n, 0.5, n, 0.3) for n in range(1, 9))
HALF_WAY: tuple[Any, ...] = (EVENTS[0], PLANNED, *WINDOWS[:4])


def test_wrong_elements_are_red_while_it_runs() -> None:
    run = run_of("soak", *HALF_WAY, Verified(1, 1), *WINDOWS[4:])
    red = in_style(all_of(run), FAULT)
    assert "FAULTY : 1 wrong element, first at 2 s · float32" in red
    assert " 0.300 " in readout_of(run)[1]


def test_the_readout_has_what_is_known_of_a_result() -> None:
    conditions = Conditions(
        percent_of_peak={"datasheet dense": 78.4}, other_load=("7 (ada: train)",)
    )
    run = run_of("soak", *HALF_WAY, Verified(3, 0), Done(replace(RESULT, conditions=conditions)))
    _, row, progress, *notes = readout_of(run)
    assert "  0.305 " in row
    assert " 78.4 % " in row
    assert progress.endswith("  3 verified")
    assert notes == [" CPU: also used by 7 (ada: train)"]


def test_the_readout_has_the_heat_limit_that_holds() -> None:
    gpu = device(0, temperature_slowdown_celsius=89, memory_temperature_max_celsius=95)
    hot = readings(0, memory_temperature_celsius=70)
    records = (replace(inventory(1), devices=(gpu,)), replace(sample(1, []), devices=(hot,)))
    run = DeviceRun(Request(GPUS[0], "float32", 1024, 60.0))
    for event in (*HALF_WAY, *records, *WINDOWS[4:]):
        run.add_event(event)
    assert readout_of(run)[2].endswith("56 s left  0 verified  heat limit: 86°C, memory 92°C")


# Several devices.


FIRST, SECOND = GPUS[:2]
WAITING = replace(PLAN, waits=True)


def known() -> Telemetry:
    telemetry = Telemetry()
    telemetry.receive(inventory(8))
    telemetry.receive(sample(8, []))
    return telemetry


def table(made: Run, width: int = 80) -> list[Row]:
    view = ReadoutView()
    view.run = made
    return view.draw(width, len(made.devices) + 5)


def chart(made: Run, width: int = 80, height: int = 12) -> list[Row]:
    view = ThroughputChart()
    view.run, view.hint = made, lambda _: [[Span("hint")]]
    return view.draw(width, height)


def title(made: Run, width: int = 120) -> str:
    return texts([fit(run_title.title(made), width)])[0]


@pytest.mark.parametrize("kind", ["soak", *TABLES])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_at_any_size_nothing_is_higher(kind: str, count: int) -> None:
    made = group(count, kind=kind)
    for width, height in ((24, 6), (60, 6), (80, 8), (120, 24), (200, 40)):
        rows = texts(chart(made, width, height))
        assert 0 < len(rows) <= height
        assert rows != ["hint"]
    assert texts(chart(made, 23)) == ["hint"]


def test_each_has_its_line_and_colour_and_a_legend() -> None:
    rows = chart(group(4, 30.0), 120, 24)
    assert "GPU 0" in in_style(rows[:1], BUSY)
    assert "GPU 1" in in_style(rows[:1], MEMORY)
    assert dotted(rows, COLOURS[3]) > 20, "the one that is not hidden behind others"
    every = chart(group(8, 30.0), 120, 24)
    assert [style for style in COLOURS if not in_style(every[:1], style)] == []


def test_a_cpu_beside_a_gpu_has_a_line_that_can_be_seen() -> None:
    cpu = cpu_target()
    made = Run([Request(target, "float32", None, 60.0) for target in (FIRST, cpu)])
    for event in begun(FIRST, 30.0):
        made.add_event(FIRST, event)
    for event in WINDOWS:
        made.add_event(cpu, event)
    assert dotted(chart(made, 120, 24), COLOURS[1]) > 2
    assert " on GPU 0, CPU " in title(made)
    _, gpu, processor, *_ = texts(table(made))
    assert (gpu.split()[:3], processor.split()[:2]) == (["GPU", "0", "H100"], ["CPU", "AMD"])
    assert made.slow_devices() == {}, "a CPU is not compared with a GPU"


def test_a_fault_of_one_is_red_and_the_others_go_on() -> None:
    made = group(3, 30.0)
    made.add_event(SECOND, Verified(4, 7))
    assert title(made).startswith("FAULTY: GPU 1 · 7 wrong elements, first at 30 s · bfloat16")
    rows = table(made)
    assert in_style(rows, FAULT).split() == ["FAULTY", "7"]
    assert not made.ended


ECC = "ECC uncorrected 0 before, 2 after"


def judged(count: int, state: str) -> Run:
    made = group(count)
    target = list(made.devices)[-1 if count == 1 else 1]
    right = VerdictPart("results", "not judged" if state == "not judged" else "ok", "")
    verdict = Verdict((right, VerdictPart("memory", state, ECC)))
    made.devices[target].end = Done(result(target, verdict=verdict))
    return made


@pytest.mark.parametrize(
    ("state", "one", "several", "row", "style"),
    [
        ("faulty", "FAULTY: bfloat16", "FAULTY: GPU 1 · bfloat16", "FAULTY", FAULT),
        ("degraded", "DEGRADED: bfloat16", "DEGRADED: GPU 1 · bfloat16", "DEGRADED", WARN),
        ("not judged", "Not judged: bfloat16", "Not judged: GPU 1 · bfloat16", "not judged", TEXT),
        ("ok", "Done: bfloat16", "Done: bfloat16", "ok", GOOD),
    ],
)
def test_title_row_and_list_say_the_verdict(
    state: str, one: str, several: str, row: str, style: Style
) -> None:
    made = judged(3, state)
    assert title(made).startswith(several)
    assert f"GPU 1  {row} " in texts(table(made))[2]
    assert row in in_style(table(made), style)
    alone = judged(1, state)
    assert title(alone).startswith(one)
    readout = run_title.ReadoutView()
    readout.run = alone
    said = f"GPU 0: memory: {ECC}"
    assert (said in in_style(readout.draw(100, 4), style)) is (style in (FAULT, WARN))
    listed = ResultsView(known())
    listed.show([result(FIRST), alone.results[0]], None)
    assert row in in_style(listed.draw(100, 4)[2:], style if style in (FAULT, WARN) else TEXT)


def test_one_that_fails_does_not_end_the_others_and_says_why() -> None:
    made = group(3, 30.0)
    made.add_event(SECOND, Failed(FAILURE, 3))
    rows = texts(table(made))
    assert "GPU 1  failed " in rows[2]
    assert " ".join(rows[5:]).split() == f"GPU 1: {FAILURE}".split()
    made.add_event(FIRST, Done(result(FIRST, stopped="limit")))
    assert "GPU 0  too hot " in texts(table(made))[1]
    made.add_event(GPUS[2], Done(result(GPUS[2])))
    assert title(made).startswith("Failed: GPU 1 · The device hangs · bfloat16")


@pytest.mark.parametrize(
    ("events", "state", "says"),
    [
        ([], "starting", r"Starting, \d s: bfloat16"),
        (begun(FIRST, 1.0)[:1], "preparing", r"Starting, \d s: GPU 1 · bfloat16"),
        ([*begun(FIRST, 1.0)[:1], WAITING], "ready", r"Starting, \d s: GPU 1 · bfloat16"),
    ],
)
def test_before_it_begins_each_says_how_far_it_is(events: list[Any], state: str, says: str) -> None:
    made = Run([Request(target, "bfloat16", None, 60.0) for target in (FIRST, SECOND)])
    for event in events:
        made.add_event(FIRST, event)
    assert f"GPU 0  {state} " in texts(table(made))[1]
    assert re.match(says, title(made))


def test_who_is_more_than_ten_percent_behind_is_named_in_its_row() -> None:
    made = group(4, 30.0)
    target = list(made.devices)[-1]
    for n in range(20):
        made.add_event(target, Progress(31.0 + n, 1.0, 900 + n, 500.0))
    rows = table(made, 120)
    assert re.search(r"2[0-9]\.[0-9] % behind", in_style(rows, WARN))
    assert in_style(table(group(4, 30.0), 120), WARN) == ""
