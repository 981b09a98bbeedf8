"""The list of results, newest first. A check is one row that unfolds to its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from textual import work
from textual.message import Message

from gputop.agent.problem import ProblemError
from gputop.bench.events import DEGRADED, FAULTY, Result
from gputop.bench.results import store
from gputop.bench.results.columns import COLUMNS as RESULT_COLUMNS
from gputop.bench.results.columns import (
    DEVICE,
    SPEED,
    VERDICT,
    ResultColumn,
    device,
    speed,
    when,
)
from gputop.bench.results.differences import comparison_page
from gputop.output.result_pages import LEAST_DEVICE, page_text
from gputop.text import ABSENT, visible
from gputop.ui.benchmark.kept_checks import check_result
from gputop.ui.drawing.cells import Row, Span, cell, paragraph
from gputop.ui.drawing.dialogs import Choice, ChoiceDialog, ConfirmScreen
from gputop.ui.drawing.list_state import Column, ListState
from gputop.ui.drawing.list_view import ListView, Slot, fit_slots
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, STRONG, TEXT, WARN
from gputop.ui.telemetry import Telemetry

MOST_RESULTS = 200
"""Results that are read when the tab opens."""
WIDTH = 116
"""Cells of the window with a comparison, as in `benchmark.tcss`."""


class Line(NamedTuple):
    """A line of the list: a result, or a check with the results of its parts."""

    result: Result
    """Result of the run; for a check, a result that represents its parts."""
    parts: tuple[Result, ...] = ()
    """Results of a check in order; empty for a single run."""
    within: bool = False
    """True for a part of an unfolded check."""


class ResultsState(ListState[Line]):
    """Lines in the order of their results."""

    def identity(self, item: Line) -> Hashable:
        result = item.result
        return (
            result.started_at,
            result.device_uuid,
            item.within,
            bool(item.parts),
        )


def _list_column(column: ResultColumn) -> Column[Line]:
    width = column.width
    if column is DEVICE:
        width = 0
    return Column(
        column.title,
        width,
        lambda line: column.text(line.result),
        right=column.right,
    )


COLUMNS = {_list_column(column): column for column in RESULT_COLUMNS}
"""Columns of the list, with the columns of the history that they show."""
RANKED = sorted(
    (column for column in COLUMNS if column.width),
    key=lambda column: COLUMNS[column].rank,
)


class ResultsView(ListView[Line]):
    """A table, newest first."""

    class Chosen(Message):
        """Message that the line under the cursor is to be drawn again."""

        def __init__(self, line: Line) -> None:
            super().__init__()
            self.line = line

    noun = "results"
    keys_of_range = (" · ↑↓ scroll",)

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(ResultsState(), [*COLUMNS], id="results")
        self._telemetry = telemetry
        self.results: list[Result] = []
        self.problem: str | None = None
        """Reason why stored results could not be read, or why a result was not stored."""
        self.marked: Result | None = None
        """Result that is marked for a comparison."""
        self._unfolded: set[float] = set()
        """Start times of the checks whose parts are listed."""

    def show(self, results: Sequence[Result], problem: str | None) -> None:
        """List these results."""
        self.results, self.problem = [*results], problem
        self._list()
        self.redraw()

    def add(self, new: Sequence[Result], problem: str | None) -> None:
        """Add new results at the top, and select the first. Listed results stay in place."""
        fresh = {(each.started_at, each.device_uuid): each for each in new}
        rest = []
        for each in self.results:
            rest.append(fresh.pop((each.started_at, each.device_uuid), each))
        self.show([*fresh.values(), *rest], problem)
        if fresh:
            self.action_move(-self.state.at)

    def _list(self) -> None:
        checks: dict[float, list[Result]] = {}
        for each in self.results:
            if each.check_started_at is not None:
                checks.setdefault(each.check_started_at, []).insert(0, each)
        lines = []
        for each in self.results:
            started_at = each.check_started_at
            if started_at is None:
                lines.append(Line(each))
            elif started_at in checks:
                parts = tuple(checks.pop(started_at))
                lines.append(Line(check_result(parts), parts))
                if started_at in self._unfolded:
                    lines += [Line(part, within=True) for part in parts]
        self.state.fill(lines)

    @property
    def wanted(self) -> int:
        """Rows that show all lines, the heading, and a problem."""
        return 3 + self.state.total

    def action_draw(self) -> None:
        """Draw the line under the cursor again. A check also unfolds or folds."""
        line = self.selected
        if line is None:
            return
        if line.parts:
            self._unfolded ^= {line.result.started_at}
            self._list()
            self.redraw()
        self.post_message(self.Chosen(line))

    def action_compare(self) -> None:
        """Mark a result, or compare it with the marked one."""
        line, marked = self.selected, self.marked
        self.marked = None
        if line is None:
            return
        if marked is None:
            self.marked = line.result
        elif marked is not line.result:
            pair = [marked, line.result]
            before, after = sorted(pair, key=lambda one: one.started_at)
            page = comparison_page(before, after, self.results)
            text = page_text(page, min(WIDTH, self.app.size.width - 4) - 8)
            lines = [Choice(each, "", None) for each in text.splitlines()]
            window = ChoiceDialog("Comparison", lines, "Esc closes")
            window.add_class("comparison")
            self.app.push_screen(window)
        self.redraw()

    def action_forget(self) -> None:
        """Ask for confirmation, then remove the results of the line under the cursor."""
        line = self.selected
        if line is None:
            return
        result = line.result
        what = f"{when(result)}  {device(result)}  {result.kind}, {result.dtype}, {speed(result)}"
        whose = "it and its curve"
        if line.parts:
            whose = "its parts and their curves"
        lines = [
            visible(what),
            f"This removes {whose} from the stored results.",
        ]
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

    def nothing(self) -> str:
        return "No results yet"

    def draw(self, width: int, height: int) -> list[Row]:
        note = paragraph(visible(self.problem or ""), width, FAULT, " ")
        if self.marked is not None:
            note.append(
                [Span(" Select another result, and press d again", ACCENT)],
            )
        rows = super().draw(width, height - len(note))
        self.above += len(note)
        return [*note, *rows]

    def slots(self, width: int) -> Sequence[Slot[Line]]:
        return fit_slots(
            self.columns,
            RANKED,
            width,
            lambda _: LEAST_DEVICE,
        )

    def cell_of(self, item: Line, slot: Slot[Line]) -> Row:
        result, column = item.result, COLUMNS[slot.column]
        text = column.text(result)
        if column is DEVICE:
            text = self._device_text(item, text)
        bad = result.known_comparison.slower or result.state == DEGRADED
        style = TEXT
        # A fault is red in all columns.
        if result.state == FAULTY:
            style = FAULT
        elif bad and column in (VERDICT, SPEED):
            style = WARN
        elif text == ABSENT:
            style = DIM
        elif column is SPEED:
            style = STRONG
        return [
            cell(
                text,
                slot.cells,
                style,
                right=column.right,
            ),
        ]

    def line(
        self,
        item: Line,
        slots: Sequence[Slot[Line]],
        *,
        selected: bool,
    ) -> Row:
        # A red row stays red under the cursor.
        self.focused_list = item.result.state != FAULTY
        row = super().line(item, slots, selected=selected)
        if item.result is self.marked:
            return [Span("=", ACCENT), *row[1:]]
        return row

    def _device_text(self, line: Line, text: str) -> str:
        device = self._telemetry.find_device(line.result.device_uuid)
        # Eight devices may have the same name.
        if device is not None:
            text = f"{device.number} {text}"
        if line.parts:
            unfolded = line.result.started_at in self._unfolded
            text = f"{'▾' if unfolded else '▸'} {text}"
        return f"  {text}" if line.within else text
