"""Table of results of this run and earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.results.facts import DEVICE, SPEED, VERDICT, WHEN, ResultColumn, fitting_columns
from gputop.text import ABSENT, short_name, visible
from gputop.ui.drawing.cells import Row, Span, cell, fit, list_row, wrap
from gputop.ui.drawing.live import TelemetryView, Wheel
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.events import Result
    from gputop.ui.model import Telemetry


class ResultsView(Wheel, TelemetryView):
    """A table, newest first, with a cursor."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, id="results")
        self.results: list[Result] = []
        self.problem: str | None = None
        """Reason why earlier results could not be read, or this one not be stored."""
        self.marked: Result | None = None
        """Result that another one is to be compared with."""
        self._at = self._first = 0
        """Index of the selected result, and of the first one shown."""
        self._room = 1

    def show(self, results: list[Result], problem: str | None) -> None:
        """List these results; a new one is selected."""
        fresh = results[:1] != self.results[:1]
        self.results, self.problem = results, problem
        self._at = 0 if fresh else self._at
        self.action_move(0)

    @property
    def selected(self) -> Result | None:
        """Result under the cursor, or None if there is none."""
        return self.results[self._at] if self.results else None

    @property
    def wanted(self) -> int:
        """Rows that show all results."""
        return 1 + len(self.results) + 2 * bool(self.problem)

    def action_move(self, step: int) -> None:
        self._at = max(0, min(len(self.results) - 1, self._at + step))
        self.redraw()

    wheel = action_move

    def action_page(self, step: int) -> None:
        self.action_move(step * self._room)

    def draw(self, width: int, height: int) -> list[Row]:
        note: list[Row] = [
            [Span(f" {line}", FAULT)] for line in wrap(visible(self.problem or ""), width - 2)[:2]
        ]
        if self.marked is not None:
            note.append([Span(" Select another result, and press d again", ACCENT)])
        if not self.results:
            return [*note, [Span(" No results yet", DIM)]]
        self._room = max(1, height - len(note) - 1)
        first = max(self._at - self._room + 1, min(self._first, self._at))
        self._first = max(0, min(first, len(self.results) - self._room))
        listed = self.results[self._first : self._first + self._room]
        columns = fitting_columns(width)
        rows = [self._heading(columns, width)]
        rows += [self._line(each, columns, width) for each in listed]
        return [*note, *rows]

    def _device_of(self, result: Result) -> str:
        """Return the device, with its index on this machine: eight may have one name."""
        name = short_name(visible(result.device))
        device = self._telemetry.find_device(result.device_uuid)
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
        # What is red stays red under the cursor.
        chosen, calm = result is self.selected, not result.wrong_elements
        line = list_row(fit(row[1:], width - 1), selected=chosen, focused=calm)
        return [Span("=", ACCENT), *line[1:]] if result is self.marked else line


def _style(result: Result, column: ResultColumn, text: str) -> Style:
    """Return the style of a cell: a fault is red all over, a slow result where it says so."""
    if result.wrong_elements:
        return FAULT
    bad = result.known_comparison.slower or (result.verdict and result.verdict.bad)
    if bad and column in (VERDICT, SPEED):
        return WARN
    if text == ABSENT:
        return DIM
    return STRONG if column is SPEED else TEXT
