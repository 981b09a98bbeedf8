"""Rows of a run as a table of text: a description for each kind, for one device or for several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from gputop.bench.events import Point
from gputop.bench.results.compare import (
    SPOILED_PERCENT,
    points_by_series,
    ranked_shapes,
)
from gputop.text import ABSENT, brief, percentage, size, tflops, visible
from gputop.text import cells as room_of

LAUNCH = "launch alone"
"""Series of a latency run that is not a running time: the work goes on."""
BETWEEN = ": "
"""Is behind the GPU that makes a copy to or from another, as in `GPU 0: write to GPU 1`."""
FASTEST = 10
"""Most shapes of a search that are listed."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Lines of cells. The first line has the headings."""

    lines: list[list[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    """Line and column of the best cells."""
    spoiled: frozenset[tuple[int, int]] = frozenset()
    """Line and column of the cells whose scatter is too large for them to say anything."""
    named: bool = True
    """True if the first column has names, False if it has the figure that counts."""

    def transposed(self) -> TextTable:
        """Return the table with its lines as columns."""
        lines = [list(line) for line in zip(*self.lines, strict=True)]
        best, spoiled = (
            frozenset((x, y) for y, x in each) for each in (self.best, self.spoiled)
        )
        return TextTable(lines, best, spoiled)


class Cell(NamedTuple):
    """Text of a cell, and its rank among those of its column; None if it competes with none."""

    text: str
    rank: float | None
    scatter: float | None = None
    """Half of the interquartile range in percent."""


NO_CELL = Cell(ABSENT, None)


@dataclass(frozen=True, slots=True)
class Layout:
    """Description of a table that has a line for each size, and columns for each series."""

    heading: str
    size: Callable[[float], str]
    values: Mapping[str, tuple[str, Callable[[float], str]]]
    """Title of a column, `{}` for its series, and formatter, by the name of the value.

    The first value decides which cells of a column are the best.
    """
    lowest: bool = False
    """True if the lowest value is the best, not the highest."""
    by_series: bool = False
    """True for a line for each series, and columns for each size."""
    by_row: bool = False
    """True for a line for each row, named by its series and size, one series after the other."""
    at_largest: str | None = None
    """Heading of devices side by side at the largest size; None for a table at each size."""

    def cells(self, point: Point) -> list[Cell]:
        """Return the values of a row, in their order. Only the first one competes."""
        known = [
            (point.values.get(name), text) for name, (_, text) in self.values.items()
        ]
        cells = [
            NO_CELL if value is None else Cell(text(value), None)
            for value, text in known
        ]
        first = known[0][0]
        if first is not None and point.series != LAUNCH:
            cells[0] = cells[0]._replace(rank=-first if self.lowest else first)
        return [
            cell._replace(scatter=point.values.get("spread_percent")) for cell in cells
        ]


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.4g}" if rate >= 1e7 else "<0.01"


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.1f}" if seconds < 1e-3 else f"{1e6 * seconds:.0f}"


LAYOUTS = {
    "sweep": Layout(
        "N",
        "{:.0f}".format,
        {"tflops": ("{}, TFLOP/s", "{:.3g}".format), "seconds": ("{}, time", brief)},
    ),
    "copy": Layout(
        "GB/s",
        size,
        {"bytes_per_second": ("{}", _gigabytes), "latency_seconds": ("latency", brief)},
        at_largest="GB/s, largest size",
    ),
    "memory": Layout(
        "pattern",
        size,
        {
            "bytes_per_second": ("GB/s", _gigabytes),
            "passes": ("passes", "{:.1f}".format),
        },
        by_series=True,
        at_largest="GB/s",
    ),
    "step": Layout(
        "training step",
        "{:.0f} tokens".format,
        {
            "tflops": ("TFLOP/s", tflops),
            "tokens_per_second": ("tokens/s", "{:.0f}".format),
            "percent_of_peak": ("of peak", partial(percentage, digits=1)),
            "seconds": ("time", brief),
        },
        by_series=True,
    ),
    "collective": Layout(
        "",
        size,
        {
            "bytes_per_second": ("bus GB/s", _gigabytes),
            "algorithm_bytes_per_second": ("algorithm GB/s", _gigabytes),
            "seconds": ("mean, µs", _microseconds),
            "p99_seconds": ("p99, µs", _microseconds),
            "wrong": ("wrong", "{:.0f}".format),
        },
        by_row=True,
        at_largest="bus GB/s, largest size",
    ),
    "latency": Layout(
        "time per product",
        "{0:.0f} x {0:.0f}".format,
        {"seconds": ("{}", brief)},
        lowest=True,
        by_series=True,
    ),
}
"""Layouts by kind. The rows of other kinds are shapes, listed by their throughput."""


def table(kind: str, points: Sequence[Point], most: int = FASTEST) -> TextTable:
    """Return the rows of a run of that kind; of a search at most `most` shapes."""
    layout = LAYOUTS.get(kind)
    if layout is not None and any(BETWEEN in point.series for point in points):
        layout = replace(layout, by_series=True)
    if layout is not None:
        return _grid(points, layout)
    lines, spoiled = [["TFLOP/s", "m", "n", "k", "time", SCATTER, "layout"]], set()
    for y, point in enumerate(ranked_shapes(points)[:most], 1):
        seconds, scatter = (
            brief(point.values.get("seconds")),
            point.values.get("spread_percent"),
        )
        rate = _rate_and_shape(point)
        lines.append([*rate, seconds, percentage(scatter, digits=1), point.series])
        if (scatter or 0.0) > SPOILED_PERCENT:
            spoiled |= {(y, 0), (y, 5)}
    best = ((1, column) for column in range(len(lines[0])) if points)
    return TextTable(lines, frozenset(best), frozenset(spoiled), named=False)


def device_tables(kind: str, devices: Mapping[str, Sequence[Point]]) -> list[TextTable]:
    """Return the rows of several devices, by their labels, side by side.

    It is one table at the largest size, or one for each size, from the smallest on. Of a search it
    is the best shape of each.
    """
    layout = LAYOUTS.get(kind)
    if layout is None:
        columns = ["TFLOP/s", "m", "n", "k", "layout"]
        lines: dict[str, dict[str, Cell]] = {}
        for device, points in devices.items():
            top = ranked_shapes(points)[:1]
            texts = (
                text
                for point in top
                for text in (*_rate_and_shape(point), point.series)
            )
            ranks = [point.values.get("tflops") for point in top] + [None] * 4
            lines[device] = dict(zip(columns, map(Cell, texts, ranks), strict=False))
        return [_table("", columns, lines)]
    rows = [(device, point) for device, points in devices.items() for point in points]
    ways = list(dict.fromkeys(_way(point) for _, point in rows))
    blocks: dict[str, dict[str, dict[str, Cell]]] = {}
    for device, point in sorted(rows, key=lambda row: row[1].x):
        heading = layout.at_largest or layout.size(point.x)
        block = blocks.setdefault(heading, {each: {} for each in devices})
        if (cell := layout.cells(point)[0]) is not NO_CELL:
            block[device][_way(point)] = cell
    return [
        _table(heading, ways, block).transposed() for heading, block in blocks.items()
    ]


def _way(point: Point) -> str:
    return point.series.rpartition(BETWEEN)[2]


def pair_tables(points: Iterable[Point]) -> list[TextTable]:
    """Return copies between GPUs by direction.

    Each table has a line for each GPU that makes copies, and a column for each other one.
    """
    blocks: dict[str, dict[str, dict[str, Cell]]] = {}
    for point in points:
        maker, between, way = point.series.partition(BETWEEN)
        direction, _, number = way.rpartition(" GPU ")
        rate, latency = LAYOUTS["copy"].cells(point)
        for heading, cell in ((f"{direction}, GB/s", rate), ("latency to", latency)):
            if between and cell.text != ABSENT:
                blocks.setdefault(heading, {}).setdefault(maker, {})[
                    f"GPU {number}"
                ] = cell
    found = []
    for heading, lines in blocks.items():
        others = dict.fromkeys(other for cells in lines.values() for other in cells)
        found.append(_table(heading, [*dict.fromkeys([*lines, *others])], lines))
    return found


def _grid(points: Sequence[Point], layout: Layout) -> TextTable:
    series = list(points_by_series(points))
    sizes = [
        *dict.fromkeys(layout.size(x) for x in sorted(point.x for point in points))
    ]
    names, across = (series, sizes) if layout.by_series else (sizes, series)
    if layout.by_row:
        points = [point for line in points_by_series(points).values() for point in line]
        names, across = (
            [f"{each.series} {layout.size(each.x)}" for each in points],
            [""],
        )
    titles = [title for title, _ in layout.values.values()]
    lines: dict[str, dict[str, Cell]] = {name: {} for name in names}
    for point in points:
        keys = (point.series, layout.size(point.x))
        name, column = keys if layout.by_series else reversed(keys)
        name = " ".join(keys) if layout.by_row else name
        for title, cell in zip(titles, layout.cells(point), strict=True):
            lines[name][title.format(column)] = cell
    columns = [title.format(column) for column in across for title in titles]
    columns = [*dict.fromkeys(reversed(columns))][
        ::-1
    ]  # one for all sizes stands at the end
    for cells in lines.values():  # the largest of the line
        known = [cell.scatter for cell in cells.values() if cell.scatter is not None]
        if known:
            cells[SCATTER] = Cell(percentage(max(known), digits=1), None, max(known))
    shown = {
        each for cells in lines.values() for each in cells if cells[each].text != ABSENT
    }
    columns = [column for column in columns if column in shown]
    if any(SCATTER in cells for cells in lines.values()):
        columns.append(SCATTER)
    return _table(layout.heading, columns, lines)


SCATTER = "±"
"""Heading of the scatter: half of the interquartile range of the blocks of a row."""


def _table(
    heading: str, columns: Sequence[str], lines: Mapping[str, Mapping[str, Cell]]
) -> TextTable:
    """Return the lines, with the best cell of each column marked where several compete."""
    shown = [
        [name, *(cells.get(column, NO_CELL).text for column in columns)]
        for name, cells in lines.items()
    ]
    best, spoiled = set(), set()
    for x, column in enumerate(columns, 1):
        found = [cells.get(column, NO_CELL) for cells in lines.values()]
        ranks = [cell.rank for cell in found]
        known = [rank for rank in ranks if rank is not None]
        if len(known) > 1:
            best.add((ranks.index(max(known)) + 1, x))
        scattered = ((cell.scatter or 0.0) > SPOILED_PERCENT for cell in found)
        spoiled |= {(y, x) for y, many in enumerate(scattered, 1) if many}
    return TextTable([[heading, *columns], *shown], frozenset(best), frozenset(spoiled))


def _rate_and_shape(point: Point) -> list[str]:
    sides = [*map(str, point.shape[:3]), *[ABSENT] * 3]
    return [tflops(point.values.get("tflops")), *sides[:3]]


def aligned(lines: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Align cells: the first `left` columns to the left, the others to the right."""
    shown = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(room_of, column)) for column in zip(*shown, strict=True)]
    found = []
    for line in shown:
        blanks = (
            " " * (width - room_of(cell))
            for cell, width in zip(line, widths, strict=True)
        )
        both = enumerate(zip(line, blanks, strict=True))
        cells = (
            cell + blank if at < left else blank + cell for at, (cell, blank) in both
        )
        found.append(f"  {'  '.join(cells)}".rstrip())
    return found
