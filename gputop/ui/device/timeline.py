"""History of a device: charts over one time axis, with a cursor that reads their values.

The charts are written over or scroll, as those of the panels. While the cursor reads them they are
in the order of time and stand still. The axis shows times of day, which change seldom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from rich.style import Style

from gputop.agent.device import Device, DeviceSample
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.derived import HOST_CPU
from gputop.schema.values import value_text
from gputop.text import ABSENT, duration, moment
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import (
    ChartWindow,
    Row,
    Span,
    cell,
    chart,
    clip,
    live_window,
    spread,
)
from gputop.ui.drawing.live import DeviceView
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TRACK, ink

GUTTER = 21
"""Cells at the left for the label of a chart and its value."""
FEWEST_ROWS, MOST_ROWS = 2, 7
"""Fewest rows of a chart, and the height beyond which it shows no more."""
SAMPLES_A_DOT = (1, 2, 5, 10, 30)
"""Zoom levels: samples averaged into one column of dots."""
TICK = 12


class Chart(NamedTuple):
    """Chart of one reading over time."""

    label: str
    name: str
    style: Style
    rank: int = 0
    """Order in which charts are given room."""

    def top(
        self, device: Device, readings: DeviceSample, values: Sequence[float | None]
    ) -> float:
        """Return the value at full height: the limit of the reading, if it has one."""
        limits: dict[str, float | None] = {
            "memory_used_bytes": readings.memory_total_bytes
            or device.memory_total_bytes,
            "power_watts": readings.power_limit_watts
            or device.power_limit_default_watts,
            "temperature_celsius": device.temperature_shutdown_celsius or 100,
            "sm_clock_mhz": device.sm_clock_max_mhz,
        }
        if self.name.endswith("_percent"):
            return 100.0
        return limits.get(self.name) or round_up(
            max((v for v in values if v), default=0.0)
        )

    def text(self, value: float) -> str:
        """Return the value without decimals that are not in the reading, or mean nothing."""
        name = (
            self.name if self.name in CATALOGUE else "gpu_utilization_percent"
        )  # of the host
        fine = name.endswith(("_percent", "_watts")) and value != round(value)
        return value_text(name, value if fine else round(value))


CHARTS = (
    Chart("busy", "gpu_utilization_percent", palette.BUSY, 1),
    Chart("SM active", "sm_active_percent", palette.SM, 4),
    Chart("tensor", "tensor_active_percent", palette.TENSOR, 6),
    Chart("memory", "memory_used_bytes", palette.MEMORY, 2),
    Chart("power", "power_watts", palette.POWER, 3),
    Chart("temperature", "temperature_celsius", palette.TEMPERATURE, 5),
    Chart("SM clock", "sm_clock_mhz", palette.CPU, 7),
    Chart("PCIe rx", "pcie_rx_bytes_per_second", palette.RECEIVED, 8),
    Chart("PCIe tx", "pcie_tx_bytes_per_second", palette.SENT, 9),
    Chart("host CPU", HOST_CPU, palette.CPU, 10),
)


class TimelineView(DeviceView):
    """Charts of one device, below each other over one time axis."""

    _cursor: int | None = None
    """Index of the dot under the cursor, counted from the first sample; None follows the newest."""
    _held: int | None = None
    """First dot of the charts while there is a cursor."""
    _zoom = 0

    @property
    def _samples(self) -> int:
        return SAMPLES_A_DOT[self._zoom]

    @property
    def _dots(self) -> int:
        return -(-self._telemetry.history.count // self._samples)

    @property
    def _oldest(self) -> int:
        """First dot whose samples are all still kept."""
        history = self._telemetry.history
        return -(-(history.count - len(history.times)) // self._samples)

    @property
    def rows_needed(self) -> int:
        """Rows needed for all charts and the axis."""
        return (
            len(self._charts(self.device.uuid, 99)) * MOST_ROWS + 1
            if self.device
            else 1
        )

    def action_side(self, step: int) -> None:
        """Move the cursor by `step` dots; beyond the newest it follows the stream again."""
        last = self._dots - 1
        cursor = max(
            self._oldest, (last if self._cursor is None else self._cursor) + step
        )
        self._cursor = None if cursor >= last else cursor
        self.redraw()

    def action_zoom(self, step: int) -> None:
        """Show more time for a positive `step`, and less for a negative one."""
        before = self._samples
        self._zoom = max(0, min(len(SAMPLES_A_DOT) - 1, self._zoom + step))
        self._held = None
        if self._cursor is not None:  # keep its time
            self._cursor = self._cursor * before // self._samples
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        room = width - GUTTER
        if self.device is None or not self._dots or room < 1 or height < 2:
            return []
        if self._cursor is not None:  # its sample may no longer be kept
            self._cursor = max(self._cursor, self._oldest)
            if self._cursor >= self._dots:  # a replay went back
                self._cursor = None
        charts = self._charts(self.device.uuid, height - 1)
        window = self._window(room)
        rows: list[Row] = []
        for each, rows_of_it in zip(
            charts, heights(height - 1, len(charts)), strict=True
        ):
            rows += self._chart(self.device, each, window, rows_of_it)
        return [*rows, self._axis(window)]

    def _charts(self, uuid: str, rows: int) -> list[Chart]:
        has = {
            chart
            for chart in CHARTS
            if any(
                v is not None for v in self._telemetry.history.series(uuid, chart.name)
            )
        } or CHARTS[:1]
        shown = sorted(has, key=attrgetter("rank"))[: rows // FEWEST_ROWS or rows]
        return [chart for chart in CHARTS if chart in shown]

    def _window(self, room: int) -> ChartWindow:
        """Return the newest dots, or those around the cursor, which stay where they are."""
        if self._cursor is None:
            self._held = None
            return live_window(self._dots, room, scroll=self._telemetry.scroll_charts)
        slots = 2 * room
        if self._held is None or not self._held <= self._cursor < self._held + slots:
            self._held = max(0, min(self._cursor - room, self._dots - slots))
        first = self._held
        return ChartWindow(first, min(self._dots, first + slots), slots, first)

    def _means(self, series: Sequence[float | None], first: int) -> list[float | None]:
        """Return the dots from `first` on, each the mean of its samples, or None without any."""
        n = self._samples
        offset = self._telemetry.history.count - len(series)
        dots: list[list[float]] = [[] for _ in range(self._dots - first)]
        start = max(0, first * n - offset)
        for sample, value in enumerate(series[start:], start + offset):
            if value is not None:
                dots[sample // n - first].append(value)
        return [math.fsum(dot) / len(dot) if dot else None for dot in dots]

    def _chart(
        self, device: Device, each: Chart, window: ChartWindow, height: int
    ) -> list[Row]:
        values = self._means(
            self._telemetry.history.series(device.uuid, each.name), window.first
        )
        top = each.top(device, self._telemetry.readings(device.uuid), values)
        drawn = chart(values, window.first, window, height, top, each.style)
        value = values[
            (self._dots - 1 if self._cursor is None else self._cursor) - window.first
        ]
        text = ABSENT if value is None else each.text(value)
        style = DIM if value is None else STRONG if self._cursor is None else ACCENT
        labels = [
            spread([Span(each.label, DIM)], [Span(text, style), Span(" ")], GUTTER)
        ]
        if height > 1:
            labels.append(
                [cell(f"of {each.text(top)}", GUTTER - 1, DIM, right=True), Span(" ")]
            )
        labels += [[Span(" " * GUTTER)]] * (height - len(labels))
        if self._cursor is not None:
            drawn = [_mark(row, window.slot(self._cursor) // 2) for row in drawn]
        return [[*label, *row] for label, row in zip(labels, drawn, strict=True)]

    def _axis(self, window: ChartWindow) -> Row:
        history, room = self._telemetry.history, window.slots // 2
        stamps = self._means(history.times, window.first)
        axis = self._means(history.seconds, window.first)
        newest = history.seconds[-1]
        place = None if self._cursor is None else self._cursor - window.first
        read, stamp = (None, None) if place is None else (axis[place], stamps[place])
        if read is None or stamp is None:
            oldest = next((seconds for seconds in axis if seconds is not None), None)
            label = Span("" if oldest is None else f"last {_ago(newest - oldest)}", DIM)
        else:
            label = Span(
                clip(f"{moment(stamp)}, {_ago(newest - read)} ago", GUTTER - 1), ACCENT
            )
        ticks = ""
        for x in range(0, room - len("╵00:00:00"), TICK):
            dot = window.value_at(2 * x)
            stamp = None if dot is None else stamps[dot - window.first]
            ticks += ("" if stamp is None else f"╵{moment(stamp)}").ljust(TICK)
        return [*spread([label], [], GUTTER), Span(ticks.rstrip(), TRACK)]


def _mark(row: Row, x: int) -> Row:
    ((text, style),) = row
    marked = Span(text[x], style + CURSOR_INK)
    return [Span(text[:x], style), marked, Span(text[x + 1 :], style)]


CURSOR_INK = ink(75, reverse=True)


def heights(rows: int, charts: int) -> list[int]:
    """Return the rows of each chart; the first ones get the remainder."""
    each, more = divmod(rows, charts)
    return [each + (n < more) for n in range(charts)]


def round_up(value: float) -> float:
    """Return the next power of two, the full height of a chart without a limit."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 1 else 1.0


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 99.5 else duration(seconds)
