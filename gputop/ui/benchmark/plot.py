"""Lines over two axes, drawn by plotext. Only this module imports plotext."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text

from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Row, Span, fit
from gputop.ui.drawing.palette import DIM

LABEL = 8
"""Cells of the vertical axis and its labels."""
BLANK = "\u2800"
"""Braille without dots."""
COLOURS = (
    *(palette.BUSY, palette.MEMORY, palette.POWER, palette.CPU),
    *(palette.TENSOR, palette.SENT, palette.TEMPERATURE, palette.RECEIVED),
)
CONSOLE = Console()
"""Needed to take a text apart. Nothing is written to it."""
STEPS = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
HEADROOM = 1.08
TALL = 15
"""Rows from which the vertical axis has four parts instead of two."""


class PlotLine(NamedTuple):
    """Points in order of x, in the units of the axes."""

    name: str
    """Name in the legend."""
    mark: str
    """Text at the end of the line if there are several: colours repeat, and may be off."""
    points: Sequence[tuple[float, float]]


class PlotAxis(NamedTuple):
    """Range of an axis and its labels. Without ticks, plotext chooses them."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()

    def within(self, value: float) -> float:
        """Return the value, limited to the axis."""
        return max(self.low, min(self.high, value))


def colour_of(n: int) -> Style:
    """Return the style of line `n`."""
    return COLOURS[n % len(COLOURS)]


def plot_rows(
    title: Row,
    lines: Sequence[PlotLine],
    x: PlotAxis,
    y: PlotAxis,
    left: int,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a legend and lines in their colours. The first line is in front.

    The vertical axis with its labels takes `left` of `width` cells.
    """
    import plotext

    legend = [*title]
    for n, line in enumerate(lines):
        legend.append(Span(f"  {line.name}", colour_of(n)))
    # Use the widget's size, not the terminal's.
    plotext.terminal.limit(False, False)
    # The module's figure is shared with all other code.
    figure = type(plotext.figure)(plotext.terminal)
    figure.theme("colorless")
    figure.plot_size(width, height - 1)
    figure.axes(active=False)
    figure.axes(active=True, side=[0])
    ruler = figure.ruler("x", "lower").lim(x.low, x.high)
    if x.ticks:
        ruler.ticks([at for at, _ in x.ticks], [label for _, label in x.ticks])
    figure.ruler("y", "left").lim(y.low, y.high).ticks(
        [at for at, _ in y.ticks],
        [label.rjust(left - 1) for _, label in y.ticks],
    )
    drawn = []
    for n, line in enumerate(lines):
        if line.points:
            drawn.append((line, n % len(COLOURS)))
    for line, colour in reversed(drawn):
        # Limit the points to the axes: beyond them, plotext draws dots until
        # memory is exhausted.
        xs = [x.within(at) for at, _ in line.points]
        ys = [y.within(value) for _, value in line.points]
        marker = plotext.marker("braille", plotext.pixel(colour))
        figure.draw(figure.signal(xs, ys, marker=marker).lines())
    # A row is for the legend, one for the axis, and one for its labels.
    cell = (x.high - x.low) / (width - left - 1)
    row = (y.high - y.low) / (height - 4)
    taken: Counter[int] = Counter()
    for line, colour in drawn:
        if len(lines) > 1:
            at, value = line.points[-1]
            place = round((y.within(value) - y.low) / row)
            # Marks in the same row are beside each other.
            across = x.within(at - taken[place] * cell)
            label = plotext.colorize(line.mark, colour)
            up = y.low + place * row
            figure.draw(figure.text(across, up, label, alignment="right"))
            taken[place] += len(line.mark) + 1
    plot = Text.from_ansi(str(figure.build()))
    return [fit(legend, width), *map(_row, plot.split())]


def _row(text: Text) -> Row:
    """Return a line of plotext with the styles of its lines. Axis and labels are dim."""
    row = []
    for part, style, _ in text.render(CONSOLE):
        shown = DIM
        if style is not None and style.color is not None:
            shown = COLOURS[style.color.number or 0]
        row.append(Span(part.replace(BLANK, " "), shown))
    return row


def rate_axis(
    rates: Sequence[float],
    height: int,
    *,
    zoomed: bool = False,
) -> PlotAxis:
    """Return an axis from 0; with `zoomed` from half of its end if no rate is lower."""
    low, high = 0.0, round_up(max(rates))
    # The difference of lines that are close together is visible then.
    if zoomed and min(rates) > high / 2:
        low = high / 2
    parts = 4 if height >= TALL else 2
    at = [low + (high - low) * n / parts for n in range(parts + 1)]
    return PlotAxis(low, high, [(value, tick(value)) for value in at])


def tick(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def round_up(value: float) -> float:
    """Return a round number above the value, so that the axis stays while the curve moves."""
    value *= HEADROOM
    scale = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * scale for step in STEPS if value <= step * scale)
