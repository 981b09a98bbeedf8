"""Four small charts of a process: CPU, host memory, GPU memory and SM. Pure functions."""

from __future__ import annotations

import math

from gputop.agent.snapshot import Process
from gputop.text import ABSENT, percentage, size
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import Row
from gputop.ui.drawing.palette import BUSY, CPU, MEMORY, SM
from gputop.ui.telemetry import Telemetry

ROWS = 2
"""Rows of a chart."""
CHARTS = (
    ("CPU", "cpu_percent", CPU, percentage),
    ("host memory", "memory_resident_bytes", BUSY, size),
    ("GPU memory", "memory_used_bytes", MEMORY, size),
    ("SM", "sm_utilization_percent", SM, percentage),
)
"""Label, field of `Usage`, style and text of a number."""


def chart_rows(
    telemetry: Telemetry, process: Process, width: int
) -> list[Row]:
    """Return the charts that have a value, one below the other."""
    room, history = max(1, width - charts.GUTTER), telemetry.history
    axis = charts.axis_of(history.elapsed, room, telemetry.interval)
    rows: list[Row] = []
    for label, name, style, text in CHARTS:
        series = telemetry.process_history.series(process, name)
        known = [number for number in series if not math.isnan(number)]
        if not known:
            continue
        top = charts.round_up(max(known))
        if text is percentage:
            top = 100.0 * charts.round_up(max(known) / 100.0)
        now = ABSENT
        if not math.isnan(series[-1]):
            now = text(round(series[-1]))
        scale = f"of {text(top)}, {axis.text}"
        seconds = history.seconds[-len(series) :]
        values = axis.means(seconds, series[-len(seconds) :])
        chart = charts.DrawnChart(label, now, scale, values, top, style)
        rows += chart.rows(ROWS)
    return rows
