import re
from typing import Any

import pytest

from gputop.bench.events import Progress
from gputop.bench.plan import target_choice
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.ui.benchmark.device_strips import device_rows
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.cells import text_of
from gputop.ui.drawing.charts import GUTTER
from tests.runs import begin, cpu_run, gpu_run, gpu_sample, look
from tests.streams import NOW, inventory, sample

BARS = "▮"


def drawn(run: DeviceRun, width: int = 78, height: int = 30) -> list[str]:
    chart = ThroughputChart()
    chart.run = Run.of(run)
    rows = chart.draw(width, height)
    assert len(rows) <= height
    return [text_of(row) for row in rows]


def labelled(rows: list[str], label: str) -> str:
    (found,) = (row for row in rows if re.match(rf"{label} +(\d|by )", row))
    return found


def bottom(rows: list[str], label: str) -> str:
    """The lowest of the rows that it takes: something of it is there as long as it goes on."""
    n = rows.index(labelled(rows, label))
    while rows[n + 1 : n + 2] != [""] and not rows[n + 1][:GUTTER].strip():
        n += 1
    return rows[n]


def dots(row: str) -> tuple[int, int]:
    cells = [x for x, each in enumerate(row) if "\u2800" < each <= "\u28ff" or each == BARS]
    return cells[0], cells[-1]


@pytest.mark.parametrize("width", [60, 78, 118, 198])
def test_everything_is_on_one_time_axis(width: int) -> None:
    rows = drawn(gpu_run(60.0, 42.0), width)
    axis = next(row for row in rows if "└" in row)
    plot = [dots(row)[1] for row in rows[: rows.index(axis)] if any(c > "⠀" for c in row[20:])]
    left, right = axis.index("└") + 1, len(axis.rstrip())
    now = left + 42 / 60 * (right - left)
    assert max(plot) == pytest.approx(now, abs=1.5)
    for label in ("power", "clock", "temp", "heat", "power cap"):
        assert dots(bottom(rows, label))[1] == pytest.approx(now, abs=1.5), label
    began = left + 6 / 60 * (right - left)
    assert dots(labelled(rows, "power cap"))[0] == pytest.approx(began, abs=1.5)


def test_the_plot_keeps_its_room_at_any_height() -> None:
    run = gpu_run(60.0, 42.0)
    for height in range(6, 60):
        width = height + 39
        rows = drawn(run, width, height)
        assert max(map(len, rows)) <= width
        axis = next(n for n, row in enumerate(rows) if "└" in row)
        assert axis >= min(height, 7) - 2
        assert any(row.startswith("power") for row in rows) is (height > 7)
    assert not any(row.startswith("power") for row in drawn(run, 44)), "they would take half"


def test_what_is_kept_at_each_height(snapshot: Any) -> None:
    found = []
    for run in (gpu_run(60.0, 42.0, ended=True), cpu_run(60.0, 30.0)):
        for height in (1, 2, 5, 9):
            rows = [text_of(row) for row in device_rows(run, 60.0, 20, height)]
            assert len(rows) == height
            found += [*(row.rstrip() for row in rows), "--"]
    assert "\n".join(found) == snapshot


def test_an_unknown_reason_of_a_foreign_driver_is_shown_inert() -> None:
    run, clock = begin(target_choice.targets(inventory(1), sample(1))[0], 60.0)
    clock.time = NOW + 1
    run.add_event(Progress(1.0, 1.0, 1, 700.0))
    look(run, gpu_sample(NOW + 1, clock_event_reasons=()))
    assert "\nheld back by nothing ┄" in "\n".join(drawn(run))
    reasons = ("idle", "bit_0x1000", "\x1b[31mred")
    look(run, gpu_sample(NOW + 2, clock_event_reasons=reasons))
    text = "\n".join(drawn(run))
    assert "\x1b" not in text
    assert 0 < text.index("\nbit_0x1000 ") < text.index("\nidle ")
