"""Charts over time. They scroll, with the newest values on the right, two dots in a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from gputop.agent.device import Device, DeviceSample
from gputop.agent.snapshot import Host
from gputop.schema.derived import HOST_CPU, HOST_MEMORY, PROCESS_CPU
from gputop.schema.values import value_text
from gputop.text import moment
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, cell, fit, reading, spread
from gputop.ui.drawing.palette import DIM, STRONG, TRACK

if TYPE_CHECKING:
    from gputop.stream.history import History

GUTTER = 21
"""Cells on the left for a chart's label and value."""
TICK = 12
"""Cells between two times on the axis."""
SAMPLES_A_DOT = (1, 2, 3, 5, 10, 30)
"""Zoom levels: samples per dot."""
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


class Dots(NamedTuple):
    """Dots of a chart, numbered from the first sample. Earlier dots are blank."""

    first: int
    end: int
    """Number after the last dot."""
    samples: int
    """Samples averaged into a dot."""

    def means(
        self,
        history: History,
        uuid: str,
        name: str,
    ) -> list[float | None]:
        """Return the value of each dot, or None if none of its samples has one."""
        return _means(self, history, uuid, name)

    def averaged(
        self,
        series: Sequence[float],
        count: int,
    ) -> list[float | None]:
        """Return the mean of each dot. `series` ends with the last of `count` samples."""
        found: list[float | None] = []
        start = count - len(series)
        for dot in range(self.first, self.end):
            begin = max(0, dot * self.samples - start)
            end = max(0, (dot + 1) * self.samples - start)
            found.append(_mean(series[begin:end]))
        return found

    def span_text(self, interval: float) -> str:
        """Return the time from end to end, such as `60 s` or `5 min`."""
        seconds = (self.end - self.first) * self.samples * interval
        return (
            f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
        )


# All dots are full: they change when the chart scrolls, not at each sample.
@lru_cache(maxsize=128)
def _means(
    dots: Dots,
    history: History,
    uuid: str,
    name: str,
) -> list[float | None]:
    oldest = dots.first * dots.samples
    series = history.last(uuid, name, history.count - oldest)
    return dots.averaged(series, history.count)


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean without NaN; None if nothing is left."""
    total = math.fsum(values)
    if math.isnan(total):
        values = [value for value in values if not math.isnan(value)]
        total = math.fsum(values)
    return total / len(values) if values else None


def samples_a_dot(columns: int, interval: float) -> int:
    """Return the number of samples per dot, so that the chart covers some minutes."""
    for samples in SAMPLES_A_DOT:
        if 2 * columns * samples * interval >= IN_VIEW_SECONDS:
            return samples
    return SAMPLES_A_DOT[-1]


def newest_dots(
    count: int,
    columns: int,
    samples: int,
) -> Dots:
    """Return the dots of a chart of this many cells. A cell appears when both its dots are full."""
    end = count // samples
    end -= end % 2
    return Dots(end - 2 * columns, end, samples)


# Dots of a braille cell by column, from the bottom up.
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
DOT_LEVELS = tuple(tuple(sum(dots[:n]) for n in range(5)) for dots in _DOTS)
"""Bits of a braille cell with 0 to 4 dots, from the bottom, in its left or right half."""


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


@lru_cache(maxsize=1024)
def _column(
    left: int,
    right: int,
    height: int,
) -> str:
    """Return cells from top to bottom. Each half is filled with dots up to its level."""
    cells = []
    for under in range(4 * (height - 1), -1, -4):
        dots = DOT_LEVELS[0][max(0, min(4, left - under))]
        dots += DOT_LEVELS[1][max(0, min(4, right - under))]
        cells.append(chr(0x2800 + dots) if dots else " ")
    return "".join(cells)


class DrawnChart(NamedTuple):
    """A chart with its label, its value and its scale in the `GUTTER` on the left."""

    label: str
    value: str
    scale: str
    values: Sequence[float | None]
    top: float
    style: Style

    def rows(self, height: int) -> list[Row]:
        """Draw the chart in this many rows."""
        right = [reading(self.value, STRONG), Span(" ")]
        labels = [spread([Span(self.label, DIM)], right, GUTTER)]
        labels.append(
            [cell(self.scale, GUTTER - 1, DIM, right=True), Span(" ")]
        )
        drawn = draw_chart(self.values, height, self.top, self.style)
        rows = []
        for row in drawn:
            label = fit([], GUTTER)
            if labels:
                label = fit(labels.pop(0), GUTTER)
            rows.append([*label, *row])
        return rows


def time_axis(label: Span, stamps: Sequence[float | None]) -> Row:
    """Return the row below charts: the label in the gutter, and the times of some dots."""
    ticks = ""
    for x in range(0, len(stamps) // 2 - len("╵00:00:00"), TICK):
        stamp = stamps[2 * x]
        text = ""
        if stamp is not None:
            text = f"╵{moment(stamp)}"
        ticks += text.ljust(TICK)
    return [*fit([label], GUTTER), Span(ticks.rstrip(), TRACK)]
