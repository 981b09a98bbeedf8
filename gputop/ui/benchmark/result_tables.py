"""Tables of the benchmark tab: the rows of a run, and the parts of a check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style

from gputop.bench.results.check_report import check_page
from gputop.bench.results.page import Heading, Sentence
from gputop.bench.results.tables import FASTEST, TextTable, table
from gputop.text import ABSENT, visible
from gputop.ui.benchmark.group_table import STYLES
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cell,
    clip,
    fit,
    paragraph,
    width_of,
    wrap,
)
from gputop.ui.drawing.palette import DIM, FAULT, GOOD, STRONG, TEXT

if TYPE_CHECKING:
    from gputop.bench.run.check_parts import CheckResult
    from gputop.bench.run.device_run import DeviceRun

GAP = 2
WORDS, LEAST_SHAPES = 2, 3
NARROWEST_NAME = 12


def result_rows(
    run: DeviceRun,
    width: int,
    height: int,
) -> list[Row]:
    """Draw the table (for a search, the best shapes), and below it the notes of a complete run."""
    most = height - 1 - WORDS
    found = table(
        run.request.kind,
        run.rows,
        max(LEAST_SHAPES, min(FASTEST, most)),
    )
    if not _fits(_widths(found), width):
        found = found.transposed()
    shown = table_rows(found, width)[:height]
    notes = note_rows(run, width, height - len(shown) - 1, TEXT)
    return [*shown, [], *notes] if notes else shown


def check_rows(
    check: CheckResult,
    width: int,
    height: int,
) -> list[Row]:
    """Draw the page of a check. Its first sentence has the colour of the gravest part."""
    rows: list[Row] = []
    for block in check_page(check):
        match block:
            case Sentence(text, level):
                style = STYLES[level]
                rows += paragraph(visible(text), width - 1, style, " ")
            case Heading(text):
                rows.append([Span(clip(f" {visible(text)}", width), STRONG)])
            case TextTable():
                rows += [[], *table_rows(block, width), []]
    return rows[:height]


def note_rows(
    run: DeviceRun,
    width: int,
    room: int,
    style: Style,
) -> list[Row]:
    """Return as many lines of the result's notes as fit."""
    notes = run.result.notes if run.result else ()
    lines = [line for note in notes for line in wrap(visible(note), width - 2)]
    shown = lines[: max(0, room)]
    if shown and len(lines) > len(shown):
        shown[-1] += " …"
    return [[Span(clip(f" {line}", width), style)] for line in shown]


def _widths(table: TextTable) -> list[int]:
    return [
        max(len(text) for text in column)
        for column in zip(*table.lines, strict=True)
    ]


def _fits(widths: list[int], width: int) -> bool:
    return 1 + sum(widths) + GAP * (len(widths) - 1) <= width


def table_rows(table: TextTable, width: int) -> list[Row]:
    """Draw a table with dim headings and the best row in green. A wide table shortens the names."""
    widths = _widths(table)
    gap, margin = (GAP, 1) if _fits(widths, width) else (1, 0)
    over = margin + sum(widths) + gap * (len(widths) - 1) - width
    if over > 0:
        widths[0] = max(NARROWEST_NAME, widths[0] - over)
    lines = []
    for y, line in enumerate(table.lines):
        row: Row = [Span(" " * margin)]
        for x, text in enumerate(line):
            style = STRONG if x > 0 else TEXT
            if y == 0 or text == ABSENT:
                style = DIM
            elif (y, x) in table.best:
                style = GOOD
            if (y, x) in table.spoiled:
                style = FAULT
            blank = [Span(" " * gap)] if x else []
            row += [
                *blank,
                cell(
                    visible(text),
                    widths[x],
                    style,
                    right=x > 0,
                ),
            ]
        lines.append(fit(row, width) if width_of(row) > width else row)
    return lines
