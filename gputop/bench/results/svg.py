"""Line charts as SVG, to be put into a page of HTML. Colours are the page's, by class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.run.state import Curve

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 64, 16, 10, 34
"""User units; the last four are the margins around what is drawn."""
STRIP_ROW = 18
COLOURS = 6
"""Classes `c0` to `c5`, used in turn."""
FEW = 80
"""So many points are marked, each by a dot."""
SECONDS = "seconds"
FAR_X, FAR_Y = 16, 300
"""Ratios of the largest to the smallest from which an axis is logarithmic."""
LEAST_LOG = 1e-12
"""What is smaller is taken for zero."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The range of an axis; with `base` it is in powers of that."""

    low: float
    high: float
    title: str
    base: int | None = None

    def at(self, value: float) -> float:
        """Where a value is, 0 to 1."""
        low, high, value = map(self._scaled, (self.low, self.high, value))
        return (value - low) / (high - low) if high > low else 0.5

    def _scaled(self, value: float) -> float:
        return math.log(value, self.base) if self.base else value

    def ticks(self) -> list[float]:
        """At most nine round numbers within the range."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        step = max(1, math.ceil((high - low) / 8)) if self.base else _round_step((high - low) / 6)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        values = [n * step for n in range(first, last + 1)]
        return [float(self.base) ** value for value in values] if self.base else values


def _round_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    scale: float = 10.0 ** math.floor(math.log10(rough))
    return next(scale * n for n in (1, 2, 2.5, 5, 10) if rough <= scale * n * (1 + 1e-9))


def x_axis(series: Mapping[str, Curve], title: str) -> Axis:
    """Over all x: from 0 for a time, otherwise in powers of two where they are far apart."""
    xs = [x for line in series.values() for x, _ in line]
    low, high = min(xs, default=0.0), max(xs, default=0.0) or 1.0
    if title != SECONDS and low > LEAST_LOG and high / low >= FAR_X:
        return Axis(low, high, title, base=2)
    return Axis(0.0, high, title)


def _y_axis(series: Mapping[str, Curve], title: str) -> Axis:
    ys = [y for line in series.values() for _, y in line]
    low, high = min(ys, default=0.0), max(ys, default=0.0) or 1.0
    if low > LEAST_LOG and high / low >= FAR_Y:
        # Whole powers of ten: there are lines at both ends.
        low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
        return Axis(low, high, title, base=10)
    return Axis(0.0, 1.06 * high, title)


def chart(series: Mapping[str, Curve], x: Axis, title: str, height: int = 260) -> str:
    """Lines by name over `x`; the names are in a legend above."""
    y = _y_axis(series, title)
    drawn = [*_grid(x, y, height)]
    for n, line in enumerate(series.values()):
        points = [(_x(x, at), _y(y, value, height)) for at, value in line]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        drawn.append(f'<polyline class="c{n % COLOURS}" points="{path}"/>')
        if len(points) <= FEW:
            drawn += [
                f'<circle class="c{n % COLOURS}" cx="{across:.1f}" cy="{down:.1f}" r="2.5"/>'
                for across, down in points
            ]
    legend = "".join(
        f' <span class="c{n % COLOURS}">&#9644; {text(name)}</span>'
        for n, name in enumerate(series)
    )
    says = f"{text(title)} over {text(x.title)}{legend if len(series) > 1 else ''}"
    return f"<figure><figcaption>{says}</figcaption>{_svg(drawn, height, title)}</figure>"


def strip(intervals: Mapping[str, Curve], x: Axis) -> str:
    """One row a name, filled from where to where it held."""
    height = STRIP_ROW * len(intervals) + BOTTOM
    drawn, thick = [], STRIP_ROW - 6
    for n, (name, held) in enumerate(intervals.items()):
        top = n * STRIP_ROW + 3
        drawn.append(
            f'<rect class="track" x="{LEFT}" y="{top}" width="{_inner()}" height="{thick}"/>'
        )
        for start, end in held:
            left, right = _x(x, start), _x(x, min(end, x.high))
            drawn.append(
                f'<rect class="held" x="{left:.1f}" y="{top}" width="{max(1.0, right - left):.1f}" '
                f'height="{thick}"><title>{text(name)}: {start:.1f} to {end:.1f} s</title>'
                "</rect>"
            )
        drawn.append(
            f'<text class="in" x="{LEFT + 4}" y="{top + 10}">{text(name.replace("_", " "))}</text>'
        )
    drawn += _x_labels(x, height)
    return (
        "<figure><figcaption>Clock event reasons, where they held</figcaption>"
        f"{_svg(drawn, height, 'Clock event reasons')}</figure>"
    )


def text(value: object) -> str:
    """Foreign text for a page: nothing in it is markup, and nothing is invisible."""
    return escape(visible(str(value)))


def label(value: float) -> str:
    """A number on an axis: `0.25`, `8192`, `1 Gi`."""
    for power, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi")):
        if value >= 1 << power and value % (1 << power) == 0:
            return f"{value / (1 << power):g} {unit}"
    return f"{value:.6g}"


def _svg(drawn: list[str], height: int, title: str) -> str:
    body = "".join(drawn)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(title)}">{body}</svg>'


def _inner() -> int:
    return WIDTH - LEFT - RIGHT


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.at(value) * _inner()


def _y(axis: Axis, value: float, height: int) -> float:
    return height - BOTTOM - axis.at(value) * (height - TOP - BOTTOM)


def _grid(x: Axis, y: Axis, height: int) -> Iterator[str]:
    for tick in y.ticks():
        down = _y(y, tick, height)
        yield f'<path class="grid" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="y" x="{LEFT - 6}" y="{down + 4:.1f}">{label(tick)}</text>'
    yield from _x_labels(x, height)


def _x_labels(x: Axis, height: int) -> Iterator[str]:
    for tick in x.ticks():
        yield f'<text class="x" x="{_x(x, tick):.1f}" y="{height - 14}">{label(tick)}</text>'
    yield f'<text class="y" x="{WIDTH - RIGHT}" y="{height - 1}">{text(x.title)}</text>'
