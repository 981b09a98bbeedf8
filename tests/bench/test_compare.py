"""What is compared with what, and when a result counts as worse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.events import Comparison, Point
from gputop.bench.results.compare import best_of, comparable, regression, score, with_comparisons
from tests.bench.kept import BASE, CONDITIONS, COPY, SWEEP, faster, soak, table
from tests.bench.workers import RESULT


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "torch.mm; batches of about 17, 2 in flight; 402 warm-up products"},
        {"tflops_mean": 1.0, "tflops_peak": 2.0, "iterations": 7, "seconds": 1.0, "checks": 1},
        {"torch_version": "2.9.1", "cuda_version": "12.4", "python": "/elsewhere/python"},
        {"conditions": None},
        {"started_at": 1.0, "stopped": "user", "device": "another name of it"},
    ],
)
def test_what_is_measured_anew_is_no_other_method(changes: dict[str, Any]) -> None:
    assert comparable(replace(BASE, **changes)) == comparable(BASE)


@pytest.mark.parametrize(
    "changes",
    [
        {"device_uuid": "GPU-other"},
        {"kind": "pairs"},
        {"dtype": "float16"},
        {"m": 4096},
        {"n": 4096},
        {"k": 4096},
        {"accumulate": "float16"},
        {"layout": "A and B row-major"},
        {"data": "zeros"},
        {"threads": 2},
        {"points": SWEEP},
    ],
)
def test_another_method_is_not_compared_with(changes: dict[str, Any]) -> None:
    assert comparable(replace(BASE, **changes)) != comparable(BASE)
    (alone,) = with_comparisons([replace(BASE, comparison=None)], [soak(900.0, **changes)])
    assert alone.comparison == Comparison()


def test_cpus_are_known_by_their_names() -> None:
    assert comparable(RESULT) != comparable(replace(RESULT, device="another CPU"))


def test_a_table_has_its_rows_in_the_place_of_the_best_rows_shape() -> None:
    sweep = table("sweep", SWEEP, tflops_peak=1.0)
    assert comparable(sweep) == comparable(replace(sweep, m=512, n=512, k=512))
    assert comparable(sweep) != comparable(replace(sweep, points=SWEEP[:-1]))


def test_a_search_finds_other_shapes_each_time() -> None:
    search = table("peak", SWEEP, tflops_peak=800.0)
    other = replace(search, points=SWEEP[3:], m=4096, layout="A and B row-major")
    assert comparable(search) == comparable(other)
    assert comparable(search) != comparable(replace(search, dtype="float16"))


def test_the_score_is_one_number() -> None:
    assert score(BASE) == 780.0
    assert score(table("sweep", SWEEP, tflops_peak=1.1)) == 1.1
    assert score(table("copy", COPY)) == pytest.approx(math.sqrt(3.9e12 * 54e9))
    latency = (Point("eager", 5, {"seconds": 2e-6}), Point("eager", 100, {"seconds": 8e-6}))
    assert score(table("latency", latency)) == pytest.approx(1 / 4e-6)
    assert score(table("copy", ())) is None


def test_the_best_is_the_best_of_the_earlier_ones() -> None:
    runs = [soak(780.0), soak(801.0, ago=10), soak(790.0, ago=20)]
    assert best_of(runs[0], runs) is runs[1]
    assert best_of(runs[1], runs) is runs[2]
    assert best_of(runs[2], runs) is None
    assert best_of(runs[0], runs[:1]) is None


def test_a_faulty_result_is_no_measure_and_is_not_compared() -> None:
    assert best_of(BASE, [soak(900.0, ago=1, wrong_elements=1)]) is None
    (faulty,) = with_comparisons([soak(700.0, wrong_elements=1)], [soak(780.0, ago=1)])
    assert faulty.comparison == Comparison()


def test_a_shorter_run_was_cooler_and_is_no_measure() -> None:
    assert best_of(BASE, [soak(900.0, ago=9.0, seconds=5.0)]) is None
    for seconds in (59.0, 600.0):
        other = soak(900.0, ago=9.0, seconds=seconds)
        assert best_of(BASE, [other]) is other
    copied = table("copy", COPY, ago=9.0, seconds=1.0)
    assert best_of(table("copy", COPY, seconds=20.0), [copied]) is copied


def test_a_short_run_is_no_new_best_over_a_long_one() -> None:
    long, short = soak(780.0, ago=20), soak(770.0, ago=10, seconds=5.0)
    now = soak(800.0, seconds=5.0)
    assert best_of(now, [long]) is None
    assert best_of(now, [long, short]) is short
    assert best_of(soak(750.0, seconds=5.0), [long, short]) is long


def test_a_result_that_was_compared_stays_as_it_is() -> None:
    given = soak(780.0, comparison=Comparison(20.0, "slower"))
    (kept,) = with_comparisons([given], [soak(790.0, ago=1.0)])
    assert kept is given


def test_a_regression_is_more_than_five_percent() -> None:
    assert regression(soak(95.0), soak(100.0)) is None
    assert regression(soak(100.0), soak(95.0)) is None
    assert regression(soak(95.0), None) is None
    assert regression(table("copy", ()), soak(100.0)) is None
    line = regression(soak(94.9), soak(100.0, ago=3600.0))
    assert line is not None
    assert "\n" not in line
    for part in ("NVIDIA H200", "soak in bfloat16 8192", "94.9 TFLOP/s", "5.1 % under", "100 TFLO"):
        assert part in line
    assert "since then" not in line


def test_a_regression_says_what_else_changed() -> None:
    earlier = soak(
        100.0,
        torch_version="2.9.1",
        conditions=replace(CONDITIONS, driver_version="570.1", power_limit_watts=500.0),
    )
    line = regression(soak(50.0), earlier)
    assert line is not None
    assert "torch 2.9.1 became 2.13.0" in line
    assert "driver 570.1 became 580.65" in line
    assert "power limit 500 W became 700 W" in line
    assert "torch" not in str(regression(soak(50.0), soak(100.0, conditions=None)))


@pytest.mark.parametrize("unit", ["GB/s", "µs"])
def test_a_table_without_products_has_its_own_unit(unit: str) -> None:
    points = COPY if unit == "GB/s" else (Point("eager", 5, {"seconds": 2e-6}),)
    slower = faster(points, 0.5 if unit == "GB/s" else 2.0)
    line = regression(table("copy", slower), table("copy", points, ago=1.0))
    assert line is not None
    assert "50.0 % under" in line
    assert unit in line
    assert "TFLOP" not in line


def test_names_of_others_are_inert() -> None:
    line = regression(soak(50.0, device="\x1b[2Jx\ny"), soak(100.0))
    assert line is not None
    assert line.isprintable()


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=8))
def test_what_comes_later_changes_nothing(means: list[float]) -> None:
    """A result's place among all runs is the same as when it was the newest."""
    runs = [soak(mean, ago=-float(n)) for n, mean in enumerate(means)]
    for n, found in enumerate(with_comparisons(runs, runs)):
        (then,) = with_comparisons(runs[n : n + 1], runs[: n + 1])
        assert found.comparison == then.comparison
        assert found.comparison is not None
        under = found.comparison.under_percent
        if n == 0:
            assert under is None
        else:
            assert under is not None
            assert (under < 0) == (means[n] > max(means[:n]))
