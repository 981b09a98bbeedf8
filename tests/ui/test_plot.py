"""Lines that cross, drawn in one plot: each keeps its dots, its colour and its mark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gputop.ui.benchmark.plot import PlotArea, PlotAxis, PlotLine, plot_rows, tick
from gputop.ui.drawing.cells import width_of
from gputop.ui.drawing.palette import BUSY, DIM, MEMORY

if TYPE_CHECKING:
    from gputop.ui.drawing.cells import Row

X = PlotAxis(0.0, 4.0, ((0.0, "0"), (2.0, "2"), (4.0, "4")))
Y = PlotAxis(0.0, 10.0, ((0.0, "0"), (10.0, "10")))
UP = PlotLine(((0.0, 0.0), (4.0, 10.0)), BUSY, "1")
DOWN = PlotLine(((0.0, 10.0), (4.0, 0.0)), MEMORY, "2")
LEFT, WIDTH, HEIGHT = 6, 60, 13


def drawn(*lines: PlotLine, width: int = WIDTH, height: int = HEIGHT) -> list[Row]:
    return plot_rows(lines, PlotArea(X, Y, LEFT, width, height))


def dots(rows: list[Row]) -> dict[tuple[int, int], int]:
    """By row and column, the dots of a cell that has some."""
    found = {}
    for y, row in enumerate(rows):
        for x, each in enumerate("".join(span.text for span in row)):
            if "\u2800" < each <= "\u28ff":
                found[y, x] = ord(each) - 0x2800
    return found


def of(rows: list[Row], style: object) -> str:
    return "".join(span.text for row in rows for span in row if span.style == style)


def bare(line: PlotLine) -> PlotLine:
    return PlotLine(line.points, line.style)


def test_where_lines_cross_the_dots_of_both_are_there() -> None:
    alone, other = dots(drawn(bare(UP))), dots(drawn(bare(DOWN)))
    assert set(alone) & set(other), "they cross"
    together = dots(drawn(bare(UP), bare(DOWN)))
    assert together == {
        place: alone.get(place, 0) | other.get(place, 0) for place in {*alone, *other}
    }


def test_the_first_line_is_in_front() -> None:
    rows = drawn(bare(UP), bare(DOWN))
    front = len(of(rows, BUSY))
    assert front == len(dots(drawn(bare(UP))))
    assert 0 < len(of(rows, MEMORY)) < len(dots(drawn(bare(DOWN))))


def test_marks_are_at_the_ends_in_the_colours_of_their_lines() -> None:
    rows = drawn(UP, DOWN)
    assert of(rows, BUSY).count("1") == 1
    assert of(rows, MEMORY).count("2") == 1
    text = ["".join(span.text for span in row) for row in rows]
    assert "1" in text[0][-3:]
    assert "2" in text[-3][-3:]


def test_marks_of_lines_that_end_together_are_beside_each_other() -> None:
    lines = [PlotLine(UP.points, style, mark) for style, mark in ((BUSY, "8"), (MEMORY, "10"))]
    text = ["".join(span.text for span in row) for row in drawn(*lines)]
    assert text[0][-4:-2] == "10"
    assert text[0][-1] == "8"


@pytest.mark.parametrize("width", [16, 40, 200])
@pytest.mark.parametrize("height", [4, 9, 40])
def test_it_has_the_size_that_was_asked_for(width: int, height: int) -> None:
    rows = drawn(UP, DOWN, width=width, height=height)
    assert len(rows) == height
    assert {width_of(row) for row in rows} == {width}


def test_the_axes_are_dim_and_labelled() -> None:
    rows = drawn(UP)
    assert of(rows[-1:], DIM).split() == ["0", "2", "4"]
    assert "10┤" in of(rows[:1], DIM)


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (998.6, "999"), (1234.5, "1234")])
def test_numbers_at_an_axis_have_no_exponent(value: float, text: str) -> None:
    assert tick(value) == text
