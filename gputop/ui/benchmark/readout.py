"""The figures of a run: what runs, how fast, how far it is, and what the device says meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.plan import limits
from gputop.schema.values import value_text
from gputop.text import duration, percentage, quantity, tflops, visible, watts_of
from gputop.ui.benchmark import group_table, points
from gputop.ui.benchmark.title import RunView, wrong
from gputop.ui.drawing.cells import Row, Span, bar, clip, reading, share_of, width_of
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, STRONG, TEXT

if TYPE_CHECKING:
    from gputop.bench.run.state import RunState
    from gputop.problem import Problem
    from gputop.ui.model import Telemetry


SHORTEST_BAR = 10


class ReadoutView(RunView):
    """Two lines: the figures, and the progress. Of several devices their table."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="readout")
        self._telemetry = telemetry

    def wanted(self, width: int) -> int:
        """Rows that it takes."""
        return 2 if self.run or not self.group else group_table.height(self.group, width)

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - it has what it wants
        """Two rows, or those of the table."""
        run = self.run
        if run is None:
            return group_table.table(self.group, self._telemetry, width) if self.group else []
        if run.problem is not None:
            return self._problem(run, run.problem, width)
        figures = points.figures(run, width) if run.is_table else _figures(run)
        if run.faulty:
            figures += [Span(f"  {wrong(run)}", FAULT)]
        for part in _conditions(run) if run.ended else self._device(run):
            if width_of([*figures, *part]) <= width:
                figures += part
        return [figures, self._progress(run, width)]

    def _problem(self, run: RunState, problem: Problem, width: int) -> list[Row]:
        """Why, and what to do, where the space of the chart is taken by what was measured."""
        if not run.measured or (run.stopping and not run.faulty):
            return []
        style = FAULT if run.faulty else TEXT
        return [
            [Span(clip(f" {visible(problem.why)}", width), style)],
            [Span(clip(f" {visible(problem.remedy)}", width), STRONG)],
        ]

    def _device(self, run: RunState) -> list[Row]:
        """What the device under test says now: first what there is a limit for.

        A MIG instance has none of it: it is said whose it is.
        """
        target = run.request.target
        watts, limit, clock, celsius = group_table.readings(target, self._telemetry)
        whose = "" if target.parent_uuid is None else f"of GPU {target.index}: "
        return [
            [Span(f"  {whose}temp ", DIM), reading(quantity(celsius, "°C"))],
            [Span("  power ", DIM), reading(watts_of(watts, limit))],
            [Span("  clock ", DIM), reading(quantity(clock, " MHz"))],
        ]

    def _progress(self, run: RunState, width: int) -> Row:
        planned, elapsed = run.request.seconds, run.elapsed_seconds
        left = max(0.0, planned - elapsed)
        ending = "" if run.ended else f", {duration(left)} left"
        text = f"  {duration(elapsed)} of {duration(planned)}{ending}"
        share = share_of(elapsed, planned)
        if run.is_table:
            share, text = points.progress(run)
        heat = _heat_limit(run, width - SHORTEST_BAR - len(text) - 1)
        room = max(SHORTEST_BAR, min(80, width - max(32, len(text) + len(heat) + 1)))
        style = BUSY if run.ended else ACCENT
        limit = [Span(heat, DIM)] if heat else []
        return [Span(" "), *bar(share, room, style), Span(text, TEXT), *limit]


def _heat_limit(run: RunState, room: int) -> str:
    """Where heat ends the run, with the reason if there is room; empty for a CPU."""
    if run.trace.gpu is None:
        return ""
    found = run.trace.heat_limits
    text = f"  heat limit: {limits.in_words(found)}"
    return text if len(text) <= room else f"  heat limit: {limits.in_short([found])}"


def _figures(run: RunState) -> Row:
    """TFLOP/s of a run of one shape."""
    row: Row = [Span(" ")]
    for name, value in (
        ("now", run.tflops_now),
        ("mean", run.tflops_mean),
        ("peak", run.tflops_peak),
    ):
        row += [Span(f"{name} ", DIM), reading(tflops(value).ljust(7), STRONG)]
    return [*row, Span("TFLOP/s", DIM)]


def _conditions(run: RunState) -> list[Row]:
    """What it took: first what people compare."""
    conditions = run.result.conditions if run.result else None
    if conditions is None:
        return []
    found: list[Row] = []
    for name, share in conditions.percent_of_peak.items():
        of = Span(f" of {visible(name, 60)}", DIM)
        found.append([Span(f"  {percentage(share)}", STRONG), of])
    if conditions.tflop_per_joule is not None:
        efficiency = [
            Span(f"  {tflops(conditions.tflop_per_joule)}", STRONG),
            Span(" TFLOP/J", DIM),
        ]
        found.append(efficiency)
    if conditions.energy_joules is not None:
        energy = value_text("energy_joules", conditions.energy_joules)
        found.append([Span("  energy ", DIM), Span(energy)])
    return found
