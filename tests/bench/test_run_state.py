"""What a stress test's events make of a run."""

from __future__ import annotations

import itertools

from gputop.bench.events import Failed, Progress, Verified
from gputop.bench.plan import Request, cpu_target
from gputop.bench.run_state import MOST_POINTS, RunState
from gputop.telemetry.snapshot import Problem


def started() -> RunState:
    return RunState(Request(cpu_target(), "float32", 128, 1e6))


def test_a_run_of_days_keeps_no_more_points_than_can_be_drawn() -> None:
    run, windows = started(), 3 * MOST_POINTS
    for n in range(1, windows + 1):
        run.take(Progress(0.2 * n, 0.2, n, 9.0 if n == 7 else float(n % 2)))
    assert MOST_POINTS / 2 <= len(run.points) <= MOST_POINTS
    times = [seconds for seconds, _ in run.points]
    apart = [after - before for before, after in itertools.pairwise(times)]
    assert max(apart) < 1.01 * min(apart), "old ones are as dense as new ones"
    assert times[-1] >= 0.2 * windows - max(apart)
    assert all(0.0 <= tflops <= 5.0 for _, tflops in run.points)
    assert run.tflops_peak == 9.0, "which no merged point is"


def test_the_first_wrong_element_says_when_and_the_last_check_how_many() -> None:
    run = started()
    run.take(Progress(4.0, 0.2, 20, 1.0))
    run.take(Verified(1, 0))
    assert (run.wrong_at, run.wrong_elements) == (None, 0)
    run.take(Progress(5.0, 0.2, 25, 1.0))
    run.take(Verified(2, 3))
    run.take(Progress(6.0, 0.2, 30, 1.0))
    run.take(Verified(3, 4))
    assert run.faulty
    assert (run.wrong_at, run.wrong_elements) == (5.0, 4)


def test_a_failure_has_the_status_that_it_deserves() -> None:
    run = started()
    run.take(Failed(Problem("The device hangs", "it does", "Look"), 1))
    assert run.ended
    assert run.status == 1
    assert run.faulty
    refused = started()
    refused.take(Failed(Problem("It is not run", "there is no torch", "Install it"), 3))
    assert refused.ended
    assert not refused.faulty
