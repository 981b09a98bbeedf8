import math
import random
from dataclasses import replace
from typing import Any

import pytest

from gputop.bench.events import Comparison, Point, Result, Verdict, VerdictPart
from gputop.bench.results.compare import comparable, last_runs, percent_limits, regression
from gputop.bench.results.measures import measured, score
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.verdict import with_verdicts
from tests.bench.kept import BASE, CONDITIONS, COPY, SWEEP, faster, soak, table, with_comparisons
from tests.bench.workers import RESULT

SEARCH = table("peak", SWEEP, tflops_peak=800.0)


@pytest.mark.parametrize(
    ("one", "changes", "expected"),
    [
        (BASE, {"method": "torch.mm; batches of about 17; 402 warm-up products"}, True),
        (BASE, {"tflops_mean": 1.0, "tflops_peak": 2.0, "iterations": 7, "checks": 1}, True),
        (BASE, {"torch_version": "2.9.1", "cuda_version": "12.4", "python": "/x/python"}, True),
        (BASE, {"conditions": None}, True),
        (BASE, {"started_at": 1.0, "stopped": "user", "device": "another name of it"}, True),
        (BASE, {"device_uuid": "GPU-other"}, False),
        (BASE, {"kind": "burn"}, False),
        (BASE, {"dtype": "float16"}, False),
        (BASE, {"m": 4096}, False),
        (BASE, {"accumulate": "float16"}, False),
        (BASE, {"layout": "A and B row-major"}, False),
        (BASE, {"data": "zeros"}, False),
        (BASE, {"threads": 2}, False),
        (BASE, {"verify": "all"}, False),
        (BASE, {"points": SWEEP}, False),
        (table("sweep", SWEEP), {"m": 512, "n": 512, "k": 512}, True),
        (table("sweep", SWEEP), {"points": SWEEP[:-1]}, False),
        (SEARCH, {"points": SWEEP[3:], "m": 4096, "layout": "A and B row-major"}, True),
        (RESULT, {"device": "another CPU"}, False),
    ],
)
def test_results_of_one_method_on_one_device_are_compared(
    one: Result, changes: dict[str, Any], *, expected: bool
) -> None:
    assert (comparable(replace(one, **changes)) == comparable(one)) == expected


def test_the_score_is_one_number() -> None:
    assert score(BASE) == 780.0
    assert score(table("sweep", SWEEP, tflops_peak=1.1)) == 1.1
    assert score(table("copy", COPY)) == pytest.approx(math.sqrt(3.9e12 * 54e9))
    assert score(table("copy", ())) is None


def test_what_is_compared_of_a_table() -> None:
    def rates(kind: str, unit: str, *rows: tuple[str, float, float]) -> dict[str, float]:
        points = (Point(name, size, {unit: rate}) for name, size, rate in rows)
        return measured(table(kind, tuple(points)))

    copies = [("a", 1.0, 9.0), ("a", 2.0, 5.0), ("b, pageable", 2.0, 7.0)]
    assert rates("copy", "bytes_per_second", *copies) == {"a": 5.0}, "the largest size"
    steps = [("7B", 1.0, 2.0), ("7B", 2.0, 3.0), ("70B", 1.0, 1.0)]
    assert rates("step", "tflops", *steps) == {"7B": 3.0, "70B": 1.0}, "the fastest of each"
    shapes = [("tried", 1.0, 9.0), ("confirmed", 1.0, 8.0)]
    assert rates("peak", "tflops", *shapes) == {"": 8.0}
    assert measured(BASE) == {"": 780.0}


def before(*means: float, **changes: Any) -> list[Result]:
    """As many earlier runs, the first one the newest."""
    return [soak(mean, ago=10.0 * (n + 1), **changes) for n, mean in enumerate(means)]


def test_it_is_the_last_ten_runs_before_it_newest_first() -> None:
    runs = before(*range(800, 815))
    assert last_runs(BASE, [soak(900.0, ago=-5.0), *runs]) == runs[:10]
    assert last_runs(runs[4], runs) == runs[5:]
    assert last_runs(soak(700.0, wrong_elements=1), runs) == [], "it is faulty"
    (alone,) = with_comparisons([BASE], [])
    assert alone.comparison == Comparison(runs=0)


@pytest.mark.parametrize(
    ("changes", "is_like"),
    [
        ({"wrong_elements": 1}, False),
        ({"torch_version": "2.9.1"}, False),
        ({"torch_version": "2.13.1+cu128"}, True),
        ({"seconds": 53.9}, False),
        ({"seconds": 54.0}, True),
        ({"seconds": 66.7}, False),
        ({"conditions": replace(CONDITIONS, power_limit_watts=500.0)}, False),
        (
            {"conditions": replace(CONDITIONS, driver_version="590.1", power_limit_watts=700.2)},
            True,
        ),
        ({"conditions": replace(CONDITIONS, other_load=("4711 (ada: train)",))}, False),
        ({"conditions": None}, False),
        ({"tflops_mean": None}, False),
        ({"stopped": "user"}, False),
        ({"comparison": Comparison(20.0, "slower", 10)}, False),
        ({"verdict": Verdict((VerdictPart("droop", "degraded", ""),))}, False),
    ],
)
def test_a_run_that_is_not_like_it_is_no_measure(changes: dict[str, Any], *, is_like: bool) -> None:
    assert len(last_runs(BASE, [replace(soak(ago=5.0), **changes)])) == is_like


def test_a_table_may_take_half_the_time_of_another() -> None:
    copied = table("copy", COPY, ago=9.0, seconds=10.0)
    assert last_runs(table("copy", COPY, seconds=20.0), [copied]) == [copied]
    assert last_runs(table("copy", COPY, seconds=20.1), [copied]) == []


def test_a_regression_is_more_than_three_percent_and_the_scatter() -> None:
    steady = before(*[100.0] * 10)
    assert regression(soak(97.1), steady) is None
    assert regression(soak(103.0), steady) is None
    assert regression(soak(96.9), steady) == (
        "96.9 TFLOP/s is 3.1 % under the 100 TFLOP/s that is usual (limit 3.0 %), "
        "the median of its last 10 like runs. "
        "Delete those results on the benchmark tab if this is its speed now"
    )
    assert percent_limits([[97, 98, 99, 102, 103, 101]])[0] == pytest.approx(9.0)
    assert percent_limits([[97, 99, 101, 103]])[0] == pytest.approx(10.5)
    assert percent_limits([[100.0] * 4, [90, 100, 100, 100]])[0] == pytest.approx(8.75)


def test_few_runs_say_too_little() -> None:
    assert regression(soak(50.0), []) is None
    assert regression(soak(50.0), before(100.0, 100.0, 100.0)) is None
    assert regression(soak(50.0), before(*[100.0] * 4)) is not None
    assert regression(table("copy", ()), before(*[100.0] * 4)) is None


def test_many_rows_raise_no_more_alarms_and_a_slow_one_is_found() -> None:
    draw, alarms, found = random.Random(10), 0, 0  # noqa: S311

    def copies(ago: float) -> Result:
        rates = ({"bytes_per_second": draw.gauss(4e10, 0.03 * 4e10)} for _ in range(10))
        points = [Point(f"write to GPU {n}", 2.0**28, rate) for n, rate in enumerate(rates)]
        return table("copy", tuple(points), ago)

    for _ in range(300):
        earlier = [copies(float(n)) for n in range(1, 11)]
        now = copies(0.0)
        alarms += regression(now, earlier) is not None
        slow = replace(now, points=(*faster(now.points[:1], 0.85), *now.points[1:]))
        found += regression(slow, earlier) is not None
    assert alarms < 0.02 * 300
    assert found > 0.6 * 300


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
    assert found == [0] * 12 + [4] * 12


def test_runs_with_a_scatter_of_three_percent_stay_good_over_many() -> None:
    draw = random.Random(2)  # noqa: S311
    found = [verdicts([draw.gauss(780, 0.03 * 780) for _ in range(110)]) for _ in range(6)]
    assert sum(each > 0 for runs in found for each in runs) < 0.02 * 6 * 106


def test_a_regression_names_another_driver() -> None:
    old = before(*[100.0] * 4, conditions=replace(CONDITIONS, driver_version="570.1"))
    assert "the driver 570.1 became 580.65" in str(regression(soak(50.0), old))
    assert "driver" not in str(regression(soak(50.0), before(*[100.0] * 4)))


def test_copies_are_compared_by_direction_and_their_names_are_inert() -> None:
    def line(usual: tuple[Point, ...], now: tuple[Point, ...]) -> str:
        like = [table("copy", usual, ago=float(n)) for n in range(1, 5)]
        return regression(table("copy", now), like) or ""

    slow = line(COPY, (COPY[0], *faster(COPY[1:], 0.5)))
    assert slow.startswith("host to device, pinned: 27.0 GB/s is 50.0 % under the 54.0 GB/s")
    assert "device to device" not in slow
    odd = tuple(replace(point, series="\x1b[2J\n") for point in COPY[:1])
    assert line(odd, faster(odd, 0.1)).isprintable()
