from collections.abc import Iterable
from typing import Any

import pytest

from gputop.agent.device import GPM_READINGS, SERIES_READINGS, Absence, DeviceSample
from gputop.agent.nvml.utilization import _median
from tests.agent.reader import OneDevice
from tests.driver import (
    GPM,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    FakeDevice,
    FakeDriver,
    FakeSample,
)

pytestmark = pytest.mark.driver

STEP = 200_000
NO_DATA_YET = Absence.NO_DATA_YET


def rows(numbers: Iterable[int], percent: float | None = None) -> tuple[FakeSample, ...]:
    return tuple(FakeSample(n * STEP, n if percent is None else percent) for n in numbers)


class Machine(OneDevice):
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
    assert [_median(steps) for steps in ((9, 1), (1, 9, 2), (4, 1, 9, 2))] == [5, 2, 3]
    assert machine.ring(rows(range(9, 18))) == (17,)
    assert machine.ring(rows(range(9, 18))) == ()


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


SAMPLING = ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc")
CODES = {
    NOT_SUPPORTED: Absence.NOT_SUPPORTED,
    NO_PERMISSION: Absence.NO_PERMISSION,
    RESET_REQUIRED: Absence.LOST,
    UNKNOWN: Absence.ERROR,
}


class Gpm(OneDevice):
    def __init__(self, nvml: FakeDriver, **device: Any) -> None:
        super().__init__(nvml, FakeDevice(**device))

    def values(self, seconds: float = 1.0, *, gpm: bool = True) -> set[Any]:
        sample = self.read(seconds, gpm=gpm)
        return {sample.absent.get(name, getattr(sample, name)) for name in GPM_READINGS}

    def calls(self, function: str) -> int:
        return self.nvml.calls()[function]


def test_two_readings_make_a_window(nvml: FakeDriver) -> None:
    gpm = Gpm(nvml)
    assert gpm.values() == {Absence.NO_DATA_YET}
    assert gpm.values() == {*GPM.values()}
    assert gpm.values(gpm=False) == {Absence.DISABLED}


def test_a_device_without_it_is_asked_once_a_minute(nvml: FakeDriver) -> None:
    gpm = Gpm(nvml, gpm_supported=0)
    for _ in range(3):
        assert gpm.values(20.0) == {Absence.NOT_SUPPORTED}
    assert gpm.calls("nvmlGpmQueryDeviceSupport") == 1
    assert gpm.calls("nvmlGpmSampleGet") == 0
    nvml.change(0, code=GPU_IS_LOST)
    assert gpm.values() == {Absence.LOST}
    nvml.change(0, code=0, gpm_supported=1)  # another one may have come to its place
    gpm.values()
    assert gpm.values() == {*GPM.values()}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", *SAMPLING])
def test_one_that_never_worked_is_left_alone_for_a_minute(
    nvml: FakeDriver, function: str, code: int
) -> None:
    gpm = Gpm(nvml)
    nvml.change_machine(fail={function: code})
    for _ in range(4):
        found = gpm.values(0.5)
    assert found == {CODES[code]}
    nvml.change_machine(fail={})
    assert gpm.values(50.0) == {CODES[code]}
    assert gpm.calls(function) == 1
    allocated = gpm.calls("nvmlGpmSampleAlloc") - (function == "nvmlGpmSampleAlloc")
    assert gpm.calls("nvmlGpmSampleFree") == allocated
    gpm.values(10.0)
    assert gpm.values() == {*GPM.values()}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (0.0, 0.0),
        (100.0, 100.0),
        (100.75, 100.0),
        (101.5, Absence.ERROR),
        (-0.5, Absence.ERROR),
        (1e300, Absence.ERROR),
        (float("nan"), Absence.ERROR),
        (float("inf"), Absence.ERROR),
    ],
)
def test_a_percentage_or_an_error(nvml: FakeDriver, said: float, expected: float | Absence) -> None:
    gpm = Gpm(nvml, gpm=dict.fromkeys(GPM, said))
    gpm.values()
    assert gpm.values() == {expected}
