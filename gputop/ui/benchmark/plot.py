"""Lines over two axes, drawn by plotext. Only this module imports plotext."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text

from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, width_of
from gputop.ui.drawing.palette import BADGE, DIM

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target

LABEL = 8
"""Cells of the vertical axis and its labels."""
BLANK = "\u2800"
"""Braille without dots."""
FIRST_COLOUR = 16
"""plotext's colour of the first line. The lines get their styles after drawing."""
COLOURS = (
    *(palette.BUSY, palette.MEMORY, palette.POWER, palette.CPU),
    *(palette.TENSOR, palette.SENT, palette.TEMPERATURE, palette.RECEIVED),
)
CONSOLE = Console()
"""Needed to take a text apart. Nothing is written to it."""
MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
"""Marks of lines without a number. They distinguish lines when colours repeat."""
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
    colours: dict[Style, int] = {}
    for line in lines:
        colours.setdefault(line.style, FIRST_COLOUR + len(colours))
    for line in reversed(lines):
        _draw_line(figure, line, colours[line.style], area)
    taken: Counter[int] = Counter()
    for line in lines:
        if line.mark and line.points:
            _draw_mark(figure, line, colours[line.style], area, taken)
    drawn = Text.from_ansi(str(figure.build()))
    return [_row(text, [*colours]) for text in drawn.split()]


@cache
def _figure() -> Any:
    """Return a figure of our own. The module's figure is shared with all other code."""
    import plotext

    # Use the widget's size, not the terminal's.
    plotext.terminal.limit(False, False)
    return type(plotext.figure)(plotext.terminal)


def _draw_line(
    figure: Any,
    line: PlotLine,
    colour: int,
    area: PlotArea,
) -> None:
    import plotext

    # Limit the points to the axes: beyond them, plotext draws dots until
    # memory is exhausted.
    xs = [area.x.within(at) for at, _ in line.points]
    ys = [area.y.within(value) for _, value in line.points]
    marker = plotext.marker("braille", plotext.pixel(colour))
    figure.draw(figure.signal(xs, ys, marker=marker).lines())


def _draw_mark(
    figure: Any,
    line: PlotLine,
    colour: int,
    area: PlotArea,
    taken: Counter[int],
) -> None:
    """Write the mark of a line at its end, left of the marks in the same row.

    `taken` has the cells of these marks, with a blank each.
    """
    import plotext

    at, value = line.points[-1]
    # A row is for the axis and another for its labels.
    cell = (area.x.high - area.x.low) / (area.width - area.left - 1)
    row = (area.y.high - area.y.low) / max(1, area.height - 3)
    n = round((area.y.within(value) - area.y.low) / row)
    x = area.x.within(area.x.within(at) - taken[n] * cell)
    taken[n] += len(line.mark) + 1
    label = plotext.colorize(line.mark, colour)
    y = area.y.low + n * row
    figure.draw(figure.text(x, y, label, alignment="right"))


def _row(text: Text, styles: Sequence[Style]) -> Row:
    """Return a line of plotext with the styles of its lines. Axis and labels are dim."""
    row = []
    for part, style, _ in text.render(CONSOLE):
        shown = DIM
        if style is not None and style.color is not None:
            shown = styles[(style.color.number or 0) - FIRST_COLOUR]
        row.append(Span(part.replace(BLANK, " "), shown))
    return row


def tick(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def thin_out(
    points: list[tuple[float, float]],
    most: int,
) -> list[tuple[float, float]]:
    """Return at most `most` points, each the mean of its neighbours."""
    together = max(1, -(-len(points) // most))
    thinned = []
    for n in range(0, len(points), together):
        xs, ys = zip(*points[n : n + together], strict=True)
        thinned.append((sum(xs) / len(xs), sum(ys) / len(ys)))
    return thinned


def round_up(value: float) -> float:
    """Return the next round number, so that the axis stays while the curve moves."""
    scale = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * scale for step in STEPS if value <= step * scale)
