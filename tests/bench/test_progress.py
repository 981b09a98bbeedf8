import asyncio
import io
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyte
import pytest
from rich.cells import cell_len
from rich.console import Console

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Failed, Hello, Point, Progress, RunLimit, Verified
from gputop.bench.plan.request import Request, Target, cpu_target
from gputop.bench.run.device_run import RECENT_WINDOWS
from gputop.bench.run.progress import follow_on_a_line, keep_drawing, progress_line
from gputop.bench.run.run import Run
from gputop.console import print_message
from tests.bench.workers import RESULT
from tests.sessions import PLANNED


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1  # which has no size


CPU = [cpu_target()]
CLUSTER = [
    Target("cuda", f"GPU-{n}", n, "NVIDIA H100", "9.0", None, host=f"node-{n // 2}")
    for n in range(6)
]
HELLO = Hello("3.11", "9.9", "a CPU", 2, 1)
FAILED = Failed(Problem("W", "y", "R"), 1)


def after(
    targets: Sequence[Target],
    *happened: tuple[int, Event],
    seconds: float = 0.0,
    kind: str = "soak",
) -> Run:
    """A run of a minute, so many seconds after these events of its devices."""
    clock = [100.0]
    asked = [Request(each, "float32", None, 60.0, kind=kind) for each in targets]
    run = Run(asked, lambda: clock[0])
    for at, event in happened:
        run.add_event(targets[at], event)
    clock[0] += seconds
    return run


def running(*rates: float) -> list[tuple[int, Event]]:
    return [
        (at, event)
        for at, rate in enumerate(rates)
        for event in (PLANNED, Progress(0.2, 0.2, 1, rate))
    ]


def in_mid_run() -> Run:
    plan = replace(PLANNED, expected_seconds=10.0)
    events = (HELLO, plan, Progress(1.0, 1.0, 10, 0.2), Progress(4.0, 3.0, 20, 0.1))
    return after(CPU, *((0, each) for each in events), seconds=4.0)


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
    line = said(in_mid_run())
    assert "4 s, 6 s left" in line
    assert "0.125 TFLOP/s" in line  # weighed by time: (0.2 * 1 + 0.1 * 3) / 4
    assert line.count("━") == 16, "two fifths of the bar"


def test_before_it_begins_it_says_how_far_the_device_is() -> None:
    assert said(after(CPU)) == "starting ...\n"
    assert said(after(CPU, (0, HELLO))) == "preparing ...\n"


def test_a_table_counts_its_rows() -> None:
    rows = [Point("float32", n, {"tflops": 0.2, "seconds": 1e-3}, (n, n, n)) for n in (8, 16)]
    events: list[Event] = [replace(PLANNED, rows=8), *rows]
    line = said(after(CPU, *((0, each) for each in events), seconds=3.0, kind="sweep"))
    assert "3 s, at most 57 s left  2 of at most 8 rows" in line
    assert line.count("━") == 10, "a quarter of the rows, though not of the time"


@pytest.mark.parametrize("width", [10, 40, 79, 119])
def test_the_line_of_many_says_the_most_first(width: int) -> None:
    assert said(in_mid_run(), width)
    if width > 39:
        assert said(after(CLUSTER), width) == "6 starting ...\n"
    rates = running(700, 702, 698, 620, 600, 701)
    line = said(after(CLUSTER, *rates, (2, Verified(2, 1)), seconds=12.0), width)
    if width > 39:
        assert "12 s, 48 s left  699 (" in line
    if width > 100:
        assert "6 running  1 device wrong  node-2 GPU 4 14 % behind and 1 more" in line


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
    run = in_mid_run()
    drawing = asyncio.create_task(keep_drawing(run, "1/2 soak  "))
    await asyncio.sleep(0)  # it draws once
    assert "1/2 soak  4 s, 6 s left" in screen_of(terminal).display[0]
    assert not screen_of(terminal).cursor.hidden
    print_message("It is hot")
    run.add_event(CPU[0], Done(RESULT))
    await drawing
    screen = screen_of(terminal)
    assert [line.rstrip() for line in screen.display] == ["gputop: It is hot", "", "", ""]
    assert (screen.cursor.x, screen.cursor.y) == (0, 1)
    assert not screen.cursor.hidden


async def test_it_is_silent_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("FORCE_COLOR", "1")
    await keep_drawing(after(CPU))
    assert stream.getvalue() == ""


async def test_a_terminal_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    gone = Gone()
    monkeypatch.setattr("sys.stderr", gone)
    await keep_drawing(after(CPU))
    assert sys.stderr is gone


async def test_the_first_signal_stops_the_workers_and_a_second_one_kills_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    happened: list[str] = []
    killed = asyncio.Event()

    async def follow(hear: Any) -> None:
        hear(CPU[0], RunLimit("limit", "Too hot", "90°C"))
        os.kill(os.getpid(), signal.SIGTERM)
        await killed.wait()

    async def stop() -> None:
        happened.append("stopped")
        os.kill(os.getpid(), signal.SIGINT)

    def kill() -> None:
        happened.append("killed")
        killed.set()

    runner: Any = SimpleNamespace(state=after(CPU), follow=follow, stop=stop, kill=kill)
    async with asyncio.timeout(30):
        assert await follow_on_a_line(runner) == [*runner.state.devices.values()]
    assert happened == ["stopped", "killed"]
    assert capsys.readouterr().err == f"gputop: {CPU[0].label}: too hot, 90°C\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_how_many_are_how_far_in_the_order_of_a_run() -> None:
    window = Progress(0.2, 0.2, 1, 1.0)
    found = after(
        CLUSTER, (5, Done(RESULT)), (1, HELLO), (2, PLANNED), (3, PLANNED), (3, window), (4, FAILED)
    )
    assert list(found.states.items()) == [
        (state, 1) for state in ("starting", "preparing", "ready", "running", "done", "failed")
    ]
    assert not found.ended


def test_a_device_is_judged_by_its_last_windows() -> None:
    later = [(0, Progress(1.0, 0.2, 1, 350.0))] * RECENT_WINDOWS
    found = after(CLUSTER, *running(700, 700, 700), *later)
    assert found.rates[CLUSTER[0]] == pytest.approx(350.0)
    assert found.slow_devices() == {CLUSTER[0]: pytest.approx(50.0)}
    assert not found.faulty
    assert found.rates_by_model["NVIDIA H100"] == pytest.approx([350.0, 700, 700])


def test_who_failed_is_in_no_distribution() -> None:
    found = after(CLUSTER, *running(700, 700, 10), (2, FAILED))
    assert found.slow_devices() == {}
    assert found.rates_by_model["NVIDIA H100"] == [700.0, 700.0]


def test_wrong_elements_are_known_at_once_and_at_the_end() -> None:
    found = after(CLUSTER, *running(700, 700), (0, Verified(3, 2)), (1, Verified(3, 0)))
    assert [found.devices[gpu].wrong_elements for gpu in CLUSTER[:2]] == [2, 0]
    found.add_event(CLUSTER[1], Done(replace(RESULT, wrong_elements=4)))
    assert found.devices[CLUSTER[1]].wrong_elements == 4
