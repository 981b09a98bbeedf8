import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import DeviceSample
from gputop.agent.snapshot import Host, Sample
from gputop.stream.history import History
from gputop.ui.drawing.cells import text_of
from gputop.ui.drawing.charts import (
    IN_VIEW_SECONDS,
    WIDTHS,
    Axis,
    axis_of,
    draw_chart,
    means_of,
    round_up,
)
from gputop.ui.drawing.palette import BUSY

NAME = "temperature_celsius"


def columns(count: int, width: int, zoom: int) -> list[str]:
    times = [*map(float, range(count))]
    values = [float(10 + n * 37 % 90) for n in range(count)]
    dots = axis_of(count - 1.0, width, 1.0, zoom).means(times, values)
    rows = draw_chart(dots, 2, 100.0, BUSY)
    return [upper + lower for upper, lower in zip(*(row[0].text for row in rows), strict=True)]


def test_kept_means_are_those_of_the_history_at_each_sample() -> None:
    history = History(capacity=24)
    for number in range(60):
        reading = None if number % 7 == 0 else number
        device = DeviceSample("a", temperature_celsius=reading)
        history.add(Sample(float(number), Host(), (device,)))
        axis = axis_of(history.elapsed, 4, 1.0, 0)
        expected = axis.means(history.seconds, history.last("a", NAME, 1000))
        assert means_of(axis, history, "a", NAME) == expected


def test_a_chart_tells_zero_from_nothing() -> None:
    rows = draw_chart([None, 0.0, 50.0, 100.0, None, None], 2, 100.0, BUSY)
    assert [text_of(row) for row in rows] == [" ⢸ ", "⢀⣿ "]


@given(st.integers(1, 500), st.integers(2, 40), st.integers(2, 5))
def test_the_newest_is_at_the_right_and_all_others_move(count: int, width: int, zoom: int) -> None:
    a_column = round(2 * WIDTHS[zoom])
    before, after = (columns(each, width, zoom) for each in (count, count + a_column))
    assert after[:-1] == before[1:]
    assert after[-1].strip()
    drawn = sum(column.strip() != "" for column in before)
    assert drawn == min((count - 1) // a_column, width)


@pytest.mark.parametrize("interval", [0.25, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("width", [25, 32, 60, 120, 180])
def test_some_minutes_are_in_view_and_a_column_appears_every_few_seconds(
    width: int, interval: float
) -> None:
    axis = axis_of(1e6, width, interval)
    assert axis.width >= 2 * interval
    assert axis.width * axis.dots >= IN_VIEW_SECONDS
    assert axis.width <= max(5 * interval, 2.5 * IN_VIEW_SECONDS / axis.dots)


def test_a_dot_is_the_mean_of_the_samples_in_its_time_that_have_a_value() -> None:
    axis = Axis(end=100.0, width=10.0, dots=3)
    times = [60.0, 70.0, 75.0, 78.0, 99.9, 100.0]
    assert axis.edges == [70.0, 80.0, 90.0, 100.0]
    assert axis.means(times, [9, 1, 3, math.nan, 5, 7]) == [2.0, None, 5.0]
    assert axis.means([], []) == [None, None, None]


def test_each_zoom_shows_more_time() -> None:
    spans = [axis_of(0.0, 60, 0.1, zoom).text for zoom in range(len(WIDTHS))]
    assert (
        "|".join(spans) == "60 s|2 min|4 min|6 min|10 min|20 min|40 min|2.0 h|4.0 h|20.0 h|60.0 h"
    )


@pytest.mark.parametrize(
    ("most", "top"),
    [(0.0, 1.0), (0.3, 1.0), (1.0, 1.0), (1.1, 2.0), (900.0, 1024.0), (3e9, 2.0**32)],
)
def test_a_chart_without_a_limit_is_drawn_to_a_round_number(most: float, top: float) -> None:
    assert round_up(most) == top
