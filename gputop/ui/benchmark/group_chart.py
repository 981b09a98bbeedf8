"""Chart of several devices: a line for each, or a table side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.plan.devices import short_labels
from gputop.bench.results import text_report
from gputop.bench.results.text_report import TextTable
from gputop.text import ABSENT, brief, tflops
from gputop.ui.benchmark import result_table, sweep
from gputop.ui.benchmark.plot import (
    COLOURS,
    LABEL,
    MARKS,
    PlotAxis,
    PlotLine,
    legend,
    linear_axis,
    round_up,
    thin_out,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputop.bench.events import Point
    from gputop.bench.plan.request import Target
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState
    from gputop.ui.benchmark.plot import Plot
    from gputop.ui.drawing.cells import Row

PEER = "device to GPU "
"""Prefix of copies to another GPU, which differ by device."""


def group_chart_rows(group: GroupState, plot: Plot, width: int, height: int) -> list[Row]:
    """Draw as many rows as fit."""
    if not group.is_table:
        return _over_time(group, plot, width, height)
    if group.kind == "sweep":
        return sweep.sweep_rows_of_group(group, plot, width, height)
    if group.kind == "peak":
        return result_table.table_rows(_shapes(group), width, names=True)[:height]
    if group.kind == "copy":
        return result_table.table_rows(_copies(group), width, names=True)[:height]
    return _latencies(group, width, height)


def _over_time(group: GroupState, plot: Plot, width: int, height: int) -> list[Row]:
    """Draw TFLOP/s over time; for `pairs` each alone in sequence, and then together."""
    lines = []
    for n, target in enumerate(group.runs):
        style, mark = COLOURS[n % len(COLOURS)], MARKS[n % len(MARKS)]
        for run, alone in _parts(group, target):
            begin = group.offset(target, alone=alone)
            drawn = thin_out([(begin + at, rate) for at, rate in run.points], 2 * (width - LABEL))
            if drawn:
                lines.append((tuple(drawn), style, mark))
    rates = [rate for drawn, _, _ in lines for _, rate in drawn]
    lasts = [drawn[-1][1] for drawn, _, _ in lines]
    seconds = max(group.request.seconds, *(drawn[-1][0] for drawn, _, _ in lines))
    low, high = min(rates), max(rates)
    top = round_up(1.08 * high)
    # Where all are near each other the upper half: how they differ counts.
    y = linear_axis(top / 2 if low > top / 2 else 0.0, top, height - 1)
    scaled: Callable[[float], float] = float
    if 0 < high > sweep.FAR * min(lasts):  # a CPU beside a GPU
        y, scaled = sweep.rates(max(low, high / 1e6), high, height - 1)
    shown = [
        PlotLine(tuple((at, scaled(max(rate, high / 1e6))) for at, rate in drawn), style, mark)
        for drawn, style, mark in lines
    ]
    drawn_rows = plot.rows(shown, PlotAxis(0, seconds), y, LABEL, width, height - 1)
    named = [
        (f"{MARKS[n % len(MARKS)]} {short_labels([target])}", COLOURS[n % len(COLOURS)])
        for n, target in enumerate(group.runs)
    ]
    return [legend(" TFLOP/s over time (s)", named, width), *drawn_rows]


def _parts(group: GroupState, target: Target) -> list[tuple[RunState, bool]]:
    """Return the runs of a device, and True for each that was alone."""
    earlier = group.alone.get(target)
    if earlier is None:
        return [(group.runs[target], group.kind == "pairs")]
    return [(earlier, True), (group.runs[target], False)]


def _shapes(group: GroupState) -> TextTable:
    """Return the best shape of each device so far."""
    lines = [["", "TFLOP/s", "m", "n", "k", "layout"]]
    rates = []
    for target, run in group.runs.items():
        best = text_report.ranked_shapes(run.rows)[:1]
        shape = text_report.sides(best[0]) if best else [ABSENT] * 3
        rate = best[0].values.get("tflops") if best else None
        rates.append(rate or 0.0)
        lines.append([short_labels([target]), tflops(rate), *shape, *(p.series for p in best)])
        lines[-1] += [ABSENT] * (len(lines[0]) - len(lines[-1]))
    top = rates.index(max(rates))
    return TextTable(lines, frozenset({(top + 1, 1)} if max(rates) else ()))


def _copies(group: GroupState) -> TextTable:
    """Return a line for each way and a column for each device, at the largest size."""
    by_device = [_newest(run.rows) for run in group.runs.values()]
    ways = list(dict.fromkeys(way for each in by_device for way in each))
    found = [[each.get(way) for each in by_device] for way in ways]
    return _compared(
        group, "GB/s, largest size", ways, found, lambda rate: f"{rate / 1e9:.4g}", max
    )


def _newest(group_chart_rows: Sequence[Point]) -> dict[str, float]:
    """Return the rate of each way at the largest size."""
    found = {}
    for point in sorted(group_chart_rows, key=lambda point: point.x):
        way = point.series
        if way.startswith(PEER):
            way = f"to another GPU, {way.partition(', ')[2]}"
        if rate := point.values.get("bytes_per_second"):
            found[way] = rate
    return found


def _latencies(group: GroupState, width: int, height: int) -> list[Row]:
    """Draw a block for each size, as far as they fit: the smallest says most."""
    every = [point for run in group.runs.values() for point in run.rows]
    ways = list(dict.fromkeys(point.series for point in every))
    drawn: list[Row] = []
    for x in sorted({point.x for point in every}):
        known = [
            {point.series: point.values.get("seconds") for point in run.rows if point.x == x}
            for run in group.runs.values()
        ]
        found = [[each.get(way) for each in known] for way in ways]
        block = result_table.table_rows(
            _compared(group, f"{x:.0f} x {x:.0f}", ways, found, brief, min), width, names=True
        )
        room = height - len(drawn) - (1 if drawn else 0)
        if drawn and room < len(block):
            break
        drawn += [*([[]] if drawn else []), *block[:room]]
    return drawn


def _compared(
    group: GroupState,
    head: str,
    names: Sequence[str],
    found: Sequence[Sequence[float | None]],
    text: Callable[[float], str],
    best: Callable[[Sequence[float]], float],
) -> TextTable:
    """Return a line per name and a column per device, with the best of each line marked."""
    lines = [[head, *(short_labels([target]) for target in group.runs)]]
    marked = set()
    for y, (name, values) in enumerate(zip(names, found, strict=True), 1):
        lines.append([name, *(ABSENT if value is None else text(value) for value in values)])
        known = [value for value in values if value is not None]
        if len(known) > 1 and name != text_report.LAUNCH:
            marked.add((y, values.index(best(known)) + 1))
    return TextTable(lines, frozenset(marked))
