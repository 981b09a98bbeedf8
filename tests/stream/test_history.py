"""What a stream has said: series on one time axis, and statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import Absence, DeviceSample
from gputop.agent.snapshot import Host, Sample
from gputop.schema.derived import (
    DERIVED,
    HOST_CPU,
    HOST_MEMORY,
    OTHER_SLOWDOWN,
    PROCESS_COUNT,
    PROCESS_CPU,
    PROCESS_IO_WAIT,
    SLOWDOWN_BITS,
)
from gputop.schema.values import Statistics
from gputop.stream.history import LONGEST_WEIGHT_SECONDS, History
from tests import streams

NAME = "temperature_celsius"
SAMPLES = "gpu_utilization_samples_percent"


def sample(time: float = 0.0, **temperatures: int | None) -> Sample:
    devices = tuple(DeviceSample(uuid, temperature_celsius=t) for uuid, t in temperatures.items())
    return Sample(time, Host(), devices)


def told(*readings: tuple[float, dict[str, Any]]) -> History:
    """The history of one device `a` that said this at these times."""
    history = History()
    for time, values in readings:
        history.add(Sample(time, Host(), (DeviceSample("a", **values),)))
    return history


def test_the_drivers_own_samples_by_the_sample_that_brought_them() -> None:
    pieces = [(1, 2), (3, 4), None, (), (5,), (50, 101), (-1,), (6, 7)]
    history = told(*((float(n), {SAMPLES: piece}) for n, piece in enumerate(pieces)))
    assert [*history.busy_samples("a", 1)] == []
    assert [*history.busy_samples("a", 2)] == [6, 7]
    assert [*history.busy_samples("a", 4)] == [6, 7]  # what is impossible is a gap
    assert [*history.busy_samples("a", 5)] == [5, 6, 7]
    assert [*history.busy_samples("a", 8)] == [3, 4, 5, 6, 7]
    assert [*history.busy_samples("a", 99)] == [1, 2, 3, 4, 5, 6, 7]
    assert [*history.busy_samples("b", 99)] == []


def test_what_is_derived_is_a_series_too() -> None:
    made = streams.process(7, 0, device_uuid="a", cpu_percent=20.0, io_wait=False)
    workers = dataclasses.replace(made, pid=8, children_cpu_most_percent=97.5, io_wait=True)
    history = History()
    history.add(Sample(0.0, Host(), (DeviceSample("a", clock_event_reasons=()),)))
    reasons = ("sw_thermal", "never heard of", "sw_power_cap")
    device = DeviceSample("a", clock_event_reasons=reasons)
    history.add(Sample(1.0, Host(), (device,), (made, workers)))
    unlisted = DeviceSample("a", absent={"processes": Absence.NO_PERMISSION})
    history.add(Sample(2.0, Host(cpu_percent=12.5, memory_used_bytes=2048), (unlisted,)))
    bits = 0x20 + 0x4 + OTHER_SLOWDOWN
    assert {name: list(history.series("a", name)) for name in DERIVED} == {
        PROCESS_COUNT: [0, 2, None],
        PROCESS_CPU: [None, 97.5, None],
        PROCESS_IO_WAIT: [None, 1, None],
        HOST_CPU: [None, None, 12.5],
        HOST_MEMORY: [None, None, 2048],
        SLOWDOWN_BITS: [0, bits, None],
    }


def test_a_device_that_is_away_leaves_a_gap() -> None:
    history = History()
    for each in (sample(a=1, b=1), sample(b=2), sample(), sample(a=4, b=4)):
        history.add(each)
    assert list(history.series("a", NAME)) == [1, None, None, 4]
    assert list(history.series("b", NAME)) == [1, 2, None, 4]


def test_a_device_is_forgotten_when_nothing_of_it_is_left() -> None:
    history = History(3)
    history.add(sample(a=1, b=1))
    for _ in range(2):
        history.add(sample(b=1))
    assert list(history.series("a", NAME)) == [1, None, None]
    history.add(sample(b=1))
    assert list(history.series("a", NAME)) == []
    assert history.statistics("a", NAME) is None
    history.add(sample(a=5))
    assert list(history.series("a", NAME)) == [5]


@given(st.lists(st.none() | st.integers(0, 120), max_size=40), st.integers(1, 12))
def test_the_last_ones_are_kept(temperatures: list[int | None], capacity: int) -> None:
    history = History(capacity)
    for number, temperature in enumerate(temperatures):
        history.add(sample(float(number), a=temperature))
    assert list(history.series("a", NAME)) == temperatures[-capacity:]
    assert list(history.times) == [*map(float, range(len(temperatures)))][-capacity:]
    assert history.count == len(temperatures)


readings = st.lists(
    st.tuples(st.floats(0.0, 100.0), st.none() | st.integers(-(1 << 53), 1 << 53)),
    min_size=1,
    max_size=30,
)


@given(readings)
def test_statistics_are_those_of_the_readings(steps: list[tuple[float, int | None]]) -> None:
    """Each reading stands for the time since the sample before it, the first one for none."""
    history, now = History(), 0.0
    weighted: list[tuple[int, float]] = []
    for step, value in steps:
        before, now = now, now + step
        if value is not None:
            weight = min(now - before, LONGEST_WEIGHT_SECONDS)
            weighted.append((value, weight if weighted else 0.0))
        history.add(sample(now, a=value))
    found = history.statistics("a", NAME)
    if not weighted:
        assert found is None
        return
    assert found is not None
    values = [value for value, _ in weighted]
    total = sum(weight for _, weight in weighted)
    mean = sum(v * (w / total) for v, w in weighted) if total else values[0]
    scale = max(1.0, *map(abs, values))
    assert (found.minimum, found.maximum, found.count) == (min(values), max(values), len(values))
    assert found.mean == pytest.approx(mean, abs=1e-9 * scale)
    assert found.minimum <= found.mean <= found.maximum
    ups = [max(0, after - b) for b, after in pairwise(values)]
    assert found.increase == pytest.approx(sum(ups), abs=1e-9 * scale * len(values))


def test_the_mean_is_over_time_whatever_the_interval() -> None:
    """Ten seconds at 10 and ten at 90 are 50, though the latter were looked at five times."""
    often = [(10.0 + 2 * n, {NAME: 90}) for n in range(1, 6)]
    history = told((0.0, {NAME: 10}), (10.0, {NAME: 10}), *often)
    assert history.statistics("a", NAME) == Statistics(10, 50.0, 90, 7, 80)


def test_a_suspended_machine_or_a_clock_set_back_does_not_spoil_the_mean() -> None:
    day = 86_400.0
    history = told((0.0, {NAME: 10}), (60.0, {NAME: 10}), (day, {NAME: 90}), (5.0, {NAME: 70}))
    found = history.statistics("a", NAME)
    assert found is not None
    assert found.mean == 50.0


@pytest.mark.parametrize(
    ("name", "counts", "counted"),
    [
        ("pcie_replays", (7, 9, 1, 4), 2 + 3),
        ("pcie_replays", (9_000_007, 9_000_006, 9_000_008), 2),
        ("energy_joules", (5e6, 5.001e6, 9e12, 5.003e6, 5.004e6), 2_000.0),
    ],
)
def test_a_counter_goes_on_where_it_started_anew_or_leapt(
    name: str, counts: Sequence[float], counted: float
) -> None:
    """What it did not count is not guessed."""
    history = told(*((float(n), {name: value}) for n, value in enumerate(counts)))
    found = history.statistics("a", name)
    assert found is not None
    assert found.increase == counted


def test_newest_is_the_reading_of_the_newest_sample_alone() -> None:
    history = History()
    history.add(sample(1.0, a=20, b=30))
    history.add(sample(2.0, a=40))
    assert history.newest("a", NAME) == 40
    assert history.newest("b", NAME) is None
    assert history.newest("nobody", NAME) is None


def test_statistics_begin_anew_and_series_stay() -> None:
    history = History()
    for time, temperature in ((1.0, 20), (2.0, 80)):
        history.add(sample(time, a=temperature, b=temperature))
    assert (history.since("a"), history.since("c")) == (1.0, None)
    history.reset("a")
    history.reset("nobody")
    assert history.statistics("a", NAME) is None
    assert history.since("a") == 2.0
    history.add(sample(3.0, a=50, b=50))
    assert history.statistics("a", NAME) == Statistics(50, 50, 50, 1, 0)
    found = history.statistics("b", NAME)
    assert found is not None
    assert (found.minimum, found.maximum, found.count) == (20, 80, 3)
    assert list(history.series("a", NAME)) == [20, 80, 50]
