"""The driver's own samples of utilization: each once, and none that is not one."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import SERIES_READINGS, Absence, DeviceSample
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.nvml.utilization import BusySamples
from tests.agent.test_nvml import Clock
from tests.driver import NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, FakeDevice, FakeDriver, FakeSample

pytestmark = pytest.mark.driver

STEP = 200_000
CALL = "nvmlDeviceGetSamples"
NO_DATA_YET = Absence.NO_DATA_YET


def rows(numbers: Iterable[int], percent: float | None = None) -> tuple[FakeSample, ...]:
    """One each step, whose value is its number unless it is given."""
    return tuple(FakeSample(n * STEP, n if percent is None else percent) for n in numbers)


class Machine:
    """A device that is read once a second, and what its driver has in its ring."""

    def __init__(self, nvml: FakeDriver, **device: object) -> None:
        self.nvml = nvml
        self.clock = Clock()
        nvml.write(FakeDevice(**{"samples": rows(range(1, 11))} | device))  # type: ignore[arg-type]
        start()
        self.reader = NvmlReader(0, clock=self.clock)
        self.first = self.sample()

    def sample(self, seconds: float = 1.0) -> DeviceSample:
        self.clock.seconds += seconds
        sample = self.reader.read(gpm=False)[0].sample
        for name in SERIES_READINGS:
            assert (getattr(sample, name) is None) == (name in sample.absent)
        return sample

    def read(
        self, samples: tuple[FakeSample, ...], seconds: float = 1.0, **changes: object
    ) -> tuple[int, ...] | Absence:
        self.nvml.change(0, samples=samples, **changes)
        sample = self.sample(seconds)
        found = sample.gpu_utilization_samples_percent
        return sample.absent["gpu_utilization_samples_percent"] if found is None else found


def test_each_comes_once_and_the_first_reading_only_begins(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    assert machine.first.absent["gpu_utilization_samples_percent"] is NO_DATA_YET
    assert machine.read(rows(range(1, 11))) == ()
    assert machine.read(rows(range(4, 17))) == (11, 12, 13, 14, 15, 16)
    assert machine.sample().gpu_utilization_samples_seconds == 0.2
    assert machine.read(rows(range(9, 18))) == (17,)
    assert machine.read(rows(range(9, 18))) == ()


def test_none_for_a_while_is_no_error_and_no_gap_in_the_spacing(nvml: FakeDriver) -> None:
    """Some drivers take none while the device is idle."""
    machine = Machine(nvml)
    for _ in range(12):
        assert machine.read(rows(range(1, 11))) == ()
    assert machine.read(rows(range(70, 73))) == (70, 71, 72)
    assert machine.sample().gpu_utilization_samples_seconds == 0.2


def test_a_clock_that_is_set_back(nvml: FakeDriver) -> None:
    machine = Machine(nvml, samples=rows(range(1000, 1010), 50))
    said = [machine.read(rows(range(20, 25 + n))) for n in range(8)]
    assert said == [(), (), (), (), NO_DATA_YET, (29,), (30,), (31,)]


@pytest.mark.parametrize(
    ("kind", "new", "said"),
    [
        (None, (FakeSample(11 * STEP, 60), FakeSample(12 * STEP, 101)), (60,)),
        (None, (FakeSample(11 * STEP, -1), FakeSample(12 * STEP, 0)), (0,)),
        (None, (FakeSample(11 * STEP, 4e9), FakeSample(12 * STEP, 1e18)), Absence.ERROR),
        (0, (FakeSample(11 * STEP, 60.4), FakeSample(12 * STEP, 99.5)), (60, 100)),
        (0, (FakeSample(11 * STEP, float("nan")), FakeSample(12 * STEP, 7.0)), (7,)),
        (0, (FakeSample(11 * STEP, float("inf")), FakeSample(12 * STEP, 7.0)), (7,)),
        (0, (FakeSample(11 * STEP, float("nan")), FakeSample(12 * STEP, -0.5)), Absence.ERROR),
        (3, (FakeSample(11 * STEP, 60), FakeSample(12 * STEP, 61)), (60, 61)),
        (4, (FakeSample(11 * STEP, -60), FakeSample(12 * STEP, 61)), (61,)),
        (5, (FakeSample(11 * STEP, -60), FakeSample(12 * STEP, 61)), (61,)),
        (6, (FakeSample(11 * STEP, 60), FakeSample(12 * STEP, 61)), (60, 61)),
        (99, (FakeSample(11 * STEP, 60), FakeSample(12 * STEP, 61)), (60, 61)),
    ],
)
def test_values_of_any_type_and_impossible_ones(
    nvml: FakeDriver, kind: int | None, new: tuple[FakeSample, ...], said: tuple[int, ...] | Absence
) -> None:
    machine = Machine(nvml, samples_type=kind)
    assert machine.read((*rows(range(1, 11)), *new)) == said


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (NOT_SUPPORTED, Absence.NOT_SUPPORTED),
        (NO_PERMISSION, Absence.NO_PERMISSION),
        (UNKNOWN, Absence.ERROR),
    ],
)
def test_why_there_are_none(nvml: FakeDriver, code: int, reason: Absence) -> None:
    machine = Machine(nvml)
    assert machine.read(rows(range(1, 12)), fail={CALL: code}) is reason
    assert machine.read(rows(range(1, 13)), seconds=60.0, fail={}) == (11, 12)


def test_a_wave_by_the_clock_is_sampled_evenly(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(samples=(), samples_wave="20 80 95 5"))
    start()
    reader, deadline = NvmlReader(0), time.monotonic() + 20
    found: list[int] = []
    reader.read(gpm=False)
    while len(found) < 24 and time.monotonic() < deadline:
        sample = reader.read(gpm=False)[0].sample
        found += sample.gpu_utilization_samples_percent or ()
    assert sample.gpu_utilization_samples_seconds == pytest.approx(0.02, abs=1e-3)
    assert len(found) >= 24
    assert found[:20] == found[4:24]
    assert {*found[:4]} == {95, 5}


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 40) | st.integers(0, (1 << 64) - 1), st.none() | st.integers(0, 100)
            ),
            max_size=8,
        ),
        max_size=8,
    ),
    st.floats(0.0, 4.0),
)
def test_whatever_rows_come_each_time_is_told_once(
    pieces: list[list[tuple[int, int | None]]], seconds: float
) -> None:
    clock = Clock()
    source, newest = BusySamples(clock), -1
    for piece in pieces:
        clock.seconds += seconds
        samples, step = source.select_new(sorted(piece, key=lambda row: row[0]), clock.seconds)
        assert isinstance(step, Absence) or step > 0
        if samples is NO_DATA_YET:  # it begins, anew where the clock was set back
            newest = max((when for when, _ in piece), default=-1)
            continue
        later = {when for when, _ in piece if when > newest}
        newest = max([newest, *later])
        assert isinstance(samples, Absence) or len(samples) <= len(later)
