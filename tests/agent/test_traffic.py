"""Rates from counters that wrap, go backwards, stand still, or are not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import Absence, DeviceSample, DeviceState
from gputop.agent.nvml import fields as nvml_fields
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.nvml.fields import Asked, FieldKey
from gputop.agent.nvml.traffic import Pcie, RateCounter
from tests.agent.readings import RATES
from tests.agent.test_nvml import Clock
from tests.driver import (
    ALL_LINKS,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeDevice,
    FakeDriver,
)

pytestmark = pytest.mark.driver

FASTEST = 100e9
NO_DATA_YET, NO_RATE = Absence.NO_DATA_YET, Absence.NOT_SUPPORTED
FULL = 1 << 64
WIDE = 1 << 32
"""A counter that has come this far has more than 32 bits."""


def at(now: float) -> Asked:
    """A call that takes no time."""
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


def test_a_rate_over_a_moment_is_missing() -> None:
    counter = RateCounter(1, FASTEST)
    counter.rate(WIDE, at(1.0))
    assert counter.rate(WIDE + 1000, at(1.2)) is NO_DATA_YET
    assert counter.rate(WIDE + 2000, at(2.2)) == 1000


@pytest.mark.parametrize("read_at", [2.0, 31.0])
def test_a_call_that_hung_makes_no_rate_whenever_it_read_the_counter(read_at: float) -> None:
    """1,000 bytes a second; the second call takes from 2 to 31."""
    counter = RateCounter(1, FASTEST)

    def rate(read_at: float, asked: Asked) -> int | Absence:
        return counter.rate(WIDE + round(1000 * read_at), asked)

    rate(1.0, at(1.0))
    assert rate(read_at, Asked(2.0, 31.0)) is NO_DATA_YET
    assert rate(31.1, at(31.1)) is NO_DATA_YET
    assert rate(32.0, at(32.0)) == 1000


def test_calls_that_all_take_long_have_their_rate() -> None:
    counter = RateCounter(1, FASTEST)
    found = [counter.rate(WIDE + 1000 * n, Asked(n, n + 0.6)) for n in range(1, 5)]
    assert found == [NO_DATA_YET, 1000, 1000, 1000]


@dataclass(frozen=True)
class Step:
    """What happens between two readings of a counter."""

    seconds: float
    rate: float
    """Share of the fastest that the link carries."""
    reset: float | None
    """Where the counter is set back: to that share of what it said before."""


STEPS = st.lists(
    st.builds(
        Step,
        seconds=st.floats(0.001, 60.0),
        rate=st.one_of(st.just(0.0), st.floats(0.0, 1.0), st.floats(0.0, 1e-6)),
        reset=st.one_of(st.none(), st.none(), st.floats(0.0, 0.999)),
    ),
    min_size=1,
    max_size=30,
)


def simulated(
    start: int, scale: int, width: int, fastest: float, steps: list[Step]
) -> list[tuple[float, int, float | None]]:
    """When it is read, what the counter says, and the true rate since the reading before it.

    After a reset what the link carried is not known to anybody.
    """
    now, count, counter = 1.0, start, start % (1 << width)
    readings: list[tuple[float, int, float | None]] = [(now, counter, None)]
    for step in steps:
        now += step.seconds
        units = int(step.rate * fastest * step.seconds / scale)
        true: float | None = units * scale / step.seconds
        count += units
        if step.reset is not None and counter > 0:
            count, true = int(counter * step.reset), None
        counter = count % (1 << width)
        readings.append((now, counter, true))
    return readings


@given(
    start=st.one_of(st.integers(0, 1 << 34), st.integers(0, (1 << 64) - 1)),
    scale=st.sampled_from([1, 1024]),
    width=st.sampled_from([32, 64]),
    fastest=st.sampled_from([200e9, 256e9, 2e12]),
    steps=STEPS,
)
def test_a_rate_is_true_or_absent(
    start: int, scale: int, width: int, fastest: float, steps: list[Step]
) -> None:
    """However wide the counter is, whatever it counts, whenever it is read and set back."""
    counter = RateCounter(scale, fastest)
    for now, number, true in simulated(start, scale, width, fastest, steps):
        rate = counter.rate(number, at(now))
        if not isinstance(rate, Absence):
            assert true is not None
            assert rate == pytest.approx(true, rel=1e-6, abs=1.0)


@given(width=st.sampled_from([32, 64]), start=st.integers(0, 1 << 34), steps=STEPS)
def test_a_rate_of_pcie_is_true_or_what_the_driver_measured_or_absent(
    width: int, start: int, steps: list[Step]
) -> None:
    measured = 7 * 1024
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pynvml.nvmlDeviceGetPcieThroughput", lambda *_: 7)
        traffic = Pcie(clock)
        keys = [*traffic.keys({})]
        for now, number, true in simulated(start, 1, width, 256e9, steps):
            clock.seconds = now
            for rate in traffic.values(dict.fromkeys(keys, number), None, at(now)):
                if rate != measured and not isinstance(rate, Absence):
                    assert true is not None
                    assert rate == pytest.approx(true, rel=1e-6, abs=1.0)


def test_a_counter_of_pcie_that_wraps_within_64_bits(nvml: FakeDriver) -> None:
    """8.79 GB/s, two wraps a second: what is left of it looks like a rate of its own."""
    machine = Machine(nvml)
    measured = {"pcie_throughput_kib.0": 4, "pcie_throughput_kib.1": 8_583_984}
    for n in range(5):
        counted = 8_790_000_000 * n % WIDE
        sample = machine.read(measured | fields(f198=counted, f197=counted))
    assert pcie(sample) == (8_583_984 * 1024, 4 * 1024)
    assert nvml.calls(0)["nvmlDeviceGetPcieThroughput"] == 2  # one a direction in five seconds


def test_each_direction_is_measured_until_its_own_counter_is_proven(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    measured = {"pcie_throughput_kib.0": 3, "pcie_throughput_kib.1": 4}
    machine.read(measured | fields(f198=WIDE, f197=10))
    assert pcie(machine.read(measured | fields(f198=WIDE + 50, f197=20))) == (50, 3 * 1024)
    assert pcie(machine.read(measured | fields(f198=WIDE + 60, f197=WIDE))) == (10, WIDE - 20)
    assert nvml.calls(0)["nvmlDeviceGetPcieThroughput"] == 1


def test_a_counter_of_pcie_that_nothing_can_check_has_no_rate(nvml: FakeDriver) -> None:
    machine = Machine(nvml, {"nvmlDeviceGetPcieThroughput": NOT_SUPPORTED})
    machine.read(fields(f198=10, f197=10))
    assert pcie(machine.read(fields(f198=20, f197=20))) == (NO_DATA_YET, NO_DATA_YET)
    assert pcie(machine.read(fields(f198=WIDE, f197=20))) == (WIDE - 20, NO_DATA_YET)


def fields(**values: int) -> dict[str, int]:
    """The fields of `f197` and `f138_2`: link 2 of 138."""
    return {f"field.{name[1:].replace('_', '.')}": value for name, value in values.items()}


class Machine:
    """A device read once a second."""

    def __init__(self, nvml: FakeDriver, fail: Mapping[str, int] | None = None) -> None:
        self.nvml = nvml
        self.clock = Clock()
        nvml.write(FakeDevice(values={}, fail=fail or {}))
        start()
        self.reader = NvmlReader(0, clock=self.clock)

    def read(self, values: Mapping[str, int], seconds: float = 1.0) -> DeviceSample:
        self.nvml.change(0, values=values)
        self.clock.seconds += seconds
        return self.reader.read(gpm=False)[0].sample


def pcie(sample: DeviceSample) -> tuple[int | Absence | None, ...]:
    names = ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second")
    return tuple(sample.absent.get(name, getattr(sample, name)) for name in names)


def nvlink(sample: DeviceSample) -> tuple[object, ...]:
    names = [f"nvlink_{which}_bytes_per_second" for which in ("rx", "tx", "link_rx", "link_tx")]
    return tuple(sample.absent.get(name, getattr(sample, name)) for name in names)


def test_pcie_counters_are_enough(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    counts = fields(f198=WIDE + 10, f197=WIDE + 20)
    assert pcie(machine.read(counts)) == (NO_DATA_YET, NO_DATA_YET)
    counts = fields(f198=WIDE + 110, f197=WIDE + 22)
    assert pcie(machine.read(counts, 2.0)) == (50, 1)
    assert pcie(machine.read(counts)) == (0, 0)
    assert "nvmlDeviceGetPcieThroughput" not in nvml.calls(0)


def test_the_drivers_own_measurement_is_asked_for_seldom(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    measured = {"pcie_throughput_kib.0": 3, "pcie_throughput_kib.1": 4}
    assert pcie(machine.read(measured)) == (4 * 1024, 3 * 1024)
    measured["pcie_throughput_kib.1"] = 9
    assert {pcie(machine.read(measured)) for _ in range(9)} == {(4 * 1024, 3 * 1024)}
    assert nvml.calls(0)["nvmlDeviceGetPcieThroughput"] == 2
    assert pcie(machine.read(measured)) == (9 * 1024, 3 * 1024)


def test_pcie_counters_of_32_bits_wrap_too_fast(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    values = {"field_type.197": 1, "field_type.198": 1, "pcie_throughput_kib.0": 3}
    values |= {"pcie_throughput_kib.1": 4}
    assert pcie(machine.read(values | fields(f198=1, f197=1))) == (NO_DATA_YET, NO_DATA_YET)
    assert pcie(machine.read(values | fields(f198=5, f197=9))) == (4 * 1024, 3 * 1024)


@pytest.mark.parametrize(
    ("code", "reason"), [(NO_PERMISSION, Absence.NO_PERMISSION), (NOT_SUPPORTED, NO_RATE)]
)
def test_a_device_that_does_not_know_its_pcie_traffic(
    nvml: FakeDriver, code: int, reason: Absence
) -> None:
    machine = Machine(nvml, {"nvmlDeviceGetPcieThroughput": code})
    for _ in range(30):
        assert pcie(machine.read({})) == (reason, reason)
    rounds = 1 if reason is NO_RATE else 3
    assert nvml.calls(0)["nvmlDeviceGetPcieThroughput"] == 2 * rounds


@pytest.mark.parametrize("where", ["nvmlDeviceGetPcieThroughput", "field.186"])
def test_a_loss_is_seen_wherever_it_is_said(nvml: FakeDriver, where: str) -> None:
    machine = Machine(nvml, {where: GPU_IS_LOST})
    assert machine.read({}).state is DeviceState.LOST


def test_what_was_counted_before_a_loss_is_forgotten(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.read(fields(f198=10, f197=10))
    nvml.change(0, code=GPU_IS_LOST)
    assert machine.reader.read(gpm=False)[0].sample.state is DeviceState.LOST
    nvml.change(0, code=0)
    # It may be another device.
    assert pcie(machine.read(fields(f198=1000, f197=1000))) == (NO_DATA_YET, NO_DATA_YET)


TWO_LINKS = fields(f91=2, f139_0=10, f139_1=20, f138_0=30, f138_1=40)
LATER = fields(f91=2, f139_0=11, f139_1=22, f138_0=33, f138_1=44)
ALL = {f"field.139.{ALL_LINKS}": 30, f"field.138.{ALL_LINKS}": 70}
ALL_LATER = {f"field.139.{ALL_LINKS}": 33, f"field.138.{ALL_LINKS}": 77}
EACH = ((1024, 2048), (3072, 4096))


@pytest.mark.parametrize(
    ("before", "after"), [({}, {}), (ALL, ALL_LATER)], ids=["summed", "by the driver"]
)
def test_links_are_counted_once(
    nvml: FakeDriver, before: dict[str, int], after: dict[str, int]
) -> None:
    machine = Machine(nvml)
    first = machine.read(TWO_LINKS | before)
    assert nvlink(first) == (NO_DATA_YET,) * 4
    assert nvlink(machine.read(LATER | after)) == (3 * 1024, 7 * 1024, *EACH)


def test_a_driver_that_ignores_which_link_is_asked_for(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    same = {f"field.{n}.{link}": 50 for n in (138, 139) for link in (0, 1, ALL_LINKS)}
    machine.read(same | fields(f91=2))
    later = dict.fromkeys(same, 60) | fields(f91=2)
    assert nvlink(machine.read(later)) == (10 * 1024, 10 * 1024, NO_RATE, NO_RATE)


def test_a_link_that_is_down_has_a_place_of_its_own(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    gone = {key: n for key, n in TWO_LINKS.items() if not key.endswith(".0")}
    machine.read(gone)
    later = {key: n for key, n in LATER.items() if not key.endswith(".0")}
    assert nvlink(machine.read(later)) == (2048, 4096, (None, 2048), (None, 4096))


def test_a_link_that_says_nothing_this_time_leaves_no_sum(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.read(TWO_LINKS)
    nvml.change(0, fail={"field.139.1": UNKNOWN})
    found = nvlink(machine.read(LATER))
    assert found == (Absence.ERROR, 7 * 1024, Absence.ERROR, EACH[1])


def test_the_sum_of_the_driver_stands_without_a_link(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.read(TWO_LINKS | ALL)
    nvml.change(0, fail={"field.139.1": UNKNOWN})
    found = nvlink(machine.read(LATER | ALL_LATER))
    assert found == (3 * 1024, 7 * 1024, Absence.ERROR, EACH[1])


def nvlink_5(*counts: int) -> dict[str, int]:
    names = ("f204_0", "f204_1", "f202_0", "f202_1")
    return fields(f91=2, **dict(zip(names, counts, strict=True)))


def test_counters_of_nvlink_5_are_in_bytes(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.read(nvlink_5(WIDE + 1, WIDE + 1, WIDE + 3, WIDE + 4))
    found = machine.read(nvlink_5(WIDE + 2, WIDE + 3, WIDE + 6, WIDE + 8))
    assert nvlink(found) == (3, 7, (1, 2), (3, 4))


def test_counters_of_nvlink_5_that_may_have_wrapped_have_no_rate(nvml: FakeDriver) -> None:
    """None of them is down: they have no rate yet."""
    machine = Machine(nvml)
    machine.read(nvlink_5(WIDE, 1, 3, 4))
    found = machine.read(nvlink_5(WIDE + 1, 2, 6, 8))
    assert nvlink(found) == (NO_DATA_YET,) * 4
    found = machine.read(nvlink_5(WIDE + 3, WIDE, WIDE, WIDE))
    assert nvlink(found) == (WIDE, 2 * WIDE - 14, (2, WIDE - 2), (WIDE - 6, WIDE - 8))


def test_counters_of_nvlink_that_are_set_back_have_no_rate_for_once(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.read(dict.fromkeys(TWO_LINKS, 3_100_000_000) | fields(f91=2))
    assert nvlink(machine.read(TWO_LINKS)) == (NO_DATA_YET,) * 4
    assert nvlink(machine.read(LATER)) == (3 * 1024, 7 * 1024, *EACH)


def test_more_links_than_this_nvidia_ml_py_knows_of(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pynvml.NVML_NVLINK_MAX_LINKS", 18)
    machine = Machine(nvml)
    counters = [f"field.{n}.{link}" for n in (138, 139) for link in range(36)]
    machine.read(fields(f91=36) | dict.fromkeys(counters, 5))
    found = machine.read(fields(f91=36) | dict.fromkeys(counters, 6))
    assert nvlink(found) == (36 * 1024, 36 * 1024, (1024,) * 36, (1024,) * 36)


def test_links_and_pcie_have_no_rate_from_a_call_that_hung(nvml: FakeDriver) -> None:
    """The call with all fields takes 30 s. The next one comes at once."""
    machine = Machine(nvml)
    machine.read(TWO_LINKS | ALL | fields(f197=WIDE, f198=WIDE))
    counters = LATER | ALL_LATER | fields(f197=WIDE + 9, f198=WIDE + 5)
    sample = machine.read(counters)
    assert (*nvlink(sample)[:2], *pcie(sample)) == (3 * 1024, 7 * 1024, 5, 9)

    def hang(handle: object, keys: tuple[FieldKey, ...]) -> list[object]:
        machine.clock.seconds += 30.0
        return fetch(handle, keys)

    fetch = nvml_fields.fetch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml_fields, "fetch", hang)
        samples = [machine.read(counters)]
    # In the 30 s the counters moved on, and the call that hung may have read them before.
    later = {key: value + 1_000_000 for key, value in counters.items() if key != "field.91"}
    counters |= later
    samples += [machine.read(counters, 0.1), machine.read(counters)]
    found = [(*nvlink(each)[:2], *pcie(each)) for each in samples]
    assert found == [(NO_DATA_YET,) * 4, (NO_DATA_YET,) * 4, (0, 0, 0, 0)]


def test_a_long_interval_is_no_matter_for_one_link(nvml: FakeDriver) -> None:
    """Counters of 32 bits and KiB: all links together could come around unseen, one could not."""
    machine = Machine(nvml)
    sizes = {f"field_type.{n}": 1 for n in (138, 139)}
    machine.read(TWO_LINKS | ALL | sizes)
    found = nvlink(machine.read(LATER | ALL_LATER | sizes, 8.0))
    assert found == (3 * 128, 7 * 128, (128, 256), (384, 512))


@pytest.mark.parametrize("links", [0, 4711])
def test_a_device_without_links(nvml: FakeDriver, links: int) -> None:
    machine = Machine(nvml)
    assert nvlink(machine.read(fields(f91=links))) == (NO_RATE,) * 4


@pytest.mark.parametrize(
    ("code", "reason"), [(NOT_SUPPORTED, NO_RATE), (NO_PERMISSION, Absence.NO_PERMISSION)]
)
def test_a_device_that_does_not_say_how_many_links_it_has(
    nvml: FakeDriver, code: int, reason: Absence
) -> None:
    machine = Machine(nvml, {"field.91": code})
    assert nvlink(machine.read(TWO_LINKS)) == (reason,) * 4


def test_a_link_that_comes_up_is_found_within_a_minute(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.read(fields(f91=2))
    machine.read(TWO_LINKS, 60.0)
    assert nvlink(machine.read(LATER)) == (3 * 1024, 7 * 1024, *EACH)


def test_one_call_a_second_fetches_all_of_it(nvml: FakeDriver) -> None:
    machine = Machine(nvml)
    machine.read(TWO_LINKS | ALL | fields(f197=WIDE, f198=WIDE, f185=1, f82=1, f3=1))
    nvml.forget_calls()
    sample = machine.read(LATER | ALL_LATER | fields(f197=WIDE, f198=WIDE, f185=1, f82=1, f3=1))
    assert not set(RATES) & set(sample.absent)
    assert nvml.calls(0)["nvmlDeviceGetFieldValues"] == 2  # at every tick, and this
