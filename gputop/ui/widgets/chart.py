"""The one large chart: throughput over time, drawn by plotext. Nothing else imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from gputop.ui.draw import Row, Span, clip
from gputop.ui.palette import BUSY, DIM, TEXT
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.ui.run import Run

LEFT_MARGIN = 9
"""Cells that plotext takes for the axis, at most: the points are thinned to what is left."""
STEPS = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class ThroughputChart(LiveView):
    """TFLOP/s over the seconds of a run; without one, how to start it."""

    def __init__(self) -> None:
        super().__init__(id="chart")
        self.run: Run | None = None
        self.hint: Callable[[int], list[Row]] = lambda _: []
        """What to show without a run, in rows of that width."""
        self._figure: Any = None

    def draw(self, width: int, height: int) -> list[Row]:
        """The chart in the space there is."""
        if self.run is None or not self.run.points or height < 4 or width < 24:
            return self.hint(width)
        points = thin(self.run.points, 2 * (width - LEFT_MARGIN))
        seconds = max(self.run.request.seconds, points[-1][0])
        top = round_up(1.08 * max(y for _, y in self.run.points))
        return self._plot(points, seconds, top, width, height)

    def _plot(
        self, points: list[tuple[float, float]], seconds: float, top: float, width: int, height: int
    ) -> list[Row]:
        figure = self._own_figure()
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(width, height - 1)
        figure.axes(active=False)
        figure.axes(active=True, side=[0])
        figure.ruler("x", "lower").lim(0, seconds)
        parts = 4 if height >= 14 else 2
        ticks = [top * n / parts for n in range(parts + 1)]
        figure.ruler("y", "left").lim(0, top).ticks(ticks, [f"{tick:.3g}" for tick in ticks])
        xs, ys = [x for x, _ in points], [y for _, y in points]
        figure.draw(figure.signal(xs, ys, marker="braille").lines())
        lines = Text.from_ansi(str(figure.build())).plain.splitlines()
        title: Row = [Span(clip(" TFLOP/s, by seconds", width), DIM)]
        return [title, *(_coloured(line) for line in lines)]

    def _own_figure(self) -> Any:
        # Not the module's figure, which any other user of plotext in this process would draw on.
        if self._figure is None:
            import plotext

            plotext.terminal.limit(False, False)  # the widget's size counts, not the terminal's
            self._figure = type(plotext.figure)(plotext.terminal)
        return self._figure


def _coloured(line: str) -> Row:
    """Axis and labels dim, the curve in colour."""
    row: Row = []
    start = 0
    for x in range(1, len(line) + 1):
        if x == len(line) or _kind(line[x]) != _kind(line[start]):
            style = BUSY if _kind(line[start]) else DIM
            row.append(Span(line[start:x], style if line[start:x].strip() else TEXT))
            start = x
    return row


def _kind(character: str) -> bool:
    return "\u2800" <= character <= "\u28ff"


def thin(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` points, each the mean of its neighbours."""
    group = -(-len(points) // max(1, most))
    if group <= 1:
        return points
    groups = [points[n : n + group] for n in range(0, len(points), group)]
    return [
        (sum(x for x, _ in each) / len(each), sum(y for _, y in each) / len(each))
        for each in groups
    ]


def round_up(value: float) -> float:
    """The next round number: an axis that stays as it is while the curve moves."""
    scale = 1.0
    while value > 10 * scale:
        scale *= 10
    while 0 < value <= scale:
        scale /= 10
    return next(step * scale for step in STEPS if value <= step * scale)
