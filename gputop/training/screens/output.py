"""Pane with the output of a training. It follows the end until it is scrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import count
from gputop.ui.drawing.cells import Row, Span, rule_of
from gputop.ui.drawing.live import LiveView, Wheel
from gputop.ui.drawing.palette import ACCENT, DIM, TEXT

if TYPE_CHECKING:
    from gputop.training.lines import PlainLines

SIDE_CELLS = 20


class OutputView(Wheel, LiveView):
    """Lines of an output under a title. Line numbers count from the first line written."""

    def __init__(self, lines: PlainLines) -> None:
        super().__init__(id="output")
        self._lines = lines
        self._end: int | None = None
        """Number of the line below the last one on screen, or None to follow the output."""
        self._skipped = 0
        """Characters by which the view is scrolled to the right."""

    @property
    def _room(self) -> int:
        return max(1, self.size.height - 1)

    @property
    def _first(self) -> int:
        """Number of the oldest line kept."""
        return self._lines.count - len(self._lines.lines)

    @property
    def _newest_end(self) -> int:
        return self._lines.count + bool(self._lines.last)

    def action_move(self, step: int) -> None:
        end = self._newest_end if self._end is None else self._end
        end = max(end + step, self._first + self._room)
        self._end = end if end < self._newest_end else None
        self.redraw()

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self._room - 1))

    def action_side(self, step: int) -> None:
        self._skipped = max(0, self._skipped + step * SIDE_CELLS)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - its room is known
        end = self._newest_end
        if self._end is not None:
            end = max(self._end, self._first + self._room)
        rows = [self._title(width, end)]
        for number in range(end - self._room, end):
            text = self._line(number)[self._skipped :]
            rows.append([Span(text, TEXT)])
        while end < self._room:
            rows.append(rows.pop(1))  # a short output starts at the top
            end += 1
        return rows

    def _line(self, number: int) -> str:
        if number == self._lines.count:
            return self._lines.last
        if self._first <= number < self._lines.count:
            return self._lines.lines[number - self._first]
        return ""

    def _title(self, width: int, end: int) -> Row:
        right = []
        below = self._newest_end - end
        if below > 0:
            below_text = f" {count(below, 'newer line')} below · End "
            right.append(Span(below_text, ACCENT))
        left = [Span("Output ", ACCENT)]
        if self._skipped:
            left.append(Span(f"← {self._skipped} ", DIM))
        return rule_of(left, right, width)
