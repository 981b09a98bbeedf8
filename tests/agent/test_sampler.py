import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gputop import __version__
from gputop.agent import owner_thread
from gputop.agent import sampler as module
from gputop.agent.device import READINGS, Absence, DeviceSample, DeviceState
from gputop.agent.interface import DriverError, Facts, ReplacedError
from gputop.agent.linux.host import CPU_SAMPLE_SECONDS, HostReader
from gputop.agent.sampler import Sampler
from gputop.agent.snapshot import DriverState, Event, Inventory, Source
from gputop.agent.times import silence_limit
from tests.agent.fakes import (
    BOUND,
    INTERVAL,
    NO_DRIVER,
    Clock,
    FakeDriver,
    FakeReader,
    Open,
    Readers,
    Stream,
    answer,
    fake_owners,
)


def started(opened: Open, readers: Readers) -> Stream:
    stream = opened(lambda: FakeDriver(*readers))
    stream.until(lambda _: stream.state() is DriverState.OK)
    return stream


def one_after_the_other(*results: FakeDriver | DriverError) -> Callable[[], FakeDriver]:
    left = iter(results)

    def start() -> FakeDriver:
        result = next(left)
        if isinstance(result, DriverError):
            raise result
        return result

    return start


def steps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def hang(stream: Stream, reader: FakeReader, patch: pytest.MonkeyPatch) -> None:
    """Shuts the reader's gate; returns after the sample that waited for it, but not for ever."""
    reader.gate.clear()
    reader.asked.clear()
    with patch.context() as short:
        short.setattr(module, "LONGEST_PATIENCE", 0.05)
        stream.until(lambda _: reader.asked.is_set())


def test_the_inventory_comes_first_and_says_who(opened: Open, readers: Readers) -> None:
    driver = FakeDriver(*readers)
    driver.unlisted = ("0000:27:00.0",)
    stream = opened(lambda: driver)
    first = stream.next()
    assert isinstance(first, Inventory)
    assert first.hostname
    assert stream.sample().uptime_seconds == 1000.1, "a window of the CPU's use"
    stream.until(lambda _: stream.state() is DriverState.OK)
    assert stream.inventory == replace(
        first,
        time=stream.inventory.time if stream.inventory else 0,
        source=Source.NVML,
        driver_state=DriverState.OK,
        interval_seconds=INTERVAL,
        driver_version="580.1",
        cuda_version="13.0",
        devices=tuple(reader.device for reader in readers),
        gputop_version=__version__,
        unlisted_gpus=driver.unlisted,
    )
    xid = Event(5.0, "GPU-0", "xid", 79)
    driver.reported.put(xid)
    assert stream.until(lambda sample: bool(sample.events)).events == (xid,)


def with_samples(reader: FakeReader, *samples: int) -> None:
    changed = replace(reader.reading.sample, gpu_utilization_samples_percent=samples)
    reader.reading = replace(reader.reading, sample=changed)


def test_samples_of_utilization_come_once(
    opened: Open, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fine() -> list[tuple[int, ...] | None]:
        return [each.gpu_utilization_samples_percent for each in stream.sample().devices[:2]]

    stream = started(opened, readers)
    with_samples(readers[0], 1, 2)
    with_samples(readers[1], 3, 4)
    stream.until(lambda sample: sample.devices[1].gpu_utilization_samples_percent == (3, 4))
    hang(stream, readers[1], monkeypatch)
    assert fine() == [(1, 2), ()]
    readers[1].gate.set()
    stream.wait_for(readers[1])
    late = fine()[1]
    assert late is not None
    assert late[:2] == (3, 4), "what it answered between two samples is not lost"
    with_samples(readers[1], 5)
    stream.until(lambda sample: sample.devices[1].gpu_utilization_samples_percent == (5,))


def test_nobody_waits_for_the_interval_to_see_the_devices(opened: Open, readers: Readers) -> None:
    ready = threading.Event()

    def start() -> FakeDriver:
        assert ready.wait(60)
        return FakeDriver(*readers)

    stream = opened(start, 3600.0)
    first = stream.sample()
    assert (stream.state(), first.devices) == (DriverState.STARTING, ())
    ready.set()
    second = stream.sample()
    assert len(second.devices) == 3
    assert second.processes[0].user == "user11", "it waits for the owners, too"
    assert second.time - first.time < 1.0
    stream.sampler.set_gpm(wanted=False)
    later = stream.sample()
    assert later.time - second.time == 3600.0
    stream.sampler.set_gpm(wanted=True)
    assert stream.sample().time - later.time < 1.0
    assert readers[0].gpm
    stream.sampler.set_interval(1800.0)
    assert stream.sample().time - later.time < 1.0


def test_a_hung_reader_holds_up_nobody_else(
    opened: Open, readers: Readers, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = started(opened, readers)
    stream.sample()
    hung = readers[1]
    hang(stream, hung, monkeypatch)
    limit = silence_limit(INTERVAL)
    times = []
    # From here on a tick that waited for it would wait for a minute.
    sample = stream.sample()
    while sample.devices[1].state is DeviceState.OK:
        times.append(sample.time)
        first, second, third = sample.devices
        assert first.age_seconds == third.age_seconds == 0.0
        assert second.age_seconds is not None
        assert 0 < second.age_seconds < limit
        assert second.gpu_utilization_percent == 7  # what it said last
        sample = stream.sample()
    assert steps(times) == pytest.approx([INTERVAL] * (len(times) - 1))
    first, second, third = sample.devices
    assert second == DeviceSample(
        "GPU-1",
        DeviceState.NOT_RESPONDING,
        second.age_seconds,
        absent=dict.fromkeys((*READINGS, "processes"), Absence.TIMED_OUT),
    )
    assert second.age_seconds is not None
    assert second.age_seconds == pytest.approx(limit)  # the third tick without an answer
    assert first.state is third.state is DeviceState.OK
    held = [process for process in sample.processes if process.device_uuid == "GPU-1"]
    assert [process.pid for process in held] == [11, 12]
    for process in held:
        assert process.memory_used_bytes is None
        assert process.absent["memory_used_bytes"] is Absence.TIMED_OUT
    assert held[0].command == "command 11"

    hung.reading = answer("GPU-1", temperature_celsius=50)
    hung.gate.set()
    back = stream.until(lambda sample: sample.devices[1].temperature_celsius == 50)
    assert back.devices[1].state is DeviceState.OK
    # Once it has answered, it is waited for again.
    assert stream.until(lambda sample: sample.devices[1].age_seconds == 0.0)
    assert [stream.sample().devices[1].age_seconds for _ in range(3)] == [0.0] * 3


def test_a_driver_that_is_gone_takes_its_devices_with_it(
    opened: Open, readers: Readers, clock: Clock
) -> None:
    other = FakeReader(answer("GPU-8").device, answer("GPU-8"))
    other.gate.set()
    drivers = [FakeDriver(*readers), FakeDriver(other)]
    stream = opened(one_after_the_other(drivers[0], DriverError(NO_DRIVER), drivers[1]))
    stream.until(lambda sample: len(sample.processes) == 6)
    readers[2].problem = replace(NO_DRIVER, what="Gone")
    sample = stream.until(lambda _: stream.state() is DriverState.UNAVAILABLE)
    assert (sample.devices, sample.processes) == ((), ())
    assert sample.host.memory_total_bytes
    assert drivers[0].closed.wait(BOUND)
    stream.until(lambda _: stream.problem() == NO_DRIVER)
    assert stream.inventory is not None
    assert (stream.inventory.devices, stream.inventory.driver_version) == ((), None)
    clock.retry.set()
    sample = stream.until(lambda sample: bool(sample.processes))
    assert [device.uuid for device in sample.devices] == ["GPU-8"]
    assert stream.problem() is None
    assert not drivers[1].closed.is_set()


def test_a_driver_that_comes_back_as_another_ends_the_sampler(
    opened: Open, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library that this process has loaded does not fit it: a new process is needed."""
    fallen: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", fallen.put)
    mismatch = DriverError(NO_DRIVER, mismatch=True)
    stream = opened(one_after_the_other(FakeDriver(*readers), mismatch))
    stream.until(lambda sample: len(sample.processes) == 6)
    readers[0].problem = NO_DRIVER
    stream.until(lambda _: stream.state() is DriverState.UNAVAILABLE)
    assert fallen.get(timeout=BOUND).exc_type is ReplacedError


def test_a_process_that_cannot_be_looked_at_holds_up_no_device(
    clock: Clock, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PATIENCE", 0.01)
    monkeypatch.setattr(owner_thread, "time", SimpleNamespace(monotonic=lambda: clock.now))
    asked, released = threading.Event(), threading.Event()

    def stuck(pids: Iterable[int]) -> Iterator[tuple[int, Facts]]:
        for pid, facts in fake_owners(pids):
            if pid == 12:
                asked.set()
                assert released.wait(60)
            yield pid, facts

    stream = Stream(Sampler(lambda: FakeDriver(*readers), INTERVAL, owners=stuck))
    stream.until(lambda _: stream.state() is DriverState.OK)
    assert asked.wait(BOUND)
    stream.wait_for(*readers)
    samples = [stream.sample() for _ in range(9)]
    assert steps([sample.time for sample in samples]) == pytest.approx([INTERVAL] * 8)
    for sample in samples:
        assert [device.temperature_celsius for device in sample.devices] == [7] * 3
        assert [process.pid for process in sample.processes] == [11, 12] * 3
        known, unknown = sample.processes[:2]
        assert (known.user, known.memory_used_bytes) == ("user11", 1 << 30)
        assert unknown.user is None
        assert unknown.absent["user"] is Absence.NO_DATA_YET
    clock.now += 1.5
    late = stream.sample().processes[:2]
    assert [process.absent["user"] for process in late] == [Absence.TIMED_OUT] * 2
    released.set()
    stream.until(lambda sample: sample.processes[1].absent["user"] is Absence.LOST)
    stream.close()


def test_the_cpu_is_noted_once_a_second(
    opened: Open, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CPU_SAMPLE_SECONDS", CPU_SAMPLE_SECONDS)
    note = Mock()
    monkeypatch.setattr(HostReader, "note_cpu", note)
    stream = opened(lambda: FakeDriver(*readers), 4.5)
    stream.until(lambda _: stream.state() is DriverState.OK)
    note.reset_mock()
    stream.sample()
    assert note.call_count == 4


@pytest.mark.parametrize(
    ("stall", "step"), [(1.4, 0.6), (2.0, INTERVAL), (4.3, INTERVAL), (100.0, INTERVAL)]
)
def test_one_sample_after_a_stall_and_then_on_with_the_interval(
    opened: Open, readers: Readers, clock: Clock, stall: float, step: float
) -> None:
    stream = started(opened, readers)
    last = stream.sample().time
    clock.now += stall
    times = [stream.sample().time for _ in range(4)]
    assert times[0] - last > 0.999 * stall
    assert steps(times) == pytest.approx([step, INTERVAL, INTERVAL])
