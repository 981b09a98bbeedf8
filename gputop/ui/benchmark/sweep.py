"""Chart of a sweep: TFLOP/s over N by data type, with earlier sweeps of other devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.bench.plan.devices import short_labels
from gputop.bench.results import compare
from gputop.text import short_name, visible
from gputop.ui.benchmark.plot import (
    COLOURS,
    LABEL,
    MARKS,
    Plot,
    PlotAxis,
    PlotLine,
    legend,
    linear_axis,
)
from gputop.ui.benchmark.result_table import note_rows
from gputop.ui.drawing.cells import Row, Span, cell, wrap
from gputop.ui.drawing.palette import DIM, STRONG, TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputop.bench.events import Point, Result
    from gputop.bench.results.compare import Crossover
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState

LEAST_PLOT = 8
FAR = 30.0
"""Ratio of the largest to the smallest figure from which the axis is logarithmic."""
WIDE = 80
USUAL = 10.0
"""log2 of the size that a sweep is expected to reach, unless its plan ends before."""
SHARE_OF_NOTES = 6
"""Rows per row of notes, at most."""
RATIO = 6
"""Cells of a column of ratios."""


@dataclass(frozen=True, slots=True)
class SweepLine:
    name: str
    points: tuple[tuple[float, float], ...]
    earlier: bool


def sweep_rows(
    run: RunState, results: Sequence[Result], plot: Plot, width: int, height: int, under: int
) -> list[Row]:
    """Draw the chart, and below it the ratio GPU/CPU and notes if they fit.

    It leaves `under` rows, unless the chart needs them.
    """
    target = run.request.target
    device = run.hello.device_name if run.hello else target.name
    earlier = compare.other_sweeps(results, device, target.uuid)
    series = _series(run.rows, earlier)
    found = compare.with_earlier(run.rows, target.uuid, earlier)
    spare = max(0, height - LEAST_PLOT - 1)
    below = [*_ratios(found, width, spare)]
    most = min(spare - len(below), max(2, height // SHARE_OF_NOTES))
    below += note_rows(run, width, most, DIM)
    room = max(min(LEAST_PLOT + 1, height), height - len(below) - under)
    high = _expected((run,))
    return [_legend(series, width), *_chart(series, high, plot, width, room - 1), *below]


def sweep_rows_of_group(group: GroupState, plot: Plot, width: int, height: int) -> list[Row]:
    """Draw the chart with a line for each device."""
    series = [
        SweepLine(short_labels([target]), _logs(run.rows), False)
        for target, run in group.runs.items()
    ]
    drawn = _chart(series, _expected(tuple(group.runs.values())), plot, width, height - 1)
    return [_legend(series, width), *drawn]


def _expected(runs: Sequence[RunState]) -> float:
    """Return the log2 of the largest expected N, so that the axis stays for a while."""
    most = (run.planned.n for run in runs if not run.ended and run.planned is not None)
    return max((min(USUAL, math.log2(n)) for n in most if n > 0), default=0.0)


def _series(points: Sequence[Point], earlier: Sequence[Result]) -> list[SweepLine]:
    """Return the series of this run, then those of other devices, in the same types if any."""
    own = compare.points_by_series(points)
    kept = compare.newest_series(earlier)
    same = {key: value for key, value in kept.items() if key[1] in own}
    found = [SweepLine(visible(name, 40), _logs(line), False) for name, line in own.items()]
    for (_, name), (result, line) in (same or kept).items():
        label = f"{visible(name, 40)} {short_name(visible(result.device, 60))}"
        found.append(SweepLine(label, _logs(line), True))
    return [each for each in found if each.points][: len(MARKS)]


def _logs(line: Sequence[Point]) -> tuple[tuple[float, float], ...]:
    """Return TFLOP/s by log2 of N."""
    known = ((point.x, point.values.get("tflops", 0.0)) for point in line)
    return tuple(sorted((math.log2(x), rate) for x, rate in known if x >= 1 and rate > 0))


def _legend(series: Sequence[SweepLine], width: int) -> Row:
    named = [
        (f"{MARKS[n]} {each.name}", DIM if each.earlier else COLOURS[n % len(COLOURS)])
        for n, each in enumerate(series)
    ]
    return legend(" TFLOP/s, by N " if width >= WIDE else " TFLOP/s", named, width)


def _chart(
    series: Sequence[SweepLine], high: float, plot: Plot, width: int, height: int
) -> list[Row]:
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    if not xs:
        return []
    x = _sizes(min(xs), max(high, *xs), width - LABEL)
    y, scaled = rates(min(ys), max(ys), height)
    lines = [
        PlotLine(
            tuple((at, scaled(rate)) for at, rate in each.points),
            DIM if each.earlier else COLOURS[n % len(COLOURS)],
            MARKS[n] if len(series) > 1 else "",
        )
        for n, each in enumerate(series)
    ]
    return plot.rows(lines, x, y, LABEL, width, height)


def _sizes(low: float, high: float, width: int) -> PlotAxis:
    """Return an axis of powers of two, labelled by N."""
    first, last = math.floor(low), max(math.floor(low) + 1, math.ceil(high))
    step = max(1, math.ceil((last - first) / max(1, width // 9)))
    at = range(first, last + 1, step)
    return PlotAxis(first, last, tuple((power, f"{2**power}") for power in at))


def rates(low: float, high: float, height: int) -> tuple[PlotAxis, Callable[[float], float]]:
    """Return the axis of the rates and its scale: logarithmic if they are far apart."""
    if high < FAR * low:
        return linear_axis(0.0, 1.08 * high, height), float
    bottom, top = math.log10(low), math.log10(high)
    first, last = math.ceil(bottom), math.floor(top)
    step = max(1, math.ceil((last - first) / max(1, (height - 3) // 2)))
    powers = range(last, first - 1, -step)  # from the top: there are the figures that count
    ticks = tuple((n, f"{10.0**n:g}") for n in reversed(powers))
    return PlotAxis(bottom, top + 0.01 * (top - bottom), ticks), math.log10


def _ratios(found: Sequence[Crossover], width: int, room: int) -> list[Row]:
    """Draw crossovers in words, and size by size if they fit."""
    drawn: list[Row] = []
    for n, each in enumerate(found):
        words = wrap(compare.crossover_in_words(each), width - 2)
        if len(drawn) + len(words) > room:
            break
        drawn += [[Span(f" {line}", STRONG)] for line in words]
        left = len(found) - n - 1  # a line of words for the others comes first
        if room - len(drawn) - left >= 2:
            drawn += _by_size(each, width)
    return drawn


def _by_size(found: Crossover, width: int) -> list[Row]:
    """Draw two rows of as many sizes as fit, evenly, the largest included."""
    every = -(-len(found.ratios) // max(1, (width - LABEL - 2) // RATIO))
    shown = found.ratios[::-1][::every][::-1]
    sizes: Row = [cell(" N", LABEL + 1, DIM)]
    ratios: Row = [cell(" GPU/CPU", LABEL + 1, DIM)]
    for n, ratio in shown:
        sizes.append(cell(f"{n}", RATIO, DIM, right=True))
        style = STRONG if ratio > 1 else TEXT
        ratios.append(cell(compare.times_text(ratio), RATIO, style, right=True))
    return [sizes, ratios]
