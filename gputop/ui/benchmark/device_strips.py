"""Rows below the throughput of a run: readings of its device, and reasons for low clocks.

They share the time axis of the throughput. Each chart goes from 0 to the limit after its value; if
there is no limit, to the number in its label. A strip has ▮ when a reason reduced the clocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from gputop.bench.run.readings import held_seconds
from gputop.schema.clock_events import gravity
from gputop.schema.values import span_text
from gputop.text import ABSENT, quantity
from gputop.ui.benchmark.plot import round_up
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, spread
from gputop.ui.drawing.charts import CHARTS, GUTTER, DrawnChart
from gputop.ui.drawing.device_cells import limit_text
from gputop.ui.drawing.palette import DIM

if TYPE_CHECKING:
    from gputop.bench.run.device_run import DeviceRun
    from gputop.bench.run.readings import RunReadings
    from gputop.bench.run.series import Moment

TALLEST_CHART, MOST_REASONS = 3, 4


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


def device_rows(
    run: DeviceRun,
    axis: TimeAxis,
    height: int,
) -> list[Row]:
    """Draw `height` rows: power first, and the gravest reasons. Their places are fixed."""
    read = run.readings
    most_reasons = 0
    if read.target.uuid is not None and height > 1:
        most_reasons = min(MOST_REASONS, max(1, height // 3))
    room = height - most_reasons
    charts = _charts(run, axis)[:room]
    rows: list[Row] = []
    for chart in charts:
        rows += chart.rows(min(TALLEST_CHART, room // len(charts)))
    rows += _strips(run, axis, most_reasons)
    rows += [[] for _ in range(height - len(rows))]
    return rows[:height]


def _charts(run: DeviceRun, axis: TimeAxis) -> list[DrawnChart]:
    """Return the charts of the known readings, with their last values.

    After the end, these are the means, and the highest temperature.
    """
    read = run.readings
    limits = _limits(read)
    values: dict[str, float | None] = {}
    if run.result is not None:
        known = run.result.known_conditions
        values = {
            "power_watts": known.power_watts_mean,
            "sm_clock_mhz": known.sm_clock_mhz_mean,
            "temperature_celsius": known.temperature_celsius_max,
        }
    charts = []
    for chart in CHARTS:
        if chart.name not in limits:
            continue
        means = _means(read.moments, chart.name, axis)
        highest = max((each for each in means if each), default=None)
        if highest is None:
            continue
        value = values.get(chart.name, getattr(read.moments[-1], chart.name))
        top = limits[chart.name]
        if top is not None:
            label, text = (
                chart.short,
                f"{quantity(value, '')}/{chart.text(top)}",
            )
        else:
            top = round_up(1.08 * highest)
            label = f"{chart.short} 0–{top:.0f}"
            text = chart.text(value).replace(" ", "") if value else ABSENT
        charts.append(DrawnChart(label, text, "", means, top, chart.style))
    return charts


def _limits(read: RunReadings) -> dict[str, float | None]:
    hottest = None
    for limit in read.heat_limits:
        if limit.reading == "temperature_celsius":
            hottest = limit.celsius
    return {
        "power_watts": read.power_limit_watts,
        "sm_clock_mhz": read.gpu.sm_clock_max_mhz if read.gpu else None,
        "temperature_celsius": hottest,
    }


def _means(
    moments: Sequence[Moment],
    name: str,
    axis: TimeAxis,
) -> list[float | None]:
    """Return the mean of each dot of the time axis."""
    dots: list[list[float]] = [[] for _ in range(2 * axis.width)]
    for moment in moments:
        value = getattr(moment, name)
        if value is not None:
            for dot in axis.dots(moment.since, moment.seconds):
                dots[dot].append(value)
    means: list[float | None] = []
    for values in dots:
        means.append(math.fsum(values) / len(values) if values else None)
    return means


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
        return [[*_label("held back", "by nothing", DIM), nothing]]
    rows = []
    for reason in sorted(intervals, key=gravity)[:most]:
        word, style = limit_text(reason)
        cells = set()
        for since, until in intervals[reason]:
            cells |= {dot // 2 for dot in axis.dots(since, until)}
        text = "".join("▮" if x in cells else " " for x in range(axis.width))
        seconds = span_text(held.get(reason, 0.0))
        rows.append(
            [*_label(word or reason, seconds, style), Span(text, style)]
        )
    return rows


def _label(text: str, value: str, style: Style) -> Row:
    return spread([Span(text, style)], [Span(f"{value} ", style)], GUTTER)
