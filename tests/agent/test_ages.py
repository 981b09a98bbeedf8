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


def test_what_a_device_does_not_have_has_no_age() -> None:
    def lacks(_: object) -> int:
        raise pynvml.NVMLError(NOT_SUPPORTED)

    clock = Clock()
    answers = Answers(clock)
    answers.ask(None, [Question("fan_percent", lacks, interval=EVERY_10_SECONDS)])
    answers.ask(None, [Question("name", lambda _: "A GPU", interval=ONCE)])
    assert answers.oldest == math.inf
    answers.ask(None, [Question("pcie_width", lambda _: 16, interval=EVERY_10_SECONDS)])
    assert answers.oldest == clock.seconds
