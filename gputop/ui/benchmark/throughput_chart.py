"""Large space of the benchmark tab: throughput over time, or the rows of a table.

Under the throughput are readings of the device on the same time axis: lines of power, clock and
temperature, and a strip for each clock event reason: ▮ where it held. A reading that does not
change is a number. Several devices have a line each, or tables side by side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.plan.kinds import KINDS
from gputop.bench.results import tables
from gputop.bench.run.trace import READINGS, Trace, TraceMoment
from gputop.schema.clock_events import gravity
from gputop.schema.values import span_text
from gputop.text import quantity, visible, watts_of
from gputop.ui.benchmark import plot as plots
from gputop.ui.benchmark import results
from gputop.ui.benchmark.readout import RunView
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, cell, clip, paragraph, width_of
from gputop.ui.drawing.charts import draw_chart
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, STRONG, TEXT, WARN
from gputop.ui.monitor.panel import limit_text

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.agent.problem import Problem
    from gputop.bench.run.group import GroupState
    from gputop.bench.run.run_state import RunState

LEFT, RIGHT = 13, 15
"""Cells beside the time axis: the row's label, and its value."""
SHARE_SHOWN = 0.25
"""Least share of its scale that a line shows, so that noise does not fill it."""
ROWS_OF_TALL_LINES = 3
MOST_REASONS = 4
LEAST_PLOT_ROWS, LEAST_WIDTH = 7, 24
LEAST_WIDTH_FOR_STRIPS = LEFT + RIGHT + 24
OTHERS = "GPUs of other hosts are not offered here: use ssh -t HOST gputop."


class ThroughputChart(RunView):
    """TFLOP/s over time or over N, or rows; without a run, how to start one."""

    def __init__(self) -> None:
        super().__init__(id="chart")
        self.hint: Callable[[int, int], list[Row]] = lambda *_: []
        """Draws what to show without a run, for a width and height."""

    def draw(self, width: int, height: int) -> list[Row]:
        run, group = self.run, self.group
        if group is None or not group.measured or height < 4 or width < LEAST_WIDTH:
            return self.hint(width, height)
        if run is None:
            return group_chart_rows(group, width, height)
        if not run.is_table:
            return self._over_time(run, width, height)
        if run.request.kind == "sweep":
            return results.sweep_rows(run, width, height)
        return results.result_rows(run, width, height)

    def _over_time(self, run: RunState, width: int, height: int) -> list[Row]:
        lines, constant = _lines(run)
        wanted = len(lines) + bool(constant) + _reason_rows(run.trace)
        # What leaves the plot its least, for a row each; where there is more room, half of it.
        wide = wanted and width >= LEAST_WIDTH_FOR_STRIPS
        spare = max(0, height - LEAST_PLOT_ROWS) if wide else 0
        under = max(min(wanted, spare), spare // 2)
        left, right = (LEFT, RIGHT) if under else (plots.LABEL, 0)
        room = width - left - right
        seconds = max(run.request.seconds, run.points[-1][0])
        below = trace_rows(run, TimeAxis(seconds, room), under)
        points = plots.thin_out(run.points, 2 * room)
        unit, factor = run.rate_scale(max(y for _, y in run.points))
        points = [(x, factor * y) for x, y in points]
        top = plots.round_up(1.08 * factor * max(y for _, y in run.points))
        rest = height - len(below)
        x, y = plots.PlotAxis(0, seconds), plots.linear_axis(0, top, rest)
        area = plots.PlotArea(x, y, left, left + room, rest - 1)
        head = Span(
            clip(f" {unit} over time (s)", left + room - len(plots.SIMULATION.text)),
            DIM,
        )
        plot = plots.plot_rows((plots.PlotLine(tuple(points), BUSY),), area)
        badge = [plots.SIMULATION] if run.request.target.simulated else []
        return [[*badge, head], *plot, *below]


def hint(
    kinds: Sequence[str], width: int, height: int, *, others: bool = False
) -> list[Row]:
    """Draw how to start a run, and the kinds of run.

    With `others`, devices on other hosts, it says why those are not offered.
    """
    text = "Results are verified. x stops it within half a second."
    press: Row = [Span(" Press "), Span("b", ACCENT), Span(" to start this test.")]
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


def problem_rows(problem: Problem, style: Style, width: int, _: int) -> list[Row]:
    """Draw what is wrong, why, and the remedy, in the space of the chart."""
    rows: list[Row] = [[], [Span(f"  {visible(problem.what)}", style)], []]
    for text, style in ((problem.why, TEXT), (problem.remedy, STRONG)):
        for line in text.splitlines():
            rows += paragraph(visible(line), width - 2, style, "  ")
        rows.append([])
    return rows


class ReadingLine(NamedTuple):
    """A reading over the run."""

    label: str
    values: Sequence[float | None]
    top: float | None
    """Value of the full height, if there is a limit."""
    text: str
    style: Style

    @property
    def is_constant(self) -> bool:
        """True if all values look the same as a number."""
        return len({round(value) for value in self.values if value is not None}) == 1


class TimeAxis(NamedTuple):
    """Seconds of the run as `width` cells with two dots each."""

    seconds: float
    width: int

    def dots(self, since: float, until: float) -> range:
        """Return the dots of a time interval, at least one."""
        most = 2 * self.width
        first = min(most - 1, int(since / self.seconds * most))
        return range(
            first, max(first + 1, min(most, math.ceil(until / self.seconds * most)))
        )


def trace_rows(run: RunState, axis: TimeAxis, height: int) -> list[Row]:
    """Draw as many rows as fit: power and the gravest reason first."""
    (lines, constant), reasons = _lines(run), _reason_rows(run.trace)
    reasons = min(reasons, height // 2)
    numbers = bool(constant) and height - reasons > min(1, len(lines))
    room = height - reasons - numbers
    lines = lines[:room]
    drawn: list[Row] = []
    for line in lines:
        drawn += _line(
            line, run.trace.moments, axis, min(ROWS_OF_TALL_LINES, room // len(lines))
        )
    if numbers:
        words = (
            f"{line.label} {re.sub('^(mean|max) ', '', line.text)}" for line in constant
        )
        text = clip(" · ".join(words), axis.width + RIGHT)
        drawn.append([_label("constant", DIM), Span(text, STRONG)])
    return drawn + _strips(run.trace, axis, reasons)


def _lines(run: RunState) -> tuple[list[ReadingLine], list[ReadingLine]]:
    """Return the known readings as they are now, or after the run as they were.

    Those that change come first, and then those that do not.
    """
    trace, moments = run.trace, run.trace.moments
    if not moments:
        return [], []
    last, gpu = moments[-1], trace.gpu
    if run.ended:
        power, clock = (
            quantity(trace.power.value, " W"),
            quantity(trace.clock.value, " MHz"),
        )
        texts = (
            f"mean {power}",
            f"mean {clock}",
            f"max {quantity(trace.temperature_max, '°C')}",
        )
    else:
        texts = (
            f"{watts_of(last.power_watts, trace.power_limit_watts, '')} W",
            quantity(last.sm_clock_mhz, " MHz"),
            quantity(last.temperature_celsius, "°C"),
        )
    clock_label = "clock" if trace.target.uuid is None else "SM clock"
    clock_top = gpu.sm_clock_max_mhz if gpu else None
    labels = ("power", clock_label, "temperature")
    limits = {each.reading: each.celsius for each in trace.heat_limits}
    tops = (trace.power_limit_watts, clock_top, limits.get("temperature_celsius"))
    values = ([getattr(moment, name) for moment in moments] for name in READINGS)
    styles = (palette.POWER, palette.CPU, palette.TEMPERATURE)
    found = map(ReadingLine, labels, values, tops, texts, styles)
    known = [line for line in found if any(value is not None for value in line.values)]
    changing = [line for line in known if not line.is_constant]
    return changing, [line for line in known if line.is_constant]


def _line(
    line: ReadingLine, moments: Sequence[TraceMoment], axis: TimeAxis, height: int
) -> list[Row]:
    known = [value for value in line.values if value is not None]
    top = max(line.top or 0.0, *known)
    floor = min(*known, (1 - SHARE_SHOWN) * top)
    dots: list[list[float]] = [[] for _ in range(2 * axis.width)]
    for moment, value in zip(moments, line.values, strict=True):
        if value is None:
            continue
        for dot in axis.dots(moment.since, moment.seconds):
            dots[dot].append(value - floor)
    means = [math.fsum(dot) / len(dot) if dot else None for dot in dots]
    drawn = draw_chart(means, height, top - floor or 1.0, line.style)
    left = [_label(line.label, DIM)] + [Span(" " * LEFT)] * (height - 1)
    right = [Span(f" {line.text}", STRONG)] + [Span("")] * (height - 1)
    return [
        [name, *_parted(row), text]
        for name, row, text in zip(left, drawn, right, strict=True)
    ]


def _parted(row: Row) -> Row:
    """Part blanks from dots: in a screenshot a font may have another width for each."""
    return [
        Span(part, span.style)
        for span in row
        for part in re.split("( +)", span.text)
        if part
    ]


def _label(text: str, style: Style) -> Span:
    return cell(f" {clip(text, LEFT - 2)}", LEFT, style)


def _reason_rows(trace: Trace) -> int:
    """Return the rows for reasons; one if none held, so that the chart does not move."""
    told = any(moment.reasons is not None for moment in trace.moments)
    return min(MOST_REASONS, max(1, len(trace.intervals()))) if told else 0


def _strips(trace: Trace, axis: TimeAxis, most: int) -> list[Row]:
    intervals, held = trace.intervals(), trace.clock_event_seconds()
    if most and not intervals:
        nothing = Span("┄" * axis.width, palette.TRACK)
        return [[_label("held back", DIM), nothing, Span(" by nothing", DIM)]]
    drawn = []
    for reason in sorted(intervals, key=gravity)[:most]:
        word, style = limit_text(reason)
        dots = (axis.dots(since, until) for since, until in intervals[reason])
        cells = {dot // 2 for each in dots for dot in each}
        text = "".join("▮" if x in cells else " " for x in range(axis.width))
        seconds = Span(f" {span_text(held.get(reason, 0.0))}", style)
        drawn.append([_label(word or reason, style), Span(text, style), seconds])
    return drawn


def group_chart_rows(group: GroupState, width: int, height: int) -> list[Row]:
    if not group.is_table:
        return _over_time(group, width, height)
    if group.kind == "sweep":
        return results.sweep_rows_of_group(group, width, height)
    drawn: list[Row] = []
    devices = {target.place: run.rows for target, run in group.runs.items()}
    for table in tables.device_tables(group.kind, devices):
        block = results.table_rows(table, width)
        room = height - len(drawn) - (1 if drawn else 0)
        if drawn and room < len(block):
            break
        drawn += [*([[]] if drawn else []), *block[:room]]
    return drawn


def _over_time(group: GroupState, width: int, height: int) -> list[Row]:
    lines, named = [], []
    every = (*group.runs.values(), *group.alone.values())
    unit, factor = group.first.rate_scale(max(run.peak or 0.0 for run in every))
    for n, target in enumerate(group.runs):
        mark, style = plots.mark_of(n)
        named.append((f"{mark} {target.place}", style))
        for begin, run in group.parts(target):
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
    if 0 < high > results.FAR * min(lasts):  # a CPU beside a GPU
        y, scaled = results.rates(max(low, high / 1e6), high, height - 1)
    shown = tuple(
        plots.PlotLine(
            tuple((x, scaled(max(rate, high / 1e6))) for x, rate in drawn), style, mark
        )
        for drawn, style, mark in lines
    )
    area = plots.PlotArea(plots.PlotAxis(0, seconds), y, plots.LABEL, width, height - 1)
    badge = [plots.SIMULATION] if group.request.target.simulated else []
    head = [
        *badge,
        *plots.legend(f" {unit} over time (s)", named, width - width_of(badge)),
    ]
    return [head, *plots.plot_rows(shown, area)]
