"""One line, redrawn, that fits."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pyte
import pytest
from rich.cells import cell_len
from rich.console import Console

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Failed, Hello, Point, Progress, Verified
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target, cpu_target
from gputop.bench.run.device_run import RECENT_WINDOWS
from gputop.bench.run.progress import keep_drawing, progress_line
from gputop.bench.run.run import Run
from gputop.console import print_message
from tests.bench.workers import RESULT
from tests.sessions import PLANNED
from tests.streams import inventory, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1  # which has no size


CPU = cpu_target()
HELLO = Hello("3.11", "9.9", "a CPU", 2, 1)


def begun(*events: Event, kind: str = "soak", seconds: float = 10.0) -> tuple[Run, list[float]]:
    """A run on the CPU after these events, and its clock."""
    clock = [100.0]
    group = Run([Request(CPU, "float32", None, seconds, kind=kind)], lambda: clock[0])
    for event in events:
        group.add_event(CPU, event)
    return group, clock


def in_mid_run() -> tuple[Run, list[float]]:
    group, clock = begun(HELLO, PLANNED, Progress(1.0, 1.0, 10, 0.2), Progress(4.0, 3.0, 20, 0.1))
    clock[0] += 4.0
    return group, clock


def said(run: Run, width: int = 120) -> str:
    """The line on a terminal of that width, without colours."""
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(progress_line(run))
    line = captured.get()
    assert line.count("\n") == 1
    assert cell_len(line.rstrip("\n")) <= width
    return line


def test_what_it_says() -> None:
    line = said(in_mid_run()[0])
    assert "4 s, 6 s left" in line
    assert "0.125 TFLOP/s" in line  # weighed by time: (0.2 * 1 + 0.1 * 3) / 4
    assert line.count("━") == 16, "two fifths of the bar"


@pytest.mark.parametrize("width", [10, 40, 79, 129])
def test_it_fits(width: int) -> None:
    assert said(in_mid_run()[0], width)
    assert said(several()[0], width)


def test_before_it_begins_it_says_how_far_the_device_is() -> None:
    assert said(begun()[0]) == "starting ...\n"
    assert said(begun(HELLO)[0]) == "preparing ...\n"


def screen_of(terminal: Terminal) -> pyte.Screen:
    screen = pyte.Screen(80, 4)
    pyte.Stream(screen).feed(terminal.getvalue().replace("\n", "\r\n"))
    return screen


async def test_messages_stand_above_it_and_it_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    group, _ = in_mid_run()
    drawing = asyncio.create_task(keep_drawing(group, "1/2 soak  "))
    await asyncio.sleep(0)  # it draws once
    assert "1/2 soak  4 s, 6 s left" in screen_of(terminal).display[0]
    print_message("It is hot")
    group.add_event(CPU, Done(RESULT))
    await drawing
    screen = screen_of(terminal)
    assert [line.rstrip() for line in screen.display] == ["gputop: It is hot", "", "", ""]
    assert (screen.cursor.x, screen.cursor.y) == (0, 1)
    assert not screen.cursor.hidden


async def test_it_is_silent_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("FORCE_COLOR", "1")
    await keep_drawing(begun()[0])
    assert stream.getvalue() == ""


async def test_a_terminal_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    gone = Gone()
    monkeypatch.setattr("sys.stderr", gone)
    await keep_drawing(begun()[0])
    assert sys.stderr is gone


def test_a_table_counts_its_rows() -> None:
    group, clock = begun(replace(PLANNED, rows=8), kind="copy", seconds=60.0)
    clock[0] += 3.0
    for size in (512, 1024):
        point = Point("float32", size, {"tflops": 0.2, "seconds": 1e-3}, (size, size, size))
        group.add_event(CPU, point)
    line = said(group)
    assert "3 s, at most 57 s left  2 of at most 8 rows" in line
    assert line.count("━") == 10, "a quarter of the rows, though not of the time"


GPUS = target_choice.targets(inventory(2), sample(2))[:2]


def several(*, ready: bool = True) -> tuple[Run, list[float]]:
    """Two devices, four of ten seconds after both were ready."""
    clock = [100.0]
    group = Run([Request(each, "float32", None, 10.0) for each in GPUS], lambda: clock[0])
    for target in GPUS if ready else ():
        group.add_event(target, HELLO)
        group.add_event(target, replace(PLANNED, expected_seconds=10.0))
        group.add_event(target, Progress(0.1, 0.1, 2, 712.3))
    clock[0] += 4.0
    return group, clock


CLUSTER = [
    Target("cuda", f"GPU-{n}", n, "NVIDIA H100", "9.0", None, host=f"node-{n // 2}")
    for n in range(6)
]
GREETING = Hello("3.11.0", "9.9.9", "NVIDIA H100", 1, 1)
READY = dataclasses.replace(PLANNED, expected_seconds=60.0)


def window(elapsed: float, rate: float) -> Progress:
    return Progress(elapsed, 0.2, 1, rate)


def group_of(targets: Sequence[Target], now: Callable[[], float]) -> Run:
    return Run([Request(each, "bfloat16", None, 60.0) for each in targets], now)


def after(*happened: tuple[int, Event]) -> Run:
    found = group_of(CLUSTER, lambda: 0.0)
    for at, event in happened:
        found.add_event(CLUSTER[at], event)
    return found


def running(*rates: float) -> list[tuple[int, Event]]:
    return [(at, event) for at, rate in enumerate(rates) for event in (READY, window(0.2, rate))]


def test_how_many_are_how_far_in_the_order_of_a_run() -> None:
    failed = Failed(Problem("W", "y", "R"), 1)
    found = after((5, Done(RESULT)), (1, GREETING), (2, READY), (3, window(0.2, 1.0)), (4, failed))
    assert list(found.states.items()) == [
        (state, 1) for state in ("starting", "preparing", "ready", "running", "done", "failed")
    ]
    assert not found.ended


def test_a_device_is_judged_by_its_last_windows() -> None:
    found = after(
        *running(700, 700, 700), *((0, window(1.0, 350.0)) for _ in range(RECENT_WINDOWS))
    )
    assert found.rates[CLUSTER[0]] == pytest.approx(350.0)
    assert found.slow_devices() == {CLUSTER[0]: pytest.approx(50.0)}
    assert found.rates_by_model["NVIDIA H100"] == pytest.approx([350.0, 700, 700])


def test_who_failed_is_in_no_distribution() -> None:
    found = after(*running(700, 700, 10), (2, Failed(Problem("W", "y", "R"), 1)))
    assert found.slow_devices() == {}
    assert found.rates_by_model["NVIDIA H100"] == [700.0, 700.0]


def test_wrong_elements_are_known_at_once_and_at_the_end() -> None:
    found = after(*running(700, 700), (0, Verified(3, 2)), (1, Verified(3, 0)))
    assert [found.devices[gpu].wrong_elements for gpu in CLUSTER[:2]] == [2, 0]
    found.add_event(CLUSTER[1], Done(dataclasses.replace(RESULT, wrong_elements=4)))
    assert found.devices[CLUSTER[1]].wrong_elements == 4


@pytest.mark.parametrize("width", [40, 79, 119])
def test_the_line_of_many_says_the_most_first(width: int) -> None:
    now = [0.0]
    found = group_of(CLUSTER, lambda: now[0])
    assert said(found, width) == "6 starting ...\n"
    for at, event in (*running(700, 702, 698, 620, 700, 701), (2, Verified(2, 1))):
        found.add_event(CLUSTER[at], event)
    now[0] = 12.0
    line = said(found, width)
    assert "12 s, 48 s left  700 (" in line
    if width > 100:
        assert "6 running  1 device wrong  node-1 GPU 3 11 % behind" in line
