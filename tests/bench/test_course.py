"""A run over time stays small, whatever its length."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.course import Course, Recorder, merged, readings
from gputop.bench.events import Planned, Progress, Verified
from tests.sessions import PLANNED


def windows(count: int) -> list[Progress]:
    return [Progress(0.2 * n, 0.2, 10 * n, 100.0 + n % 7, 101.0) for n in range(1, count + 1)]


def test_windows_are_kept_as_they_come() -> None:
    recorder = Recorder()
    events: list[Planned | Progress | Verified] = [PLANNED, *windows(5), Verified(1, 0)]
    for event in events:
        recorder.take(event)
    assert recorder.course() == Course(tuple(windows(5)))


@given(st.integers(1, 400), st.sampled_from([2, 8, 50]))
def test_a_long_run_keeps_its_work_and_its_end(count: int, most: int) -> None:
    recorder = Recorder(most)
    for window in windows(count):
        recorder.take(window)
    kept = recorder.course().progress
    assert len(kept) <= most
    assert kept[-1].elapsed_seconds == pytest.approx(0.2 * count)
    assert kept[-1].iterations == 10 * count
    assert sum(w.window_seconds for w in kept) == pytest.approx(0.2 * count)
    work = sum(w.tflops * w.window_seconds for w in windows(count))
    assert sum(w.tflops * w.window_seconds for w in kept) == pytest.approx(work)
    assert [w.elapsed_seconds for w in kept] == sorted(w.elapsed_seconds for w in kept)


def test_a_slow_window_weighs_as_long_as_it_took() -> None:
    both = merged([Progress(1.0, 1.0, 1, 10.0), Progress(4.0, 3.0, 2, 2.0)])
    assert both == Progress(4.0, 4.0, 2, 4.0, None)


class Moment(NamedTuple):
    """As the device's samples during a run are kept."""

    seconds: float
    power_watts: float | None = None
    sm_clock_mhz: float | None = None
    temperature_celsius: float | None = None


def test_readings_are_lines_of_what_is_known() -> None:
    moments = [Moment(0.5, None, 1500.0), Moment(1.5, 600.0, 1480.0), Moment(2.5, 0.0)]
    lines = {
        "power_watts": [(1.5, 600.0), (2.5, 0.0)],
        "sm_clock_mhz": [(0.5, 1500.0), (1.5, 1480.0)],
    }
    assert readings(moments) == lines
    assert list(readings(moments)) == list(lines)
    assert Recorder().course(lines, {"idle": [(0.0, 1.0)]}) == Course(
        (), lines, {"idle": [(0.0, 1.0)]}
    )
