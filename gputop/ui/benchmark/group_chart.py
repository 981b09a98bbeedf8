"""Chart of several devices: a line for each, or a table side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gputop.bench.results import tables
from gputop.ui.benchmark import plot as plots
from gputop.ui.benchmark import result_table, sweep
from gputop.ui.drawing.cells import Row, width_of

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState
    from gputop.ui.benchmark.plot import Plot


def group_chart_rows(group: GroupState, plot: Plot, width: int, height: int) -> list[Row]:
    if not group.is_table:
        return _over_time(group, plot, width, height)
    if group.kind == "sweep":
        return sweep.sweep_rows_of_group(group, plot, width, height)
    return _tables(group, width, height)


def _over_time(group: GroupState, plot: Plot, width: int, height: int) -> list[Row]:
    """Draw the rates over time; for `pairs` each alone in sequence, and then together."""
    lines, named = [], []
    every = (*group.runs.values(), *group.alone.values())
    unit, factor = group.first.rate_scale(max(run.peak or 0.0 for run in every))
    for n, target in enumerate(group.runs):
        mark, style = plots.mark_of(n)
        named.append((f"{mark} {target.place}", style))
        for run, alone in _parts(group, target):
            begin = group.offset(target, alone=alone)
            points = [(begin + at, factor * rate) for at, rate in run.points]
            drawn = plots.thin_out(points, 2 * (width - plots.LABEL))
            if drawn:
                lines.append((tuple(drawn), style, mark))
    rates = [rate for drawn, _, _ in lines for _, rate in drawn]
    lasts = [drawn[-1][1] for drawn, _, _ in lines]
    seconds = max(group.request.seconds, *(drawn[-1][0] for drawn, _, _ in lines))
    low, high = min(rates), max(rates)
    top = plots.round_up(1.08 * high)
    # Where all are near each other the upper half: how they differ counts.
    y = plots.linear_axis(top / 2 if low > top / 2 else 0.0, top, height - 1)
    scaled: Callable[[float], float] = float
    if 0 < high > sweep.FAR * min(lasts):  # a CPU beside a GPU
        y, scaled = sweep.rates(max(low, high / 1e6), high, height - 1)
    shown = [
        plots.PlotLine(tuple((x, scaled(max(rate, high / 1e6))) for x, rate in drawn), style, mark)
        for drawn, style, mark in lines
    ]
    area = plots.PlotArea(plots.PlotAxis(0, seconds), y, plots.LABEL, width, height - 1)
    badge = plots.mark_of_simulation(group.request)
    head = [*badge, *plots.legend(f" {unit} over time (s)", named, width - width_of(badge))]
    return [head, *plot.rows(shown, area)]


def _parts(group: GroupState, target: Target) -> list[tuple[RunState, bool]]:
    """Return the runs of a device, and True for each that was alone."""
    earlier = group.alone.get(target)
    if earlier is None:
        return [(group.runs[target], group.kind == "pairs")]
    return [(earlier, True), (group.runs[target], False)]


def _tables(group: GroupState, width: int, height: int) -> list[Row]:
    """Draw the tables that fit: the first says most."""
    drawn: list[Row] = []
    devices = {target.place: run.rows for target, run in group.runs.items()}
    for table in tables.device_tables(group.kind, devices):
        block = result_table.table_rows(table, width)
        room = height - len(drawn) - (1 if drawn else 0)
        if drawn and room < len(block):
            break
        drawn += [*([[]] if drawn else []), *block[:room]]
    return drawn
