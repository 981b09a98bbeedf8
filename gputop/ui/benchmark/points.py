"""The rows of a run that is a table: as they come, the best marked, and what they say in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.results import page
from gputop.bench.results.columns import rate
from gputop.text import ABSENT, brief, count, duration, size, visible
from gputop.ui.drawing.cells import Row, Span, cell, clip, fit, width_of, wrap
from gputop.ui.drawing.palette import DIM, GOOD, STRONG, TEXT

if TYPE_CHECKING:
    from gputop.bench.events import Point
    from gputop.bench.results.page import Table
    from gputop.bench.run.state import RunState

GAP = 2
WORDS, LEAST_SHAPES = 2, 3
NARROWEST_NAME = 12


def rows(run: RunState, width: int, height: int, under: int) -> list[Row]:
    """The table in the space there is, and under it what is to be said once it is complete.

    A search leaves `under` rows and some for words: the best of its shapes are what counts.
    """
    kind = run.request.kind
    most = height - 1 - under - WORDS
    table = page.table(kind, run.rows, max(LEAST_SHAPES, min(page.FASTEST, most)))
    if kind != "peak" and not _fits(table, width):  # whose columns are not of one sort
        table = table.turned()
    shown = drawn(table, width, names=kind != "peak")[:height]
    room = height - len(shown) - 1
    notes = run.result.notes if run.result else ()
    lines = [line for note in notes for line in wrap(visible(note), width - 2)]
    if lines and room > 0:
        said = lines[:room]
        if len(lines) > room:
            said[-1] = f"{said[-1]} …"
        shown += [[], *([Span(clip(f" {line}", width), TEXT)] for line in said)]
    return shown


def _widths(table: Table) -> list[int]:
    return [max(len(text) for text in column) for column in zip(*table.lines, strict=True)]


def _fits(table: Table, width: int) -> bool:
    return 1 + sum(_widths(table)) + GAP * (len(table.lines[0]) - 1) <= width


def drawn(table: Table, width: int, *, names: bool) -> list[Row]:
    """The headings dim, the best green; what is too wide is so at the expense of the names.

    Without `names` the first column is the figure that counts.
    """
    widths = _widths(table)
    gap, margin = (GAP, 1) if _fits(table, width) else (1, 0)
    over = margin + sum(widths) + gap * (len(widths) - 1) - width
    if over > 0:
        widths[0] = max(NARROWEST_NAME, widths[0] - over)
    lines = []
    for y, line in enumerate(table.lines):
        row: Row = [Span(" " * margin)]
        for x, text in enumerate(line):
            style = STRONG if (x > 0) is names else TEXT
            if y == 0 or text == ABSENT:
                style = DIM
            elif (y, x) in table.best:
                style = GOOD
            blank = [Span(" " * gap)] if x else []
            row += [*blank, cell(visible(text), widths[x], style, right=x > 0)]
        lines.append(fit(row, width) if width_of(row) > width else row)
    return lines


def figures(run: RunState, width: int) -> Row:
    """The row that came last, and the best so far where there is room for it."""
    row: Row = [Span(" ")]
    if not run.rows:
        return [*row, Span("the first row is being measured" if run.planned else "", DIM)]
    last, best = run.rows[-1], max(run.rows, key=lambda point: (rate(point) or (0.0, ""))[0])
    if run.request.kind == "peak":
        best = page.ranked(run.rows)[0]
    if run.request.kind == "latency":  # work of several sorts: the table says what is best of each
        named = [] if run.ended else [("last", last)]
    elif run.ended or last is best:
        named = [("best", best)]
    else:
        named = [("last", last), ("best", best)]
    for name, point in named:
        figure = rate(point)
        said = figure[1] if figure else ABSENT
        if run.request.kind == "latency":
            said = brief(point.values.get("seconds"))
        part = [Span(f"{name} ", DIM), Span(said, STRONG), Span(f" {_where(run, point)}  ", DIM)]
        if point is named[0][1] or width_of([*row, *part]) <= width:
            row += part
    return row


def _where(run: RunState, point: Point) -> str:
    """Which row it is, in a few words."""
    series = visible(point.series, 40)
    if run.request.kind == "copy":
        return f"{series}, {size(point.x)}"
    if len(set(point.shape)) > 1:
        return "×".join(map(str, point.shape))
    return f"{series}, {point.x:.0f}"


def progress(run: RunState) -> tuple[float, str]:
    """How far it is, 0 to 1, and in words: a table may be complete before its time."""
    done, seconds, elapsed = len(run.rows), run.request.seconds, run.elapsed_seconds
    most = run.planned.rows if run.planned else 0
    rows = count(done, "row")
    if run.ended:
        complete = run.result is not None and run.result.stopped == "time"
        share = 1.0 if complete else min(1.0, elapsed / seconds)
        return share, f"  {rows} in {duration(elapsed)}"
    left = max(0.0, seconds - elapsed)
    share = max(min(1.0, elapsed / seconds), done / most if most else 0.0)
    of = f"{done} of at most {most} rows" if most else rows
    return min(1.0, share), f"  {of}, at most {duration(left)} left"
