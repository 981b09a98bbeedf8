"""One line, redrawn, that fits."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from gputop.bench.events import Event, Hello, Point, Progress
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.progress import ProgressLine, progress_text
from gputop.bench.run.run import Run
from tests.sessions import PLANNED
from tests.streams import inventory, sample


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
