"""Large area of the benchmark tab: throughput over time or over N, or the rows of a table.

Below the throughput of one device are its readings on the same time axis. Several devices have a
line each, with the number of the device at its end, or a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.style import Style

from gputop.agent.problem import Problem
from gputop.bench.events import Point
from gputop.bench.plan.kinds import KINDS
from gputop.bench.results.measures import (
    best_row,
    points_by_series,
    rate_text,
    row_rate,
)
from gputop.bench.results.page import Block, Heading, Page, Sentence
from gputop.bench.results.tables import TextTable, table
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.bench.run.series import merge_windows, thinned
from gputop.output.result_pages import page_text
from gputop.text import visible
from gputop.ui.benchmark import plot as plots
from gputop.ui.benchmark.device_strips import device_rows
from gputop.ui.benchmark.readout import STYLES, RunView
from gputop.ui.drawing.cells import Row, Span, cell, paragraph
from gputop.ui.drawing.charts import GUTTER
from gputop.ui.drawing.palette import ACCENT, BADGE, DIM, STRONG, TEXT, WARN

LEAST_PLOT_ROWS, LEAST_WIDTH = 7, 24
LEAST_WIDTH_FOR_STRIPS = GUTTER + 24
WANTED_STRIPS = 5
"""Rows below the plot if the plot keeps its minimum. In a high chart they take half."""
USUAL = 10.0
"""log2 of the size that a sweep is expected to reach, so that the axis is stable at first."""
ROWS_PER_NOTE = 6
TICK = 9
"""Cells between two sizes on the axis."""
OTHERS = "GPUs of other hosts are not offered here: use ssh -t HOST gputop."


class ThroughputChart(RunView):
    """TFLOP/s over time or over N, or rows; without a run, instructions to start one."""

    def __init__(self) -> None:
        super().__init__(id="chart")
        self.hint: Callable[[int], list[Row]] = lambda _: []
        """Function that draws the content without a run for a width."""

    def draw(
        self,
        width: int,
        height: int,
    ) -> list[Row]:
        if self.run is None or not self.run.measured or width < LEAST_WIDTH:
            return self.hint(width)
        return chart_rows(self.run, width, height)


def chart_rows(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a run that has measurements."""
    if run.kind == "sweep":
        return _over_size(run, width, height)
    if run.is_table:
        return _tables(run, width, height)
    return _over_time(run, width, height)


def _over_time(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    strips = _strip_rows(run, width, height)
    left = GUTTER if strips else plots.LABEL
    room = width - left
    peaks = [each.peak for each in run.devices.values() if each.peak]
    unit, factor = run.first.rate_scale(max(peaks, default=None))
    lines, rates = [], []
    for target, device in run.devices.items():
        points = []
        for window in thinned(device.windows, width, merge_windows):
            rates.append(factor * window.rate)
            points.append((window.elapsed_seconds, rates[-1]))
        mark = target.number or "CPU"
        lines.append(plots.PlotLine(target.place, mark, points))
    seconds = max(run.request.seconds, run.elapsed_seconds)
    title = [Span(f" {unit} over time (s)", DIM)]
    if run.request.target.simulated:
        title.insert(0, Span(" simulated ", BADGE))
    rest = height - strips
    x = plots.PlotAxis(0, seconds)
    y = plots.rate_axis(rates, rest, zoomed=run.is_several)
    rows = plots.plot_rows(title, lines, x, y, left, width, rest)
    if strips:
        rows += device_rows(run.first, seconds, room, strips)
    return rows


def _strip_rows(
    run: Run,
    width: int,
    height: int,
) -> int:
    """Return the rows for readings of the device. They depend only on the available space."""
    read = run.first.readings
    has_readings = read.target.uuid is not None or bool(read.moments)
    if run.is_several or width < LEAST_WIDTH_FOR_STRIPS or not has_readings:
        return 0
    spare = height - LEAST_PLOT_ROWS
    return max(0, min(WANTED_STRIPS, spare), spare // 2)


def _over_size(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a line for each data type of one device with its notes, or one line per device."""
    below: list[Row] = []
    series: list[tuple[str, str, Sequence[Point]]] = []
    if run.is_several:
        for target, device in run.devices.items():
            series.append((target.place, target.number or "CPU", device.rows))
    else:
        below = page_rows(_notes(run.first), width)[: height // ROWS_PER_NOTE]
        for name, rows in points_by_series(run.first.rows).items():
            mark = str(len(series) + 1)
            best = rate_text(best_row(rows))
            series.append((f"{mark} {visible(name)}: {best}", mark, rows))
    lines = []
    sizes, rates = [USUAL], []
    for name, mark, points in series:
        line = []
        for point in points:
            sizes.append(math.log2(point.x))
            rates.append(row_rate(point) or 0.0)
            line.append((sizes[-1], rates[-1]))
        lines.append(plots.PlotLine(name, mark, sorted(line)))
    first, last = math.floor(min(sizes)), math.ceil(max(sizes))
    step = math.ceil((last - first) / (width // TICK))
    ticks = [(power, f"{2**power}") for power in range(first, last + 1, step)]
    rest = height - len(below)
    x = plots.PlotAxis(first, last, ticks)
    y = plots.rate_axis(rates, rest)
    title = [Span(" TFLOP/s, by N", DIM)]
    plot = plots.plot_rows(title, lines, x, y, plots.LABEL, width, rest)
    return [*plot, *below]


def _notes(device: DeviceRun) -> list[Block]:
    notes = device.result.notes if device.result else ()
    return [Sentence(note) for note in notes]


def _tables(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    """Draw the rows and notes of each device, below each other, as many as fit."""
    page: list[Block] = []
    for target, device in run.devices.items():
        if not device.rows:
            continue
        if run.is_several:
            page.append(Heading(target.place))
        found = table(run.kind, device.rows)
        if max(map(len, page_text([found]).splitlines())) > width:
            found = found.transposed()
        page.append(found)
        page += _notes(device)
    rows = page_rows(page, width)
    if len(rows) > height:
        rows[height - 1 :] = [[Span(" …", DIM)]]
    return rows


def page_rows(page: Page, width: int) -> list[Row]:
    """Draw a page of results as the commands print it."""
    rows = []
    for block in page:
        style = TEXT
        if isinstance(block, Sentence):
            style = STYLES[block.level]
        elif isinstance(block, Heading):
            style = STRONG
        lines = page_text([block], width - 1).splitlines()
        for line in lines:
            rows.append([Span(f" {line}", style)])
        if isinstance(block, TextTable):
            rows[-len(lines)] = [Span(f" {lines[0]}", DIM)]
    return rows


def hint(
    kinds: Sequence[str],
    width: int,
    *,
    others: bool,
) -> list[Row]:
    """Draw how to start a run, and the kinds of run.

    With `others` (devices on other hosts), draw why those are not offered.
    """
    press = [Span(" Press "), Span("b", ACCENT), Span(" to start this test.")]
    rows = [press]
    longest = max(map(len, kinds))
    for name in kinds:
        kind = KINDS[name]
        about = f"{kind.minutes} min  {kind.description}"
        rows.append([cell(f" {name}", longest + 2, STRONG), Span(about, DIM)])
    if others:
        rows.append([Span(f" {OTHERS}", WARN)])
    text = "Results are verified. x stops it within half a second."
    return [*rows, *paragraph(text, width, DIM, " ")]


def problem_rows(
    problem: Problem,
    style: Style,
    width: int,
) -> list[Row]:
    """Draw the problem, its cause and its remedy in place of the chart."""
    rows: list[Row] = [[], [Span(f"  {visible(problem.what)}", style)], []]
    for text, style in ((problem.why, TEXT), (problem.remedy, STRONG)):
        for line in text.splitlines():
            rows += paragraph(visible(line), width, style, "  ")
        rows.append([])
    return rows
