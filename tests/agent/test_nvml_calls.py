"""How many calls of the driver there are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pynvml
import pytest

from gputop.agent.device import Absence
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.nvml.fields import number_of
from tests.agent.test_nvml import Clock
from tests.driver import FakeDevice, FakeDriver, FakeProcess

if TYPE_CHECKING:
    from gputop.agent.interface import DeviceReading

pytestmark = pytest.mark.driver


def ticks(reader: NvmlReader, clock: Clock, count: int) -> list[DeviceReading]:
    found = []
    for _ in range(count):
        clock.seconds += 1.0
        found.append(reader.read(gpm=False)[0])
    return found


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 64, 200])
def test_a_list_of_any_length(nvml: FakeDriver, count: int) -> None:
    nvml.write(FakeDevice(processes=tuple(FakeProcess(pid) for pid in range(1, count + 1))))
    start()
    processes = NvmlReader(0).read(gpm=False)[0].processes
    assert [process.pid for process in processes] == [*range(1, count + 1)]


def test_every_type_of_a_number_is_known() -> None:
    """As the library writes it: nothing of what was in the place before counts."""
    numbers = {"DOUBLE": -1.5, "UNSIGNED_INT": 0xFFFF_FFFE, "SIGNED_INT": -7}
    numbers |= {"UNSIGNED_LONG": 1 << 40, "UNSIGNED_LONG_LONG": (1 << 64) - 2}
    numbers |= {"SIGNED_LONG_LONG": -5, "UNSIGNED_SHORT": 65_000}
    members = {"DOUBLE": "dVal", "UNSIGNED_INT": "uiVal", "SIGNED_INT": "siVal"}
    members |= {"UNSIGNED_LONG": "ulVal", "UNSIGNED_LONG_LONG": "ullVal"}
    members |= {"SIGNED_LONG_LONG": "sllVal", "UNSIGNED_SHORT": "usVal"}
    prefix = "NVML_VALUE_TYPE_"
    names = [name for name in dir(pynvml) if name.startswith(prefix) and "COUNT" not in name]
    assert {name.removeprefix(prefix) for name in names} == {*numbers}
    for name in names:
        word = name.removeprefix(prefix)
        value = pynvml.c_nvmlValue_t()
        value.ullVal = 0xAAAA_AAAA_AAAA_AAAA
        setattr(value, members[word], numbers[word])
        assert number_of(value, getattr(pynvml, name)) == numbers[word]
    assert number_of(value, 99) is None


def lacking(device: FakeDevice) -> FakeDevice:
    """The device without the temperature of its memory."""
    values = {key: value for key, value in device.values.items() if key != "field.82"}
    return dataclasses.replace(device, values=values)


def test_a_field_that_was_not_supported_for_a_moment_is_back_at_once(nvml: FakeDriver) -> None:
    device = FakeDevice()
    nvml.write(device)
    start()
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    assert ticks(reader, clock, 3)[-1].sample.memory_temperature_celsius == 58
    nvml.write(lacking(device))
    read = ticks(reader, clock, 2)[-1].sample
    assert read.absent["memory_temperature_celsius"] is Absence.NOT_SUPPORTED
    assert read.energy_joules is not None
    nvml.write(device)
    assert ticks(reader, clock, 1)[-1].sample.memory_temperature_celsius == 58
