"""The one large chart: throughput over time, drawn by plotext. Nothing else imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from gputop.ui.draw import Row, Span, clip
from gputop.ui.palette import BUSY, DIM, TEXT
from gputop.ui.widgets import strip
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.ui.run import Run

LEAST_PLOT_ROWS, LEAST_WIDTH = 7, 24
LEAST_WIDTH_FOR_STRIPS = strip.LEFT + strip.RIGHT + 24
LABEL = 8
"""Cells of the axis and its labels where nothing is drawn under them."""
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
        """The chart in the space there is, and under it on its time axis what the device did."""
        run = self.run
        if run is None or not run.points or height < 4 or width < LEAST_WIDTH:
            return self.hint(width)
        wanted = strip.wanted(run) if width >= LEAST_WIDTH_FOR_STRIPS else 0
        # What leaves the plot its least, for a row each; where there is more room, half of it.
        spare = max(0, height - LEAST_PLOT_ROWS) if wanted else 0
        under = max(min(wanted, spare), spare // 2)
        left, right = (strip.LEFT, strip.RIGHT) if under else (LABEL, 0)
        room = width - left - right
        seconds = max(run.request.seconds, run.points[-1][0])
        below = strip.rows(run, strip.Axis(seconds, room), under) if under else []
        points = thin(run.points, 2 * room)
        top = round_up(1.08 * max(y for _, y in run.points))
        return [*self._plot(points, seconds, top, left, left + room, height - len(below)), *below]

    def _plot(
        self,
        points: list[tuple[float, float]],
        seconds: float,
        top: float,
        left: int,
        width: int,
        height: int,
    ) -> list[Row]:
        """The plot of that width, with the axis in the last of its `left` cells."""
        figure = self._own_figure()
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(width, height - 1)
        figure.axes(active=False)
        figure.axes(active=True, side=[0])
        figure.ruler("x", "lower").lim(0, seconds)
        parts = 4 if height >= 14 else 2
        ticks = [top * n / parts for n in range(parts + 1)]
        figure.ruler("y", "left").lim(0, top).ticks(
            ticks, [_tick(tick).rjust(left - 1) for tick in ticks]
        )
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


def _tick(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


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
