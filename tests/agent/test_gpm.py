"""GPM through the fake driver, whose metrics are the mean of what it did at both samples."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.agent.device import GPM_READINGS, Absence
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
)

pytestmark = pytest.mark.driver

SAMPLING = ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc")
CODES = {
    NOT_SUPPORTED: Absence.NOT_SUPPORTED,
    NO_PERMISSION: Absence.NO_PERMISSION,
    RESET_REQUIRED: Absence.LOST,
    UNKNOWN: Absence.ERROR,
}


class Machine(OneDevice):
    def __init__(self, nvml: FakeDriver, **device: Any) -> None:
        super().__init__(nvml, FakeDevice(**device))

    def values(self, seconds: float = 1.0, *, gpm: bool = True) -> set[Any]:
        """GPM's values, or the reasons why they are missing, so much later."""
        sample = self.read(seconds, gpm=gpm)
        return {sample.absent.get(name, getattr(sample, name)) for name in GPM_READINGS}

    def calls(self, function: str) -> int:
        return self.nvml.calls()[function]


def test_two_readings_make_a_window(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    assert machine.values() == {Absence.NO_DATA_YET}
    assert machine.values() == {*GPM.values()}
    assert machine.values(gpm=False) == {Absence.DISABLED}


def test_a_device_without_it_is_asked_once_a_minute(nvml: FakeDriver) -> None:
    machine = Machine(nvml, gpm_supported=0)
    for _ in range(3):
        assert machine.values(20.0) == {Absence.NOT_SUPPORTED}
    assert machine.calls("nvmlGpmQueryDeviceSupport") == 1
    assert machine.calls("nvmlGpmSampleGet") == 0
    nvml.change(0, code=GPU_IS_LOST)
    assert machine.values() == {Absence.LOST}
    nvml.change(0, code=0, gpm_supported=1)  # another one may have come to its place
    machine.values()
    assert machine.values() == {*GPM.values()}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", *SAMPLING])
def test_one_that_never_worked_is_left_alone_for_a_minute(
    nvml: FakeDriver, function: str, code: int
) -> None:
    machine = Machine(nvml)
    nvml.change_machine(fail={function: code})
    for _ in range(4):
        found = machine.values(0.5)
    assert found == {CODES[code]}
    nvml.change_machine(fail={})
    assert machine.values(50.0) == {CODES[code]}
    assert machine.calls(function) == 1
    allocated = machine.calls("nvmlGpmSampleAlloc") - (function == "nvmlGpmSampleAlloc")
    assert machine.calls("nvmlGpmSampleFree") == allocated
    machine.values(10.0)
    assert machine.values() == {*GPM.values()}


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
    machine = Machine(nvml, gpm=dict.fromkeys(GPM, said))
    machine.values()
    assert machine.values() == {expected}
