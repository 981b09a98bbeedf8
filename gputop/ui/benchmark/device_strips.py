"""Rows below the throughput of a run: readings of its device, and reasons for low clocks.

They share the time axis of the throughput. Each line goes from 0 to the limit in its label. A strip
has ▮ at times when a reason reduced the clocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from gputop.bench.run.readings import held_seconds
from gputop.schema.clock_events import gravity
from gputop.schema.values import span_text
from gputop.text import quantity
from gputop.ui.benchmark.plot import round_up
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, cell, clip
from gputop.ui.drawing.charts import draw_chart
from gputop.ui.drawing.device_cells import limit_text
from gputop.ui.drawing.palette import DIM, STRONG

if TYPE_CHECKING:
    from gputop.bench.run.device_run import DeviceRun
    from gputop.bench.run.readings import RunReadings
    from gputop.bench.run.series import Moment

LEFT, RIGHT = 14, 14
"""Cells beside the time axis: the row's label and its value."""
TALLEST_LINE, MOST_REASONS = 3, 4


class TimeAxis(NamedTuple):
    """Seconds of the run as `width` cells with two dots each."""

    seconds: float
    width: int

    def dots(self, since: float, until: float) -> range:
        """Return the dots of a time interval, at least one."""
        most = 2 * self.width
        first = min(most - 1, int(since / self.seconds * most))
        last = min(most, math.ceil(until / self.seconds * most))
        return range(first, max(first + 1, last))


class ReadingLine(NamedTuple):
    """A reading during the run."""

    name: str
    """Name in `Moment`."""
    label: str
    top: float | None
    """Value at full height: a limit of the device, or None if there is none."""
    text: str
    """Current value, or the value of the whole run after its end."""
    style: Style


def device_rows(
    run: DeviceRun,
    axis: TimeAxis,
    height: int,
) -> list[Row]:
    """Draw `height` rows: power first, and the gravest reasons. Their places are fixed."""
    read = run.readings
    moments = read.moments
    lines = []
    for line in _lines(run):
        if any(getattr(moment, line.name) is not None for moment in moments):
            lines.append(line)
    most_reasons = 0
    if read.target.uuid is not None and height > 1:
        most_reasons = min(MOST_REASONS, max(1, height // 3))
    room = max(0, height - most_reasons)
    lines = lines[:room]
    rows: list[Row] = []
    for line in lines:
        tall = min(TALLEST_LINE, room // len(lines))
        rows += _line_rows(line, moments, axis, tall)
    rows += _strips(run, axis, most_reasons)
    rows += [[] for _ in range(height - len(rows))]
    return rows[:height]


def _lines(run: DeviceRun) -> list[ReadingLine]:
    read = run.readings
    watts, mhz, celsius = _values_now(read)
    before = ("", "", "")
    if run.result is not None:
        known = run.result.known_conditions
        watts, mhz, celsius = (
            known.power_watts_mean,
            known.sm_clock_mhz_mean,
            known.temperature_celsius_max,
        )
        before = ("mean ", "mean ", "max ")
    texts = (
        quantity(watts, " W"),
        quantity(mhz, " MHz"),
        quantity(celsius, "°C"),
    )
    power, clock, temperature = (
        f"{a}{b}" for a, b in zip(before, texts, strict=True)
    )
    hottest = None
    for limit in read.heat_limits:
        if limit.reading == "temperature_celsius":
            hottest = limit.celsius
    fastest = read.gpu.sm_clock_max_mhz if read.gpu else None
    strongest = read.power_limit_watts
    return [
        ReadingLine("power_watts", "power", strongest, power, palette.POWER),
        ReadingLine("sm_clock_mhz", "clock", fastest, clock, palette.CPU),
        ReadingLine(
            "temperature_celsius",
            "temp",
            hottest,
            temperature,
            palette.TEMPERATURE,
        ),
    ]


def _values_now(
    read: RunReadings,
) -> tuple[float | None, float | None, float | None]:
    if not read.moments:
        return None, None, None
    last = read.moments[-1]
    return last.power_watts, last.sm_clock_mhz, last.temperature_celsius


def _line_rows(
    line: ReadingLine,
    moments: Sequence[Moment],
    axis: TimeAxis,
    height: int,
) -> list[Row]:
    dots: list[list[float]] = [[] for _ in range(2 * axis.width)]
    highest = 0.0
    for moment in moments:
        value = getattr(moment, line.name)
        if value is None:
            continue
        highest = max(highest, value)
        for dot in axis.dots(moment.since, moment.seconds):
            dots[dot].append(value)
    top = (
        round_up(1.08 * highest)
        if line.top is None
        else max(line.top, highest)
    )
    means: list[float | None] = []
    for values in dots:
        means.append(math.fsum(values) / len(values) if values else None)
    rows = []
    label, text = f"{line.label} 0–{top:.0f}", f" {line.text}"
    for drawn in draw_chart(means, height, top or 1.0, line.style):
        rows.append([_label(label, DIM), *_parted(drawn), Span(text, STRONG)])
        label = text = ""
    return rows


def _parted(row: Row) -> Row:
    """Separate blanks from dots. In a screenshot, a font may give them different widths."""
    parts = []
    for span in row:
        for part in re.split("( +)", span.text):
            if part:
                parts.append(Span(part, span.style))
    return parts


def _label(text: str, style: Style) -> Span:
    return cell(f" {clip(text, LEFT - 2)}", LEFT, style)


def _strips(
    run: DeviceRun,
    axis: TimeAxis,
    most: int,
) -> list[Row]:
    moments, intervals = run.readings.moments, run.readings.intervals()
    held: Mapping[str, float] = held_seconds(moments)
    if run.result is not None:
        held = run.result.known_conditions.clock_event_seconds
    reports = any(moment.reasons is not None for moment in moments)
    if most and reports and not intervals:
        nothing = Span("┄" * axis.width, palette.TRACK)
        return [[_label("held back", DIM), nothing, Span(" by nothing", DIM)]]
    rows = []
    for reason in sorted(intervals, key=gravity)[:most]:
        word, style = limit_text(reason)
        cells = set()
        for since, until in intervals[reason]:
            cells |= {dot // 2 for dot in axis.dots(since, until)}
        text = "".join("▮" if x in cells else " " for x in range(axis.width))
        seconds = Span(f" {span_text(held.get(reason, 0.0))}", style)
        rows.append(
            [_label(word or reason, style), Span(text, style), seconds],
        )
    return rows
