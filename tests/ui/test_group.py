"""The runs of several devices as the dashboard sees them, and what is drawn of them."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Failed, Progress, Verdict, VerdictPart, Verified
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.run import Run
from gputop.ui.benchmark import group_table, throughput_chart
from gputop.ui.benchmark import readout as run_title
from gputop.ui.benchmark.plot import COLOURS
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.drawing.cells import width_of
from gputop.ui.drawing.palette import BUSY, FAULT, GOOD, MEMORY, TEXT, WARN
from gputop.ui.telemetry import Telemetry
from tests.streams import inventory, sample
from tests.ui.test_kinds import dotted, in_style, texts
from tests.ui.together import GPUS, PLAN, begun, group, result

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.ui.drawing.cells import Row

FIRST, SECOND = GPUS[:2]
WAITING = dataclasses.replace(PLAN, waits=True)
PROBLEM = Problem("The products do not fit", "too little is free", "Choose a smaller size")
KINDS = ("soak", "sweep", "peak", "copy")


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


@pytest.mark.parametrize("kind", KINDS)
def test_at_any_size_nothing_is_wider_or_higher(kind: str) -> None:
    for count in (2, 8):
        made = group(count, kind=kind)
        for width, height in ((24, 4), (60, 6), (80, 8), (120, 24), (200, 40)):
            rows = chart(made, width, height)
            assert 0 < len(rows) <= height
            assert all(width_of(row) <= width for row in rows)
            under = table(made, width)
            assert len(under) == count + 2
            assert all(width_of(row) <= width for row in [*under, run_title.title(made, width)])


def test_each_has_a_row_with_its_figures() -> None:
    head, first, *_, last, _ = texts(table(group(4, 30.0), 80))
    columns = "DEVICE NOW MEAN PEAK POWER TEMP CLOCK ERRORS STATE"
    assert head.split() == columns.split()
    assert " ".join(first.split()) == "GPU 0 697 704 745 100 W 40°C 1980 MHz 0 running"
    assert " ".join(last.split()) == "GPU 3 635 641 679 211 W 43°C 1935 MHz 0 running"


def test_at_the_end_it_is_means_and_the_share_of_the_peak() -> None:
    head, first, *_, last, _ = texts(table(group(4), 80))
    assert head.split()[:3] == ["DEVICE", "OF", "PEAK"]
    assert " ".join(first.split()) == "GPU 0 70.7 % 700 756 4.6 % 690 W 70°C 1700 MHz 0 ok"
    assert last.rstrip().endswith("ok")


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
    for n in range(1, 60):
        made.add_event(cpu, Progress(0.5 * n, 0.5, n, 0.3))
    rows = chart(made, 120, 24)
    assert {"0.3", "100"} & {row.split("┤")[0].strip() for row in texts(rows)} == {"100"}
    assert dotted(rows, COLOURS[1]) > 20
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
    """A run that has ended, in which the second device, or the only one, is judged so."""
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
    made.add_event(SECOND, Failed(PROBLEM, 3))
    rows = texts(table(made))
    assert rows[2].endswith("failed")
    assert rows[-1] == f" GPU 1: {PROBLEM}"
    assert len(rows) == 6
    assert title(made).startswith("Failed: GPU 1 · bfloat16")
    for target in (FIRST, GPUS[2]):
        made.add_event(target, Done(result(target)))
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


# Tables.


def test_a_sweep_has_a_line_for_each_device() -> None:
    rows = chart(group(3, kind="sweep"), 120, 24)
    assert "TFLOP/s, by N   GPU 0  GPU 1  GPU 2" in texts(rows)[0]
    assert dotted(rows, BUSY) > 40
    assert "2" in in_style(rows[1:], COLOURS[2]), "at the end of its line, wherever that is hidden"


def test_who_is_more_than_ten_percent_behind_is_named_in_its_row() -> None:
    made = group(4, 30.0)
    target = list(made.devices)[-1]
    for n in range(20):
        made.add_event(target, Progress(31.0 + n, 1.0, 900 + n, 500.0))
    rows = table(made, 120)
    assert re.search(r"2[0-9]\.[0-9] % behind", in_style(rows, WARN))
    assert in_style(table(group(4, 30.0), 120), WARN) == ""
