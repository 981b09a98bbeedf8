"""Charts of a training and of its GPUs over one time axis."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from gputop.agent.device import Device
from gputop.text import count, number
from gputop.training.progress import rates
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row
from gputop.ui.drawing.charts import (
    CHARTS,
    GUTTER,
    Axis,
    Chart,
    DrawnChart,
    device_chart,
    time_axis,
)
from gputop.ui.drawing.live import ZoomedView
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.training.progress import Progress

FEWEST_ROWS, MOST_ROWS = 2, 10
SHOWN = ("gpu_utilization_percent", "sm_clock_mhz", "power_watts")
"""Readings of the GPUs that are drawn."""
LOWEST = ("sm_clock_mhz",)
"""Readings drawn of the lowest GPU, which slows the others down. Others are means."""
STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class TrainingCharts(ZoomedView):
    """Steps per second, the loss, and readings of the GPUs of a training."""

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

    def draw(self, width: int, height: int) -> list[Row]:
        room = width - GUTTER
        if room < 1 or height < FEWEST_ROWS + 1:
            return []
        axis = self.axis(self._clock(), room)
        charts = [*self._charts(axis)]
        charts = charts[: (height - 1) // FEWEST_ROWS]
        each = min(MOST_ROWS, (height - 1) // len(charts))
        rows: list[Row] = []
        for chart in charts:
            rows += chart.rows(each)
        return [*rows, time_axis(axis)]

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
        finite = [point for point in points if math.isfinite(point.value)]
        times = [point.time for point in finite]
        numbers = [point.value for point in finite]
        values = axis.means(times, numbers)
        before = bisect_left(times, axis.start)
        last = numbers[before - 1] if before else None
        for n, value in enumerate(values):
            if value is None:
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
        devices, history = self._devices(), self._telemetry.history
        if not devices or not history.count:
            return
        # The axis of the history begins with its first sample.
        began = history.times[-1] - history.elapsed
        axis = axis._replace(end=axis.end - began)
        for chart in CHARTS:
            newest = []
            for device in devices:
                number = history.newest(device.uuid, chart.name)
                if number is not None:
                    newest.append(number)
            if chart.name in SHOWN and newest:
                yield self._merged(chart, devices, axis, newest)

    def _merged(
        self,
        chart: Chart,
        devices: Sequence[Device],
        axis: Axis,
        newest: Sequence[float],
    ) -> DrawnChart:
        """Return one chart of several devices: their mean, or the lowest one."""
        word = "mean"
        merge: Callable[[Sequence[float]], float] = fmean
        if chart.name in LOWEST:
            word, merge = "lowest", min
        drawn = []
        for device in devices:
            drawn.append(device_chart(self._telemetry, device, chart, axis))
        if len(drawn) == 1:
            return drawn[0]
        values: list[float | None] = []
        for dot in zip(*[each.values for each in drawn], strict=True):
            known = [value for value in dot if value is not None]
            values.append(merge(known) if known else None)
        return drawn[0]._replace(
            value=chart.text(merge(newest)),
            scale=f"{word} of {count(len(devices), 'GPU')}",
            values=values,
            top=max(each.top for each in drawn),
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
