import pytest

from gputop.ui.benchmark.plot import PlotArea, PlotAxis, PlotLine, plot_rows, tick
from gputop.ui.drawing.cells import Row, text_of, width_of
from gputop.ui.drawing.palette import BUSY, DIM, MEMORY

X = PlotAxis(0.0, 4.0, ((0.0, "0"), (2.0, "2"), (4.0, "4")))
Y = PlotAxis(0.0, 10.0, ((0.0, "0"), (10.0, "10")))
UP = PlotLine(((0.0, 0.0), (4.0, 10.0)), BUSY, "1")
DOWN = PlotLine(((0.0, 10.0), (4.0, 0.0)), MEMORY, "2")
LEFT, WIDTH, HEIGHT = 6, 60, 13


def drawn(*lines: PlotLine) -> list[Row]:
    return plot_rows(lines, PlotArea(X, Y, LEFT, WIDTH, HEIGHT))


def dots(rows: list[Row]) -> dict[tuple[int, int], int]:
    found = {}
    for y, row in enumerate(rows):
        for x, each in enumerate(text_of(row)):
            if "\u2800" < each <= "\u28ff":
                found[y, x] = ord(each) - 0x2800
    return found


def of(rows: list[Row], style: object) -> str:
    return "".join(span.text for row in rows for span in row if span.style == style)


def bare(line: PlotLine) -> PlotLine:
    return PlotLine(line.points, line.style)


def test_where_lines_cross_the_dots_of_both_are_there_in_the_colour_of_the_first() -> None:
    alone, other = dots(drawn(bare(UP))), dots(drawn(bare(DOWN)))
    assert set(alone) & set(other), "they cross"
    together = drawn(bare(UP), bare(DOWN))
    assert dots(together) == {
        place: alone.get(place, 0) | other.get(place, 0) for place in {*alone, *other}
    }
    assert len(of(together, BUSY)) == len(alone), "the first is in front"
    assert 0 < len(of(together, MEMORY)) < len(other)


def test_marks_of_lines_that_end_together_are_beside_each_other() -> None:
    lines = [PlotLine(UP.points, style, mark) for style, mark in ((BUSY, "8"), (MEMORY, "10"))]
    rows = drawn(*lines)
    assert {width_of(row) for row in rows} == {WIDTH}
    first, *_ = [text_of(row) for row in rows]
    assert first[-4:-2] == "10"
    assert first[-1] == "8"
    assert of(rows, MEMORY).count("10") == of(rows, BUSY).count("8") == 1
    assert of(rows[-1:], DIM).split() == ["0", "2", "4"]
    assert "10┤" in of(rows[:1], DIM)


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (998.6, "999"), (1234.5, "1234")])
def test_numbers_at_an_axis_have_no_exponent(value: float, text: str) -> None:
    assert tick(value) == text
