"""Chart of a sweep: throughput over N, with a line for each data type or device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.bench.results.measures import points_by_series
from gputop.text import flops_unit, visible
from gputop.ui.benchmark import plot as plots
from gputop.ui.benchmark.result_tables import note_rows
from gputop.ui.drawing.cells import Row
from gputop.ui.drawing.palette import DIM

if TYPE_CHECKING:
    from gputop.bench.events import Point
    from gputop.bench.run.run import Run

LEAST_PLOT = 8
FAR = 30.0
"""Ratio of the largest to the smallest figure above which the axis is logarithmic."""
WIDE = 80
USUAL = 10.0
"""log2 of the size that a sweep is expected to reach, unless its plan ends earlier."""
SHARE_OF_NOTES = 6
"""Fewest rows of the chart for each row of notes."""

Line = Sequence[tuple[float, float]]


def sweep_rows(
    run: Run,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a line for each data type of one device with its notes, or one line per device."""
    below: list[Row] = []
    series: dict[str, Line] = {}
    marks: list[str] = []
    if run.is_several:
        for target, each in run.devices.items():
            series[target.place] = _logs(each.rows)
            marks.append(plots.mark_of(target))
    else:
        for name, points in points_by_series(run.first.rows).items():
            series[visible(name, 40)] = _logs(points)
            marks.append(plots.MARKS[len(marks) % len(plots.MARKS)])
        spare = min(
            max(0, height - LEAST_PLOT - 1),
            max(2, height // SHARE_OF_NOTES),
        )
        below = note_rows(run.first, width, spare, DIM)
    return [*_chart(run, series, marks, width, height - len(below)), *below]


def _logs(points: Sequence[Point]) -> Line:
    line = []
    for point in points:
        rate = point.values.get("tflops", 0.0)
        if point.x >= 1 and rate > 0:
            line.append((math.log2(point.x), rate))
    return sorted(line)


def _chart(
    run: Run,
    series: Mapping[str, Line],
    marks: Sequence[str],
    width: int,
    height: int,
) -> list[Row]:
    xs = [x for line in series.values() for x, _ in line]
    ys = [y for line in series.values() for _, y in line]
    unit, factor = flops_unit(max(ys, default=None))
    named = []
    for n, (name, mark) in enumerate(zip(series, marks, strict=True)):
        label = name if run.is_several else f"{mark} {name}"
        named.append((label, plots.colour_of(n)))
    title = f" {unit}, by N " if width >= WIDE else f" {unit}"
    head = plots.legend(title, named, width)
    if not xs:
        return [head]
    x = _size_axis(min(xs), max(_expected(run), *xs), width - plots.LABEL)
    y, scaled = rate_axis(factor * min(ys), factor * max(ys), height - 1)
    lines = []
    for n, (line, mark) in enumerate(zip(series.values(), marks, strict=True)):
        points = tuple((at, scaled(factor * rate)) for at, rate in line)
        shown = mark if len(series) > 1 else ""
        lines.append(plots.PlotLine(points, plots.colour_of(n), shown))
    area = plots.PlotArea(x, y, plots.LABEL, width, height - 1)
    return [head, *plots.plot_rows(tuple(lines), area)]


def _expected(run: Run) -> float:
    """Return log2 of the largest expected N, so that the axis is stable at first."""
    largest = 0.0
    for each in run.devices.values():
        if each.planned is not None and each.planned.n > 0 and not each.ended:
            largest = max(largest, min(USUAL, math.log2(each.planned.n)))
    return largest


def _size_axis(
    low: float,
    high: float,
    width: int,
) -> plots.PlotAxis:
    """Return an axis of powers of two, labelled by N."""
    first, last = math.floor(low), max(math.floor(low) + 1, math.ceil(high))
    step = math.ceil((last - first) / (width // 9))
    ticks = tuple(
        (power, f"{2**power}") for power in range(first, last + 1, step)
    )
    return plots.PlotAxis(first, last, ticks)


def rate_axis(
    low: float,
    high: float,
    height: int,
) -> tuple[plots.PlotAxis, Callable[[float], float]]:
    """Return the axis of the rates and its scale, which is logarithmic if they are far apart."""
    if high < FAR * low:
        return plots.linear_axis(0.0, 1.08 * high, height), float
    bottom, top = math.log10(low), math.log10(high)
    first, last = math.ceil(bottom), math.floor(top)
    step = max(1, math.ceil((last - first) / max(1, (height - 3) // 2)))
    # Start at the top, where the important figures are.
    powers = reversed(range(last, first - 1, -step))
    ticks = tuple((power, f"{10.0**power:g}") for power in powers)
    return plots.PlotAxis(
        bottom,
        top + 0.01 * (top - bottom),
        ticks,
    ), math.log10
