import dataclasses
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import Absence, DeviceSample
from gputop.agent.snapshot import Host, Sample
from gputop.schema.derived import (
    DERIVED,
    HOST_CPU,
    HOST_MEMORY,
    OTHER_SLOWDOWN,
    PROCESS_COUNT,
    PROCESS_CPU,
    PROCESS_IO_WAIT,
    SLOWDOWN_BITS,
)
from gputop.stream.history import History
from gputop.stream.process_history import ProcessHistory
from tests import streams

NAME = "temperature_celsius"
SAMPLES = "gpu_utilization_samples_percent"


def sample(time: float = 0.0, **temperatures: int | None) -> Sample:
    devices = tuple(DeviceSample(uuid, temperature_celsius=t) for uuid, t in temperatures.items())
    return Sample(time, Host(), devices)


def told(*readings: tuple[float, dict[str, Any]]) -> History:
    history = History()
    for time, values in readings:
        history.add(Sample(time, Host(), (DeviceSample("a", **values),)))
    return history


def test_the_drivers_own_samples_by_the_sample_that_brought_them() -> None:
    pieces = [(1, 2), (3, 4), None, (), (5,), (50, 101), (-1,), (6, 7)]
    history = told(*((float(n), {SAMPLES: piece}) for n, piece in enumerate(pieces)))
    assert [*history.busy_samples("a", 1)] == []
    assert [*history.busy_samples("a", 2)] == [6, 7]
    assert [*history.busy_samples("a", 4)] == [6, 7]  # what is impossible is a gap
    assert [*history.busy_samples("a", 5)] == [5, 6, 7]
    assert [*history.busy_samples("a", 8)] == [3, 4, 5, 6, 7]
    assert [*history.busy_samples("a", 99)] == [1, 2, 3, 4, 5, 6, 7]
    assert [*history.busy_samples("b", 99)] == []


def test_what_is_derived_is_a_series_too() -> None:
    made = streams.process(7, 0, device_uuid="a", cpu_percent=20.0, io_wait=False)
    workers = dataclasses.replace(made, pid=8, children_cpu_most_percent=97.5, io_wait=True)
    history = History()
    history.add(Sample(0.0, Host(), (DeviceSample("a", clock_event_reasons=()),)))
    reasons = ("sw_thermal", "never heard of", "sw_power_cap")
    device = DeviceSample("a", clock_event_reasons=reasons)
    history.add(Sample(1.0, Host(), (device,), (made, workers)))
    unlisted = DeviceSample("a", absent={"processes": Absence.NO_PERMISSION})
    history.add(Sample(2.0, Host(cpu_percent=12.5, memory_used_bytes=2048), (unlisted,)))
    bits = 0x20 + 0x4 + OTHER_SLOWDOWN
    assert {name: list(history.series("a", name)) for name in DERIVED} == {
        PROCESS_COUNT: [0, 2, None],
        PROCESS_CPU: [None, 97.5, None],
        PROCESS_IO_WAIT: [None, 1, None],
        HOST_CPU: [None, None, 12.5],
        HOST_MEMORY: [None, None, 2048],
        SLOWDOWN_BITS: [0, bits, None],
    }


def test_a_device_is_forgotten_when_nothing_of_it_is_left() -> None:
    history = History(3)
    history.add(sample(a=1, b=1))
    for _ in range(2):
        history.add(sample(b=1))
    assert list(history.series("a", NAME)) == [1, None, None]
    history.add(sample(b=1))
    assert list(history.series("a", NAME)) == []
    history.add(sample(a=5))
    assert list(history.series("a", NAME)) == [5]


def test_devices_their_samples_and_all_numbers_are_bounded() -> None:
    history = History()
    history.add(sample(**{f"b{n}": 1 for n in range(66)}))
    history.add(sample(a=1))
    assert [n for n in range(66) if not history.series(f"b{n}", NAME)] == [0, 1]
    history = told(*((float(n), {SAMPLES: (7,)}) for n in range(1300)))
    assert (len(history.times), len(history.busy_samples("a", 1300))) == (1200, 720)


@given(st.lists(st.none() | st.integers(0, 120), max_size=40), st.integers(1, 12))
def test_the_last_ones_are_kept(temperatures: list[int | None], capacity: int) -> None:
    history = History(capacity)
    for number, temperature in enumerate(temperatures):
        history.add(sample(float(number), a=temperature))
    assert list(history.series("a", NAME)) == temperatures[-capacity:]
    assert list(history.times) == [*map(float, range(len(temperatures)))][-capacity:]
    assert history.count == len(temperatures)


def test_numbers_of_several_devices_are_of_one_process() -> None:
    history = ProcessHistory()
    on_two = [
        streams.process(1, 0, memory_used_bytes=4, sm_utilization_percent=None, cpu_percent=50.0),
        streams.process(1, 1, memory_used_bytes=6, sm_utilization_percent=30, cpu_percent=50.0),
    ]
    history.add(on_two)
    expected = {"cpu_percent": [50.0], "memory_used_bytes": [10.0], "sm_utilization_percent": [30]}
    for name, numbers in expected.items():
        assert history.series(on_two[0], name) == numbers


def test_samples_without_the_process_are_gaps() -> None:
    history, held = ProcessHistory(), streams.process(1, 0, cpu_percent=5.0)
    other = streams.process(1, 0, start_time=1.0)
    for processes in ([], [held], [], [held, other], []):
        history.add(processes)
    series = history.series(held, "cpu_percent")
    assert [None if math.isnan(value) else value for value in series] == [5.0, None, 5.0, None]
    assert len(history.series(other, "cpu_percent")) == 2
    assert history.series(streams.process(9, 0), "cpu_percent") == []


def test_it_is_bounded() -> None:
    history, held = ProcessHistory(), streams.process(1, 0, cpu_percent=5.0)
    for _ in range(1800):
        history.add([held])
    assert 600 <= len(history.series(held, "cpu_percent")) <= 1200
    for most, kept in ((2047, True), (2048, False)):
        history.add([streams.process(n, 0) for n in range(2, most + 2)])
        assert bool(history.series(held, "cpu_percent")) is kept
    assert history.series(held, "cpu_percent") == []
