"""What a stress test's events make of a run."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from gputop.bench.events import Point, Progress, Verified
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.results.measures import score
from gputop.bench.run.device_run import RATE, DeviceRun
from gputop.bench.run.series import (
    READINGS,
    Moment,
    RunCurves,
    append_joined,
    merge_moments,
    merge_windows,
    thinned,
)
from tests.runs import gpu_run


def started() -> DeviceRun:
    return DeviceRun(Request(cpu_target(), "float32", 128, 1e6))


def test_a_run_of_hours_joins_windows_and_knows_its_peak() -> None:
    run, windows = started(), 30_000
    for n in range(1, windows + 1):
        run.add_event(Progress(0.2 * n, 0.2, n, 9.0 if n == 7 else float(n % 2)))
    assert len(run.windows) < 5000
    times = [seconds for seconds, _ in run.series(RATE)]
    apart = [after - before for before, after in itertools.pairwise(times)]
    assert max(apart) <= times[-1] / 1000
    assert times[-1] == pytest.approx(0.2 * windows)
    assert max(rate for _, rate in run.series(RATE)[4000:]) < 0.75, "means of neighbours"
    assert run.rate_peak == 9.0
    assert 128 < len(json.loads(run.kept_curves())["windows"]) <= 256


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


WINDOWS = [Progress(0.2 * n, 0.2, 10 * n, 100.0 + n % 7, 101.0) for n in range(1, 401)]


def keeps_all(kept: list[Progress], made: list[Progress]) -> None:
    """Joined windows have the time, the work and the end of those that were made."""
    assert kept[-1].elapsed_seconds == made[-1].elapsed_seconds
    assert kept[-1].iterations == made[-1].iterations
    assert sum(w.window_seconds for w in kept) == pytest.approx(0.2 * len(made))
    work = sum(w.tflops * w.window_seconds for w in made)
    assert sum(w.tflops * w.window_seconds for w in kept) == pytest.approx(work)
    assert [w.elapsed_seconds for w in kept] == sorted(w.elapsed_seconds for w in kept)


@pytest.mark.parametrize(("count", "most"), [(1, 2), (9, 8), (400, 8), (400, 50)])
def test_thinned_windows_keep_the_work_and_the_end(count: int, most: int) -> None:
    kept = thinned(WINDOWS[:count], most, merge_windows)
    assert len(kept) <= most
    keeps_all(kept, WINDOWS[:count])


def test_joined_windows_keep_the_work_and_the_end() -> None:
    kept: list[Progress] = []
    for window in WINDOWS:
        append_joined(kept, window, 30 * window.elapsed_seconds, merge_windows)
    assert len(kept) < len(WINDOWS)
    keeps_all(kept, WINDOWS)


def test_readings_are_curves_of_what_is_known() -> None:
    run = started()
    for moment in (
        Moment(0.0, 0.5, None, 1500.0, reasons=("idle",)),
        Moment(0.5, 1.5, 600.0, 1480.0),
        Moment(1.5, 2.5, 0.0),
    ):
        run.readings.moments.append(moment)
    curves = {
        "power_watts": [(1.5, 600.0), (2.5, 0.0)],
        "sm_clock_mhz": [(0.5, 1500.0), (1.5, 1480.0)],
    }
    course = run.history()
    assert course == RunCurves((), curves, {"idle": [(0.0, 0.5)]})
    assert list(course.readings) == list(curves)


def test_neighbouring_moments_are_joined_as_means_with_every_reason() -> None:
    capped = Moment(0.0, 1.0, 600.0, 1500.0, 60.0, ("sw_power_cap",), {"sw_power_cap": 1.0})
    hot = Moment(1.0, 4.0, 200.0, None, 80.0, ("sw_thermal",), {"sw_thermal": 3.0})
    reported = {"sw_power_cap": 1.0, "sw_thermal": 3.0}
    reasons = ("sw_power_cap", "sw_thermal")
    assert merge_moments([capped, hot]) == Moment(0.0, 4.0, 300.0, 1500.0, 75.0, reasons, reported)
    assert merge_moments([Moment(0.0, 1.0), Moment(1.0, 2.0)]) == Moment(0.0, 2.0)


def test_a_run_is_the_same_after_it_was_kept_also_one_of_a_former_kind() -> None:
    before = gpu_run(60.0, 45.0, ended=True)
    assert before.result is not None
    after = DeviceRun.of_result(before.result, before.request.target, before.kept_curves())
    for reading in (RATE, *READINGS):
        assert after.series(reading) == before.series(reading)
    assert after.readings.intervals() == before.readings.intervals()
    assert after.result == before.result
    assert (after.state, after.elapsed_seconds) == ("done", 45.0)
    points = (Point("alone", 1, {"tflops": 700.0}), Point("together", 2, {"tflops": 630.0}))
    pairs = replace(before.result, kind="pairs", points=points)
    former = DeviceRun.of_result(pairs, before.request.target, before.kept_curves())
    assert former.series(RATE) == before.series(RATE)
    assert former.measured
    assert score(pairs) == before.result.tflops_mean


@pytest.mark.parametrize("broken", ["", "[1]", '{"windows": 3}', '{"moments": [{}]}', "nul"])
def test_broken_curves_are_a_value_error(broken: str) -> None:
    before = gpu_run(60.0, 45.0, ended=True)
    assert before.result is not None
    with pytest.raises(ValueError):  # noqa: PT011 - of several sorts
        DeviceRun.of_result(before.result, before.request.target, broken)
