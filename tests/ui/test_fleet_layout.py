"""Which cell of the map is whose: each GPU has exactly one, or is in a group that is folded."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.ui.fleet.map_layout import Labels, MapDensity, MapLayout, MapPlace, arrange

LABELS = Labels(19, 10, 26)
WIDE = 10

sizes = st.lists(st.integers(1, 300), min_size=1, max_size=60).map(tuple)
spaces = st.tuples(st.integers(30, 220), st.integers(1, 60))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], int, MapLayout]:
    groups = draw(sizes)
    opened = draw(st.integers(0, len(groups) - 1))
    width, height = draw(spaces)
    made = arrange(groups, LABELS, WIDE, (width, height), opened, halves=draw(st.booleans()))
    return groups, width, made


def gpus(groups: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(group, member) for group, size in enumerate(groups) for member in range(size)]


@given(layouts())
def test_every_gpu_has_one_place_or_is_in_a_folded_group(
    made: tuple[tuple[int, ...], int, MapLayout],
) -> None:
    groups, width, layout = made
    assert [tile.size for tile in layout.tiles] == [*groups]
    slots = {where: layout.slot(*where) for where in gpus(groups)}
    for (group, _), slot in slots.items():
        tile = layout.tiles[group]
        assert (slot is None) == (layout.density is MapDensity.FOLDED and not tile.across)
        if slot is not None:
            assert tile.y <= slot.y < tile.y + tile.height
            assert tile.cells_x <= slot.x
            assert slot.x + layout.cell <= width
            assert layout.lanes == 2 or not slot.lower
    taken = Counter(slot for slot in slots.values() if slot is not None)
    assert set(taken.values()) <= {1}


@given(layouts(), st.integers(0, 5))
def test_the_gpu_under_a_cell_is_the_one_that_is_drawn_there(
    made: tuple[tuple[int, ...], int, MapLayout], aside: int
) -> None:
    groups, width, layout = made
    for where in gpus(groups)[:: max(1, sum(groups) // 200)]:
        slot = layout.slot(*where)
        if slot is not None:
            within = MapPlace(slot.x + aside % layout.cell, slot.y, slot.lower)
            assert layout.at(within) == where
    for y in range(min(layout.height, 12)):
        for x in range(0, width, 3):
            found = layout.at(MapPlace(x, y))
            if found is not None:
                place = layout.slot(*found)
                if place is None:
                    tile = layout.tiles[found[0]]
                    assert (layout.density, found[1], tile.y) == (MapDensity.FOLDED, 0, y)
                    continue
                assert (place.x <= x < place.x + layout.cell, place.y) == (True, y)


@given(layouts())
def test_each_row_of_cells_is_drawn_once(made: tuple[tuple[int, ...], int, MapLayout]) -> None:
    groups, _, layout = made
    drawn: Counter[tuple[int, int]] = Counter()
    for y, row in enumerate(layout.rows):
        for group in row:
            tile = layout.tiles[group]
            if tile.across and y >= tile.cells_y:
                drawn.update((group, n) for n in layout.members(tile, y - tile.cells_y))
    shown = [where for where in gpus(groups) if layout.slot(*where) is not None]
    assert drawn == Counter(shown)


@given(layouts())
def test_tiles_do_not_overlap(made: tuple[tuple[int, ...], int, MapLayout]) -> None:
    _, width, layout = made
    for y, row in enumerate(layout.rows):
        tiles = [layout.tiles[group] for group in row]
        ends = [
            tile.cells_x + tile.across * layout.cell
            if tile.across and tile.cells_y <= y
            else tile.x + layout.label
            for tile in tiles
        ]
        assert all(end <= tile.x for end, tile in zip(ends, tiles[1:], strict=False))
        assert not ends or ends[-1] <= max(width, layout.label + 1)


@given(sizes, spaces, st.booleans())
def test_what_fits_is_not_folded_and_needs_no_scrolling(
    groups: tuple[int, ...], space: tuple[int, int], halves: bool
) -> None:
    made = arrange(groups, LABELS, WIDE, space, halves=halves)
    if made.density is not MapDensity.FOLDED:
        assert made.height <= space[1]
    assert halves or made.density is not MapDensity.HALF
    more = arrange(groups, LABELS, WIDE, (space[0], space[1] + 40), halves=halves)
    assert more.density <= made.density


@settings(max_examples=30)
@given(layouts(), st.data())
def test_up_and_down_come_to_the_next_row(
    made: tuple[tuple[int, ...], int, MapLayout], data: st.DataObject
) -> None:
    groups, _, layout = made
    slot = layout.slot(*data.draw(st.sampled_from(gpus(groups))))
    if slot is None:
        return
    for step in (1, -1):
        found = layout.vertical(slot, step)
        if found is not None:
            place = layout.slot(*found) or MapPlace(0, layout.tiles[found[0]].y)
            before, after = (s.y * layout.lanes + s.lower for s in (slot, place))
            assert (after - before) * step > 0


@pytest.mark.parametrize(
    ("groups", "space", "density"),
    [
        ((8,), (80, 11), MapDensity.WIDE),
        ((8,) * 64, (200, 44), MapDensity.WIDE),
        ((8,) * 64, (80, 11), MapDensity.FOLDED),
        ((64,) * 8, (80, 13), MapDensity.ONE),
        ((2500,) * 4, (200, 42), MapDensity.HALF),
        ((64,) * 157, (200, 42), MapDensity.FOLDED),
        ((5000,) * 2, (80, 11), MapDensity.FOLDED),
    ],
)
def test_the_fuller_the_smaller(
    groups: tuple[int, ...], space: tuple[int, int], density: MapDensity
) -> None:
    assert arrange(groups, LABELS, WIDE, space).density is density


def test_hosts_of_eight_begin_at_the_same_place_in_each_row() -> None:
    made = arrange((256,), LABELS, WIDE, (120, 12))
    assert made.density is MapDensity.ONE
    assert made.tiles[0].across % 8 == 0
