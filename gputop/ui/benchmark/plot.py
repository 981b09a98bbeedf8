"""Lines over two axes, drawn by plotext. Only this module imports plotext."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.style import Style
from rich.text import Text

from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, merged, width_of
from gputop.ui.drawing.palette import BADGE, DIM, TEXT

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target

LABEL = 8
"""Cells of the vertical axis and its labels."""
BLANK, LAST = 0x2800, 0x28FF
"""Braille range: the eight low bits are the dots."""
COLOURS = (
    *(palette.BUSY, palette.MEMORY, palette.POWER, palette.CPU),
    *(palette.TENSOR, palette.SENT, palette.TEMPERATURE, palette.RECEIVED),
)
MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
"""Marks of lines without a number. They distinguish lines when colours repeat."""
MOST_MARKS = 16
"""Places to try for a mark, because others may already have a mark."""
STEPS = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class PlotLine(NamedTuple):
    """Points in order of x, in the units of the axes."""

    points: tuple[tuple[float, float], ...]
    style: Style
    mark: str = ""


class PlotAxis(NamedTuple):
    """Range of an axis and its labels. Without ticks, plotext chooses them."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()

    def within(self, value: float) -> float:
        """Return the value, limited to the axis."""
        return max(self.low, min(self.high, value))

    def share(self, value: float) -> float:
        """Return the position of a value, 0 to 1."""
        if self.high <= self.low:
            return 0.5
        return (value - self.low) / (self.high - self.low)


def mark_of(target: Target) -> str:
    """Return the mark at the end of a device's line: the device's number."""
    return target.number or "CPU"


def colour_of(n: int) -> Style:
    """Return the style of line `n`."""
    return COLOURS[n % len(COLOURS)]


SIMULATION = Span(" simulated ", BADGE)


class PlotArea(NamedTuple):
    """Axes of a plot, and its size. The vertical axis with its labels takes `left` of `width`
    cells."""

    x: PlotAxis
    y: PlotAxis
    left: int
    width: int
    height: int


def linear_axis(
    low: float,
    high: float,
    height: int,
) -> PlotAxis:
    """Return an axis with four parts, or with two if there is little room."""
    parts = 4 if height >= 15 else 2
    at = [low + (high - low) * n / parts for n in range(parts + 1)]
    return PlotAxis(low, high, tuple((value, tick(value)) for value in at))


def legend(
    title: str,
    lines: Iterable[tuple[str, Style]],
    width: int,
) -> Row:
    """Return the title and as many names of lines as fit."""
    row: Row = [Span(title, DIM)]
    for name, style in lines:
        span = Span(f"  {name}", style)
        if width_of([*row, span]) > width - 2:
            return [*row, Span(" …", DIM)]
        row.append(span)
    return row


# An unchanged plot is not drawn again.
@lru_cache(maxsize=1)
def plot_rows(lines: tuple[PlotLine, ...], area: PlotArea) -> list[Row]:
    """Draw lines in their own colours, with the axis in the last of the `left` cells.

    The first line is in front.
    """
    # Draw one line at a time, because plotext cannot keep the dots of two
    # lines in one cell.
    layers = [_built(line.points, area) for line in lines]
    styles = [line.style for line in lines]
    rows = [_merged(each, styles) for each in zip(*layers, strict=True)]
    _set_marks(rows, lines, area)
    return [merged(row) for row in rows]


def _built(points: Sequence[tuple[float, float]], area: PlotArea) -> list[str]:
    x, y, left, width, height = area
    figure = _figure()
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    figure.axes(active=False)
    figure.axes(active=True, side=[0])
    ruler = figure.ruler("x", "lower").lim(x.low, x.high)
    if x.ticks:
        ruler.ticks([at for at, _ in x.ticks], [label for _, label in x.ticks])
    figure.ruler("y", "left").lim(y.low, y.high).ticks(
        [at for at, _ in y.ticks],
        [label.rjust(left - 1) for _, label in y.ticks],
    )
    # Limit the points to the axes: beyond them, plotext draws dots until
    # memory is exhausted.
    xs = [x.within(at) for at, _ in points]
    ys = [y.within(value) for _, value in points]
    figure.draw(figure.signal(xs, ys, marker="braille").lines())
    return Text.from_ansi(str(figure.build())).plain.splitlines()


@cache
def _figure() -> Any:
    """Return a figure of our own. The module's figure is shared with all other code."""
    import plotext

    # Use the widget's size, not the terminal's.
    plotext.terminal.limit(False, False)
    return type(plotext.figure)(plotext.terminal)


def _merged(layers: Sequence[str], styles: Sequence[Style]) -> list[Span]:
    """Merge the dots of all layers, in the style of the front one."""
    row: list[Span] = []
    for cells in zip(*layers, strict=True):
        dots = 0
        front: Style | None = None
        for each, style in zip(cells, styles, strict=True):
            if BLANK < ord(each) <= LAST:
                dots |= ord(each) - BLANK
                front = front or style
        if front is not None:
            row.append(Span(chr(BLANK + dots), front))
        elif cells[0] in (" ", chr(BLANK)):
            row.append(Span(" ", TEXT))
        # These are the axis and its labels.
        else:
            row.append(Span(cells[0], DIM))
    return row


def _set_marks(
    rows: list[list[Span]],
    lines: Sequence[PlotLine],
    area: PlotArea,
) -> None:
    """Write the mark of each line at its end, or next to it if another mark is there."""
    down = len(rows) - 3
    left, right = area.left, max(len(row) for row in rows)
    taken: set[tuple[int, int]] = set()
    for line in lines:
        if not line.mark or not line.points:
            continue
        at, value = line.points[-1]
        row = max(0, min(down, round((1 - area.y.share(value)) * down)))
        column = left + round(area.x.share(at) * (right - left - 1))
        width = len(line.mark)
        for step in range(MOST_MARKS):
            # There is a cell between marks.
            across = step * (width + 1)
            ahead, behind = column + 1 + across, column - across
            first = ahead if ahead + width <= right else behind
            places = [(row, first + n) for n in range(width)]
            if not left <= first <= right - width or taken.intersection(
                places,
            ):
                continue
            taken.update(places)
            for (_, x), letter in zip(places, line.mark, strict=True):
                rows[row][x] = Span(letter, line.style)
            break


def tick(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def thin_out(
    points: list[tuple[float, float]],
    most: int,
) -> list[tuple[float, float]]:
    """Return at most `most` points, each the mean of its neighbours."""
    together = max(1, -(-len(points) // max(1, most)))
    thinned = []
    for n in range(0, len(points), together):
        xs, ys = zip(*points[n : n + together], strict=True)
        thinned.append((sum(xs) / len(xs), sum(ys) / len(ys)))
    return thinned


def round_up(value: float) -> float:
    """Return the next round number, so that the axis stays while the curve moves."""
    scale = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * scale for step in STEPS if value <= step * scale)
