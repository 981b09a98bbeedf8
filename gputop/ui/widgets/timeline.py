"""What a device did: charts over one time axis, and a cursor that reads them at a moment.

The charts fill from the left and move by a quarter at once, as `draw.history` does, so a sample
costs a column. For the same reason the axis has times of day, which stay where they are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gputop.frozen import dataclass
from gputop.schema.values import value_text
from gputop.text import ABSENT, duration, moment
from gputop.ui.drawing.draw import Row, Span, cell, clip, fit, history, spread, window_start
from gputop.ui.drawing.palette import ACCENT, BUSY, CPU, DIM, MEMORY, POWER, STRONG, TRACK, ink
from gputop.ui.widgets.live import DeviceView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style

    from gputop.schema.device import Device, DeviceSample

GUTTER = 21
"""Cells at the left: what a chart shows, and its value."""
FEWEST_ROWS, MOST_ROWS = 2, 7
"""Of a chart: where there is room for some of that height, and beyond which it says no more."""
SAMPLES_A_DOT = (1, 2, 5, 10, 30)
"""The zoom: how many samples are one column of dots, as their mean."""
TICK = 12
"""Cells from one time on the axis to the next."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One reading over time."""

    label: str
    name: str
    style: Style

    def top(self, device: Device, readings: DeviceSample, values: Sequence[float | None]) -> float:
        """What the full height stands for; a limit, where there is one."""
        limits: dict[str, float | None] = {
            "memory_used_bytes": readings.memory_total_bytes or device.memory_total_bytes,
            "power_watts": readings.power_limit_watts or device.power_limit_default_watts,
            "temperature_celsius": device.temperature_shutdown_celsius or 100,
            "sm_clock_mhz": device.sm_clock_max_mhz,
        }
        if self.name.endswith("_percent"):
            return 100.0
        return limits.get(self.name) or round_up(max((v for v in values if v), default=0.0))


CHARTS = (
    Chart("busy", "gpu_utilization_percent", BUSY),
    Chart("SM active", "sm_active_percent", ink(107)),
    Chart("tensor", "tensor_active_percent", ink(143)),
    Chart("memory", "memory_used_bytes", MEMORY),
    Chart("power", "power_watts", POWER),
    Chart("temperature", "temperature_celsius", ink(167)),
    Chart("SM clock", "sm_clock_mhz", CPU),
    Chart("PCIe rx", "pcie_rx_bytes_per_second", ink(140)),
    Chart("PCIe tx", "pcie_tx_bytes_per_second", ink(133)),
)
"""In this order where they all fit."""
# fmt: off
MOST_TELLING = (
    "gpu_utilization_percent", "memory_used_bytes", "power_watts", "sm_active_percent",
    "temperature_celsius", "tensor_active_percent", "sm_clock_mhz", "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
)
# fmt: on
"""The order in which they are given room."""


class TimelineView(DeviceView):
    """Charts of one device, one under the other, over one time axis."""

    _cursor: int | None = None
    """The number of the dot, counted from the first sample ever; None follows the newest."""
    _zoom = 0

    @property
    def _samples(self) -> int:
        return SAMPLES_A_DOT[self._zoom]

    @property
    def _dots(self) -> int:
        """Columns of dots that there ever were."""
        return -(-self._telemetry.history.count // self._samples)

    @property
    def _oldest(self) -> int:
        """The first dot all of whose samples are kept."""
        history = self._telemetry.history
        return -(-(history.count - len(history.times)) // self._samples)

    @property
    def wanted_rows(self) -> int:
        """For all charts with their axis."""
        return len(self._charts(self.device.uuid, 99)) * MOST_ROWS + 1 if self.device else 1

    def action_side(self, step: int) -> None:
        """Reads that many dots further on; beyond the newest one it follows the stream again."""
        last = self._dots - 1
        cursor = max(self._oldest, (last if self._cursor is None else self._cursor) + step)
        self._cursor = None if cursor >= last else cursor
        self.redraw()

    def action_zoom(self, step: int) -> None:
        """Shows more time for a positive `step`, and less for a negative one."""
        before = self._samples
        self._zoom = max(0, min(len(SAMPLES_A_DOT) - 1, self._zoom + step))
        if self._cursor is not None:  # where it was in time
            self._cursor = self._cursor * before // self._samples
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        """As many charts as there is room for, and the axis under them."""
        room = width - GUTTER
        if self.device is None or not self._dots or room < 1 or height < 2:
            return []
        if self._cursor is not None:  # what it is on is kept for a time only
            self._cursor = max(self._cursor, self._oldest)
            if self._cursor >= self._dots:  # a replay went back behind it
                self._cursor = None
        charts = self._charts(self.device.uuid, height - 1)
        first = self._first(room)
        rows: list[Row] = []
        for chart, rows_of_it in zip(charts, heights(height - 1, len(charts)), strict=True):
            rows += self._chart(self.device, chart, first, room, rows_of_it)
        return [*rows, self._axis(first, room)]

    def _charts(self, uuid: str, rows: int) -> list[Chart]:
        """Those that have anything to show, in their order, as many as there is room for."""
        has = {
            chart.name
            for chart in CHARTS
            if any(v is not None for v in self._telemetry.history.series(uuid, chart.name))
        } or {CHARTS[0].name}
        most = rows // FEWEST_ROWS or rows
        shown = [name for name in MOST_TELLING if name in has][:most]
        return [chart for chart in CHARTS if chart.name in shown]

    def _first(self, room: int) -> int:
        """The dot at the left end: so that it holds still, and the cursor is seen."""
        first = window_start(self._dots, room)
        if self._cursor is None or self._cursor >= first:
            return first
        step = max(2, room // 2)
        return max(0, self._cursor // step * step)

    def _means(self, series: Sequence[float | None], first: int, many: int) -> list[float | None]:
        """The dots from `first` on, each the mean of its samples; None where there are none."""
        n = self._samples
        offset = self._telemetry.history.count - len(series)
        start = max(0, first * n - offset)
        values = series[start : max(0, (first + many) * n - offset)]
        dots: list[list[float]] = [[] for _ in range(min(many, self._dots - first))]
        for sample, value in enumerate(values, start + offset):
            if value is not None and 0 <= sample // n - first < len(dots):
                dots[sample // n - first].append(value)
        return [math.fsum(dot) / len(dot) if dot else None for dot in dots]

    def _chart(self, device: Device, chart: Chart, first: int, room: int, height: int) -> list[Row]:
        values = self._means(
            self._telemetry.history.series(device.uuid, chart.name), first, 2 * room
        )
        top = chart.top(device, self._telemetry.readings(device.uuid), values)
        drawn = history(values, len(values), room, height, top, chart.style)
        place = self._place(first)
        value = values[place] if 0 <= place < len(values) else None
        text = ABSENT if value is None else value_text(chart.name, tidy(chart.name, value))
        style = DIM if value is None else STRONG if self._cursor is None else ACCENT
        scale = value_text(chart.name, tidy(chart.name, top))
        labels = [spread([Span(chart.label, DIM)], [Span(text, style), Span(" ")], GUTTER)]
        if height > 1:
            labels.append([cell(f"of {scale}", GUTTER - 1, DIM, right=True), Span(" ")])
        labels += [fit([], GUTTER)] * (height - len(labels))
        marked = drawn if self._cursor is None else [_mark(row, place // 2) for row in drawn]
        return [[*label, *row] for label, row in zip(labels, marked, strict=True)]

    def _place(self, first: int) -> int:
        """Where the dot is that is read."""
        return (self._dots - 1 if self._cursor is None else self._cursor) - first

    def _axis(self, first: int, room: int) -> Row:
        history = self._telemetry.history
        stamps = self._means(history.times, first, 2 * room)
        axis = self._means(history.seconds, first, 2 * room)
        newest, place = history.seconds[-1] or 0.0, self._place(first)
        read = axis[place] if 0 <= place < len(axis) else None
        stamp = None if read is None else stamps[place]
        if self._cursor is None or read is None or stamp is None:
            oldest = next((seconds for seconds in axis if seconds is not None), None)
            label = Span("" if oldest is None else f"last {_ago(newest - oldest)}", DIM)
        else:
            label = Span(clip(f"{moment(stamp)}, {_ago(newest - read)} ago", GUTTER - 1), ACCENT)
        ticks = ""
        for x in range(0, room - len("╵00:00:00"), TICK):
            stamp = stamps[2 * x] if 2 * x < len(stamps) else None
            ticks += ("" if stamp is None else f"╵{moment(stamp)}").ljust(TICK)
        return [*fit([label], GUTTER), Span(ticks.rstrip(), TRACK)]


def _mark(row: Row, x: int) -> Row:
    """The row with its cell at `x` reversed: the cursor."""
    (span,) = row
    if not 0 <= x < len(span.text):
        return row
    style = span.style + CURSOR
    return [
        Span(span.text[:x], span.style),
        Span(span.text[x], style),
        Span(span.text[x + 1 :], span.style),
    ]


CURSOR = ink(75, reverse=True)


def heights(rows: int, charts: int) -> list[int]:
    """The rows of each chart; the first ones get what is left over."""
    each, more = divmod(rows, charts)
    return [each + (n < more) for n in range(charts)]


def round_up(value: float) -> float:
    """The next power of two: what a chart without a limit is drawn to."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 1 else 1.0


def tidy(name: str, value: float) -> float:
    """Without decimals that the reading does not have, or that say nothing."""
    fine = name.endswith(("_percent", "_watts"))
    return value if fine and value != round(value) else round(value)


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 99.5 else duration(seconds)
