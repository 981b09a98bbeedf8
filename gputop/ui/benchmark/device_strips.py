"""Rows below the throughput of a run: readings of its device, and reasons for low clocks.

They share the time axis of the throughput. Each chart goes from 0 to the limit after its value; if
there is no limit, to the number in its label. A strip has ▮ when a reason reduced the clocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from rich.style import Style

from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.readings import RunReadings, held_seconds
from gputop.bench.run.series import READINGS, Moment, mean_over_time
from gputop.schema.clock_events import gravity
from gputop.schema.values import span_text
from gputop.text import ABSENT, quantity
from gputop.ui.benchmark.plot import round_up
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, spread
from gputop.ui.drawing.charts import CHARTS, GUTTER, DrawnChart
from gputop.ui.drawing.device_cells import limit_text
from gputop.ui.drawing.palette import DIM

TALLEST_CHART = 3


def device_rows(
    run: DeviceRun,
    seconds: float,
    width: int,
    height: int,
) -> list[Row]:
    """Draw `height` rows over so many seconds: power first, and the gravest reasons."""
    most_reasons = 0
    if run.request.target.uuid is not None:
        most_reasons = (height + 1) // 3
    room = height - most_reasons
    charts = _charts(run, seconds, width)[:room]
    rows: list[Row] = []
    for chart in charts:
        rows += chart.rows(min(TALLEST_CHART, room // len(charts)))
    rows += _strips(run, seconds, width, most_reasons)
    rows += [[] for _ in range(height - len(rows))]
    return rows[:height]


def last_readings(run: DeviceRun) -> Mapping[str, float | None]:
    """Return the last readings; after the end the means, and the highest temperature."""
    if run.result is not None:
        known = run.result.known_conditions
        return {
            "power_watts": known.power_watts_mean,
            "sm_clock_mhz": known.sm_clock_mhz_mean,
            "temperature_celsius": known.temperature_celsius_max,
        }
    last: Moment | None = next(reversed(run.readings.moments), None)
    return {name: getattr(last, name, None) for name in READINGS}


def _parts(
    moments: Sequence[Moment],
    seconds: float,
    many: int,
) -> list[Sequence[Moment]]:
    """Return the moments of each of so many equal parts of the time."""
    starts = [moment.since for moment in moments]
    ends = [moment.seconds for moment in moments]
    parts = []
    for n in range(many):
        first = bisect_right(ends, seconds * n / many)
        last = bisect_left(starts, seconds * (n + 1) / many)
        parts.append(moments[first:last])
    return parts


def _charts(
    run: DeviceRun,
    seconds: float,
    width: int,
) -> list[DrawnChart]:
    """Return the charts of the known readings, with their last values."""
    parts = _parts(run.readings.moments, seconds, 2 * width)
    limits = _limits(run.readings)
    charts = []
    for chart in CHARTS:
        if chart.name not in limits:
            continue
        means = [mean_over_time(part, chart.name) for part in parts]
        highest = max((each for each in means if each), default=None)
        if highest is None:
            continue
        value = last_readings(run)[chart.name]
        top = limits[chart.name]
        label = chart.short
        if top is not None:
            text = f"{quantity(value, '')}/{chart.text(top)}"
        else:
            top = round_up(highest)
            label += f" 0–{top:.0f}"
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


def _strips(
    run: DeviceRun,
    seconds: float,
    width: int,
    most: int,
) -> list[Row]:
    moments, intervals = run.readings.moments, run.readings.intervals()
    held: Mapping[str, float] = held_seconds(moments)
    if run.result is not None:
        held = run.result.known_conditions.clock_event_seconds
    reports = any(moment.reasons is not None for moment in moments)
    if most and reports and not intervals:
        nothing = Span("┄" * width, palette.TRACK)
        return [[*_label("held back", "by nothing", DIM), nothing]]
    parts = _parts(moments, seconds, width)
    rows = []
    for reason in sorted(intervals, key=gravity)[:most]:
        word, style = limit_text(reason)
        text = ""
        for part in parts:
            is_held = any(reason in (each.reasons or ()) for each in part)
            text += "▮" if is_held else " "
        label = _label(word or reason, span_text(held.get(reason, 0.0)), style)
        rows.append([*label, Span(text, style)])
    return rows


def _label(
    text: str,
    value: str,
    style: Style,
) -> Row:
    return spread([Span(text, style)], [Span(f"{value} ", style)], GUTTER)
