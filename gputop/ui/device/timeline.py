"""History of a device: charts over one time axis, with the newest values on the right."""

from __future__ import annotations

from gputop.agent.device import Device
from gputop.ui.drawing.cells import Row
from gputop.ui.drawing.charts import (
    CHARTS,
    GUTTER,
    Chart,
    device_chart,
    time_axis,
)
from gputop.ui.drawing.live import DeviceView, ZoomedView

FEWEST_ROWS, MOST_ROWS = 2, 5
"""Minimum rows of a chart, and the height above which a chart shows no more detail."""
TALL = 18
"""Rows from which all charts are higher than the minimum."""


class TimelineView(ZoomedView, DeviceView):
    """Charts of one device, one below the other, over one time axis."""

    def draw(self, width: int, height: int) -> list[Row]:
        history, room = self._telemetry.history, width - GUTTER
        if self.device is None or not history.count or room < 1 or height < 2:
            return []
        axis = self.axis(history.elapsed, room)
        fewest = FEWEST_ROWS + (height >= TALL)
        charts = self._charts(self.device, (height - 1) // fewest or 1)
        each = min(MOST_ROWS, (height - 1) // len(charts))
        rows: list[Row] = []
        for chart in charts:
            drawn = device_chart(self._telemetry, self.device, chart, axis)
            rows += drawn.rows(each)
        began = history.times[-1] - history.elapsed
        return [*rows, time_axis(axis, began)]

    def _charts(self, device: Device, most: int) -> list[Chart]:
        """Return the most useful charts for which the device has readings."""
        history, shown = self._telemetry.history, []
        for chart in CHARTS:
            known = history.series(device.uuid, chart.name)
            if any(value is not None for value in known):
                shown.append(chart)
        return shown[:most] or [CHARTS[0]]
