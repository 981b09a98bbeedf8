"""GPM through the fake driver, whose metrics are the mean of what it did at both samples."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.agent.device import GPM_READINGS, Absence, DeviceSample, DeviceState
from tests.agent.reader import OneDevice
from tests.agent.test_nvml import check
from tests.driver import (
    GPM,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    FakeDevice,
    FakeDriver,
)

pytestmark = pytest.mark.driver

SAMPLING = ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc")
CODES = {
    NOT_SUPPORTED: Absence.NOT_SUPPORTED,
    NO_PERMISSION: Absence.NO_PERMISSION,
    RESET_REQUIRED: Absence.LOST,
    UNKNOWN: Absence.ERROR,
}


class Machine:
    """The only device of a driver, read at a time of the test's own."""

    def __init__(self, driver: FakeDriver, device: FakeDevice) -> None:
        self.driver = driver
        self.device = OneDevice(driver, device)

    def read(self, *, gpm: bool = True, after: float = 1.0) -> DeviceSample:
        reading = self.device.reading(after, gpm=gpm)
        check(reading)
        return reading.sample

    def calls(self) -> dict[str, int]:
        """How often GPM's functions were called."""
        return {name: n for name, n in self.driver.calls().items() if name.startswith("nvmlGpm")}


@pytest.fixture
def machine(nvml: FakeDriver) -> Machine:
    return Machine(nvml, FakeDevice())


def busy(percent: float) -> dict[int | str, float]:
    """All metrics at that value."""
    return dict.fromkeys(GPM, percent)


def values(sample: DeviceSample) -> set[Any]:
    """GPM's values, or the reasons why they are missing."""
    return {sample.absent.get(name, getattr(sample, name)) for name in GPM_READINGS}


def test_two_readings_make_a_window(machine: Machine) -> None:
    assert values(machine.read()) == {Absence.NO_DATA_YET}
    assert values(machine.read()) == {*GPM.values()}
    assert values(machine.read(gpm=False)) == {Absence.DISABLED}


def test_a_device_without_it_is_asked_once_a_minute(nvml: FakeDriver) -> None:
    machine = Machine(nvml, FakeDevice(gpm_supported=0))
    for _ in range(3):
        assert values(machine.read(after=20.0)) == {Absence.NOT_SUPPORTED}
    assert machine.calls() == {"nvmlGpmQueryDeviceSupport": 1}
    nvml.change(0, code=GPU_IS_LOST)
    machine.read()
    nvml.change(0, code=0, gpm_supported=1)  # another one may have come to its place
    machine.read()
    assert values(machine.read()) == set(GPM.values())


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", *SAMPLING])
def test_one_that_never_worked_is_left_alone_for_a_minute(
    nvml: FakeDriver, function: str, code: int
) -> None:
    machine = Machine(nvml, FakeDevice())
    nvml.change_machine(fail={function: code})
    for _ in range(4):
        sample = machine.read(after=0.5)
    assert values(sample) == {CODES[code]}
    nvml.change_machine(fail={})
    assert values(machine.read(after=50.0)) == {CODES[code]}
    assert machine.calls()[function] == 1
    allocated = machine.calls().get("nvmlGpmSampleAlloc", 0) - (function == "nvmlGpmSampleAlloc")
    assert machine.calls().get("nvmlGpmSampleFree", 0) == allocated
    machine.read(after=10.0)
    assert values(machine.read()) == set(GPM.values())


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
def test_a_percentage_or_an_error(machine: Machine, said: float, expected: float | Absence) -> None:
    machine.driver.change(0, gpm=busy(said))
    machine.read()
    assert values(machine.read()) == {expected}


@pytest.mark.parametrize("cause", [*SAMPLING[:2], "nvmlGpmQueryDeviceSupport", "gpm.13"])
def test_a_loss_is_known_from_any_call(nvml: FakeDriver, cause: str) -> None:
    machine = Machine(nvml, FakeDevice(fail={cause: GPU_IS_LOST}))
    machine.read()
    sample = machine.read()
    assert sample.state is DeviceState.LOST
    assert values(sample) == {Absence.LOST}
    nvml.change(0, fail={})
    nvml.forget_calls()
    assert values(machine.read()) == {Absence.NO_DATA_YET}
    assert values(machine.read()) == set(GPM.values())
    assert machine.calls()["nvmlGpmQueryDeviceSupport"] == 1
