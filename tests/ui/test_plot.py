from itertools import pairwise

import pytest

from gputop.ui.benchmark.plot import PlotAxis, PlotLine, plot_rows, rate_axis, round_up, tick
from gputop.ui.drawing.cells import Row, Span, text_of, width_of
from gputop.ui.drawing.palette import BUSY, DIM, MEMORY

X = PlotAxis(0.0, 4.0, ((0.0, "0"), (2.0, "2"), (4.0, "4")))
Y = PlotAxis(0.0, 10.0, ((0.0, "0"), (10.0, "10")))
UP = PlotLine("up", "1", ((0.0, 0.0), (4.0, 10.0)))
DOWN = PlotLine("down", "2", ((0.0, 10.0), (4.0, 0.0)))
NOTHING = PlotLine("nothing", "3", ())
LEFT, WIDTH, HEIGHT = 6, 60, 14


def drawn(*lines: PlotLine) -> list[Row]:
    legend, *rows = plot_rows([Span("title")], lines, X, Y, LEFT, WIDTH, HEIGHT)
    assert text_of(legend).rstrip() == "  ".join(["title", *(line.name for line in lines)])
    assert len(rows) == HEIGHT - 1
    return rows


def dots(rows: list[Row]) -> dict[tuple[int, int], int]:
    found = {}
    for y, row in enumerate(rows):
        for x, each in enumerate(text_of(row)):
            if "\u2800" < each <= "\u28ff":
                found[y, x] = ord(each) - 0x2800
    return found


def of(rows: list[Row], style: object) -> str:
    return "".join(span.text for row in rows for span in row if span.style == style)


def test_where_lines_cross_the_dots_of_both_are_there_in_the_colour_of_the_first() -> None:
    rows = drawn(UP, DOWN)
    alone, other, together = dots(drawn(UP, NOTHING)), dots(drawn(NOTHING, DOWN)), dots(rows)
    assert set(alone) & set(other), "they cross"
    both = {place: alone.get(place, 0) | other.get(place, 0) for place in {*alone, *other}}
    assert {place: both[place] for place in together} == together
    assert set(both) == set(together), "the marks are in the last cells alone"
    assert len(of(rows, BUSY)) == len(alone) + len("1"), "the first is in front"
    assert 0 < len(of(rows, MEMORY)) < len(other)


def test_marks_of_lines_that_end_together_are_beside_each_other() -> None:
    rows = drawn(*(UP._replace(mark=mark) for mark in ("8", "10")))
    assert {width_of(row) for row in rows} == {WIDTH}
    first, *_ = [text_of(row) for row in rows]
    assert first[-4:-2] == "10"
    assert first[-1] == "8"
    assert of(rows, MEMORY).count("10") == of(rows, BUSY).count("8") == 1
    assert of(rows[-1:], DIM).split() == ["0", "2", "4"]
    assert "10┤" in of(rows[:1], DIM)


def test_an_axis_ends_at_a_round_number_above_the_highest_rate() -> None:
    steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0]
    for step, following in pairwise(steps):
        assert round_up(10 * step / 1.081) == pytest.approx(10 * step)
        assert round_up(10 * step / 1.079) == pytest.approx(10 * following)
    assert round_up(0.0) == 1.0


def test_lines_that_are_close_together_are_enlarged() -> None:
    for lowest, height, zoomed, ticks in (
        (700.0, 14, False, "0 400 800"),
        (700.0, 15, False, "0 200 400 600 800"),
        (400.0, 14, True, "0 400 800"),
        (401.0, 14, True, "400 600 800"),
    ):
        axis = rate_axis([lowest, 700.0], height, zoomed=zoomed)
        assert " ".join(label for _, label in axis.ticks) == ticks


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (998.6, "999"), (1234.5, "1234")])
def test_numbers_at_an_axis_have_no_exponent(value: float, text: str) -> None:
    assert tick(value) == text
