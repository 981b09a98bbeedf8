"""What is compared with what, and when a result counts as worse."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from gputop.bench.events import Comparison, Point, Result, Verdict, VerdictPart
from gputop.bench.results.compare import comparable, last_runs, percent_limits, regression
from gputop.bench.results.measures import score
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.verdict import with_verdicts
from tests.bench.kept import BASE, CONDITIONS, COPY, SWEEP, faster, soak, table, with_comparisons
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
        {"kind": "burn"},
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
    assert alone.comparison == Comparison(runs=0)


def test_tables_are_known_by_their_rows_searches_by_none_and_cpus_by_their_names() -> None:
    sweep = table("sweep", SWEEP, tflops_peak=1.0)
    assert comparable(sweep) == comparable(replace(sweep, m=512, n=512, k=512))
    assert comparable(sweep) != comparable(replace(sweep, points=SWEEP[:-1]))
    search = table("peak", SWEEP, tflops_peak=800.0)
    other = replace(search, points=SWEEP[3:], m=4096, layout="A and B row-major")
    assert comparable(search) == comparable(other)
    assert comparable(search) != comparable(replace(search, dtype="float16"))
    assert comparable(RESULT) != comparable(replace(RESULT, device="another CPU"))


def test_the_score_is_one_number() -> None:
    assert score(BASE) == 780.0
    assert score(table("sweep", SWEEP, tflops_peak=1.1)) == 1.1
    assert score(table("copy", COPY)) == pytest.approx(math.sqrt(3.9e12 * 54e9))
    assert score(table("copy", ())) is None


def before(*means: float, **changes: Any) -> list[Result]:
    """As many earlier runs, the first one the newest."""
    return [soak(mean, ago=10.0 * (n + 1), **changes) for n, mean in enumerate(means)]


def percent_limit(values: list[float]) -> float:
    return percent_limits([values])[0]


def test_it_is_the_last_ten_runs_before_it_newest_first() -> None:
    runs = before(*range(800, 815))
    assert last_runs(BASE, [soak(900.0, ago=-5.0), *runs]) == runs[:10]
    assert last_runs(runs[4], runs) == runs[5:]


@pytest.mark.parametrize(
    "changes",
    [
        {"wrong_elements": 1},
        {"torch_version": "2.9.1"},
        {"seconds": 5.0},
        {"seconds": 600.0},
        {"conditions": replace(CONDITIONS, power_limit_watts=500.0)},
        {"conditions": replace(CONDITIONS, other_load=("4711 (ada: train)",))},
        {"conditions": None},
        {"tflops_mean": None},
        {"stopped": "user"},
        {"comparison": Comparison(20.0, "slower", 10)},
        {"verdict": Verdict((VerdictPart("droop", "degraded", ""),))},
    ],
)
def test_a_run_that_is_not_like_it_is_no_measure(changes: dict[str, Any]) -> None:
    assert last_runs(BASE, [replace(soak(ago=5.0), **changes)]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"torch_version": "2.13.1+cu128"},
        {"seconds": 59.0},
        {"conditions": replace(CONDITIONS, driver_version="590.1", power_limit_watts=700.2)},
    ],
)
def test_what_makes_no_difference_is_compared(changes: dict[str, Any]) -> None:
    assert len(last_runs(BASE, [replace(soak(ago=5.0), **changes)])) == 1


def test_a_table_may_take_half_the_time_of_another() -> None:
    copied = table("copy", COPY, ago=9.0, seconds=11.0)
    assert last_runs(table("copy", COPY, seconds=20.0), [copied]) == [copied]
    assert last_runs(table("copy", COPY, seconds=60.0), [copied]) == []
    assert last_runs(soak(700.0, wrong_elements=1), before(780.0)) == [], "it is faulty"


def test_a_result_that_was_compared_stays_as_it_is() -> None:
    given = soak(780.0, comparison=Comparison(20.0, "slower"))
    (kept,) = with_comparisons([given], [soak(790.0, ago=1.0)])
    assert kept is given


def test_a_regression_is_more_than_three_percent_and_the_scatter() -> None:
    steady = before(*[100.0] * 10)
    assert regression(soak(97.1), steady) is None
    assert regression(soak(103.0), steady) is None
    line = regression(soak(96.9), steady)
    assert line == (
        "96.9 TFLOP/s is 3.1 % under the 100 TFLOP/s that is usual (limit 3.0 %), "
        "the median of its last 10 like runs. "
        "Delete those results on the benchmark tab if this is its speed now"
    )
    scattered = before(97, 103, 96, 104, 100, 98, 102, 95, 105, 100)
    assert regression(soak(90.0), scattered) is None
    assert regression(soak(80.0), scattered) is not None


def test_few_runs_say_too_little() -> None:
    assert regression(soak(50.0), []) is None
    assert regression(soak(50.0), before(100.0, 100.0, 100.0)) is None
    assert regression(soak(50.0), before(*[100.0] * 4)) is not None
    assert regression(table("copy", ()), before(*[100.0] * 4)) is None
    assert percent_limit([97, 99, 101, 103]) > percent_limit([97, 99, 101, 103] * 3)


def copies(draw: random.Random, rows: int, scatter: float, ago: float, **changes: Any) -> Result:
    """Copies of so many directions at rates that scatter."""
    points = tuple(
        Point(f"write to GPU {n}", 2.0**28, {"bytes_per_second": draw.gauss(4e10, scatter * 4e10)})
        for n in range(rows)
    )
    return table("copy", points, ago, **changes)


@pytest.mark.parametrize("rows", [1, 10])
def test_many_rows_raise_no_more_alarms_and_a_slow_one_is_found(rows: int) -> None:
    draw, alarms, found = random.Random(rows), 0, 0  # noqa: S311
    for _ in range(300):
        before_it = [copies(draw, rows, 0.03, float(n)) for n in range(1, 11)]
        now = copies(draw, rows, 0.03, 0.0)
        alarms += regression(now, before_it) is not None
        slow = replace(now, points=(*faster(now.points[:1], 0.85), *now.points[1:]))
        found += regression(slow, before_it) is not None
    assert alarms < 0.02 * 300
    assert found > 0.6 * 300
    steady = [copies(draw, rows, 0.015, float(n)) for n in range(1, 11)]
    now = copies(draw, rows, 0.015, 0.0)
    slow = replace(now, points=(*faster(now.points[:1], 0.85), *now.points[1:]))
    assert regression(slow, steady) is not None


def verdicts(means: list[float]) -> list[int]:
    """The exit statuses of runs one after the other, each compared with those before."""
    kept, found = list[Result](), []
    for n, mean in enumerate(means):
        (judged,) = with_verdicts(with_comparisons([soak(mean, ago=-3600.0 * n)], kept[::-1]))
        kept.append(judged)
        found.append(outcome_of(judged).status)
    return found


def test_a_slower_device_does_not_become_usual() -> None:
    draw = random.Random(1)  # noqa: S311
    usual = [draw.gauss(780, 8) for _ in range(12)]
    found = verdicts([*usual, *(draw.gauss(624, 8) for _ in range(12))])
    assert found[12:] == [4] * 12
    assert not any(found[:12])


def test_runs_with_a_scatter_of_three_percent_stay_good_over_many() -> None:
    draw = random.Random(2)  # noqa: S311
    found = [verdicts([draw.gauss(780, 0.03 * 780) for _ in range(110)]) for _ in range(6)]
    assert sum(each > 0 for runs in found for each in runs) < 0.02 * 6 * 106


def test_a_regression_names_another_driver() -> None:
    old = before(*[100.0] * 4, conditions=replace(CONDITIONS, driver_version="570.1"))
    assert "the driver 570.1 became 580.65" in str(regression(soak(50.0), old))
    assert "driver" not in str(regression(soak(50.0), before(*[100.0] * 4)))


def test_copies_are_compared_by_direction() -> None:
    def against_four(kind: str, usual: tuple[Point, ...], now: tuple[Point, ...]) -> str:
        like = [table(kind, usual, ago=float(n)) for n in range(1, 5)]
        return regression(table(kind, now), like) or ""

    line = against_four("copy", COPY, (COPY[0], *faster(COPY[1:], 0.5)))
    assert line.startswith("host to device, pinned: 27.0 GB/s is 50.0 % under")
    assert "device to device" not in line
    odd = tuple(replace(point, series="\x1b[2J\n") for point in COPY[:1])
    line = against_four("copy", odd, faster(odd, 0.1))
    assert line
    assert line.isprintable()
