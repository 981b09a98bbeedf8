"""Rows of a run that is a table, with the best marked, and its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.results.facts import best_row, rate_text
from gputop.bench.results.tables import FASTEST, TextTable, table
from gputop.text import ABSENT, brief, count, duration, size, visible
from gputop.ui.drawing.cells import Row, Span, cell, clip, fit, width_of, wrap
from gputop.ui.drawing.palette import DIM, FAULT, GOOD, STRONG, TEXT

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.events import Point
    from gputop.bench.run.state import RunState

GAP = 2
WORDS, LEAST_SHAPES = 2, 3
NARROWEST_NAME = 12


def result_rows(run: RunState, width: int, height: int, under: int) -> list[Row]:
    """Draw the table, and below it the notes once the run is complete.

    A search leaves `under` rows and some for notes: only the best shapes count.
    """
    most = height - 1 - under - WORDS
    found = table(run.request.kind, run.rows, max(LEAST_SHAPES, min(FASTEST, most)))
    if found.named and not _fits(found, width):  # the columns of others are not of one sort
        found = found.transposed()
    shown = table_rows(found, width)[:height]
    room = height - len(shown) - 1
    notes = note_rows(run, width, room, TEXT)
    return [*shown, [], *notes] if notes else shown


def note_rows(run: RunState, width: int, room: int, style: Style) -> list[Row]:
    """Return as many lines of the result's notes as fit."""
    notes = run.result.notes if run.result else ()
    lines = [line for note in notes for line in wrap(visible(note), width - 2)]
    shown = lines[: max(0, room)]
    if shown and len(lines) > len(shown):
        shown[-1] += " …"
    return [[Span(clip(f" {line}", width), style)] for line in shown]


def _widths(table: TextTable) -> list[int]:
    return [max(len(text) for text in column) for column in zip(*table.lines, strict=True)]


def _fits(table: TextTable, width: int) -> bool:
    return 1 + sum(_widths(table)) + GAP * (len(table.lines[0]) - 1) <= width


def table_rows(table: TextTable, width: int) -> list[Row]:
    """Draw a table: headings dim, the best green; a wide one shortens the names."""
    widths = _widths(table)
    gap, margin = (GAP, 1) if _fits(table, width) else (1, 0)
    over = margin + sum(widths) + gap * (len(widths) - 1) - width
    if over > 0:
        widths[0] = max(NARROWEST_NAME, widths[0] - over)
    lines = []
    for y, line in enumerate(table.lines):
        row: Row = [Span(" " * margin)]
        for x, text in enumerate(line):
            style = STRONG if (x > 0) is table.named else TEXT
            if y == 0 or text == ABSENT:
                style = DIM
            elif (y, x) in table.best:
                style = GOOD
            if (y, x) in table.spoiled:
                style = FAULT
            blank = [Span(" " * gap)] if x else []
            row += [*blank, cell(visible(text), widths[x], style, right=x > 0)]
        lines.append(fit(row, width) if width_of(row) > width else row)
    return lines


def last_and_best(run: RunState, width: int) -> Row:
    """Return the last row, and the best so far if it fits."""
    row: Row = [Span(" ")]
    if not run.rows:
        return [*row, Span("the first row is being measured" if run.planned else "", DIM)]
    last, best = run.rows[-1], best_row(run.rows) or run.rows[-1]
    latency = run.request.kind == "latency"
    named = [("last", last), ("best", best)]
    if latency:  # work of several sorts: the table says what is best of each
        named = [] if run.ended else named[:1]
    elif run.ended or last is best:
        named = named[1:]
    for name, point in named:
        said = brief(point.values.get("seconds")) if latency else rate_text(point)
        part = [Span(f"{name} ", DIM), Span(said, STRONG), Span(f" {_where(run, point)}  ", DIM)]
        if point is named[0][1] or width_of([*row, *part]) <= width:
            row += part
    return row


def _where(run: RunState, point: Point) -> str:
    series = visible(point.series, 40)
    if run.request.kind == "copy":
        return f"{series}, {size(point.x)}"
    if len(set(point.shape)) > 1:
        return "×".join(map(str, point.shape))
    return f"{series}, {point.x:.0f}"


def progress(run: RunState) -> tuple[float, str]:
    """Return the progress, 0 to 1, and in words. A table may be complete early."""
    done, seconds, elapsed = len(run.rows), run.request.seconds, run.elapsed_seconds
    most = run.planned.rows if run.planned else 0
    rows = count(done, "row")
    if run.ended:
        share = 1.0 if run.took_its_time else min(1.0, elapsed / seconds)
        return share, f"  {rows} in {duration(elapsed)}"
    left = max(0.0, seconds - elapsed)
    share = max(min(1.0, elapsed / seconds), done / most if most else 0.0)
    of = f"{done} of at most {most} rows" if most else rows
    return min(1.0, share), f"  {of}, at most {duration(left)} left"
