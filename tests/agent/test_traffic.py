from collections.abc import Mapping

import pytest

from gputop.agent.device import Absence, DeviceSample
from gputop.agent.nvml.fields import Asked
from gputop.agent.nvml.traffic import RateCounter
from tests.agent.reader import OneDevice
from tests.driver import ALL_LINKS, FakeDevice, FakeDriver

pytestmark = pytest.mark.driver

FASTEST = 100e9
NO_DATA_YET, NO_RATE = Absence.NO_DATA_YET, Absence.NOT_SUPPORTED
FULL = 1 << 64
WIDE = 1 << 32
"""A counter that has come this far has more than 32 bits."""


def at(now: float) -> Asked:
    return Asked(now, now)


@pytest.mark.parametrize(
    ("scale", "numbers", "rates"),
    [
        (1, (WIDE, WIDE, WIDE + 10), (NO_DATA_YET, 0, 10)),
        (1, (WIDE - 1, WIDE + 9), (NO_DATA_YET, 10)),
        (1024, (5, 7), (NO_DATA_YET, 2048)),
        # Set back by a reset, or past its last bit: both look the same.
        (1, (10**12, 100, WIDE, WIDE + 1), (NO_DATA_YET, NO_DATA_YET, WIDE - 100, 1)),
        (1, (FULL - 10, 10, 30), (NO_DATA_YET, NO_DATA_YET, 20)),
        # A wrap at 32 bits would be 1.22 TB/s here, which all links together may carry.
        (1024, (3_100_000_000, 0, 2), (NO_DATA_YET, NO_DATA_YET, 2048)),
        (1024, (WIDE - 1, 1, 2), (NO_DATA_YET, NO_DATA_YET, 1024)),
        # 32 bits of KiB are enough for a second, 32 bits of bytes are not.
        (1024, (5, 6), (NO_DATA_YET, 1024)),
        (1, (5, 15), (NO_DATA_YET, NO_DATA_YET)),
    ],
)
def test_a_counter(scale: int, numbers: tuple[int, ...], rates: tuple[int | Absence, ...]) -> None:
    counter = RateCounter(scale, FASTEST if scale == 1 else 2e12)
    found = [counter.rate(number, at(1.0 + n)) for n, number in enumerate(numbers)]
    assert found == [*rates]


def test_a_rate_is_over_the_time_between() -> None:
    counter = RateCounter(1, FASTEST)
    assert counter.rate(WIDE, at(1.0)) is NO_DATA_YET
    assert counter.rate(WIDE + 1000, at(1.25)) == 4000
    assert counter.rate(Absence.TIMED_OUT, at(2.25)) is Absence.TIMED_OUT
    assert counter.rate(WIDE + 3000, at(5.25)) == 500  # over all four seconds
    assert counter.rate(WIDE + 4000, at(5.25)) is NO_DATA_YET  # no time has passed
    # A call that hung read the counter at an unknown moment.
    assert counter.rate(WIDE + 9000, Asked(6.25, 31.0)) is NO_DATA_YET
    assert counter.rate(WIDE + 9999, at(31.1)) is NO_DATA_YET
    assert counter.rate(WIDE + 10_999, at(32.1)) == 1000
    assert counter.rate(WIDE + 12_124, Asked(33.1, 33.35)) == 1000
    assert counter.rate(WIDE + 13_300, Asked(34.1, 34.65)) is NO_DATA_YET


def fields(**values: int) -> dict[str, int]:
    """The fields of `f197` and `f138_2`: link 2 of 138."""
    return {f"field.{name[1:].replace('_', '.')}": value for name, value in values.items()}


class Machine(OneDevice):
    def __init__(self, nvml: FakeDriver) -> None:
        super().__init__(nvml, FakeDevice(values={}))

    def says(self, values: Mapping[str, int], seconds: float = 1.0) -> DeviceSample:
        return self.read(seconds, values=values)


def pcie(sample: DeviceSample) -> tuple[int | Absence | None, ...]:
    names = ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second")
    return tuple(sample.absent.get(name, getattr(sample, name)) for name in names)


def nvlink(sample: DeviceSample) -> tuple[object, ...]:
    names = [f"nvlink_{which}_bytes_per_second" for which in ("rx", "tx", "link_rx", "link_tx")]
    return tuple(sample.absent.get(name, getattr(sample, name)) for name in names)


def test_pcie_counters_are_enough_once_they_are_proven(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    measured = {"pcie_throughput_kib.0": 3, "pcie_throughput_kib.1": 4}
    machine.says(measured | fields(f198=WIDE, f197=10))
    assert pcie(machine.says(measured | fields(f198=WIDE + 50, f197=20))) == (50, 3 * 1024)
    assert pcie(machine.says(measured | fields(f198=WIDE + 60, f197=WIDE))) == (10, WIDE - 20)
    machine.says(measured | fields(f198=WIDE + 60, f197=WIDE), 60.0)
    assert nvml.calls(0)["nvmlDeviceGetPcieThroughput"] == 1


def test_a_measurement_that_pcie_cannot_carry_is_an_error(nvml: FakeDriver) -> None:
    found = Machine(nvml).says({"pcie_throughput_kib.0": 3, "pcie_throughput_kib.1": 300_000_000})
    assert pcie(found) == (Absence.ERROR, 3 * 1024)


TWO_LINKS = fields(f91=2, f139_0=10, f139_1=20, f138_0=30, f138_1=40)
LATER = fields(f91=2, f139_0=11, f139_1=22, f138_0=33, f138_1=44)
ALL = {f"field.139.{ALL_LINKS}": 30, f"field.138.{ALL_LINKS}": 70}
ALL_LATER = {f"field.139.{ALL_LINKS}": 33, f"field.138.{ALL_LINKS}": 77}
RATES = (3 * 1024, 7 * 1024, (1024, 2048), (3072, 4096))
NVLINK_5 = fields(f91=2, f204_0=WIDE + 1, f204_1=WIDE + 1, f202_0=WIDE + 3, f202_1=WIDE + 4)
NVLINK_5_LATER = fields(f91=2, f204_0=WIDE + 2, f204_1=WIDE + 3, f202_0=WIDE + 6, f202_1=WIDE + 8)


def without_link_0(values: dict[str, int]) -> dict[str, int]:
    return {key: n for key, n in values.items() if not key.endswith(".0")}


@pytest.mark.parametrize(
    ("before", "after", "rates"),
    [
        # Summed, and by the driver.
        (TWO_LINKS, LATER, RATES),
        (TWO_LINKS | ALL, LATER | ALL_LATER, RATES),
        # A link that is down has a place of its own.
        (
            without_link_0(TWO_LINKS),
            without_link_0(LATER),
            (2048, 4096, (None, 2048), (None, 4096)),
        ),
        # NVLink 5 counts bytes.
        (NVLINK_5, NVLINK_5_LATER, (3, 7, (1, 2), (3, 4))),
    ],
)
def test_links_are_counted_once(
    nvml: FakeDriver, before: dict[str, int], after: dict[str, int], rates: tuple[object, ...]
) -> None:
    machine = Machine(nvml)
    assert nvlink(machine.says(before)) == (NO_DATA_YET,) * 4
    assert nvlink(machine.says(after)) == rates


def test_each_link_is_asked_every_10_s_once_it_has_a_rate(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.says(TWO_LINKS | ALL)
    machine.says(LATER | ALL_LATER)
    silent = (0, 0, *RATES[2:])
    assert {nvlink(machine.says(LATER | ALL_LATER)) for _ in range(9)} == {silent}
    assert nvlink(machine.says(LATER | ALL_LATER)) == (0, 0, (0, 0), (0, 0))


@pytest.mark.parametrize("links", [0, 257])
def test_a_device_without_links(nvml: FakeDriver, links: int) -> None:
    assert nvlink(Machine(nvml).says(fields(f91=links))) == (NO_RATE,) * 4
