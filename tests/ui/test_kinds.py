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
from gputop.bench.results.tables import TextTable
from gputop.bench.run.check import Check
from gputop.bench.run.check_parts import DEFAULT_LEVEL
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.ui.benchmark import group_table, throughput_chart
from gputop.ui.benchmark import readout as run_title
from gputop.ui.benchmark.plot import COLOURS
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.result_tables import table_rows
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.sweep_chart import rate_axis
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.cells import Row, width_of
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
        ("step", None, 3, 100, 20),
        ("copy", None, 1, 60, 10),
        ("copy", None, 1, 140, 20),
        ("copy", None, 3, 100, 20),
        ("peak", None, 1, 100, 14),
        ("peak", None, 1, 60, 8),
        ("peak", None, 1, 60, 5),
    ],
)
def test_what_is_drawn_of_a_run(
    snapshot: Any, kind: str, until: float | None, count: int, width: int, height: int
) -> None:
    readout = ReadoutView(known())
    readout.run = made = group(count, until, kind)
    rows = [*chart(made, width, height), *readout.draw(width, 6)]
    assert "\n".join([title(made, width), *texts(rows)]) == snapshot


def test_a_sweep_s_axes_are_linear_where_they_span_less_than_decades() -> None:
    near = (Point("float32", n, {"tflops": 0.2 + n / 4096}, (n, n, n)) for n in (256, 512, 1024))
    rows = texts(chart(Run.of(run_of("sweep", *near)), 120, 24))
    assert [row.split("┤")[0].strip() for row in rows if "┤" in row][-1] == "0"
    ticks = [[at for at, _ in rate_axis(1.0, high, 20)[0].ticks] for high in (29.0, 30.0)]
    assert ticks == [pytest.approx([0.0, 7.83, 15.66, 23.49, 31.32]), [0, 1]]
    for count, last in ((6, "1024"), (38, "4096")):
        begun = run_of("sweep", *table_events("sweep", count))
        assert texts(chart(Run.of(begun), 80, 14))[13].split()[-1] == last


def test_a_table_narrows_its_gaps_then_its_names() -> None:
    made = TextTable([["shape", "TFLOP/s"], ["twenty characters xx", "0.300"]])
    rows = {width: texts(table_rows(made, width))[1] for width in (30, 28, 27, 20, 19)}
    assert rows == {
        30: " twenty characters xx    0.300",
        28: "twenty characters xx   0.300",
        27: "twenty characters …   0.300",
        20: "twenty char…   0.300",
        19: "twenty char…   0.3…",
    }
    made = TextTable(made.lines, best=frozenset({(1, 1)}), spoiled=frozenset({(1, 0)}))
    assert [span.style for span in table_rows(made, 28)[1] if span.text.strip()] == [FAULT, GOOD]


def test_a_part_of_a_check_says_which_it_is_and_how_long_all_take() -> None:
    view, check = TitleView(), Check(DEFAULT_LEVEL)
    view.run, view.check = group(1, 30.0), check
    check.number = 3
    assert texts(view.draw(120, 1))[0].startswith(" Part 3 of 5, ")


def test_the_best_of_a_search_is_the_best_that_was_confirmed() -> None:
    confirmed = Point("B row-major, confirmed", 512, {"tflops": 0.3, "seconds": 1e-3}, (512,) * 3)
    lucky = Point("B row-major", 256, {"tflops": 0.4, "seconds": 1e-3}, (256,) * 3)
    run = run_of("peak", *table_events("peak", 0), confirmed, lucky)
    assert "best 0.300 TFLOP/s" in readout_of(run)[0]


def test_many_notes_leave_the_chart_its_room() -> None:
    notes = tuple(f"type{n}: no size from 64 on, the time was up" for n in range(9))
    run = run_of("sweep", *table_events("sweep", 20), Done(table_result("sweep", notes=notes)))
    rows = texts(chart(Run.of(run), 100, 24))
    assert sum("the time was up" in row for row in rows) == 4
    assert rows[-1].endswith(" …")


def all_of(run: DeviceRun) -> list[Row]:
    heading, plot, readout = TitleView(), ThroughputChart(), ReadoutView(Telemetry())
    heading.run = plot.run = readout.run = Run.of(run)
    return [*heading.draw(100, 1), *plot.draw(100, 12), *readout.draw(100, 6)]


def readout_of(run: DeviceRun, width: int = 120) -> list[str]:
    view = ReadoutView(Telemetry())
    view.run = Run.of(run)
    return texts(view.draw(width, 6))


def test_how_far_it_is_counts_rows() -> None:
    run = run_of("copy", *table_events("copy", 10))
    assert run.share == pytest.approx(0.5, abs=0.01)
    rows, progress, *_ = readout_of(run)
    assert rows.startswith(" 10 of at most 20 rows ")
    assert progress.endswith(" of at most 1:00")
    run = run_of("copy", *table_events("copy"))
    assert run.share == 1.0
    assert readout_of(run)[0].startswith(" 20 rows ")


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
    assert "FAULTY : float32" in red
    assert "1 wrong element, first at 2 s" in red
    assert "now 0.300" in readout_of(run)[0]
    run.add_event(Verified(4, 7))
    assert "7 wrong elements, first at 2 s" in in_style(all_of(run), FAULT)


def test_the_readout_has_the_share_of_the_peak() -> None:
    conditions = Conditions(percent_of_peak={"datasheet dense": 78.4})
    bounds = (0.300, 0.310)
    result = replace(RESULT, conditions=conditions, tflops_mean_interval=bounds)
    run = run_of("soak", *HALF_WAY, Verified(3, 0), Done(result))
    text = " ".join(readout_of(run))
    assert "mean 0.305 ± 0.005" in text
    assert "78 % of datasheet peak (dense)" in text
    assert " · 3 checks, none wrong · torch 2.13.0" in title(Run.of(run))
    assert " · all checks passed · " in title(group(2))


def test_the_readout_has_the_heat_limit_that_holds() -> None:
    gpu = device(0, temperature_slowdown_celsius=89, memory_temperature_max_celsius=95)
    hot = readings(0, memory_temperature_celsius=70)
    records = (replace(inventory(1), devices=(gpu,)), replace(sample(1, []), devices=(hot,)))
    run = DeviceRun(Request(GPUS[0], "float32", 1024, 60.0))
    for event in (*HALF_WAY, *records, *WINDOWS[4:]):
        run.add_event(event)
    short = "heat limit: 86°C, memory 92°C"
    long = "heat limit: 86°C (slowdown at 89°C), memory 92°C (maximum 95°C)"
    assert readout_of(run, 80)[1].endswith(short)
    assert readout_of(run)[1].endswith(long)
    assert "56 s left" in readout_of(run)[1]


# Several devices.


FIRST, SECOND = GPUS[:2]
WAITING = replace(PLAN, waits=True)


def known() -> Telemetry:
    telemetry = Telemetry()
    telemetry.receive(inventory(8))
    telemetry.receive(sample(8, []))
    return telemetry


def table(made: Run, width: int = 80) -> list[Row]:
    return group_table.group_rows(made, known(), width, len(made.devices) + 5)


def chart(made: Run, width: int = 80, height: int = 12) -> list[Row]:
    return throughput_chart.chart_rows(made, width, height)


def title(made: Run, width: int = 120) -> str:
    return texts([run_title.title(made, width)])[0]


@pytest.mark.parametrize("kind", ["soak", *TABLES])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_at_any_size_nothing_is_wider_or_higher(kind: str, count: int) -> None:
    made = group(count, kind=kind)
    for width, height in ((24, 4), (60, 6), (80, 8), (120, 24), (200, 40)):
        rows = chart(made, width, height)
        assert 0 < len(rows) <= height
        rows += [*table(made, width), run_title.title(made, width)]
        assert all(width_of(row) <= width for row in rows)


def test_each_has_its_line_and_colour_and_a_legend() -> None:
    rows = chart(group(4, 30.0), 120, 24)
    assert "GPU 0" in in_style(rows[:1], BUSY)
    assert "GPU 1" in in_style(rows[:1], MEMORY)
    assert dotted(rows, BUSY) > 20
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
    rows = chart(made, 120, 24)
    assert {"0.3", "100"} & {row.split("┤")[0].strip() for row in texts(rows)} == {"100"}
    assert dotted(rows, COLOURS[1]) > 2
    _, gpu, processor, *_ = texts(table(made))
    assert (gpu.split()[:3], processor.split()[:2]) == (["GPU", "0", "H100"], ["CPU", "AMD"])
    assert made.slow_devices() == {}, "a CPU is not compared with a GPU"


def test_a_fault_of_one_is_red_and_the_others_go_on() -> None:
    made = group(3, 30.0)
    made.add_event(SECOND, Verified(4, 7))
    assert title(made).startswith("FAULTY: GPU 1 · bfloat16 8192×8192×8192 on 3 ×")
    rows = table(made)
    assert in_style(rows, FAULT).split() == ["7", "FAULTY"]
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
    assert texts(table(made))[2].endswith(f" {row}")
    assert row in in_style(table(made), style)
    alone = judged(1, state)
    assert title(alone).startswith(one)
    readout = run_title.ReadoutView(known())
    readout.run = alone
    green = in_style(readout.draw(100, 4), GOOD)
    assert ("Verdict: ok" in green) is (state == "ok")
    assert ("Verdict: faulty, memory" in in_style(readout.draw(100, 4), FAULT)) is (style is FAULT)
    listed = ResultsView(known())
    listed.show([result(FIRST), alone.results[0]], None)
    assert row in in_style(listed.draw(100, 4)[2:], style if style in (FAULT, WARN) else TEXT)


def test_one_that_fails_does_not_end_the_others_and_says_why() -> None:
    made = group(3, 30.0)
    made.add_event(SECOND, Failed(FAILURE, 3))
    rows = texts(table(made))
    assert rows[2].endswith("failed")
    assert rows[-1] == f" GPU 1: {FAILURE}"
    assert len(rows) == 6
    low, lower = (texts(group_table.group_rows(made, known(), 80, n)) for n in (6, 5))
    assert low == rows
    assert lower == [*rows[:4], rows[-1]], "without progress"
    made.add_event(FIRST, Done(result(FIRST, stopped="limit")))
    assert texts(table(made))[1].endswith("too hot")
    made.add_event(GPUS[2], Done(result(GPUS[2])))
    assert title(made).startswith("Failed: GPU 1 · bfloat16")


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
    assert texts(table(made))[1].endswith(state)
    assert re.match(says, title(made))


def test_who_is_more_than_ten_percent_behind_is_named_in_its_row() -> None:
    made = group(4, 30.0)
    target = list(made.devices)[-1]
    for n in range(20):
        made.add_event(target, Progress(31.0 + n, 1.0, 900 + n, 500.0))
    rows = table(made, 120)
    assert re.search(r"2[0-9]\.[0-9] % behind", in_style(rows, WARN))
    assert in_style(table(group(4, 30.0), 120), WARN) == ""
