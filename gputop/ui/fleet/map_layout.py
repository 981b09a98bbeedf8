"""Layout of the map: a tile for each group, or a line for a group that is folded.

Counts in cells of the terminal; `y` is from the top of the whole map, of which a part may be
visible. In half blocks a cell has two GPUs, one above the other: a `lane` is half a row there, and
a row everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

MARGIN = 1
GAP = 2
ACROSS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
"""Numbers of GPUs in a row of a tile that are tried, besides as many as fit."""
HOST_GPUS = 8
"""GPUs of most hosts: in rows of whole hosts each begins at the same place."""
VALUE_CELLS = 5
AROUND_VALUE = 4
"""Cells of a wide GPU besides its number and value: gaps, its level, and a sign."""
FEWEST_BESIDE = 8
"""Cells that are always left for GPUs beside the name of their group."""


class MapDensity(IntEnum):
    """Cells per GPU, or GPUs per cell."""

    WIDE = 0
    """Several cells, with its number and value in them."""
    ONE = 1
    HALF = 2
    """Half a block: two to a cell."""
    FOLDED = 3
    """A line for each group; the cursor's is open, with a cell for each of its GPUs."""


class Labels(NamedTuple):
    """Most cells of the names and figures of groups: in one row, and in two."""

    flat: int
    stacked: int
    line: int
    """Cells in the line of a folded group."""


class MapPlace(NamedTuple):
    """Place of a GPU: its first cell, and in half blocks which half."""

    x: int
    y: int
    lower: bool = False


class Tile(NamedTuple):
    """A group: its name at (x, y), its GPUs from (cells_x, cells_y), `across` in each row."""

    group: int
    x: int
    y: int
    height: int
    size: int
    across: int = 0
    """GPUs in a row; 0 if the group is folded and has no cells."""
    cells_x: int = 0
    cells_y: int = 0


class MapLayout(NamedTuple):
    """Places of all groups and GPUs."""

    density: MapDensity
    cell: int
    """Width of a GPU."""
    label: int
    """Width of a group's name and figures."""
    stacked: bool
    """True if the figures are under the name."""
    tiles: tuple[Tile, ...]
    """Tiles in the order of the groups."""
    rows: tuple[tuple[int, ...], ...]
    """Tiles at each `y`, from left to right."""

    @property
    def height(self) -> int:
        return len(self.rows)

    @property
    def lanes(self) -> int:
        """Number of GPUs above each other in a cell."""
        return 2 if self.density is MapDensity.HALF else 1

    def slot(self, group: int, member: int) -> MapPlace | None:
        """Return the place of a GPU, or None if its group is folded."""
        tile = self.tiles[group]
        if not tile.across:
            return None
        lane, column = divmod(member, tile.across)
        row, lower = divmod(lane, self.lanes)
        return MapPlace(
            tile.cells_x + column * self.cell, tile.cells_y + row, bool(lower)
        )

    def members(self, tile: Tile, row: int) -> range:
        """Return the GPUs in row `row` of a tile: in half blocks those of both halves."""
        each = tile.across * self.lanes
        return range(row * each, min(tile.size, (row + 1) * each))

    def at(self, place: MapPlace) -> tuple[int, int] | None:
        """Return the group and the index of the GPU at a place; 0 in the line of a folded group."""
        in_lane = self._in_lane(place.y, place.lower)
        return next((where for x, end, where in in_lane if x <= place.x <= end), None)

    def vertical(self, slot: MapPlace, step: int) -> tuple[int, int] | None:
        """Return the nearest GPU, or first GPU of a folded group, in the next row up or down."""
        lane = slot.y * self.lanes + slot.lower
        here = self.at(slot)
        while 0 <= (lane := lane + step) < self.height * self.lanes:
            y, lower = divmod(lane, self.lanes)
            if (
                here is not None
                and y == self.tiles[here[0]].y < self.tiles[here[0]].cells_y
            ):
                continue  # the line of the open group, which is where one comes from
            found = [
                (
                    min(abs(x - slot.x), abs(end - slot.x))
                    if not x <= slot.x <= end
                    else 0,
                    where,
                )
                for x, end, where in self._in_lane(y, lower)
            ]
            if found:
                return min(found)[1]
        return None

    def _in_lane(
        self, y: int, lower: int
    ) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Yield the first and last cell and the GPU of all that is in a lane."""
        for group in self.rows[y] if 0 <= y < self.height else ():
            tile = self.tiles[group]
            if not tile.across:
                yield tile.x, tile.x + self.label, (group, 0)
                continue
            first = ((y - tile.cells_y) * self.lanes + lower) * tile.across
            end = min(tile.size, first + tile.across) if y >= tile.cells_y else first
            for member in range(first, end):
                x = tile.cells_x + (member - first) * self.cell
                yield x, x + self.cell - 1, (group, member)


@lru_cache(1)
def arrange(
    sizes: Sequence[int],
    labels: Labels,
    wide: int,
    space: tuple[int, int],
    opened: int = 0,
    *,
    halves: bool = True,
) -> MapLayout:
    """Return the layout of groups of those sizes that fits and shows the most of each GPU.

    `wide` is the width of a GPU with its number and value. If nothing fits, groups are folded,
    all but `opened`.
    """
    width, height = space[0] - MARGIN, space[1]
    for each in (
        MapDensity.WIDE,
        MapDensity.ONE,
        *([MapDensity.HALF] if halves else []),
    ):
        cell = wide if each is MapDensity.WIDE else 1
        lanes = 2 if each is MapDensity.HALF else 1
        if sum(sizes) * cell > width * height * lanes:
            continue
        shape = _shape(sizes, labels, cell, lanes, width)
        if shape.height <= height:
            return _tiles(sizes, each, cell, shape)
    return _folded(sizes, labels, width, opened)


class _Shape(NamedTuple):
    """Shape of all tiles: the lowest is best, then one with full rows, then the widest."""

    height: int
    ragged: int
    """Number of groups with several rows whose last row is not full."""
    beside: int
    """Negative number of GPUs in a row: the more the better."""
    stacked: bool
    columns: int
    label: int
    tops: Sequence[int]
    """Top of each row of tiles, and the end of the last."""


def _shape(
    sizes: Sequence[int], labels: Labels, cell: int, lanes: int, width: int
) -> _Shape:
    largest = max(sizes, default=1)
    made = []
    for stacked, longest in ((False, labels.flat), (True, labels.stacked)):
        label = min(longest, max(1, width - max(FEWEST_BESIDE, cell) - 1))
        room = max(1, (width - label - 1) // cell)
        room -= room % HOST_GPUS if room > HOST_GPUS else 0
        for across in {min(each, room, largest) for each in (*ACROSS, room)}:
            columns = max(1, (width + GAP) // (label + 1 + across * cell + GAP))
            each = across * lanes
            heights = [max(1 + stacked, -(-size // each)) for size in sizes]
            rows = [
                max(heights[n : n + columns]) for n in range(0, len(heights), columns)
            ]
            tops = [0, *accumulate(rows)]
            ragged = sum(size > across and size % across > 0 for size in sizes)
            made.append(
                _Shape(tops[-1], ragged, -across, stacked, columns, label, tops)
            )
    return min(made)


def _tiles(
    sizes: Sequence[int], density: MapDensity, cell: int, shape: _Shape
) -> MapLayout:
    across, columns, label = -shape.beside, shape.columns, shape.label
    width = label + 1 + across * cell + GAP
    tiles = []
    for group, size in enumerate(sizes):
        line, column = divmod(group, columns)
        x, top, bottom = MARGIN + column * width, shape.tops[line], shape.tops[line + 1]
        tiles.append(
            Tile(group, x, top, bottom - top, size, across, x + label + 1, top)
        )
    return MapLayout(
        density, cell, label, shape.stacked, tuple(tiles), _rows(tiles, shape.height)
    )


def _folded(sizes: Sequence[int], labels: Labels, width: int, opened: int) -> MapLayout:
    """Return lines beside each other, with the GPUs of the open group under its line."""
    line = min(labels.line, width)
    columns = max(1, (width + GAP) // (line + GAP))
    opened_row = opened // columns
    cells = -(-sizes[opened] // width) if 0 <= opened < len(sizes) else 0
    tiles = []
    for group, size in enumerate(sizes):
        row, column = divmod(group, columns)
        y = row + cells * (row > opened_row >= 0)
        tile = Tile(group, MARGIN + column * (line + GAP), y, 1, size)
        if group == opened:
            tile = tile._replace(
                height=1 + cells, across=width, cells_x=MARGIN, cells_y=y + 1
            )
        tiles.append(tile)
    height = -(-len(sizes) // columns) + cells
    return MapLayout(
        MapDensity.FOLDED, 1, line, False, tuple(tiles), _rows(tiles, height)
    )


def _rows(tiles: Sequence[Tile], height: int) -> tuple[tuple[int, ...], ...]:
    rows: list[list[int]] = [[] for _ in range(height)]
    for tile in tiles:
        for y in range(tile.y, tile.y + tile.height):
            rows[y].append(tile.group)
    return tuple(map(tuple, rows))
