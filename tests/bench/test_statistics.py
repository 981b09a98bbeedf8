import math
import random
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.events import Result
from gputop.bench.results.statistics import (
    Droop,
    Window,
    burst_of,
    deepest_dip,
    droop,
    mean_interval,
    mean_rate,
    robust_sigma,
    second_half,
    time_to_steady,
    with_statistics,
)
from gputop.bench.results.verdict import LARGE_DIP
from tests.bench.workers import RESULT

FIRST, REST = 0.1, 0.2
"""Seconds of the windows of the first two seconds, and of the others."""
RATES = st.floats(1e-3, 1e4)
BARE = replace(RESULT, tflops_mean=None)


def series(
    seed: int,
    seconds: float,
    noise: float,
    correlation: float = 0.0,
    level: Callable[[float], float] = lambda _: 1.0,
) -> list[Window]:
    """Windows around 100 times `level`, whose noise is correlated with that of the one before."""
    draw = random.Random(seed)  # noqa: S311
    state, at, found = draw.gauss(0, 1), 0.0, list[Window]()
    for length in (*[FIRST] * 20, *[REST] * round((seconds - 20 * FIRST) / REST)):
        kept = correlation ** (length / REST) if correlation else 0.0
        state = kept * state + math.sqrt(1 - kept**2) * draw.gauss(0, 1)
        wide = noise if correlation else noise * math.sqrt(REST / length)
        found.append((length, 100 * level(at) * (1 + wide * state)))
        at += length
    return found


def of(windows: list[Window]) -> Result:
    """The statistics of a run of these windows."""
    return with_statistics(BARE, windows)


def drooped(windows: list[Window]) -> Droop:
    return droop(burst_of(windows), second_half(windows))


@pytest.mark.parametrize(("seconds", "correlation"), [(10.0, 0.5), (60.0, 0.0), (60.0, 0.9)])
def test_noise_alone_shows_neither_a_droop_nor_a_dip(seconds: float, correlation: float) -> None:
    runs = [series(seed, seconds, 0.04, correlation) for seed in range(200)]
    assert sum(drooped(windows).percent > 0 for windows in runs) <= 0.01 * len(runs)
    assert max(deepest_dip(windows) or 0.0 for windows in runs) < LARGE_DIP


@pytest.mark.parametrize("length", [0.1, 0.4, 2.0])
def test_a_short_burst_is_shown_with_an_interval_around_it(length: float) -> None:
    runs, expected = 100, 100 * (1 - 1 / 1.15)
    found = [
        drooped(series(seed, 60.0, 0.01, 0.5, lambda at: 1.15 if at < length - 1e-6 else 1.0))
        for seed in range(runs)
    ]
    assert all(each.low > 0 for each in found)
    assert sum(each.low <= expected <= each.high for each in found) >= 0.95 * runs


def test_a_device_that_gets_slower_droops_by_as_much() -> None:
    windows = series(1, 60.0, 0.01, level=lambda at: 1.0 if at < 20 else 0.6)
    found = of(windows)
    assert found.droop_percent == pytest.approx(40, abs=2)
    assert found.tflops_burst == pytest.approx(100, abs=2)
    assert found.tflops_sustained == pytest.approx(60, abs=1)
    of_a_cpu = [(seconds, rate / 1000) for seconds, rate in windows]
    assert of(of_a_cpu).droop_percent == pytest.approx(found.droop_percent)


def test_a_device_that_warms_up_to_its_speed_does_not_droop() -> None:
    assert drooped(series(1, 60.0, 0.01, level=lambda at: min(1.0, 0.5 + at / 10))).percent == 0.0


def test_what_needs_how_many_windows_and_seconds() -> None:
    def known(*windows: Window) -> list[str]:
        found = of([*windows])
        names = ("tflops_mean_interval", "dip_percent", "droop_percent", "tflops_burst")
        return [name for name in names if getattr(found, name) is not None]

    assert known(*[(1.0, 5.0)] * 7) == []
    assert known(*[(1.0, 5.0)] * 9) == ["tflops_mean_interval"]
    assert known(*[(0.49, 5.0)] * 20) == ["tflops_mean_interval"]
    assert known(*[(1.4, 5.0)] * 14) == [], "seven in the second half"
    assert known(*[(0.5, 5.0)] * 20) == ["tflops_mean_interval", "droop_percent", "tflops_burst"]
    assert "dip_percent" not in known(*[(1.0, 5.0)] * 19)
    assert "dip_percent" in known(*[(1.0, 5.0)] * 20)


def test_the_burst_are_the_first_two_seconds_and_a_droop_is_beyond_the_noise() -> None:
    assert len(burst_of([(0.5, 1.0)] * 10)) == 4
    assert len(burst_of([(5.0, 1.0)] * 10)) == 1
    late = [(0.5, rate) for rate in (100.0, 104.0, 99.0, 101.0, 103.0, 98.0)] * 5
    found = drooped([(0.5, 103.0)] * 4 + late * 2)
    assert (found.percent, found.low) == pytest.approx((2.1238, 0.7340), abs=1e-3)
    assert drooped([(0.5, 102.0)] * 4 + late * 2).percent == 0.0


def test_the_scatter_is_that_of_a_normal_distribution_without_its_outliers() -> None:
    normal = [statistics.NormalDist(50, 7).inv_cdf(n / 1000) for n in range(1, 1000)]
    assert robust_sigma([*normal, *[1e9] * 10]) == pytest.approx(7, rel=0.02)


def test_the_interval_is_about_the_mean_of_the_result() -> None:
    windows = [(1.0, 9.0), (1.0, 11.0)] * 10
    low, high = with_statistics(replace(BARE, tflops_mean=5.0), windows).tflops_mean_interval or ()
    assert (low + high) / 2 == pytest.approx(5.0)
    assert of([(1.0, 9.0)] * 20).tflops_mean_interval == pytest.approx((9.0, 9.0))


@pytest.mark.daily(1)
@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_the_interval_of_the_mean_covers_it_as_often_as_it_says(correlation: float) -> None:
    bounds = [mean_interval(series(seed, 60.0, 0.04, correlation)) for seed in range(200)]
    known = [each for each in bounds if each is not None]
    assert len(known) == len(bounds)
    assert sum(low <= 100 <= high for low, high in known) / len(known) >= 0.93


def test_a_dip_is_that_of_the_slowest_seconds() -> None:
    windows = series(1, 62.0, 0.01, level=lambda at: 0.5 if at > 57 else 1.0)
    assert deepest_dip(windows) == pytest.approx(50, abs=2)


@given(st.lists(st.tuples(st.floats(0.1, 5.0), RATES), min_size=8, max_size=200))
def test_statistics_are_in_order_and_within_the_rates(windows: list[Window]) -> None:
    rates = [rate for _, rate in windows]
    found = of(windows)
    known = [min(rates), *(found.tflops_mean_interval or ()), max(rates)]
    assert known == pytest.approx(sorted(known))
    if found.droop_percent is not None:
        assert found.droop_interval_percent is not None
        low, high = found.droop_interval_percent
        assert low <= found.droop_percent <= high
        assert (found.droop_percent > 0) == (low > 0)


@pytest.mark.parametrize(
    ("stretches", "expected"),
    [
        (((20, 100),), 0.0),
        (((2, 110), (3, 105), (15, 100)), 5.0),
        (((2, 110), (3, 101.9), (15, 100)), 2.0),
        (((10, 110), (3, 90), (7, 110)), None),
    ],
)
def test_time_to_steady_is_when_the_throughput_had_settled(
    stretches: tuple[tuple[int, float], ...], expected: float | None
) -> None:
    windows = [(0.25, rate) for seconds, rate in stretches for _ in range(4 * seconds)]
    assert time_to_steady(windows, mean_rate(second_half(windows))) == expected
