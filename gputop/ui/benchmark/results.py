"""The list of results, newest first. A check is one row, which unfolds to its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual import work
from textual.message import Message

from gputop.agent.problem import ProblemError
from gputop.bench.events import DEGRADED, FAULTY, Result
from gputop.bench.results import store
from gputop.bench.results.columns import (
    DEVICE,
    SPEED,
    VERDICT,
    WHEN,
    ResultColumn,
    device,
    fitting_columns,
    speed,
    when,
)
from gputop.bench.results.differences import differences
from gputop.text import ABSENT, visible
from gputop.ui.benchmark.kept_checks import check_result
from gputop.ui.drawing.cells import Row, Span, cell, fit, list_row, paragraph
from gputop.ui.drawing.dialogs import Choice, ChoiceDialog, ConfirmScreen
from gputop.ui.drawing.live import CursorList, TelemetryView
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from gputop.ui.telemetry import Telemetry

MOST_RESULTS = 200


class Line(NamedTuple):
    """A line of the list: a result, or a check with the results of its parts."""

    result: Result
    """Result of the run, or for a check one that stands for its parts."""
    parts: tuple[Result, ...] = ()
    """Results of a check in their order; empty for a single run."""
    within: bool = False
    """True for a part of an unfolded check."""


class ResultsView(CursorList, TelemetryView):
    """A table, newest first, with a cursor."""

    class Chosen(Message):
        """The line under the cursor is to be drawn again."""

        def __init__(self, line: Line) -> None:
            super().__init__()
            self.line = line

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, id="results")
        self.results: list[Result] = []
        self.problem: str | None = None
        """Reason why earlier results could not be read, or this one not be stored."""
        self.marked: Result | None = None
        """Result that another one is to be compared with."""
        self._unfolded: set[float] = set()
        """Starts of the checks whose parts are listed."""
        self.lines: list[Line] = []

    def show(self, results: Sequence[Result], problem: str | None) -> None:
        """List these results; a new one is selected."""
        fresh = results[:1] != self.results[:1]
        self.results, self.problem = [*results[:MOST_RESULTS]], problem
        self._list()
        self.at = 0 if fresh else self.at
        self.action_move(0)

    def add(self, new: Sequence[Result], problem: str | None) -> None:
        """List new results first; those that are listed already stay where they are."""
        fresh = {(each.started_at, each.device_uuid): each for each in new}
        rest = []
        for each in self.results:
            rest.append(fresh.pop((each.started_at, each.device_uuid), each))
        self.show([*fresh.values(), *rest], problem)

    def _list(self) -> None:
        checks: dict[float, list[Result]] = {}
        for each in self.results:
            if each.check_started_at is not None:
                checks.setdefault(each.check_started_at, []).insert(0, each)
        self.lines = []
        for each in self.results:
            started_at = each.check_started_at
            if started_at is None:
                self.lines.append(Line(each))
            elif started_at in checks:
                parts = tuple(checks.pop(started_at))
                self.lines.append(Line(check_result(parts), parts))
                if started_at in self._unfolded:
                    self.lines += [Line(part, within=True) for part in parts]

    @property
    def line(self) -> Line | None:
        """Line under the cursor, or None if there is none."""
        return self.lines[self.at] if self.lines else None

    @property
    def wanted(self) -> int:
        """Rows that show all lines."""
        return 1 + len(self.lines) + 2 * bool(self.problem)

    @property
    def total(self) -> int:
        return len(self.lines)

    def action_draw(self) -> None:
        """Draw the line under the cursor again; a check also unfolds, or folds."""
        line = self.line
        if line is None:
            return
        if line.parts:
            self._unfolded ^= {line.result.started_at}
            self._list()
            self.action_move(0)
        self.post_message(self.Chosen(line))

    def action_compare(self) -> None:
        """Mark a result, or compare it with the marked one."""
        now = self.line and self.line.result
        if now is None or self.marked in (None, now):
            self.marked = None if self.marked is now else now
        else:
            pair = [each for each in (self.marked, now) if each is not None]
            before, after = sorted(pair, key=lambda one: one.started_at)
            text = differences(before, after, self.results)
            lines = [Choice(line, "", None) for line in text.splitlines()]
            window = ChoiceDialog("Comparison", lines, "Esc closes")
            window.add_class("comparison")
            self.app.push_screen(window)
            self.marked = None
        self.redraw()

    def action_forget(self) -> None:
        """Ask whether to remove the results of the line under the cursor."""
        line = self.line
        if line is None:
            return
        result = line.result
        what = f"{when(result)}  {device(result)}  {result.kind}, {result.dtype}, {speed(result)}"
        whose = "it and its curve"
        if line.parts:
            whose = "its parts and their curves"
        lines = [visible(what), f"This removes {whose} from the stored results."]
        question = ConfirmScreen("Forget this result?", lines, "Forget")
        forgotten = line.parts or (result,)
        question.ask(self.app, lambda _: self._forget(forgotten))

    @work(group="results", exit_on_error=False)
    async def _forget(self, results: Sequence[Result]) -> None:
        left = self.results
        problem = None
        for result in results:
            try:
                await asyncio.to_thread(store.forget, result)
            except ProblemError as error:
                problem = f"Not forgotten: {error}"
                break
            left = [one for one in left if one is not result]
        self.show(left, problem)

    def draw(self, width: int, height: int) -> list[Row]:
        note = paragraph(visible(self.problem or ""), width - 1, FAULT, " ")[:2]
        if self.marked is not None:
            note.append([Span(" Select another result, and press d again", ACCENT)])
        if not self.lines:
            return [*note, [Span(" No results yet", DIM)]]
        listed = self.list_in(max(1, height - len(note) - 1))
        columns = fitting_columns(width)
        rows = [self._heading(columns, width)]
        for n in listed:
            rows.append(
                self._row(
                    self.lines[n],
                    columns,
                    width,
                    selected=n == self.at,
                )
            )
        return [*note, *rows]

    def _heading(self, columns: Sequence[tuple[ResultColumn, int]], width: int) -> Row:
        """Return the titles, and which lines are shown if not all are."""
        row: Row = []
        for column, cells in columns:
            title = column.title
            if column is WHEN and self.total > len(self.listed):
                title = f"{self.listed.start + 1}-{self.listed.stop}"
                of = f"{title} of {self.total}"
                title = of if len(of) <= cells else title
            row += [
                Span(" "),
                cell(
                    title,
                    cells,
                    DIM,
                    right=column.right,
                ),
            ]
        return fit(row, width)

    def _row(
        self,
        line: Line,
        columns: Sequence[tuple[ResultColumn, int]],
        width: int,
        *,
        selected: bool,
    ) -> Row:
        result = line.result
        titles = {column.title for column, _ in columns}
        faulty = result.state == FAULTY
        bad = result.known_comparison.slower or result.state == DEGRADED
        row: Row = []
        for column, cells in columns:
            text = column.text(result)
            if column is DEVICE:
                text = self._device_text(line, text)
            named_by_kind = result.points or line.parts
            if column.title == "TYPE" and "KIND" not in titles and named_by_kind:
                text = visible(result.kind, 20)  # tells more than its data type
            style = STRONG if column is SPEED else TEXT
            if faulty:  # a fault is red all over
                style = FAULT
            elif bad and column in (VERDICT, SPEED):
                style = WARN
            elif text == ABSENT:
                style = DIM
            row += [
                Span(" "),
                cell(
                    text,
                    cells,
                    style,
                    right=column.right,
                ),
            ]
        # A red row stays red under the cursor.
        drawn = list_row(fit(row[1:], width - 1), selected=selected, focused=not faulty)
        return [Span("=", ACCENT), *drawn[1:]] if result is self.marked else drawn

    def _device_text(self, line: Line, text: str) -> str:
        device = self._telemetry.find_device(line.result.device_uuid)
        if device is not None:  # eight may have one name
            text = f"{device.number} {text}"
        if line.parts:
            unfolded = line.result.started_at in self._unfolded
            text = f"{'▾' if unfolded else '▸'} {text}"
        return f"  {text}" if line.within else text
