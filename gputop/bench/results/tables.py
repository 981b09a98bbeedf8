"""Rows of a run as a table of text, with a layout per kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from gputop.bench.events import Point
from gputop.bench.plan.kinds import BANDWIDTH
from gputop.bench.results.measures import (
    MEASURES,
    SPOILED_PERCENT,
    points_by_series,
    ranked_shapes,
)
from gputop.text import ABSENT, percentage, size

BETWEEN = ": "
"""Separator after the GPU that runs a copy between GPUs, as in `GPU 0: write to GPU 1`."""
FASTEST = 10
"""Most shapes of a search that a table lists."""
SCATTER = "±"
"""Heading of the scatter: half of the interquartile range of a row's blocks."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Lines of cells. The first line has the headings, and the first column the names."""

    lines: list[list[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    """Line and column of the best cells."""
    spoiled: frozenset[tuple[int, int]] = frozenset()
    """Line and column of the cells whose scatter is too large for a reliable value."""

    def transposed(self) -> TextTable:
        """Return the table with its lines as columns."""
        lines = [list(line) for line in zip(*self.lines, strict=True)]
        best = frozenset((x, y) for y, x in self.best)
        spoiled = frozenset((x, y) for y, x in self.spoiled)
        return TextTable(lines, best, spoiled)


class Cell(NamedTuple):
    """Text of a cell, and its rank in its column, or None if it cannot be the best."""

    text: str
    rank: float | None = None
    scatter: float | None = None
    """Half of the interquartile range in percent."""


class Grid:
    """Cells by the names of their line and column, in the order of insertion."""

    def __init__(self, heading: str) -> None:
        self.heading = heading
        self.lines: dict[str, dict[str, Cell]] = {}

    def add(
        self,
        line: str,
        column: str,
        cell: Cell,
    ) -> None:
        """Add or replace a cell."""
        self.lines.setdefault(line, {})[column] = cell

    def table(self, columns: Iterable[str]) -> TextTable:
        """Return the table of the columns that have a cell, with the best cell of each column."""
        cells: dict[tuple[int, int], Cell] = {}
        shown = [[self.heading], *([name] for name in self.lines)]
        best = set()
        for column in dict.fromkeys(columns):
            found = [line.get(column) for line in self.lines.values()]
            if not any(found):
                continue
            x = len(shown[0])
            shown[0].append(column)
            ranks = {}
            for y, cell in enumerate(found, 1):
                shown[y].append(cell.text if cell else ABSENT)
                if cell is not None:
                    cells[y, x] = cell
                if cell is not None and cell.rank is not None:
                    ranks[y] = cell.rank
            if len(ranks) > 1:
                best.add((max(ranks, key=lambda y: ranks[y]), x))
        spoiled = self._add_scatter(shown, cells)
        return TextTable(shown, frozenset(best), spoiled)

    def _add_scatter(
        self, shown: list[list[str]], cells: Mapping[tuple[int, int], Cell]
    ) -> frozenset[tuple[int, int]]:
        """Add a column with the largest scatter of each line. Return the spoiled cells."""
        largest: dict[int, float] = {}
        spoiled = set()
        for (y, x), cell in cells.items():
            if cell.scatter is None:
                continue
            largest[y] = max(cell.scatter, largest.get(y, 0.0))
            if cell.scatter > SPOILED_PERCENT:
                spoiled |= {(y, x), (y, len(shown[0]))}
        if largest:
            shown[0].append(SCATTER)
            for y, line in enumerate(shown[1:], 1):
                line.append(percentage(largest.get(y), digits=1))
        return frozenset(spoiled)


@dataclass(frozen=True, slots=True)
class Layout:
    """Description of a table: the meaning of its lines, and its columns."""

    heading: str
    line: Literal["size", "series", "row"]
    """Meaning of a line: a size (with a column per series), a series, or a single row."""
    values: Mapping[str, str]
    """Titles of columns by the names of values. `{}` is the series if lines are sizes, or the size.

    Only cells of the first value can be the best of their column.
    """
    size: Callable[[float], str] = "{:.0f}".format

    def size_text(self, point: Point) -> str:
        """Return the size of a row, or its shape if it is not square."""
        if len(set(point.shape)) > 1:
            return "×".join(map(str, point.shape))
        return self.size(point.x)

    def keys(self, point: Point) -> tuple[str, str]:
        """Return the name of a row's line, and the size or series for the title of its column."""
        size = self.size_text(point)
        if self.line == "size":
            return size, point.series
        if self.line == "series":
            return point.series, size
        return f"{point.series}, {size}", ""

    def cell(self, name: str, point: Point) -> Cell | None:
        """Return the cell of a value, or None if the row does not have it."""
        value = point.values.get(name)
        if value is None:
            return None
        rank = None
        if name == next(iter(self.values)):
            rank = value
        text = MEASURES[name].text(value)
        return Cell(text, rank, point.values.get("spread_percent"))


def _titles(*names: str, **others: str) -> dict[str, str]:
    """Return the usual titles of the values `names`, and the given titles of `others`."""
    return {name: MEASURES[name].title for name in names} | others


LAYOUTS = {
    "sweep": Layout(
        "N", "size", {"tflops": "{}, TFLOP/s", "seconds": "{}, time"}
    ),
    "copy": Layout(
        "GB/s",
        "size",
        {BANDWIDTH: "{}", "latency_seconds": "latency"},
        size,
    ),
    "memory": Layout(
        "pattern",
        "series",
        _titles(BANDWIDTH, "passes"),
        size,
    ),
    "step": Layout(
        "training step",
        "series",
        _titles("tflops", "tokens_per_second", "percent_of_peak", "seconds"),
        "{:.0f} tokens".format,
    ),
    "collective": Layout(
        "operation",
        "row",
        {BANDWIDTH: "bus GB/s"}
        | _titles("algorithm_bytes_per_second", seconds="mean")
        | _titles("p99_seconds", "wrong"),
        size,
    ),
}
SHAPES = Layout("shape", "row", _titles("tflops", "seconds"))
"""Layout of a search. Its rows are sorted by throughput."""


def layout_of(kind: str, points: Iterable[Point] = ()) -> Layout:
    """Return the layout of a kind. Copies between GPUs have a line per series."""
    layout = LAYOUTS.get(kind, SHAPES)
    if layout.line == "size" and any(
        BETWEEN in point.series for point in points
    ):
        return replace(layout, line="series")
    return layout


def table(
    kind: str,
    points: Sequence[Point],
    most: int = FASTEST,
) -> TextTable:
    """Return the rows of a run of this kind as a table. A search has at most `most` shapes."""
    layout = layout_of(kind, points)
    if layout is SHAPES:
        points = ranked_shapes(points)[:most]
    elif layout.line == "size":
        points = sorted(points, key=lambda point: point.x)
    else:
        points = [
            row for line in points_by_series(points).values() for row in line
        ]
    grid = Grid(layout.heading)
    for point in points:
        line, across = layout.keys(point)
        for name, title in layout.values.items():
            cell = layout.cell(name, point)
            if cell is not None:
                grid.add(line, title.format(across), cell)
    made = grid.table(_columns(layout, points))
    if layout is SHAPES and len(made.lines) > 2:
        # The first row is the best, since a higher rate with zeros as operands
        # does not count.
        made = replace(made, best=frozenset({(1, 1)}))
    return made


def _columns(layout: Layout, points: Sequence[Point]) -> list[str]:
    """Return the titles of all columns, grouped by value, in the order of sizes or series."""
    across = list(points_by_series(points))
    if layout.line != "size":
        across = [
            layout.keys(point)[1]
            for point in sorted(points, key=lambda p: p.x)
        ]
    found = []
    for title in layout.values.values():
        for each in across:
            found.append(title.format(each))
    return found


def pair_tables(points: Iterable[Point]) -> list[TextTable]:
    """Return a table of copies between GPUs for each direction.

    Each table has a line per GPU that runs copies, and a column per peer.
    """
    grids: dict[str, Grid] = {}
    gpus = []
    between = [point for point in points if BETWEEN in point.series]
    for point in between:
        maker, _, way = point.series.partition(BETWEEN)
        direction, _, number = way.rpartition(" GPU ")
        gpus += [maker, f"GPU {number}"]
        headings = {
            BANDWIDTH: f"{direction}, GB/s",
            "latency_seconds": "latency to",
        }
        for name, heading in headings.items():
            cell = LAYOUTS["copy"].cell(name, point)
            if cell is not None:
                grid = grids.setdefault(heading, Grid(heading))
                grid.add(maker, gpus[-1], cell._replace(scatter=None))
    order = sorted(set(gpus), key=gpus.index)
    for grid in grids.values():
        # Sort the lines like the columns, since workers end in any order.
        grid.lines = {
            name: grid.lines[name] for name in order if name in grid.lines
        }
    return [grid.table(order) for grid in grids.values()]
