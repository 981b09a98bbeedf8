"""Charts of a training and of its GPUs over one time axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from gputop.agent.device import Device
from gputop.text import count, number
from gputop.training.progress import Point, rates
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.charts import (
    CHARTS,
    GUTTER,
    Chart,
    DrawnChart,
    time_axis,
)
from gputop.ui.drawing.live import TelemetryView
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.training.progress import Progress

WIDTHS = (2.0, 4.0, 10.0, 20.0, 60.0, 120.0, 600.0, 1800.0)
"""Zoom levels: seconds per dot."""
IN_VIEW_SECONDS = 200.0
FEWEST_ROWS, MOST_ROWS = 2, 10
SHOWN = ("gpu_utilization_percent", "sm_clock_mhz", "power_watts")
"""Readings of the GPUs that are drawn."""
LOWEST = ("sm_clock_mhz",)
"""Readings drawn of the lowest GPU, which slows the others down. Others are means."""
STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class Axis(NamedTuple):
    """Times of the dots."""

    end: float
    width: float
    """Seconds per dot."""
    dots: int

    @property
    def start(self) -> float:
        """Time at which the first dot begins."""
        return self.end - self.width * self.dots

    @property
    def edges(self) -> list[float]:
        """Times at which dots begin, and the end of the last one."""
        return [self.start + self.width * n for n in range(self.dots + 1)]

    def place(self, moment: float) -> int | None:
        """Return the index of the dot at a time, or None if the time is not shown."""
        if not self.start <= moment < self.end:
            return None
        return min(self.dots - 1, int((moment - self.start) / self.width))

    def means(self, points: Sequence[Point]) -> list[float | None]:
        """Return the mean of each dot, or None for a dot without a value."""
        values: list[list[float]] = [[] for _ in range(self.dots)]
        for point in points:
            place = self.place(point.time)
            if place is not None and math.isfinite(point.value):
                values[place].append(point.value)
        return [fmean(each) if each else None for each in values]


class TrainingCharts(TelemetryView):
    """Steps per second, the loss, and readings of the GPUs of a training."""

    _zoom: int | None = None
    """Index into `WIDTHS`, or None to show `IN_VIEW_SECONDS`."""

    def __init__(
        self,
        telemetry: Telemetry,
        progress: Progress,
        devices: Callable[[], Sequence[Device]],
        clock: Callable[[], float],
    ) -> None:
        """`devices` returns the devices of the training, and `clock` the Unix time."""
        super().__init__(telemetry, id="training-charts")
        self._progress, self._devices = progress, devices
        self._clock = clock

    def action_zoom(self, step: int) -> None:
        """Show more time for a positive `step`, and less for a negative one."""
        at = WIDTHS.index(self._width) + step
        self._zoom = max(0, min(len(WIDTHS) - 1, at))
        self.redraw()

    @property
    def _width(self) -> float:
        """Seconds per dot. Each dot has at least one sample."""
        if self._zoom is not None:
            return WIDTHS[self._zoom]
        dots = 2 * max(1, self.size.width - GUTTER)
        for width in WIDTHS:
            if width < 2 * self._telemetry.interval:
                continue
            if width * dots >= IN_VIEW_SECONDS:
                return width
        return WIDTHS[-1]

    def draw(self, width: int, height: int) -> list[Row]:
        room = width - GUTTER
        if room < 1 or height < FEWEST_ROWS + 1:
            return []
        a_cell = 2 * self._width
        end = math.floor(self._clock() / a_cell) * a_cell
        axis = Axis(end, self._width, 2 * room)
        charts = [*self._charts(axis)]
        charts = charts[: (height - 1) // FEWEST_ROWS]
        each = min(MOST_ROWS, (height - 1) // len(charts))
        rows: list[Row] = []
        for chart in charts:
            rows += chart.rows(each)
        return [*rows, _axis_row(axis)]

    def _charts(self, axis: Axis) -> Iterator[DrawnChart]:
        """Yield the charts, the most useful first."""
        yield self._steps(axis)
        of_devices = [*self._of_devices(axis)]
        yield from of_devices[:1]
        loss = self._loss(axis)
        if loss is not None:
            yield loss
        yield from of_devices[1:]

    def _steps(self, axis: Axis) -> DrawnChart:
        now = self._clock()
        main = self._progress.main(now)
        values: list[float | None] = [None] * axis.dots
        rate = None
        if main is not None:
            values = rates([*main.points], axis.edges)
            rate = main.rate(now)
        top = nice_top([*values, rate])
        scale = f"of {number(top)}"
        return DrawnChart(
            "steps/s",
            number(rate),
            scale,
            values,
            top,
            palette.ACCENT,
        )

    def _loss(self, axis: Axis) -> DrawnChart | None:
        """Return the chart of the loss. A logged loss is drawn until the next one."""
        points = self._progress.values.get("loss")
        if not points:
            return None
        values = axis.means(points)
        before = [p.value for p in points if p.time < axis.start]
        last = before[-1] if before else None
        newest = axis.place(points[-1].time)
        for n in range(axis.dots if newest is None else newest):
            if values[n] is None:
                values[n] = last
            last = values[n]
        top = nice_top(values)
        now = f"{points[-1].value:.3g}"
        return DrawnChart(
            "loss",
            now,
            f"of {number(top)}",
            values,
            top,
            palette.TENSOR,
        )

    def _of_devices(self, axis: Axis) -> Iterator[DrawnChart]:
        devices = self._devices()
        history = self._telemetry.history
        for chart in CHARTS:
            if chart.name not in SHOWN or not devices:
                continue
            series, newest = [], []
            for device in devices:
                values = history.last(device.uuid, chart.name, history.count)
                times = history.times[len(history.times) - len(values) :]
                points = [*map(Point, times, values)]
                series.append(axis.means(points))
                if values and not math.isnan(values[-1]):
                    newest.append(values[-1])
            if newest:
                yield self._merged(chart, devices, series, newest)

    def _merged(
        self,
        chart: Chart,
        devices: Sequence[Device],
        series: Sequence[Sequence[float | None]],
        newest: Sequence[float],
    ) -> DrawnChart:
        """Return one chart of several devices: their mean, or the lowest one."""
        merge = min if chart.name in LOWEST else fmean
        values: list[float | None] = []
        for dot in zip(*series, strict=True):
            known = [value for value in dot if value is not None]
            values.append(merge(known) if known else None)
        readings = self._telemetry.readings(devices[0].uuid)
        now = merge(newest)
        top = chart.top(devices[0], readings, None, [*values, now])
        scale = f"of {chart.text(top)}"
        if len(devices) > 1:
            word = "lowest" if chart.name in LOWEST else "mean"
            scale = f"{word} of {count(len(devices), 'GPU')}"
        return DrawnChart(
            chart.label,
            chart.text(now),
            scale,
            values,
            top,
            chart.style,
        )


def nice_top(values: Sequence[float | None]) -> float:
    """Return a round number for the full height, at least as large as all values."""
    most = max((value for value in values if value is not None), default=0.0)
    if most <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(most))
    for step in STEPS:
        if most <= step * unit:
            return step * unit
    return most


def _axis_row(axis: Axis) -> Row:
    minutes = axis.width * axis.dots / 60
    span = f"last {minutes:.0f} min"
    if minutes >= 120:
        span = f"last {minutes / 60:.1f} h"
    return time_axis(Span(span, palette.DIM), axis.edges[:-1])
