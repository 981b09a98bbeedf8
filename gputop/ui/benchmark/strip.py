"""What the device did during a run, in rows on the time axis of the chart above them.

Lines of power, clock and temperature, and a strip for each clock event reason: ▮ where it held.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.schema.clock_events import gravity
from gputop.schema.values import span_text
from gputop.text import quantity, watts_of
from gputop.ui.drawing.cells import Row, Span, cell, clip, history
from gputop.ui.drawing.palette import CPU, DIM, POWER, STRONG, TEMPERATURE, TRACK
from gputop.ui.monitor.panel import limit_text

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.run.conditions import Moment, Trace
    from gputop.bench.run.state import RunState

LEFT, RIGHT = 13, 15
"""Cells beside the time axis: what a row shows, and its value."""
SHARE_SHOWN = 0.25
"""A line shows at least the upper quarter of its scale, so that noise does not fill it."""
ROWS_OF_TALL_LINES = 3
MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A reading over the run."""

    label: str
    values: Sequence[float | None]
    """By moment."""
    top: float | None
    """What the full height stands for, where there is a limit."""
    text: str
    style: Style


class Axis:
    """Seconds of the run as cells: `width` of them for `seconds`, with two dots each."""

    def __init__(self, seconds: float, width: int) -> None:
        self.seconds, self.width = seconds, width

    def dots(self, since: float, until: float) -> range:
        """The dots that the time from `since` to `until` takes; at least one."""
        most = 2 * self.width
        first = min(most - 1, int(since / self.seconds * most))
        return range(first, max(first + 1, min(most, math.ceil(until / self.seconds * most))))


def wanted(run: RunState) -> int:
    """Rows for all there is to show, each reading in one."""
    return len(_lines(run)) + _reason_rows(run.trace)


def rows(run: RunState, axis: Axis, height: int) -> list[Row]:
    """As many rows as there is room for: power and the gravest reason first."""
    lines, reasons = _lines(run), _reason_rows(run.trace)
    reasons = min(reasons, height // 2)
    lines = lines[: height - reasons]
    tall = min(ROWS_OF_TALL_LINES, (height - reasons) // max(1, len(lines)))
    drawn: list[Row] = []
    for line in lines:
        drawn += _line(line, run.trace.moments, axis, tall)
    return drawn + _strips(run.trace, axis, reasons)


def _lines(run: RunState) -> list[Line]:
    """The readings that there are; how they are now, and after the run how they were."""
    trace, moments = run.trace, run.trace.moments
    if not moments:
        return []
    last, gpu = moments[-1], trace.gpu
    if run.ended:
        power, clock = quantity(trace.power_mean, " W"), quantity(trace.clock_mean, " MHz")
        texts = (f"mean {power}", f"mean {clock}", f"max {quantity(trace.temperature_max, '°C')}")
    else:
        texts = (
            f"{watts_of(last.power_watts, trace.power_limit_watts, '')} W",
            quantity(last.sm_clock_mhz, " MHz"),
            quantity(last.temperature_celsius, "°C"),
        )
    clock_label = "clock" if trace.target.uuid is None else "SM clock"
    found = (
        Line("power", [m.power_watts for m in moments], trace.power_limit_watts, texts[0], POWER),
        Line(
            clock_label,
            [m.sm_clock_mhz for m in moments],
            gpu.sm_clock_max_mhz if gpu else None,
            texts[1],
            CPU,
        ),
        Line(
            "temperature",
            [m.temperature_celsius for m in moments],
            _core_limit(trace),
            texts[2],
            TEMPERATURE,
        ),
    )
    return [line for line in found if any(value is not None for value in line.values)]


def _core_limit(trace: Trace) -> float | None:
    """Temperature of the core at which the run would end, where there is such a limit."""
    limits = trace.heat_limits
    return next((each.celsius for each in limits if each.reading == "temperature_celsius"), None)


def _line(line: Line, moments: Sequence[Moment], axis: Axis, height: int) -> list[Row]:
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
    drawn = history(means, len(means), axis.width, height, top - floor or 1.0, line.style)
    left = [_label(line.label, DIM)] + [Span(" " * LEFT)] * (height - 1)
    right = [Span(f" {line.text}", STRONG)] + [Span("")] * (height - 1)
    return [
        [label, *_parted(row), value] for label, row, value in zip(left, drawn, right, strict=True)
    ]


def _parted(row: Row) -> Row:
    """Blanks apart from dots: in a picture of the screen a font may have another width for each."""
    return [Span(part, span.style) for span in row for part in re.split("( +)", span.text) if part]


def _label(text: str, style: Style) -> Span:
    return cell(f" {clip(text, LEFT - 2)}", LEFT, style)


def _reason_rows(trace: Trace) -> int:
    """One even where nothing held, so that the chart does not move when something does."""
    told = any(moment.reasons is not None for moment in trace.moments)
    return min(MOST_REASONS, max(1, len(trace.intervals()))) if told else 0


def _strips(trace: Trace, axis: Axis, most: int) -> list[Row]:
    intervals, held = trace.intervals(), trace.clock_event_seconds()
    if most and not intervals:
        return [[_label("held back", DIM), Span("┄" * axis.width, TRACK), Span(" by nothing", DIM)]]
    drawn = []
    for reason in sorted(intervals, key=gravity)[:most]:
        word, style = limit_text(reason)
        cells = _cells(intervals[reason], axis)
        text = "".join("▮" if x in cells else " " for x in range(axis.width))
        seconds = Span(f" {span_text(held.get(reason, 0.0))}", style)
        drawn.append([_label(word or reason, style), Span(text, style), seconds])
    return drawn


def _cells(intervals: Iterable[tuple[float, float]], axis: Axis) -> set[int]:
    return {dot // 2 for since, until in intervals for dot in axis.dots(since, until)}
