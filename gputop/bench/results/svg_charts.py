"""Charts of the HTML report, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from gputop.bench.results.measures import MEASURES
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.values import value_text
from gputop.text import number, size, visible

if TYPE_CHECKING:
    from gputop.bench.results.page import Chart, Strip

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 64, 16, 10, 34
"""SVG user units. The last four are the margins around a chart."""
INNER = WIDTH - LEFT - RIGHT
TALL, SMALL = 260, 120
"""Height of a chart, and of a chart of a reading below the throughput."""
STRIP_ROW = 18
COLOURS = 6
"""Number of the colour classes `c0` to `c5`, used in turn."""
FEW = 80
"""Most points of a line that are marked with dots."""
LETTER = 7
"""Upper bound of the width of a label's character."""
FAR_X, FAR_Y = 16, 300
"""Ratios of the largest to the smallest value from which an axis is logarithmic."""
LEAST_LOG = 1e-12


@dataclass(frozen=True, slots=True)
class SvgAxis:
    """Range of an axis. With a `base` the axis is logarithmic."""

    low: float
    high: float
    base: int | None = None

    def at(self, value: float) -> float:
        """Return the position of a value, 0 to 1."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        if high <= low:
            return 0.5
        return (self._scaled(value) - low) / (high - low)

    def _scaled(self, value: float) -> float:
        if self.base is None:
            return value
        return math.log(max(value, LEAST_LOG), self.base)

    def ticks(self) -> list[float]:
        """Return at most nine round numbers within the range."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        step = _round_step((high - low) / 6)
        if self.base is not None:
            step = max(1, math.ceil((high - low) / 8))
        first, last = (
            math.ceil(low / step - 1e-9),
            math.floor(high / step + 1e-9),
        )
        values = [n * step for n in range(first, last + 1)]
        if self.base is None:
            return values
        return [float(self.base) ** value for value in values]


def _round_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    scale: float = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 2.5, 5):
        if rough <= scale * factor * (1 + 1e-9):
            return scale * factor
    return 10 * scale


def x_axis(values: Sequence[float], *, is_time: bool) -> SvgAxis:
    """Return a linear axis from 0, or an axis in powers of two for sizes that are far apart."""
    low, high = min(values, default=0.0), max(values, default=0.0) or 1.0
    if not is_time and low > LEAST_LOG and high / low >= FAR_X:
        return SvgAxis(low, high, base=2)
    return SvgAxis(0.0, high)


def y_axis(values: Sequence[float]) -> SvgAxis:
    """Return a linear axis from 0, or an axis in powers of ten if the values are far apart."""
    low, high = min(values, default=0.0), max(values, default=0.0) or 1.0
    if low > LEAST_LOG and high / low >= FAR_Y:
        low = 10.0 ** math.floor(math.log10(low))
        return SvgAxis(low, 10.0 ** math.ceil(math.log10(high)), base=10)
    return SvgAxis(0.0, 1.06 * high)


def chart_figure(chart: Chart) -> str:
    """Return a chart of lines, with a legend above if there are several."""
    height = SMALL if chart.small else TALL
    points = [point for line in chart.lines.values() for point in line]
    x = x_axis([at for at, _ in points], is_time=chart.axis == "seconds")
    y = y_axis([value for _, value in points])
    drawn = []
    for tick in y.ticks():
        down = _to_y(y, tick, height)
        drawn.append(
            f'<path class="grid" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>'
        )
        said = _value_text(chart.value, tick) if tick else "0"
        drawn.append(
            f'<text class="y" x="{LEFT - 6}" y="{down + 4:.1f}">{said}</text>'
        )
    drawn += _x_labels(x, chart.axis, height)
    legend = ""
    for n, (name, line) in enumerate(chart.lines.items()):
        colour = f"c{n % COLOURS}"
        drawn += _line(
            colour,
            [(_to_x(x, at), _to_y(y, value, height)) for at, value in line],
        )
        legend += f' <span class="{colour}">&#9644; {text(name)}</span>'
    if len(chart.lines) == 1:
        legend = ""
    title = _title(chart.value)
    return _figure(f"{title} over {chart.axis}{legend}", drawn, height, title)


def _line(colour: str, points: Sequence[tuple[float, float]]) -> Iterator[str]:
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
    yield f'<polyline class="{colour}" points="{path}"/>'
    if len(points) <= FEW:
        for across, down in points:
            yield f'<circle class="{colour}" cx="{across:.1f}" cy="{down:.1f}" r="2.5"/>'


def strip_figure(strip: Strip) -> str:
    """Return a row per clock event reason, filled in the intervals in which it held."""
    x = SvgAxis(0.0, strip.seconds)
    height = STRIP_ROW * len(strip.intervals) + BOTTOM
    drawn, thick = [], STRIP_ROW - 6
    for n, (name, held) in enumerate(strip.intervals.items()):
        top = n * STRIP_ROW + 3
        drawn.append(
            f'<rect class="track" x="{LEFT}" y="{top}" width="{INNER}" height="{thick}"/>'
        )
        for start, end in held:
            left, right = _to_x(x, start), _to_x(x, min(end, x.high))
            width = max(1.0, right - left)
            drawn.append(
                f'<rect class="held" x="{left:.1f}" y="{top}" width="{width:.1f}" '
                f'height="{thick}"><title>{text(name)}: {start:.1f} to {end:.1f} s</title></rect>'
            )
        said = text(name.replace("_", " "))
        drawn.append(
            f'<text class="in" x="{LEFT + 4}" y="{top + 10}">{said}</text>'
        )
    drawn += _x_labels(x, "seconds", height)
    title = "Clock event reasons"
    return _figure(f"{title}, where they held", drawn, height, title)


def text(value: object) -> str:
    """Return foreign text for a page, without markup and invisible characters."""
    return escape(visible(str(value)))


def _title(name: str) -> str:
    """Return the title of a value of rows, or of a reading of the device."""
    if name in MEASURES:
        return text(MEASURES[name].title)
    if name in CATALOGUE:
        return text(CATALOGUE[name].label)
    return text(name.replace("_", " "))


def _value_text(name: str, value: float) -> str:
    """Return a value in the format of tables, or a reading with its unit."""
    if name in MEASURES:
        return text(MEASURES[name].text(value))
    if name in CATALOGUE:
        return text(value_text(name, value))
    return text(number(value))


def _size_text(axis: str, value: float) -> str:
    if axis == "bytes":
        return size(value)
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _figure(
    caption: str,
    drawn: Iterable[str],
    height: int,
    title: str,
) -> str:
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">'
    )
    return f"<figure><figcaption>{caption}</figcaption>{svg}{''.join(drawn)}</svg></figure>"


def _to_x(axis: SvgAxis, value: float) -> float:
    return LEFT + axis.at(value) * INNER


def _to_y(
    axis: SvgAxis,
    value: float,
    height: int,
) -> float:
    return height - BOTTOM - axis.at(value) * (height - TOP - BOTTOM)


def _x_labels(
    x: SvgAxis,
    axis: str,
    height: int,
) -> Iterator[str]:
    for tick in x.ticks():
        said = text(_size_text(axis, tick))
        most = WIDTH - LETTER * len(said) / 2  # keeps the label in the figure
        middle = min(_to_x(x, tick), most)
        yield f'<text class="x" x="{middle:.1f}" y="{height - 17}">{said}</text>'
    yield f'<text class="y" x="{WIDTH - RIGHT}" y="{height - 4}">{axis}</text>'
