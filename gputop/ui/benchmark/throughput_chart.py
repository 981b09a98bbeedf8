"""Large area of the benchmark tab: throughput over time, or the rows of a table.

Below the throughput of one device are its readings on the same time axis. Several devices have a
line each, with the number of the device at its end, or a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.style import Style

from gputop.agent.problem import Problem
from gputop.bench.plan.kinds import KINDS
from gputop.bench.run.device_run import RATE
from gputop.text import visible
from gputop.ui.benchmark import plot as plots
from gputop.ui.benchmark import result_tables, sweep_chart
from gputop.ui.benchmark.device_strips import TimeAxis, device_rows
from gputop.ui.benchmark.readout import RunView
from gputop.ui.drawing.cells import Row, Span, cell, paragraph, width_of
from gputop.ui.drawing.charts import GUTTER
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from gputop.bench.run.run import Run

LEAST_PLOT_ROWS, LEAST_WIDTH = 7, 24
LEAST_WIDTH_FOR_STRIPS = GUTTER + 24
WANTED_STRIPS = 5
"""Rows below the plot if the plot keeps its minimum. In a high chart they take half."""
LOWEST = 1e-6
"""Smallest share of the highest rate that is visible on a logarithmic axis."""
OTHERS = "GPUs of other hosts are not offered here: use ssh -t HOST gputop."


class ThroughputChart(RunView):
    """TFLOP/s over time or over N, or rows; without a run, instructions to start one."""

    def __init__(self) -> None:
        super().__init__(id="chart")
        self.hint: Callable[[int, int], list[Row]] = lambda *_: []
        """Function that draws the content without a run for a width and a height."""

    def draw(self, width: int, height: int) -> list[Row]:
        run = self.run
        if (
            run is None
            or not run.measured
            or height < 4
            or width < LEAST_WIDTH
        ):
            return self.hint(width, height)
        return chart_rows(run, width, height)


def chart_rows(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a run that has measurements."""
    if not run.is_table:
        return _over_time(run, width, height)
    if run.kind == "sweep":
        return sweep_chart.sweep_rows(run, width, height)
    if not run.is_several:
        return result_tables.result_rows(run.first, width, height)
    return _tables(run, width, height)


def _over_time(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    strips = _strip_rows(run, width, height)
    left = GUTTER if strips else plots.LABEL
    room = width - left
    unit, factor = run.first.rate_scale(_peak(run))
    lines, named = [], []
    for n, (target, device) in enumerate(run.devices.items()):
        style = plots.colour_of(n)
        mark = plots.mark_of(target) if run.is_several else ""
        named.append((target.place, style))
        points = []
        for at, rate in plots.thin_out(device.series(RATE), 2 * room):
            points.append((at, factor * rate))
        if points:
            lines.append(plots.PlotLine(tuple(points), style, mark))
    reached = [line.points[-1][0] for line in lines]
    seconds = max(run.request.seconds, *reached)
    below = (
        device_rows(run.first, TimeAxis(seconds, room), strips)
        if strips
        else []
    )
    rest = height - len(below)
    y, lines = _rate_axis(run, lines, rest)
    area = plots.PlotArea(
        plots.PlotAxis(0, seconds),
        y,
        left,
        width,
        rest - 1,
    )
    badge = [plots.SIMULATION] if run.request.target.simulated else []
    head = f" {unit} over time (s)"
    legend = plots.legend(
        head,
        named if run.is_several else (),
        width - width_of(badge),
    )
    return [[*badge, *legend], *plots.plot_rows(tuple(lines), area), *below]


def _strip_rows(
    run: Run,
    width: int,
    height: int,
) -> int:
    """Return the rows for readings of the device. They depend only on the available space."""
    read = run.first.readings
    if run.is_several or width < LEAST_WIDTH_FOR_STRIPS:
        return 0
    if read.target.uuid is None and not read.moments:
        return 0
    spare = max(0, height - LEAST_PLOT_ROWS)
    return max(min(WANTED_STRIPS, spare), spare // 2)


def _peak(run: Run) -> float:
    return max(each.peak or 0.0 for each in run.devices.values())


def _rate_axis(
    run: Run,
    lines: Sequence[plots.PlotLine],
    height: int,
) -> tuple[plots.PlotAxis, list[plots.PlotLine]]:
    """Return the axis of the rates, and the lines on its scale."""
    rates = [rate for line in lines for _, rate in line.points]
    lasts = [line.points[-1][1] for line in lines]
    low, high = min(rates), max(rates)
    # A CPU may be among GPUs.
    if 0 < high > sweep_chart.FAR * min(lasts):
        least = LOWEST * high
        y, scaled = sweep_chart.rate_axis(max(low, least), high, height - 1)
        drawn = []
        for line in lines:
            points = [
                (at, scaled(max(rate, least))) for at, rate in line.points
            ]
            drawn.append(line._replace(points=tuple(points)))
        return y, drawn
    top = plots.round_up(1.08 * high)
    # Lines that are close together are enlarged, so that their difference is
    # visible.
    bottom = top / 2 if run.is_several and low > top / 2 else 0.0
    return plots.linear_axis(bottom, top, height - 1), [*lines]


def _tables(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    """Draw the tables of several devices below each other, as many as fit."""
    rows: list[Row] = []
    for target, device in run.devices.items():
        if device.rows:
            rows.append([Span(f" {target.place}", DIM)])
            rows += result_tables.result_rows(device, width, height)
    if len(rows) > height:
        rows[height - 1 :] = [[Span(" …", DIM)]]
    return rows


def hint(
    kinds: Sequence[str],
    width: int,
    height: int,
    *,
    others: bool = False,
) -> list[Row]:
    """Draw how to start a run, and the kinds of run.

    With `others` (devices on other hosts), draw why those are not offered.
    """
    text = "Results are verified. x stops it within half a second."
    press: Row = [
        Span(" Press "),
        Span("b", ACCENT),
        Span(" to start this test."),
    ]
    longest = max(map(len, kinds), default=0)
    known: list[Row] = []
    for name in kinds:
        kind = KINDS[name]
        about = f"{kind.minutes} min  {kind.description}"
        known.append([cell(f" {name}", longest + 2, STRONG), Span(about, DIM)])
    said = paragraph(text, width - 1, DIM, " ")
    if others:
        said = [[Span(f" {OTHERS}", WARN)], *said]
    room = height - 1 - len(known) - len(said)
    space: list[Row] = [[]]
    return [press, *space * (room > 1), *known, *space * (room > 0), *said]


def problem_rows(
    problem: Problem,
    style: Style,
    width: int,
    _: int,
) -> list[Row]:
    """Draw the problem, its cause and its remedy in place of the chart."""
    rows: list[Row] = [[], [Span(f"  {visible(problem.what)}", style)], []]
    for text, style in ((problem.why, TEXT), (problem.remedy, STRONG)):
        for line in text.splitlines():
            rows += paragraph(visible(line), width - 2, style, "  ")
        rows.append([])
    return rows
