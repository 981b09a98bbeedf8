"""History of a device: charts over one time axis, with a cursor that reads their values.

The charts scroll. They stand still while the cursor is in use.
"""

from __future__ import annotations

from gputop.agent.device import Device
from gputop.text import ABSENT, moment
from gputop.ui.drawing.cells import Row, Span, clip
from gputop.ui.drawing.charts import (
    CHARTS,
    GUTTER,
    SAMPLES_A_DOT,
    Chart,
    Dots,
    DrawnChart,
    ago,
    newest_dots,
    samples_a_dot,
    time_axis,
)
from gputop.ui.drawing.live import DeviceView
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, ink

FEWEST_ROWS, MOST_ROWS = 2, 5
"""Minimum rows of a chart, and the height above which a chart shows no more detail."""
TALL = 18
"""Rows from which all charts are higher than the minimum."""
CURSOR_INK = ink(75, reverse=True)


class TimelineView(DeviceView):
    """Charts of one device, one below the other, over one time axis."""

    _cursor: int | None = None
    """Number of the dot under the cursor, counted from the first sample; None for the newest."""
    _held: Dots | None = None
    """Dots of the charts while the cursor is in use."""
    _zoom: int | None = None
    """Index in `SAMPLES_A_DOT`; None for an automatic choice of some minutes."""

    @property
    def _samples(self) -> int:
        """Samples per dot."""
        if self._zoom is not None:
            return SAMPLES_A_DOT[self._zoom]
        room = max(1, self.size.width - GUTTER)
        return samples_a_dot(room, self._telemetry.interval)

    @property
    def _newest(self) -> int:
        """Number of the newest dot."""
        return -(-self._telemetry.history.count // self._samples) - 1

    @property
    def _oldest(self) -> int:
        """Number of the first dot whose samples are all kept."""
        history = self._telemetry.history
        return -(-(history.count - len(history.times)) // self._samples)

    def action_side(self, step: int) -> None:
        """Move the cursor by `step` dots. Beyond the newest, it follows the stream again."""
        at = self._newest if self._cursor is None else self._cursor
        at = max(self._oldest, at + step)
        self._cursor = None if at >= self._newest else at
        self.redraw()

    def action_zoom(self, step: int) -> None:
        """Show more time for a positive `step`, and less for a negative one."""
        before = self._samples
        zoom = SAMPLES_A_DOT.index(before) + step
        self._zoom = max(0, min(len(SAMPLES_A_DOT) - 1, zoom))
        self._held = None
        # Keep the cursor's time.
        if self._cursor is not None:
            self._cursor = self._cursor * before // self._samples
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        room = width - GUTTER
        if self.device is None or self._newest < 0 or room < 1 or height < 2:
            return []
        # The cursor's sample may have been dropped.
        if self._cursor is not None:
            self._cursor = max(self._cursor, self._oldest)
            # A replay may have jumped back.
            if self._cursor > self._newest:
                self._cursor = None
        dots = self._dots(room)
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

    def _dots(self, room: int) -> Dots:
        """Return the newest dots, or the fixed dots around the cursor."""
        count = self._telemetry.history.count
        newest = newest_dots(count, room, self._samples)
        if self._cursor is None:
            self._held = None
            return newest
        held = self._held or newest
        if not held.first <= self._cursor < held.end:
            first = min(self._cursor - room, newest.end - 2 * room)
            if self._cursor >= newest.end:
                first = self._cursor + 1 - 2 * room
            held = Dots(first, first + 2 * room, self._samples)
        self._held = held
        return held

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
        if self._cursor is not None:
            value = values[self._cursor - dots.first]
        text = ABSENT if value is None else chart.text(value)
        style = STRONG if self._cursor is None else ACCENT
        scale = f"of {chart.text(top)}"
        drawn = DrawnChart(
            chart.label,
            text,
            scale,
            values,
            top,
            chart.style,
            style,
        )
        rows = drawn.rows(height)
        if self._cursor is not None:
            at = (self._cursor - dots.first) // 2
            rows = [[*row[:-1], *_marked(row[-1], at)] for row in rows]
        return rows

    def _axis(self, dots: Dots) -> Row:
        history = self._telemetry.history
        stamps = dots.averaged(history.times, history.count)
        label = Span(f"last {dots.span_text(self._telemetry.interval)}", DIM)
        if self._cursor is not None:
            at = self._cursor - dots.first
            axis = dots.averaged(history.seconds, history.count)
            stamp, seconds = stamps[at], axis[at]
            if stamp is not None and seconds is not None:
                past = ago(history.seconds[-1] - seconds)
                label = Span(
                    clip(f"{moment(stamp)}, {past} ago", GUTTER - 1),
                    ACCENT,
                )
        return time_axis(label, stamps)


def _marked(chart: Span, x: int) -> Row:
    """Return a row of a chart with the cursor in one cell."""
    text, style = chart
    marked = Span(text[x], style + CURSOR_INK)
    return [Span(text[:x], style), marked, Span(text[x + 1 :], style)]
