"""The driver's own samples of utilization: each once, and none that is not one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gputop.agent.device import SERIES_READINGS, Absence, DeviceSample
from tests.agent.reader import OneDevice
from tests.driver import FakeDevice, FakeDriver, FakeSample

pytestmark = pytest.mark.driver

STEP = 200_000
NO_DATA_YET = Absence.NO_DATA_YET


def rows(numbers: Iterable[int], percent: float | None = None) -> tuple[FakeSample, ...]:
    """One each step, whose value is its number unless it is given."""
    return tuple(FakeSample(n * STEP, n if percent is None else percent) for n in numbers)


class Machine(OneDevice):
    """A device that is read once a second, and what its driver has in its ring."""

    def __init__(self, nvml: FakeDriver, **device: object) -> None:
        super().__init__(nvml, FakeDevice(**{"samples": rows(range(1, 11))} | device))  # type: ignore[arg-type]
        self.first = self.sample()

    def sample(self) -> DeviceSample:
        sample = self.read(1.0)
        for name in SERIES_READINGS:
            assert (getattr(sample, name) is None) == (name in sample.absent)
        return sample

    def ring(self, samples: tuple[FakeSample, ...]) -> tuple[int, ...] | Absence:
        self.nvml.change(0, samples=samples)
        sample = self.sample()
        found = sample.gpu_utilization_samples_percent
        return sample.absent["gpu_utilization_samples_percent"] if found is None else found


def test_each_comes_once_and_the_first_reading_only_begins(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    assert machine.first.absent["gpu_utilization_samples_percent"] is NO_DATA_YET
    assert machine.ring(rows(range(1, 11))) == ()
    assert machine.ring(rows(range(4, 17))) == (11, 12, 13, 14, 15, 16)
    assert machine.sample().gpu_utilization_samples_seconds == 0.2
    assert machine.ring(rows(range(9, 18))) == (17,)
    assert machine.ring(rows(range(9, 18))) == ()


def test_none_for_a_while_is_no_error_and_no_gap_in_the_spacing(nvml: FakeDriver) -> None:
    """Some drivers take none while the device is idle."""
    machine = Machine(nvml)
    for _ in range(12):
        assert machine.ring(rows(range(1, 11))) == ()
    assert machine.ring(rows(range(70, 73))) == (70, 71, 72)
    assert machine.sample().gpu_utilization_samples_seconds == 0.2


def test_a_clock_that_is_set_back(nvml: FakeDriver) -> None:
    machine = Machine(nvml, samples=rows(range(1000, 1010), 50))
    said = [machine.ring(rows(range(20, 25 + n))) for n in range(8)]
    assert said == [(), (), (), (), NO_DATA_YET, (29,), (30,), (31,)]


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (None, (60, 101), (60,)),
        (None, (-1, 0), (0,)),
        (None, (4e9, 1e18), Absence.ERROR),
        (0, (60.4, 99.5), (60, 100)),
        (0, (float("nan"), 7.0), (7,)),
        (0, (float("nan"), -0.5), Absence.ERROR),
        (3, (60, 61), (60, 61)),
        (4, (-60, 61), (61,)),
        (99, (60, 61), (60, 61)),
    ],
)
def test_values_of_any_type_and_impossible_ones(
    nvml: FakeDriver, kind: int | None, values: tuple[float, float], said: tuple[int, ...] | Absence
) -> None:
    machine = Machine(nvml, samples_type=kind)
    new = [FakeSample(n * STEP, value) for n, value in enumerate(values, 11)]
    assert machine.ring((*rows(range(1, 11)), *new)) == said
