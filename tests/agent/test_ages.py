"""Ages of readings: those that the driver is asked for seldom are older than the others."""

from __future__ import annotations

import math

import pynvml
import pytest

from gputop.agent.device import DeviceSample
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.nvml.query import EVERY_10_SECONDS, ONCE, Answers, Question
from tests.agent.test_nvml import Clock
from tests.driver import NOT_SUPPORTED, FakeDevice, FakeDriver

pytestmark = pytest.mark.driver


WITHOUT_LINKS = FakeDevice(values={"field.197": 1 << 40, "field.198": 1 << 41})


def started(nvml: FakeDriver, *devices: FakeDevice) -> tuple[NvmlReader, Clock]:
    nvml.write(*devices)
    start()
    clock = Clock()
    return NvmlReader(0, clock=clock), clock


def read(reader: NvmlReader) -> DeviceSample:
    return reader.read(gpm=False)[0].sample


def ages(reader: NvmlReader, clock: Clock, *steps: float) -> list[float | None]:
    found = []
    for step in steps:
        clock.seconds += step
        found.append(read(reader).slow_age_seconds)
    return found


def test_what_is_asked_every_10_s_has_an_age_of_its_own(nvml: FakeDriver) -> None:
    reader, clock = started(nvml, FakeDevice())
    assert ages(reader, clock, 0.0, *[1.0] * 11) == [
        None,
        *(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0),
        None,
        1.0,
    ]


@pytest.mark.parametrize(("counted", "age"), [(True, None), (False, 3.0)])
def test_a_measured_rate_is_as_old_as_its_measurement(
    counted: bool, age: float | None, nvml: FakeDriver
) -> None:
    """PCIe is measured for the first time 7 s after all else was asked."""
    measured = {"pcie_throughput_kib.0": 3, "pcie_throughput_kib.1": 4}
    values = WITHOUT_LINKS.values
    reader, clock = started(nvml, WITHOUT_LINKS)
    ages(reader, clock, 0.0)
    clock.seconds += 7.0
    if not counted:
        nvml.change(0, values=measured)
    read(reader)
    nvml.change(0, values={**values, **measured} if counted else measured)
    assert ages(reader, clock, 3.0) == [age]


def test_what_a_device_does_not_have_has_no_age() -> None:
    def lacks(_: object) -> tuple[int]:
        raise pynvml.NVMLError(NOT_SUPPORTED)

    clock = Clock()
    answers = Answers(clock)
    answers.ask_due(None, [Question("fan_percent", lacks, interval=EVERY_10_SECONDS)])
    answers.ask_due(None, [Question("name", lambda _: ("A GPU",), interval=ONCE)])
    assert answers.oldest == math.inf
    answers.ask_due(None, [Question("pcie_width", lambda _: (16,), interval=EVERY_10_SECONDS)])
    assert answers.oldest == clock.seconds
