"""Charts over time. They scroll, with the newest values on the right, two dots in a cell."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from gputop.agent.device import Device, DeviceSample
from gputop.agent.snapshot import Host
from gputop.schema.derived import HOST_CPU, HOST_MEMORY, PROCESS_CPU
from gputop.schema.values import value_text
from gputop.text import ABSENT, moment
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, cell, fit, reading, spread
from gputop.ui.drawing.palette import DIM, STRONG, TRACK

if TYPE_CHECKING:
    from gputop.stream.history import History
    from gputop.ui.telemetry import Telemetry

GUTTER = 21
"""Cells on the left for a chart's label and value."""
TICK = 12
"""Cells between two times on the axis."""
WIDTHS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, 120.0, 600.0, 1800.0)
"""Zoom levels: seconds per dot."""
IN_VIEW_SECONDS = 240.0
"""Fewest seconds in a chart, unless the user chose another zoom."""


class Chart(NamedTuple):
    """Chart of one reading over time."""

    label: str
    short: str
    """Label of at most six cells."""
    name: str
    style: Style

    def top(
        self,
        device: Device,
        readings: DeviceSample,
        host: Host | None,
        values: Sequence[float | None],
    ) -> float:
        """Return the value at full height: the limit of the reading, if it has one."""
        if self.name.endswith("_percent"):
            return 100.0
        limits: dict[str, float | None] = {
            "memory_used_bytes": readings.memory_total_bytes
            or device.memory_total_bytes,
            "power_watts": readings.power_limit_watts
            or device.power_limit_default_watts,
            "temperature_celsius": device.temperature_shutdown_celsius or 100,
            "sm_clock_mhz": device.sm_clock_max_mhz,
            HOST_MEMORY: host.memory_total_bytes if host else None,
        }
        most = max((value for value in values if value), default=0.0)
        return limits.get(self.name) or round_up(most)

    def text(self, value: float) -> str:
        """Return the value without decimals that are not in the reading or have no meaning."""
        name = READ_AS.get(self.name, self.name)
        fine = name.endswith(("_percent", "_watts"))
        if not fine or value == round(value):
            value = round(value)
        return value_text(name, value)


BUSY = Chart("busy", "busy", "gpu_utilization_percent", palette.BUSY)
SM_ACTIVE = Chart("SM active", "SM", "sm_active_percent", palette.SM)
MEMORY = Chart("memory", "mem", "memory_used_bytes", palette.MEMORY)
POWER = Chart("power", "power", "power_watts", palette.POWER)
CHARTS = (
    BUSY,
    MEMORY,
    POWER,
    Chart("temperature", "temp", "temperature_celsius", palette.TEMPERATURE),
    Chart("SM clock", "clock", "sm_clock_mhz", palette.CPU),
    Chart("PCIe rx", "PCIe ↓", "pcie_rx_bytes_per_second", palette.RECEIVED),
    Chart("host CPU", "CPU", HOST_CPU, palette.CPU),
    Chart("host memory", "RAM", HOST_MEMORY, palette.MEMORY),
    Chart("PCIe tx", "PCIe ↑", "pcie_tx_bytes_per_second", palette.SENT),
    SM_ACTIVE,
    Chart("tensor", "tensor", "tensor_active_percent", palette.TENSOR),
)
"""Charts, the most useful first."""
READ_AS = {
    HOST_CPU: "gpu_utilization_percent",
    PROCESS_CPU: "gpu_utilization_percent",
    HOST_MEMORY: "memory_used_bytes",
}
"""Readings of the catalogue with the same form as the derived numbers."""


def round_up(value: float) -> float:
    """Return the next power of two, which is the full height of a chart without a limit."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 1 else 1.0


class Axis(NamedTuple):
    """Time axis of charts: dots of the same width, two to a cell."""

    end: float
    """End of the last dot, in seconds. Times on an axis have the same origin."""
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

    @property
    def text(self) -> str:
        """Time from end to end, such as `60 s` or `5 min`."""
        seconds = self.width * self.dots
        if seconds < 100:
            return f"{seconds:.0f} s"
        if seconds < 7200:
            return f"{seconds / 60:.0f} min"
        return f"{seconds / 3600:.1f} h"

    def means(
        self, times: Sequence[float], numbers: Sequence[float]
    ) -> list[float | None]:
        """Return the mean of each dot, or None for a dot without a number. Times are in order."""
        places = [bisect_left(times, edge) for edge in self.edges]
        return [_mean(numbers[a:b]) for a, b in pairwise(places)]


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean without NaN; None if nothing is left."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def axis_of(
    now: float, columns: int, interval: float, zoom: int | None = None
) -> Axis:
    """Return the axis of a chart of this many cells. A cell appears when both its dots are full.

    `zoom` is a place in `WIDTHS`; None shows some minutes. Each dot has at least one sample.
    """
    dots, last = 2 * columns, len(WIDTHS) - 1
    if zoom is None:
        zoom = bisect_left(WIDTHS, IN_VIEW_SECONDS / dots)
    zoom = min(last, max(zoom, bisect_left(WIDTHS, 2 * interval)))
    cell_seconds = 2 * WIDTHS[zoom]
    end = math.floor(now / cell_seconds) * cell_seconds
    return Axis(end, WIDTHS[zoom], dots)


# All dots are full: they change when the chart scrolls, not at each sample.
@lru_cache
def means_of(
    axis: Axis, history: History, uuid: str, name: str
) -> list[float | None]:
    """Return the means of a reading of a device."""
    numbers = history.last(uuid, name, history.count)
    seconds = history.seconds
    return axis.means(seconds[len(seconds) - len(numbers) :], numbers)


def device_chart(
    telemetry: Telemetry, device: Device, chart: Chart, axis: Axis
) -> DrawnChart:
    """Return a chart of a device with its newest value."""
    history, uuid = telemetry.history, device.uuid
    values = means_of(axis, history, uuid, chart.name)
    newest = history.newest(uuid, chart.name)
    readings, host = telemetry.readings(uuid), telemetry.host_of(device)
    top = chart.top(device, readings, host, [*values, newest])
    value = ABSENT if newest is None else chart.text(newest)
    scale = f"of {chart.text(top)}"
    return DrawnChart(chart.label, value, scale, values, top, chart.style)


BRAILLE = " ⢀⢠⢰⢸⡀⣀⣠⣰⣸⡄⣄⣤⣴⣼⡆⣆⣦⣶⣾⡇⣇⣧⣷⣿"
"""Cells with 0 to 4 dots in the right half, then the same with one dot in the left half, …"""


def draw_chart(
    dots: Sequence[float | None],
    height: int,
    top: float,
    style: Style,
) -> list[Row]:
    """Return a filled braille chart, two dots to a cell."""
    levels = [_level(value, top, 4 * height) for value in dots]
    columns = [
        _column(left, right, height)
        for left, right in zip(levels[::2], levels[1::2], strict=True)
    ]
    return [[Span("".join(row), style)] for row in zip(*columns, strict=True)]


def _level(
    value: float | None,
    top: float,
    room: int,
) -> int:
    if value is None:
        return 0
    return max(1, min(room, round(value / top * room)))


@cache
def _column(
    left: int,
    right: int,
    height: int,
) -> str:
    """Return cells from top to bottom. Each half is filled with dots up to its level."""
    cells = ""
    for above in reversed(range(height)):
        dots = [max(0, min(4, level - 4 * above)) for level in (left, right)]
        cells += BRAILLE[5 * dots[0] + dots[1]]
    return cells


class DrawnChart(NamedTuple):
    """A chart with its label, its value and its scale in the `GUTTER` on the left."""

    label: str
    value: str
    scale: str
    values: Sequence[float | None]
    top: float
    style: Style

    def plot(self, height: int) -> list[Row]:
        """Draw the values alone."""
        return draw_chart(self.values, height, self.top, self.style)

    def rows(self, height: int) -> list[Row]:
        """Draw the chart in this many rows."""
        right = [reading(self.value, STRONG), Span(" ")]
        labels = [spread([Span(self.label, DIM)], right, GUTTER)]
        labels.append([cell(self.scale, GUTTER - 1, DIM, right=True)])
        labels += [[]] * height
        plot = self.plot(height)
        return [
            [*fit(label, GUTTER), *row]
            for label, row in zip(labels, plot, strict=False)
        ]


def time_axis(axis: Axis, offset: float = 0.0) -> Row:
    """Return the row below charts: the span, and the times of some dots.

    `offset` is the Unix time of the axis's origin.
    """
    ticks = ""
    for x in range(0, axis.dots // 2 - len("╵00:00:00"), TICK):
        time = axis.start + 2 * x * axis.width
        text = f"╵{moment(time + offset)}" if time >= 0 else ""
        ticks += text.ljust(TICK)
    label = Span(f"last {axis.text}", DIM)
    return [*fit([label], GUTTER), Span(ticks.rstrip(), TRACK)]
