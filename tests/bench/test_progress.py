"""One line, redrawn, that fits."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from gputop.bench import devices
from gputop.bench.events import Done, Failed, Hello, Planned, Point, Progress
from gputop.bench.progress import Progressing, Together
from gputop.telemetry.snapshot import Problem
from tests.bench.workers import RESULT
from tests.streams import inventory, sample


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


PLANNED = Planned(
    m=1024,
    n=1024,
    k=1024,
    dtype="float32",
    accumulate="float32",
    layout="A and B row-major",
    data="random normal",
    warmup_products=3,
    products_per_batch=4,
    need_bytes=1,
    relative_error=1e-7,
    method="by hand",
)


def in_mid_run() -> tuple[Progressing, list[float], Terminal]:
    clock, terminal = [100.0], Terminal()
    bar = Progressing(terminal, 10.0, now=lambda: clock[0])
    bar.take(Hello("3.11", "9.9", "a CPU", 2, 1))
    bar.take(PLANNED)
    bar.take(Progress(1.0, 1.0, 10, 0.2))
    bar.take(Progress(4.0, 3.0, 20, 0.1))
    clock[0] += 4.0
    return bar, clock, terminal


def test_what_it_says() -> None:
    bar, _, _ = in_mid_run()
    line = bar.line(120)
    assert "4 s, 6 s left" in line
    assert "0.100 TFLOP/s" in line
    assert "mean 0.125" in line  # weighed by time: (0.2 * 1 + 0.1 * 3) / 4
    assert "peak 0.2" in line
    full, rest = re.findall(r"#+|-+", line)
    assert len(full) / (len(full) + len(rest)) == pytest.approx(0.4)


@pytest.mark.parametrize("width", range(1, 130))
def test_it_fits(width: int) -> None:
    bar, _, _ = in_mid_run()
    assert len(bar.line(width)) <= width


def test_it_goes_on_by_itself_and_not_beyond_the_end() -> None:
    bar, clock, _ = in_mid_run()
    clock[0] += 100.0
    assert "10 s, 0 s left" in bar.line(120)


def test_before_the_run_it_says_what_is_done() -> None:
    bar = Progressing(Terminal(), 10.0)
    assert bar.line(80) == "starting ..."
    bar.take(Hello("3.11", "9.9", "a CPU", 2, 1))
    assert bar.line(80) == "preparing a CPU ..."


def test_it_leaves_nothing_behind() -> None:
    bar, _, terminal = in_mid_run()
    bar.draw()
    bar.clear()
    screen = terminal.getvalue().split("\r")
    assert screen[-1] == ""
    assert screen[-2].strip() == ""
    assert len(screen[-2]) >= len(screen[-3])
    assert "\n" not in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


async def test_it_ends_with_the_run() -> None:
    bar, _, terminal = in_mid_run()
    bar.take(Done(RESULT))
    await bar.keep_drawing()
    assert terminal.getvalue() == ""


async def test_it_is_silent_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    await Progressing(stream, 10.0).keep_drawing()
    assert stream.getvalue() == ""


async def test_a_terminal_that_is_gone_is_no_error() -> None:
    class Gone(Terminal):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    await Progressing(Gone(), 10.0).keep_drawing()


def test_a_table_counts_its_rows() -> None:
    clock = [100.0]
    bar = Progressing(Terminal(), 60.0, now=lambda: clock[0])
    bar.take(replace(PLANNED, rows=8))
    clock[0] += 3.0
    assert "0 of at most 8 rows  3 s" in bar.line(100)
    bar.take(Point("float32", 512, {"tflops": 0.2, "seconds": 1e-3}, (512, 512, 512)))
    bar.take(Point("host, 1 thread", 1 << 20, {"bytes_per_second": 2.5e10, "seconds": 1e-3}))
    line = bar.line(120)
    assert "2 of at most 8 rows" in line
    assert "25 GB/s  host, 1 thread, 1048576" in line
    assert line.count("#") == 10, "a quarter of the rows, though not of the time"
    assert all(len(bar.line(width)) <= width for width in range(10, 120))


GPUS = devices.targets(inventory(2), sample(2))[:2]


def several() -> tuple[Together, list[float]]:
    """Two devices, four of ten seconds after both were ready."""
    clock = [100.0]
    bar = Together(Terminal(), now=lambda: clock[0])
    for target in GPUS:
        bar.take(target, Hello("3.11", "9.9", target.name, 2, 1))
        bar.take(target, replace(PLANNED, expected_seconds=10.0))
    clock[0] += 4.0
    return bar, clock


def test_several_devices_have_a_figure_each() -> None:
    bar, _ = several()
    assert "GPU 0 ready  GPU 1 ready" in bar.line(120)
    bar.take(GPUS[0], Progress(4.0, 1.0, 20, 712.3))
    bar.take(GPUS[1], Point("device to device", 1 << 20, {"bytes_per_second": 4.1e12}))
    line = bar.line(120)
    assert "4 s, 6 s left  GPU 0 712  GPU 1 4100 GB/s" in line
    full, rest = re.findall(r"#+|-+", line)
    assert len(full) / (len(full) + len(rest)) == pytest.approx(0.4)
    bar.take(GPUS[0], Done(RESULT))
    bar.take(GPUS[1], Failed(Problem("W", "y", "R"), 3))
    assert "GPU 0 done  GPU 1 failed" in bar.line(120)


def test_each_run_of_several_has_its_own_time() -> None:
    bar, clock = several()
    clock[0] += 60.0
    assert "10 s, 0 s left" in bar.line(120)
    bar.take(GPUS[1], replace(PLANNED, expected_seconds=20.0))
    assert "0 s, 20 s left" in bar.line(120)


def test_before_anything_is_ready_there_is_no_time() -> None:
    bar = Together(Terminal())
    assert bar.line(120) == "starting ..."
    bar.take(GPUS[0], Hello("3.11", "9.9", "a GPU", 2, 1))
    assert bar.line(120) == "GPU 0 prepares"


@pytest.mark.parametrize("width", range(1, 130))
def test_several_fit(width: int) -> None:
    assert len(several()[0].line(width)) <= width
