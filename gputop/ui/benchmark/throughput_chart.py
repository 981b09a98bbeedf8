"""Large space of the benchmark tab: throughput over time, or the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputop.bench.plan.kinds import KINDS
from gputop.text import visible
from gputop.ui.benchmark import group_chart, sweep, trace_chart
from gputop.ui.benchmark import plot as plots
from gputop.ui.benchmark import result_table as points
from gputop.ui.benchmark.readout import RunView
from gputop.ui.drawing.cells import Row, Span, cell, clip, wrap
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.events import Result
    from gputop.bench.run.state import RunState
    from gputop.problem import Problem

LEAST_PLOT_ROWS, LEAST_WIDTH = 7, 24
LEAST_WIDTH_FOR_STRIPS = trace_chart.LEFT + trace_chart.RIGHT + 24

OTHERS = "GPUs of other hosts are not offered here: use ssh -t HOST gputop."


class ThroughputChart(RunView):
    """TFLOP/s over time or over N, or rows; without a run, how to start one."""

    def __init__(self) -> None:
        super().__init__(id="chart")
        self.results: list[Result] = []
        """Earlier results, newest first: sweeps of other devices are drawn too."""
        self.hint: Callable[[int, int], list[Row]] = lambda *_: []
        """Draws what to show without a run, for a width and height."""
        self._plot = plots.Plot()

    def draw(self, width: int, height: int) -> list[Row]:
        run, group = self.run, self.group
        if group is None or not group.measured or height < 4 or width < LEAST_WIDTH:
            return self.hint(width, height)
        if run is None:
            return group_chart.group_chart_rows(group, self._plot, width, height)
        if not run.is_table:
            return self._over_time(run, width, height)
        wanted = _rows_of_readings(run, width)
        under = wanted + 1 if wanted else 0
        if run.request.kind == "sweep":
            rows = sweep.sweep_rows(run, self.results, self._plot, width, height, under)
        else:
            rows = points.result_rows(run, width, height, under)
        return [*rows, *_meanwhile(run, width, height - len(rows))]

    def _over_time(self, run: RunState, width: int, height: int) -> list[Row]:
        wanted = _rows_of_readings(run, width)
        # What leaves the plot its least, for a row each; where there is more room, half of it.
        spare = max(0, height - LEAST_PLOT_ROWS) if wanted else 0
        under = max(min(wanted, spare), spare // 2)
        left, right = (trace_chart.LEFT, trace_chart.RIGHT) if under else (plots.LABEL, 0)
        room = width - left - right
        seconds = max(run.request.seconds, run.points[-1][0])
        below = trace_chart.trace_rows(run, trace_chart.TimeAxis(seconds, room), under)
        points = plots.thin_out(run.points, 2 * room)
        unit, factor = run.rate_scale(max(y for _, y in run.points))
        points = [(x, factor * y) for x, y in points]
        top = plots.round_up(1.08 * factor * max(y for _, y in run.points))
        rest = height - len(below)
        x, y = plots.PlotAxis(0, seconds), plots.linear_axis(0, top, rest)
        area = plots.PlotArea(x, y, left, left + room, rest - 1)
        head = Span(clip(f" {unit} over time (s)", left + room - len(plots.SIMULATION.text)), DIM)
        plot = self._plot.rows([plots.PlotLine(tuple(points), BUSY)], area)
        return [[*plots.mark_of_simulation(run.request), head], *plot, *below]


def _rows_of_readings(run: RunState, width: int) -> int:
    return trace_chart.rows_wanted(run) if width >= LEAST_WIDTH_FOR_STRIPS else 0


def _meanwhile(run: RunState, width: int, room: int) -> list[Row]:
    wanted = _rows_of_readings(run, width)
    if not wanted or room < 2:
        return []
    across = width - trace_chart.LEFT - trace_chart.RIGHT
    seconds = max(0.1, run.elapsed_seconds, run.trace.moments[-1].seconds)
    end = f"{seconds:.0f} s"
    axis = f"{' ' * trace_chart.LEFT}0 {'─' * max(0, across - 3 - len(end))} {end}"
    return [
        [Span(axis, DIM)],
        *trace_chart.trace_rows(run, trace_chart.TimeAxis(seconds, across), min(wanted, room - 1)),
    ]


def hint(kinds: Sequence[str], width: int, height: int, *, others: bool = False) -> list[Row]:
    """Draw how to start a run, and the kinds of run.

    With `others`, devices on other hosts, it says why those are not offered.
    """
    text = "It verifies results, and stops within half a second of x."
    press: Row = [Span(" Press "), Span("b", ACCENT), Span(" to start what is chosen above.")]
    known: list[Row] = [
        [cell(f" {kind}", 9, STRONG), Span(KINDS[kind].description, DIM)] for kind in kinds
    ]
    said: list[Row] = [[Span(f" {line}", DIM)] for line in wrap(text, width - 2)]
    if others:
        said = [[Span(f" {OTHERS}", WARN)], *said]
    room = height - 1 - len(known) - len(said)
    space: list[Row] = [[]]
    return [press, *space * (room > 1), *known, *space * (room > 0), *said]


def problem_rows(problem: Problem, style: Style, width: int, _: int) -> list[Row]:
    """Draw what is wrong, why, and the remedy, in the space of the chart."""
    rows: list[Row] = [[], [Span(f"  {visible(problem.what)}", style)], []]
    for text, style in ((problem.why, TEXT), (problem.remedy, STRONG)):
        for line in text.splitlines():
            rows += [[Span(f"  {each}", style)] for each in wrap(visible(line), width - 4)]
        rows.append([])
    return rows
