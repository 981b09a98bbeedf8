"""Four small charts of a process: CPU, host memory, GPU memory and SM. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gputop.text import ABSENT, percentage, size
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import Row, Span, beside, fit, spread
from gputop.ui.drawing.palette import BUSY, CPU, DIM, MEMORY, SM, STRONG

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.agent.snapshot import Process
    from gputop.stream.process_history import ProcessHistory

ROWS = 3
"""Rows of a chart below its title."""
GAP = 2
FOUR_FROM = 150
"""Width from which all four charts are side by side."""


class ProcessChart(NamedTuple):
    """Chart of one number of a process."""

    label: str
    name: str
    """Field of `Usage`."""
    style: Style
    text: Callable[[float], str]
    least_top: float
    """Minimum value at full height."""


CHARTS = (
    ProcessChart("CPU", "cpu_percent", CPU, percentage, 100.0),
    ProcessChart("host memory", "memory_resident_bytes", BUSY, size, 1 << 20),
    ProcessChart("GPU memory", "memory_used_bytes", MEMORY, size, 1 << 20),
    ProcessChart("SM", "sm_utilization_percent", SM, percentage, 100.0),
)


def chart_rows(
    history: ProcessHistory,
    process: Process,
    width: int,
    interval: float,
) -> list[Row]:
    """Return the charts that have a value, in two columns or in four."""
    columns = 4 if width >= FOUR_FROM else 2
    room = (width - GAP * (columns - 1)) // columns
    blocks = []
    for chart in CHARTS:
        series = history.series(process, chart.name)
        if not all(map(math.isnan, series)):
            blocks.append(_block(chart, series, history.count, room, interval))
    rows: list[Row] = []
    for first in range(0, len(blocks), columns):
        rows += beside(blocks[first : first + columns], room, GAP)
    return rows


def _block(
    chart: ProcessChart,
    series: list[float],
    count: int,
    width: int,
    interval: float,
) -> list[Row]:
    """Return the title with the current value, the scale and the time span, and the chart."""
    samples = charts.samples_a_dot(width, interval)
    dots = charts.newest_dots(count, width, samples)
    values = dots.averaged(series, count)
    most = max(value for value in series if not math.isnan(value))
    top = max(chart.least_top, charts.round_up(most))
    if chart.least_top == 100.0:
        top = 100.0 * math.ceil(max(most, 100.0) / 100.0)
    now = ABSENT
    if not math.isnan(series[-1]):
        now = chart.text(round(series[-1]))
    left = [Span(f"{chart.label} ", DIM), Span(now, STRONG)]
    scale = f" 0–{chart.text(round(top))}, {dots.span_text(interval)}"
    title = spread(left, [Span(scale, DIM)], width)
    drawn = charts.draw_chart(values, ROWS, top, chart.style)
    return [title, *(fit(row, width) for row in drawn)]
