"""What a stress test's events make of a run."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.events import Point, Progress, Verified
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.results.measures import score
from gputop.bench.run.device_run import RATE, DeviceRun
from gputop.bench.run.series import MOST_ITEMS, MergedSeries, Moment, RunCurves, merge_windows
from tests.runs import gpu_run


def started() -> DeviceRun:
    return DeviceRun(Request(cpu_target(), "float32", 128, 1e6))


def test_a_run_of_days_keeps_no_more_points_than_can_be_drawn() -> None:
    run, windows = started(), 3 * MOST_ITEMS
    for n in range(1, windows + 1):
        run.add_event(Progress(0.2 * n, 0.2, n, 9.0 if n == 7 else float(n % 2)))
    assert MOST_ITEMS / 2 <= len(run.series(RATE)) <= MOST_ITEMS
    times = [seconds for seconds, _ in run.series(RATE)]
    apart = [after - before for before, after in itertools.pairwise(times)]
    assert max(apart) < 1.01 * min(apart), "old ones are as dense as new ones"
    assert times[-1] >= 0.2 * windows - max(apart)
    assert all(0.0 <= tflops <= 5.0 for _, tflops in run.series(RATE))
    assert run.rate_peak == 9.0, "which no merged point is"


def test_the_first_wrong_element_says_when_and_the_last_check_how_many() -> None:
    run = started()
    run.add_event(Progress(4.0, 0.2, 20, 1.0))
    run.add_event(Verified(1, 0))
    assert (run.wrong_at, run.wrong_elements) == (None, 0)
    run.add_event(Progress(5.0, 0.2, 25, 1.0))
    run.add_event(Verified(2, 3))
    run.add_event(Progress(6.0, 0.2, 30, 1.0))
    run.add_event(Verified(3, 4))
    assert run.faulty
    assert (run.wrong_at, run.wrong_elements) == (5.0, 4)


def windows(count: int) -> list[Progress]:
    return [Progress(0.2 * n, 0.2, 10 * n, 100.0 + n % 7, 101.0) for n in range(1, count + 1)]


@given(st.integers(1, 400), st.sampled_from([2, 8, 50]))
def test_a_long_run_keeps_its_work_and_its_end(count: int, most: int) -> None:
    series = MergedSeries(merge_windows, most)
    for window in windows(count):
        series.add(window)
    kept = series.items
    assert len(kept) <= most
    assert kept[-1].elapsed_seconds == pytest.approx(0.2 * count)
    assert kept[-1].iterations == 10 * count
    assert sum(w.window_seconds for w in kept) == pytest.approx(0.2 * count)
    work = sum(w.tflops * w.window_seconds for w in windows(count))
    assert sum(w.tflops * w.window_seconds for w in kept) == pytest.approx(work)
    assert [w.elapsed_seconds for w in kept] == sorted(w.elapsed_seconds for w in kept)


def test_readings_are_curves_of_what_is_known() -> None:
    run = started()
    for moment in (
        Moment(0.0, 0.5, None, 1500.0, reasons=("idle",)),
        Moment(0.5, 1.5, 600.0, 1480.0),
        Moment(1.5, 2.5, 0.0),
    ):
        run.readings._moments.add(moment)
    curves = {
        "power_watts": [(1.5, 600.0), (2.5, 0.0)],
        "sm_clock_mhz": [(0.5, 1500.0), (1.5, 1480.0)],
    }
    course = run.history()
    assert course == RunCurves((), curves, {"idle": [(0.0, 0.5)]})
    assert list(course.readings) == list(curves)


def test_a_run_is_the_same_after_it_was_kept() -> None:
    before = gpu_run(60.0, 45.0, ended=True)
    assert before.result is not None
    after = DeviceRun.of_result(before.result, before.request.target, before.kept_curves())
    assert after.series(RATE) == before.series(RATE)
    assert after.readings.moments == before.readings.moments
    assert after.readings.intervals() == before.readings.intervals()
    assert after.result == before.result
    assert (after.state, after.elapsed_seconds) == ("done", 45.0)


def test_a_stored_result_of_a_former_kind_is_drawn_over_time() -> None:
    before = gpu_run(60.0, 45.0, ended=True)
    assert before.result is not None
    points = (Point("alone", 1, {"tflops": 700.0}), Point("together", 2, {"tflops": 630.0}))
    pairs = replace(before.result, kind="pairs", points=points)
    after = DeviceRun.of_result(pairs, before.request.target, before.kept_curves())
    assert after.series(RATE) == before.series(RATE)
    assert after.measured
    assert score(pairs) == before.result.tflops_mean


@pytest.mark.parametrize("broken", ["", "[1]", '{"windows": 3}', '{"moments": [{}]}', "nul"])
def test_broken_curves_are_a_value_error(broken: str) -> None:
    before = gpu_run(60.0, 45.0, ended=True)
    assert before.result is not None
    with pytest.raises(ValueError):  # noqa: PT011 - of several sorts
        DeviceRun.of_result(before.result, before.request.target, broken)
