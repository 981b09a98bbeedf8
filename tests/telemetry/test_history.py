"""Ring buffers over a stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.telemetry.history import KEPT, History
from gputop.telemetry.snapshot import READINGS, DeviceSample, Host, Sample

NAME = "temperature_celsius"


def sample(**temperatures: int | None) -> Sample:
    devices = tuple(DeviceSample(uuid, temperature_celsius=t) for uuid, t in temperatures.items())
    return Sample(0.0, Host(), devices)


def test_what_is_kept_is_read() -> None:
    assert set(KEPT) <= set(READINGS)


def test_readings_oldest_first() -> None:
    history = History()
    for temperature in (30, 31, None, 33):
        history.add(sample(a=temperature))
    assert list(history.series("a", NAME)) == [30, 31, None, 33]
    assert history.count == 4


def test_every_kept_reading() -> None:
    history = History()
    values = {name: n for n, name in enumerate(KEPT)}
    history.add(Sample(0.0, Host(), (DeviceSample("a", **values),)))  # type: ignore[arg-type]
    assert {name: list(history.series("a", name)) for name in KEPT} == {
        name: [n] for name, n in values.items()
    }


@pytest.mark.parametrize(("uuid", "name"), [("b", NAME), ("a", "fan_percent"), ("", "")])
def test_what_there_is_nothing_of(uuid: str, name: str) -> None:
    history = History()
    history.add(sample(a=30))
    assert list(history.series(uuid, name)) == []


def test_a_device_that_is_away_leaves_a_gap() -> None:
    history = History()
    for each in (sample(a=1, b=1), sample(b=2), sample(), sample(a=4, b=4)):
        history.add(each)
    assert list(history.series("a", NAME)) == [1, None, None, 4]
    assert list(history.series("b", NAME)) == [1, 2, None, 4]


def test_a_device_that_comes_later_has_a_shorter_history() -> None:
    history = History()
    history.add(sample(a=1))
    history.add(sample(a=2, b=2))
    assert list(history.series("b", NAME)) == [2]


@given(st.lists(st.none() | st.integers(0, 120), max_size=40), st.integers(1, 12))
def test_the_last_ones_are_kept(temperatures: list[int | None], capacity: int) -> None:
    history = History(capacity)
    for temperature in temperatures:
        history.add(sample(a=temperature))
    assert list(history.series("a", NAME)) == temperatures[-capacity:]
    assert history.count == len(temperatures)
