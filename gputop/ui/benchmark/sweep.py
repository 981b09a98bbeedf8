"""Chart of a sweep: TFLOP/s over N by data type, with earlier sweeps of other devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.bench.results import compare
from gputop.text import flops_unit, short_name, visible
from gputop.ui.benchmark import plot as plots
from gputop.ui.benchmark.result_table import note_rows
from gputop.ui.drawing.palette import DIM

if TYPE_CHECKING:
    from gputop.bench.events import Point, Result
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState
    from gputop.ui.drawing.cells import Row

LEAST_PLOT = 8
FAR = 30.0
"""Ratio of the largest to the smallest figure from which the axis is logarithmic."""
WIDE = 80
USUAL = 10.0
"""log2 of the size that a sweep is expected to reach, unless its plan ends before."""
SHARE_OF_NOTES = 6
"""Rows per row of notes, at most."""


@dataclass(frozen=True, slots=True)
class SweepLine:
    name: str
    points: tuple[tuple[float, float], ...]
    earlier: bool


def sweep_rows(
    run: RunState, results: Sequence[Result], plot: plots.Plot, width: int, height: int, under: int
) -> list[Row]:
    """Draw the chart, and below it notes if they fit.

    It leaves `under` rows, unless the chart needs them.
    """
    target = run.request.target
    device = run.hello.device_name if run.hello else target.name
    earlier = compare.other_sweeps(results, device, target.uuid)
    series = _series(run.rows, earlier)
    spare = max(0, height - LEAST_PLOT - 1)
    below = note_rows(run, width, min(spare, max(2, height // SHARE_OF_NOTES)), DIM)
    room = max(min(LEAST_PLOT + 1, height), height - len(below) - under)
    return [*_chart(series, (run,), plot, width, room), *below]


def sweep_rows_of_group(group: GroupState, plot: plots.Plot, width: int, height: int) -> list[Row]:
    """Draw the chart with a line for each device."""
    series = [SweepLine(target.place, _logs(run.rows), False) for target, run in group.runs.items()]
    return _chart(series, group.runs.values(), plot, width, height)


def _series(points: Sequence[Point], earlier: Sequence[Result]) -> list[SweepLine]:
    """Return the series of this run, then those of other devices, in the same types if any."""
    own = compare.points_by_series(points)
    kept = compare.newest_series(earlier)
    same = {key: value for key, value in kept.items() if key[1] in own}
    found = [SweepLine(visible(name, 40), _logs(line), False) for name, line in own.items()]
    for (_, name), (result, line) in (same or kept).items():
        label = f"{visible(name, 40)} {short_name(visible(result.device, 60))}"
        found.append(SweepLine(label, _logs(line), True))
    return [each for each in found if each.points][: len(plots.MARKS)]


def _logs(line: Sequence[Point]) -> tuple[tuple[float, float], ...]:
    known = ((point.x, point.values.get("tflops", 0.0)) for point in line)
    return tuple(sorted((math.log2(x), rate) for x, rate in known if x >= 1 and rate > 0))


def _chart(
    series: Sequence[SweepLine], runs: Iterable[RunState], plot: plots.Plot, width: int, height: int
) -> list[Row]:
    styles = [DIM if each.earlier else plots.mark_of(n)[1] for n, each in enumerate(series)]
    marked = list(zip(series, styles, plots.MARKS, strict=False))
    named = [(f"{mark} {each.name}", style) for each, style, mark in marked]
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    unit, factor = flops_unit(max(ys, default=None))
    ys = [factor * y for y in ys]
    head = plots.legend(f" {unit}, by N " if width >= WIDE else f" {unit}", named, width)
    if not xs:
        return [head]
    # The largest expected N, so that the axis stays for a while.
    expected = (run.planned.n for run in runs if not run.ended and run.planned is not None)
    high = max((min(USUAL, math.log2(n)) for n in expected if n > 0), default=0.0)
    x = _sizes(min(xs), max(high, *xs), width - plots.LABEL)
    y, scaled = rates(min(ys), max(ys), height - 1)
    lines = [
        plots.PlotLine(
            tuple((at, scaled(factor * rate)) for at, rate in each.points),
            style,
            mark if len(series) > 1 else "",
        )
        for each, style, mark in marked
    ]
    rows = plot.rows(lines, plots.PlotArea(x, y, plots.LABEL, width, height - 1))
    return [head, *rows]


def _sizes(low: float, high: float, width: int) -> plots.PlotAxis:
    """Return an axis of powers of two, labelled by N."""
    first, last = math.floor(low), max(math.floor(low) + 1, math.ceil(high))
    step = max(1, math.ceil((last - first) / max(1, width // 9)))
    at = range(first, last + 1, step)
    return plots.PlotAxis(first, last, tuple((power, f"{2**power}") for power in at))


def rates(low: float, high: float, height: int) -> tuple[plots.PlotAxis, Callable[[float], float]]:
    """Return the axis of the rates and its scale: logarithmic if they are far apart."""
    if high < FAR * low:
        return plots.linear_axis(0.0, 1.08 * high, height), float
    bottom, top = math.log10(low), math.log10(high)
    first, last = math.ceil(bottom), math.floor(top)
    step = max(1, math.ceil((last - first) / max(1, (height - 3) // 2)))
    powers = range(last, first - 1, -step)  # from the top: there are the figures that count
    ticks = tuple((n, f"{10.0**n:g}") for n in reversed(powers))
    return plots.PlotAxis(bottom, top + 0.01 * (top - bottom), ticks), math.log10
