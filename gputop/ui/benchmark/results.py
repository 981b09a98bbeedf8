"""Results in the tab: rows of a run as a table or a sweep's chart, and the list of all results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.bench.events import DEGRADED, FAULTY, OK, Point, Result
from gputop.bench.results.columns import (
    DEVICE,
    SPEED,
    VERDICT,
    WHEN,
    ResultColumn,
    fitting_columns,
)
from gputop.bench.results.measures import best_row, points_by_series, rate_text
from gputop.bench.results.outliers import FAILED
from gputop.bench.results.suite_report import (
    suite_problems,
    suite_summary,
    suite_table,
    suite_title,
)
from gputop.bench.results.tables import FASTEST, TextTable, table
from gputop.text import ABSENT, brief, count, duration, flops_unit, size, visible
from gputop.ui.benchmark import plot as plots
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cell,
    clip,
    fit,
    list_row,
    paragraph,
    width_of,
    wrap,
)
from gputop.ui.drawing.live import CursorList, TelemetryView
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, GOOD, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.run.group import GroupState
    from gputop.bench.run.run_state import RunState
    from gputop.bench.run.suite import Suite
    from gputop.ui.telemetry import Telemetry

GAP = 2
WORDS, LEAST_SHAPES = 2, 3
NARROWEST_NAME = 12


def result_rows(run: RunState, width: int, height: int) -> list[Row]:
    """Draw the table, of a search the best shapes, and below it the notes of a complete run."""
    most = height - 1 - WORDS
    found = table(run.request.kind, run.rows, max(LEAST_SHAPES, min(FASTEST, most)))
    if not _fits(found, width):
        found = found.transposed()
    shown = table_rows(found, width)[:height]
    notes = note_rows(run, width, height - len(shown) - 1, TEXT)
    return [*shown, [], *notes] if notes else shown


def suite_rows(suite: Suite, width: int, height: int) -> list[Row]:
    """Draw the parts of a suite with their verdicts, and below what is not ok."""
    lines = suite_table(suite)
    good = frozenset((y, 4) for y, line in enumerate(lines) if line[4] == OK)
    bad = {FAULTY, FAILED, DEGRADED}
    spoiled = frozenset((y, 4) for y, line in enumerate(lines) if line[4] in bad)
    problems = (paragraph(line, width - 1, WARN, " ") for line in suite_problems(suite))
    title: Row = [Span(clip(f" {suite_title(suite)}", width), STRONG)]
    style = GOOD if good else TEXT
    if spoiled:
        style = WARN
    if any(line[4] == FAULTY for line in lines):
        style = FAULT
    summary = paragraph(suite_summary(suite), width - 1, style, " ")
    parts = table_rows(TextTable(lines, good, spoiled), width)
    shown = [*summary, title, [], *parts, []]
    return [*shown, *(row for rows in problems for row in rows)][:height]


def note_rows(run: RunState, width: int, room: int, style: Style) -> list[Row]:
    """Return as many lines of the result's notes as fit."""
    notes = run.result.notes if run.result else ()
    lines = [line for note in notes for line in wrap(visible(note), width - 2)]
    shown = lines[: max(0, room)]
    if shown and len(lines) > len(shown):
        shown[-1] += " …"
    return [[Span(clip(f" {line}", width), style)] for line in shown]


def _widths(table: TextTable) -> list[int]:
    return [
        max(len(text) for text in column) for column in zip(*table.lines, strict=True)
    ]


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
            style = STRONG if x > 0 else TEXT
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
        return [
            *row,
            Span("the first row is being measured" if run.planned else "", DIM),
        ]
    last, best = run.rows[-1], best_row(run.rows) or run.rows[-1]
    latency = run.request.kind == "latency"
    named = [("last", last), ("best", best)]
    if latency:  # work of several sorts: the table says what is best of each
        named = [] if run.ended else named[:1]
    elif run.ended or last is best:
        named = named[1:]
    for name, point in named:
        said = brief(point.values.get("seconds")) if latency else rate_text(point)
        part = [
            Span(f"{name} ", DIM),
            Span(said, STRONG),
            Span(f" {_where(run, point)}  ", DIM),
        ]
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
    share, left = min(1.0, elapsed / seconds), duration(max(0.0, seconds - elapsed))
    if not run.is_table:
        text = f"  {duration(elapsed)} of {duration(seconds)}"
        return share, text if run.ended else f"{text}, {left} left"
    most = run.planned.rows if run.planned else 0
    if run.ended:
        return (
            1.0 if run.took_its_time else share,
            f"  {count(done, 'row')} in {duration(elapsed)}",
        )
    of = f"{done} of at most {most} rows" if most else count(done, "row")
    return min(
        1.0, max(share, done / most if most else 0.0)
    ), f"  {of}, at most {left} left"


LEAST_PLOT = 8
FAR = 30.0
"""Ratio of the largest to the smallest figure from which the axis is logarithmic."""
WIDE = 80
USUAL = 10.0
"""log2 of the size that a sweep is expected to reach, unless its plan ends before."""
SHARE_OF_NOTES = 6
"""Rows per row of notes, at most."""


def sweep_rows(run: RunState, width: int, height: int) -> list[Row]:
    """Draw the chart, and below it notes if they fit."""
    lines = points_by_series(run.rows).items()
    series = {visible(name, 40): _logs(line) for name, line in lines}
    spare = max(0, height - LEAST_PLOT - 1)
    below = note_rows(run, width, min(spare, max(2, height // SHARE_OF_NOTES)), DIM)
    return [*_chart(series, (run,), width, height - len(below)), *below]


def sweep_rows_of_group(group: GroupState, width: int, height: int) -> list[Row]:
    """Draw the chart with a line for each device."""
    series = {target.place: _logs(run.rows) for target, run in group.runs.items()}
    return _chart(series, group.runs.values(), width, height)


def _logs(line: Sequence[Point]) -> tuple[tuple[float, float], ...]:
    known = ((point.x, point.values.get("tflops", 0.0)) for point in line)
    return tuple(
        sorted((math.log2(x), rate) for x, rate in known if x >= 1 and rate > 0)
    )


def _chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    runs: Iterable[RunState],
    width: int,
    height: int,
) -> list[Row]:
    marked = [plots.mark_of(n) for n in range(len(series))]
    named = [
        (f"{mark} {name}", style)
        for name, (mark, style) in zip(series, marked, strict=True)
    ]
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    unit, factor = flops_unit(max(ys, default=None))
    ys = [factor * y for y in ys]
    head = plots.legend(
        f" {unit}, by N " if width >= WIDE else f" {unit}", named, width
    )
    if not xs:
        return [head]
    # The largest expected N, so that the axis stays for a while.
    expected = (
        run.planned.n for run in runs if not run.ended and run.planned is not None
    )
    high = max((min(USUAL, math.log2(n)) for n in expected if n > 0), default=0.0)
    x = _sizes(min(xs), max(high, *xs), width - plots.LABEL)
    y, scaled = rates(min(ys), max(ys), height - 1)
    lines = tuple(
        plots.PlotLine(
            tuple((at, scaled(factor * rate)) for at, rate in points),
            style,
            mark if len(series) > 1 else "",
        )
        for points, (mark, style) in zip(series.values(), marked, strict=True)
    )
    rows = plots.plot_rows(lines, plots.PlotArea(x, y, plots.LABEL, width, height - 1))
    return [head, *rows]


def _sizes(low: float, high: float, width: int) -> plots.PlotAxis:
    """Return an axis of powers of two, labelled by N."""
    first, last = math.floor(low), max(math.floor(low) + 1, math.ceil(high))
    step = max(1, math.ceil((last - first) / max(1, width // 9)))
    at = range(first, last + 1, step)
    return plots.PlotAxis(first, last, tuple((power, f"{2**power}") for power in at))


def rates(
    low: float, high: float, height: int
) -> tuple[plots.PlotAxis, Callable[[float], float]]:
    """Return the axis of the rates and its scale: logarithmic if they are far apart."""
    if high < FAR * low:
        return plots.linear_axis(0.0, 1.08 * high, height), float
    bottom, top = math.log10(low), math.log10(high)
    first, last = math.ceil(bottom), math.floor(top)
    step = max(1, math.ceil((last - first) / max(1, (height - 3) // 2)))
    powers = range(
        last, first - 1, -step
    )  # from the top: there are the figures that count
    ticks = tuple((n, f"{10.0**n:g}") for n in reversed(powers))
    return plots.PlotAxis(bottom, top + 0.01 * (top - bottom), ticks), math.log10


class ResultsView(CursorList, TelemetryView):
    """A table, newest first, with a cursor."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, id="results")
        self.results: list[Result] = []
        self.problem: str | None = None
        """Reason why earlier results could not be read, or this one not be stored."""
        self.marked: Result | None = None
        """Result that another one is to be compared with."""

    def show(self, results: list[Result], problem: str | None) -> None:
        """List these results; a new one is selected."""
        fresh = results[:1] != self.results[:1]
        self.results, self.problem = results, problem
        self.at = 0 if fresh else self.at
        self.action_move(0)

    @property
    def selected(self) -> Result | None:
        """Result under the cursor, or None if there is none."""
        return self.results[self.at] if self.results else None

    @property
    def wanted(self) -> int:
        """Rows that show all results."""
        return 1 + len(self.results) + 2 * bool(self.problem)

    @property
    def total(self) -> int:
        return len(self.results)

    def draw(self, width: int, height: int) -> list[Row]:
        note = paragraph(visible(self.problem or ""), width - 1, FAULT, " ")[:2]
        if self.marked is not None:
            note.append([Span(" Select another result, and press d again", ACCENT)])
        if not self.results:
            return [*note, [Span(" No results yet", DIM)]]
        listed = [self.results[n] for n in self.list_in(max(1, height - len(note) - 1))]
        columns = fitting_columns(width)
        rows = [self._heading(columns, width)]
        rows += [self._line(each, columns, width) for each in listed]
        return [*note, *rows]

    def _heading(
        self, columns: tuple[tuple[ResultColumn, int], ...], width: int
    ) -> Row:
        """Return the titles, and which results are shown if not all are."""
        first, last, total = self._first + 1, self.listed.stop, self.total
        row: Row = []
        for column, cells in columns:
            title = column.title
            if column is WHEN and total > len(self.listed):
                shown = f"{first}-{last}"
                title = of if len(of := f"{shown} of {total}") <= cells else shown
            row += [Span(" "), cell(title, cells, DIM, right=column.right)]
        return fit(row, width)

    def _line(
        self, result: Result, columns: tuple[tuple[ResultColumn, int], ...], width: int
    ) -> Row:
        row: Row = []
        titles = {column.title for column, _ in columns}
        device = self._telemetry.find_device(result.device_uuid)
        faulty = result.state == FAULTY
        bad = result.known_comparison.slower or result.state == DEGRADED
        for column, cells in columns:
            text = column.text(result)
            if column is DEVICE and device is not None:  # eight may have one name
                text = f"{device.number} {text}"
            if column.title == "TYPE" and "KIND" not in titles and result.points:
                text = visible(result.kind, 20)  # tells more than its data type
            style = STRONG if column is SPEED else TEXT
            if faulty:  # a fault is red all over
                style = FAULT
            elif bad and column in (VERDICT, SPEED):
                style = WARN
            elif text == ABSENT:
                style = DIM
            row += [Span(" "), cell(text, cells, style, right=column.right)]
        # What is red stays red under the cursor.
        chosen, calm = result is self.selected, not faulty
        line = list_row(fit(row[1:], width - 1), selected=chosen, focused=calm)
        return [Span("=", ACCENT), *line[1:]] if result is self.marked else line
