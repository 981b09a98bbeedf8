"""Charts over time: they scroll, and have some minutes in view."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import READINGS, DeviceSample
from gputop.agent.snapshot import Host, Sample
from gputop.schema.derived import HOST_CPU, HOST_MEMORY
from gputop.stream.history import History
from gputop.ui.drawing.charts import (
    CHARTS,
    IN_VIEW_SECONDS,
    SAMPLES_A_DOT,
    Dots,
    draw_chart,
    newest_dots,
    round_up,
    samples_a_dot,
)
from gputop.ui.drawing.palette import BUSY

NAME = "temperature_celsius"


def columns(count: int, width: int, samples: int = 1) -> list[str]:
    """Return each column of a chart after `count` values."""
    values = [float(10 + n * 37 % 90) for n in range(count)]
    dots = newest_dots(count, width, samples).averaged(values, count)
    rows = draw_chart(dots, 2, 100.0, BUSY)
    return [upper + lower for upper, lower in zip(*(row[0].text for row in rows), strict=True)]


def test_kept_means_are_those_of_the_history_at_each_sample() -> None:
    history = History(capacity=24)
    for number in range(60):
        reading = None if number % 7 == 0 else number
        device = DeviceSample("a", temperature_celsius=reading)
        history.add(Sample(float(number), Host(), (device,)))
        dots = newest_dots(history.count, 4, 2)
        expected = dots.averaged(history.last("a", NAME, 1000), history.count)
        assert dots.means(history, "a", NAME) == expected


def test_charts_are_of_what_is_kept() -> None:
    assert {chart.name for chart in CHARTS} <= {*READINGS, HOST_CPU, HOST_MEMORY}
    assert max(len(chart.short) for chart in CHARTS) <= 6


def test_a_chart_tells_zero_from_nothing() -> None:
    rows = draw_chart([None, 0.0, 50.0, 100.0, None, None], 2, 100.0, BUSY)
    assert ["".join(span.text for span in row) for row in rows] == [" ⢸ ", "⢀⣿ "]


@given(st.integers(0, 500), st.integers(2, 40), st.sampled_from(SAMPLES_A_DOT))
def test_the_newest_is_at_the_right_and_all_others_move(
    count: int, width: int, samples: int
) -> None:
    before, after = (columns(each, width, samples) for each in (count, count + 2 * samples))
    assert after[:-1] == before[1:]
    assert after[-1].strip()
    assert sum(column.strip() != "" for column in before) == min(count // samples // 2, width)


@pytest.mark.parametrize("interval", [0.25, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("width", [25, 32, 60, 120, 180])
def test_some_minutes_are_in_view_and_a_column_appears_every_few_seconds(
    width: int, interval: float
) -> None:
    samples = samples_a_dot(width, interval)
    seconds = 2 * samples * interval
    assert seconds * width >= IN_VIEW_SECONDS
    assert seconds <= max(2 * interval, 2.5 * 2 * IN_VIEW_SECONDS / width)


def test_a_dot_is_the_mean_of_its_samples_that_have_a_value() -> None:
    series = [math.nan, 2.0, 4.0, 6.0, math.nan, math.nan, 9.0]
    assert Dots(-1, 4, 2).averaged(series, 7) == [None, 2.0, 5.0, None, 9.0]
    assert Dots(0, 4, 2).averaged(series[3:], 7) == [None, 6.0, None, 9.0]  # older ones are gone


@pytest.mark.parametrize(
    ("dots", "samples", "interval", "text"),
    [(64, 1, 1, "64 s"), (64, 5, 1, "5 min"), (58, 5, 1, "5 min"), (64, 5, 5, "27 min")],
)
def test_a_chart_says_how_long_it_reaches_back(
    dots: int, samples: int, interval: float, text: str
) -> None:
    assert Dots(0, dots, samples).span_text(interval) == text


@given(st.floats(0.0, 1e12))
def test_a_chart_without_a_limit_is_drawn_to_a_round_number(most: float) -> None:
    top = round_up(most)
    assert top >= most
    assert top == 1.0 or top / 2 < most
