"""Four small charts of a process: CPU, host memory, GPU memory and SM. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from gputop.agent.snapshot import Process
from gputop.text import ABSENT, percentage, size
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import Row
from gputop.ui.drawing.palette import BUSY, CPU, MEMORY, SM

if TYPE_CHECKING:
    from gputop.ui.telemetry import Telemetry

ROWS = 2
"""Rows of a chart."""


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
    telemetry: Telemetry, process: Process, width: int
) -> list[Row]:
    """Return the charts that have a value, one below the other."""
    room, history = max(1, width - charts.GUTTER), telemetry.history
    axis = charts.axis_of(history.elapsed, room, telemetry.interval)
    rows: list[Row] = []
    for chart in CHARTS:
        series = telemetry.process_history.series(process, chart.name)
        if not all(map(math.isnan, series)):
            seconds = history.seconds[-len(series) :]
            values = axis.means(seconds, series[-len(seconds) :])
            rows += _drawn(chart, series, values, axis.text).rows(ROWS)
    return rows


def _drawn(
    chart: ProcessChart,
    series: Sequence[float],
    values: Sequence[float | None],
    span: str,
) -> charts.DrawnChart:
    most = max(value for value in series if not math.isnan(value))
    top = max(chart.least_top, charts.round_up(most))
    if chart.least_top == 100.0:
        top = 100.0 * math.ceil(max(most, 100.0) / 100.0)
    now = ABSENT
    if not math.isnan(series[-1]):
        now = chart.text(round(series[-1]))
    scale = f"of {chart.text(round(top))}, {span}"
    return charts.DrawnChart(
        chart.label,
        now,
        scale,
        values,
        top,
        chart.style,
    )
