"""Readings of the device during a run, on the time axis of the chart above.

Lines of power, clock and temperature, and a strip for each clock event reason: ▮ where it held. A
reading that does not change is a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.bench.run.state import READINGS, RunState
from gputop.schema.clock_events import gravity
from gputop.schema.values import span_text
from gputop.text import quantity, watts_of
from gputop.ui.drawing.cells import Row, Span, cell, clip, history
from gputop.ui.drawing.palette import CPU, DIM, POWER, STRONG, TEMPERATURE, TRACK
from gputop.ui.monitor.panel import limit_text

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.run.trace import Trace, TraceMoment

LEFT, RIGHT = 13, 15
"""Cells beside the time axis: the row's label, and its value."""
SHARE_SHOWN = 0.25
"""Least share of its scale that a line shows, so that noise does not fill it."""
ROWS_OF_TALL_LINES = 3
MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class ReadingLine:
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


class TimeAxis:
    """Seconds of the run as `width` cells with two dots each."""

    def __init__(self, seconds: float, width: int) -> None:
        self.seconds, self.width = seconds, width

    def dots(self, since: float, until: float) -> range:
        """Return the dots of a time interval, at least one."""
        most = 2 * self.width
        first = min(most - 1, int(since / self.seconds * most))
        return range(first, max(first + 1, min(most, math.ceil(until / self.seconds * most))))


def rows_wanted(run: RunState) -> int:
    """Return the rows that show everything, each reading in one."""
    lines, constant = _lines(run)
    return len(lines) + bool(constant) + _reason_rows(run.trace)


def trace_rows(run: RunState, axis: TimeAxis, height: int) -> list[Row]:
    """Draw as many rows as fit: power and the gravest reason first."""
    (lines, constant), reasons = _lines(run), _reason_rows(run.trace)
    reasons = min(reasons, height // 2)
    numbers = bool(constant) and height - reasons > min(1, len(lines))
    room = height - reasons - numbers
    lines = lines[:room]
    drawn: list[Row] = []
    for line in lines:
        drawn += _line(line, run.trace.moments, axis, min(ROWS_OF_TALL_LINES, room // len(lines)))
    if numbers:
        drawn.append(_constant(constant, axis.width + RIGHT))
    return drawn + _strips(run.trace, axis, reasons)


def _constant(lines: Sequence[ReadingLine], room: int) -> Row:
    """Return the readings that did not change in a row of numbers."""
    words = (f"{line.label} {re.sub('^(mean|max) ', '', line.text)}" for line in lines)
    return [_label("constant", DIM), Span(clip(" · ".join(words), room), STRONG)]


def _lines(run: RunState) -> tuple[list[ReadingLine], list[ReadingLine]]:
    """Return the known readings as they are now, or after the run as they were.

    Those that change come first, and then those that do not.
    """
    trace, moments = run.trace, run.trace.moments
    if not moments:
        return [], []
    last, gpu = moments[-1], trace.gpu
    if run.ended:
        power, clock = quantity(trace.power.value, " W"), quantity(trace.clock.value, " MHz")
        texts = (f"mean {power}", f"mean {clock}", f"max {quantity(trace.temperature_max, '°C')}")
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
    styles = (POWER, CPU, TEMPERATURE)
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
    drawn = history(means, len(means), axis.width, height, top - floor or 1.0, line.style)
    left = [_label(line.label, DIM)] + [Span(" " * LEFT)] * (height - 1)
    right = [Span(f" {line.text}", STRONG)] + [Span("")] * (height - 1)
    return [[name, *_parted(row), text] for name, row, text in zip(left, drawn, right, strict=True)]


def _parted(row: Row) -> Row:
    """Part blanks from dots: in a screenshot a font may have another width for each."""
    return [Span(part, span.style) for span in row for part in re.split("( +)", span.text) if part]


def _label(text: str, style: Style) -> Span:
    return cell(f" {clip(text, LEFT - 2)}", LEFT, style)


def _reason_rows(trace: Trace) -> int:
    """Return the rows for reasons; one if none held, so that the chart does not move."""
    told = any(moment.reasons is not None for moment in trace.moments)
    return min(MOST_REASONS, max(1, len(trace.intervals()))) if told else 0


def _strips(trace: Trace, axis: TimeAxis, most: int) -> list[Row]:
    intervals, held = trace.intervals(), trace.clock_event_seconds()
    if most and not intervals:
        return [[_label("held back", DIM), Span("┄" * axis.width, TRACK), Span(" by nothing", DIM)]]
    drawn = []
    for reason in sorted(intervals, key=gravity)[:most]:
        word, style = limit_text(reason)
        dots = (axis.dots(since, until) for since, until in intervals[reason])
        cells = {dot // 2 for each in dots for dot in each}
        text = "".join("▮" if x in cells else " " for x in range(axis.width))
        seconds = Span(f" {span_text(held.get(reason, 0.0))}", style)
        drawn.append([_label(word or reason, style), Span(text, style), seconds])
    return drawn
