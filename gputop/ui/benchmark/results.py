"""Table of results of this run and earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.results.facts import DEVICE, SPEED, VERDICT, WHEN, fitting_columns, is_slow
from gputop.text import ABSENT, short_name, visible
from gputop.ui.drawing.cells import Row, Span, cell, fit, wrap
from gputop.ui.drawing.palette import DIM, FAULT, STRONG, TEXT, WARN
from gputop.ui.model import find_device
from gputop.ui.widgets.live import LiveView, Wheel

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.events import Result
    from gputop.bench.results.facts import ResultColumn
    from gputop.ui.model import Telemetry


class ResultsView(Wheel, LiveView):
    """A table, newest first, that scrolls."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="results")
        self._telemetry = telemetry
        self.results: list[Result] = []
        self.problem: str | None = None
        """Reason why earlier results could not be read, or this one not be stored."""
        self._first = 0
        self._room = 1
        self._seen = 0
        """Results at the last drawing: a new one scrolls to the top."""

    def move(self, step: int) -> None:
        """Scroll down by `step` rows."""
        most = max(0, len(self.results) - self._room)
        self._first = max(0, min(most, self._first + step))
        self.redraw()

    wheel = move

    def page(self, step: int) -> None:
        """Scroll down by `step` pages."""
        self.move(step * self._room)

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw a heading, and as many results as fit."""
        note: list[Row] = [
            [Span(f" {line}", FAULT)] for line in wrap(visible(self.problem or ""), width - 2)[:2]
        ]
        if not self.results:
            return [*note, [Span(" No results yet", DIM)]]
        self._room = max(1, height - len(note) - 1)
        first = self._first if len(self.results) == self._seen else 0
        self._first = max(0, min(first, len(self.results) - self._room))
        self._seen = len(self.results)
        listed = self.results[self._first : self._first + self._room]
        columns = fitting_columns(width)
        rows = [self._heading(columns, width)]
        rows += [self._line(each, columns, width) for each in listed]
        return [*note, *rows]

    def _device_of(self, result: Result) -> str:
        """Return the device, with its index on this machine: eight may have one name."""
        name = short_name(visible(result.device))
        device = find_device(self._telemetry.devices, result.device_uuid)
        return name if device is None else f"{device.number} {name}"

    def _heading(self, columns: tuple[tuple[ResultColumn, int], ...], width: int) -> Row:
        """Return the titles, and which results are shown if not all are."""
        total = len(self.results)
        row: Row = []
        for column, cells in columns:
            title = column.title
            if column is WHEN and total > self._room:
                shown = f"{self._first + 1}-{self._first + self._room}"
                forms = (f"{shown} of {total}", f"{shown}/{total}", shown)
                title = next((each for each in forms if len(each) <= cells), shown)
            row += [Span(" "), cell(title, cells, DIM, right=column.right)]
        return fit(row, width)

    def _line(
        self, result: Result, columns: tuple[tuple[ResultColumn, int], ...], width: int
    ) -> Row:
        row: Row = []
        titles = {column.title for column, _ in columns}
        for column, cells in columns:
            text = self._device_of(result) if column is DEVICE else column.text(result)
            if column.title == "TYPE" and "KIND" not in titles and result.points:
                text = visible(result.kind, 20)  # tells more than its data type
            style = _style(result, column, text)
            row += [Span(" "), cell(text, cells, style, right=column.right)]
        return fit(row, width)


def _style(result: Result, column: ResultColumn, text: str) -> Style:
    """Return the style of a cell: a fault is red all over, a slow result where it says so."""
    if result.wrong_elements:
        return FAULT
    if is_slow(result) and column in (VERDICT, SPEED):
        return WARN
    if text == ABSENT:
        return DIM
    return STRONG if column is SPEED else TEXT
