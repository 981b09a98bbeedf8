"""One line, redrawn, that fits."""

from __future__ import annotations

import dataclasses
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Failed, Hello, Point, Progress, Verified
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target, cpu_target
from gputop.bench.run.device_run import RECENT_WINDOWS
from gputop.bench.run.progress import ProgressLine, progress_text
from gputop.bench.run.run import Run
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


def test_what_it_says() -> None:
    group, _ = in_mid_run()
    line = progress_text(group, 120)
    assert "4 s, 6 s left" in line
    assert "0.100 TFLOP/s" in line
    assert "mean 0.125" in line  # weighed by time: (0.2 * 1 + 0.1 * 3) / 4
    assert "peak 0.2" in line
    full, rest = re.findall(r"#+|-+", line)
    assert len(full) / (len(full) + len(rest)) == pytest.approx(0.4)


@pytest.mark.parametrize("width", [1, 10, 40, 79, 129])
def test_it_fits(width: int) -> None:
    assert len(progress_text(in_mid_run()[0], width)) <= width
    assert len(progress_text(several()[0], width)) <= width


def test_it_leaves_nothing_behind() -> None:
    terminal = Terminal()
    bar = ProgressLine(terminal, in_mid_run()[0])
    bar.draw()
    bar.clear()
    screen = terminal.getvalue().split("\r")
    assert screen[-1] == ""
    assert screen[-2].strip() == ""
    assert len(screen[-2]) >= len(screen[-3])
    assert "\n" not in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


async def test_it_is_silent_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    await ProgressLine(stream, begun()[0]).keep_drawing()
    assert stream.getvalue() == ""


async def test_a_terminal_that_is_gone_is_no_error() -> None:
    class Gone(Terminal):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    await ProgressLine(Gone(), begun()[0]).keep_drawing()


def test_a_table_counts_its_rows() -> None:
    group, clock = begun(replace(PLANNED, rows=8), kind="copy", seconds=60.0)
    clock[0] += 3.0
    assert "0 of at most 8 rows  3 s" in progress_text(group, 100)
    for point in (
        Point("float32", 512, {"tflops": 0.2, "seconds": 1e-3}, (512, 512, 512)),
        Point("host, 1 thread", 1 << 20, {"bytes_per_second": 2.5e10, "seconds": 1e-3}),
    ):
        group.add_event(CPU, point)
    line = progress_text(group, 120)
    assert "2 of at most 8 rows" in line
    assert "25.0 GB/s  host, 1 thread, 1048576" in line
    assert line.count("#") == 10, "a quarter of the rows, though not of the time"
    assert all(len(progress_text(group, width)) <= width for width in range(10, 120))


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
    assert found.distributions["NVIDIA H100"].median == 700


def test_who_failed_is_in_no_distribution() -> None:
    found = after(*running(700, 700, 10), (2, Failed(Problem("W", "y", "R"), 1)))
    assert found.slow_devices() == {}
    assert found.distributions["NVIDIA H100"].count == 2


def test_wrong_elements_are_known_at_once_and_at_the_end() -> None:
    found = after(*running(700, 700), (0, Verified(3, 2)), (1, Verified(3, 0)))
    assert [found.devices[gpu].wrong_elements for gpu in CLUSTER[:2]] == [2, 0]
    found.add_event(CLUSTER[1], Done(dataclasses.replace(RESULT, wrong_elements=4)))
    assert found.devices[CLUSTER[1]].wrong_elements == 4


@pytest.mark.parametrize("width", [40, 79, 119])
def test_the_line_fits_and_says_the_most_first(width: int) -> None:
    now = [0.0]
    found = group_of(CLUSTER, lambda: now[0])
    assert progress_text(found, width) == "6 starting ..."
    for at, event in (*running(700, 702, 698, 620, 700, 701), (2, Verified(2, 1))):
        found.add_event(CLUSTER[at], event)
    now[0] = 12.0
    line = progress_text(found, width)
    assert len(line) <= width
    assert "12 s, 48 s left" in line
    assert "700 (" in line
    if width > 100:
        assert "6 running  1 wrong  node-1 GPU 3 11 % behind" in line
