"""History of a device: charts over one time axis, with the newest values on the right."""

from __future__ import annotations

from gputop.agent.device import Device
from gputop.text import ABSENT
from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.charts import (
    CHARTS,
    GUTTER,
    SAMPLES_A_DOT,
    Chart,
    Dots,
    DrawnChart,
    newest_dots,
    samples_a_dot,
    time_axis,
)
from gputop.ui.drawing.live import DeviceView
from gputop.ui.drawing.palette import DIM

FEWEST_ROWS, MOST_ROWS = 2, 5
"""Minimum rows of a chart, and the height above which a chart shows no more detail."""
TALL = 18
"""Rows from which all charts are higher than the minimum."""


class TimelineView(DeviceView):
    """Charts of one device, one below the other, over one time axis."""

    _zoom: int | None = None
    """Index in `SAMPLES_A_DOT`; None for an automatic choice of some minutes."""

    @property
    def _samples(self) -> int:
        """Samples per dot."""
        if self._zoom is not None:
            return SAMPLES_A_DOT[self._zoom]
        room = max(1, self.size.width - GUTTER)
        return samples_a_dot(room, self._telemetry.interval)

    def action_zoom(self, step: int) -> None:
        """Show more time for a positive `step`, and less for a negative one."""
        zoom = SAMPLES_A_DOT.index(self._samples) + step
        self._zoom = max(0, min(len(SAMPLES_A_DOT) - 1, zoom))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        room, count = width - GUTTER, self._telemetry.history.count
        if self.device is None or not count or room < 1 or height < 2:
            return []
        dots = newest_dots(count, room, self._samples)
        fewest = FEWEST_ROWS + (height >= TALL)
        charts = self._charts(self.device, (height - 1) // fewest or 1)
        each = min(MOST_ROWS, (height - 1) // len(charts))
        rows: list[Row] = []
        for chart in charts:
            rows += self._chart(self.device, chart, dots, each)
        return [*rows, self._axis(dots)]

    def _charts(self, device: Device, most: int) -> list[Chart]:
        """Return the most useful charts for which the device has readings."""
        history, shown = self._telemetry.history, []
        for chart in CHARTS:
            known = history.series(device.uuid, chart.name)
            if any(value is not None for value in known):
                shown.append(chart)
        return shown[:most] or [CHARTS[0]]

    def _chart(
        self,
        device: Device,
        chart: Chart,
        dots: Dots,
        height: int,
    ) -> list[Row]:
        telemetry = self._telemetry
        history, uuid = telemetry.history, device.uuid
        values = dots.means(history, uuid, chart.name)
        readings, host = telemetry.readings(uuid), telemetry.host_of(device)
        value = history.newest(uuid, chart.name)
        top = chart.top(device, readings, host, [*values, value])
        text = ABSENT if value is None else chart.text(value)
        scale = f"of {chart.text(top)}"
        drawn = DrawnChart(
            chart.label,
            text,
            scale,
            values,
            top,
            chart.style,
        )
        return drawn.rows(height)

    def _axis(self, dots: Dots) -> Row:
        history = self._telemetry.history
        stamps = dots.averaged(history.times, history.count)
        label = Span(f"last {dots.span_text(self._telemetry.interval)}", DIM)
        return time_axis(label, stamps)
