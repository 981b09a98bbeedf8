"""Drivers and readers that answer when a test lets them, and the stream made of them."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from gputop.agent.device import READINGS, Absence, Device, DeviceSample
from gputop.agent.interface import DeviceReading, DriverError, Facts, unseen
from gputop.agent.lines import to_line
from gputop.agent.problem import Problem
from gputop.agent.sampler import Sampler
from gputop.agent.snapshot import (
    DriverState,
    Event,
    Inventory,
    Process,
    ProcessKind,
    Record,
    Sample,
)
from gputop.schema.decode import decode

BOUND = 20.0
INTERVAL = 1.0
NO_DRIVER = Problem("No driver", "there is none", "Install one")
VALUES: dict[str, object] = {name: 7 for name in READINGS if name != "fan_percent"} | {
    "fans_percent": (7, 7),
    "gpu_utilization_samples_percent": (7, 7),
    "clock_event_reasons": ("idle",),
    "clock_event_seconds": {"sw_power_cap": 7.0},
    "nvlink_link_rx_bytes_per_second": (7, None),
    "nvlink_link_tx_bytes_per_second": (7, None),
    "remap_pending": False,
    "remap_failed": False,
    "recovery_action": "none",
}
UNSIZED = {"memory_used_bytes": Absence.NOT_SUPPORTED}


def listed(pid: int) -> Process:
    return Process(pid, "GPU-1", ProcessKind.COMPUTE)


def processes_on(uuid: str) -> tuple[Process, ...]:
    return (
        Process(11, uuid, ProcessKind.COMPUTE, 1 << 30),
        Process(12, uuid, ProcessKind.GRAPHICS, absent=UNSIZED),
    )


def answer(uuid: str, **changes: object) -> DeviceReading:
    sample = DeviceSample(uuid, absent={"fan_percent": Absence.NOT_SUPPORTED}, **VALUES)  # type: ignore[arg-type]
    device = Device(int(uuid.rpartition("-")[2]), uuid, "Fake")
    return DeviceReading(device, replace(sample, **changes), processes_on(uuid))  # type: ignore[arg-type]


@dataclass(eq=False)
class FakeReader:
    """Answers while its gate is open; `asked` is set when somebody waits at it."""

    device: Device
    reading: DeviceReading
    gate: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    gpm: bool | None = None
    instances: tuple[DeviceReading, ...] = ()
    heard_at: float = 0.0
    problem: Problem | None = None

    def read(self, *, gpm: bool) -> tuple[DeviceReading, ...]:
        self.gpm = gpm
        self.asked.set()
        assert self.gate.wait(60)
        if self.problem is not None:
            raise DriverError(self.problem)
        self.device = self.reading.device
        return (self.reading, *self.instances)


class FakeDriver:
    driver_version = "580.1"
    cuda_version = "13.0"
    unlisted: tuple[str, ...] = ()

    def __init__(self, *readers: FakeReader) -> None:
        self._readers = readers
        self.closed = threading.Event()
        self.reported: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def unlisted_gpus(self) -> tuple[str, ...]:
        return self.unlisted

    def readers(self) -> tuple[FakeReader, ...]:
        return self._readers

    def events(self) -> tuple[Event, ...]:
        return (self.reported.get(),)

    def close(self) -> None:
        self.closed.set()


class Time:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


LONG = 30.0


@dataclass
class Clock:
    """Monotonic seconds, moved on by the loop's pauses: long ones first look for their event."""

    now: float = 1000.0
    retry: threading.Event = field(default_factory=threading.Event)
    """Lets the thread that opens the driver try again."""
    over: bool = False

    def end(self) -> None:
        """Hold up the thread that opens the driver, which would find the next test's clock."""
        self.over = True
        self.retry.set()

    def pause(self, seconds: float, cut_short: threading.Event | None = None) -> bool:
        if threading.current_thread().name == "driver":
            assert self.retry.wait(60)
            if self.over:
                threading.Event().wait()  # for ever
        elif seconds > LONG and cut_short is not None and cut_short.wait(1.0):
            return True
        else:
            self.now += max(0.0, seconds)
        return cut_short is not None and cut_short.is_set()


class Stream:
    """The records of a sampler, each within the bound, and every one fit to be sent."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._records = sampler.records()
        self._thread = ThreadPoolExecutor(1)
        self.inventory: Inventory | None = None

    def next(self) -> Record:
        record = self._thread.submit(next, self._records).result(BOUND)
        decode(to_line(record))
        if isinstance(record, Inventory):
            self.inventory = record
        else:
            assert self.inventory is not None
            assert [d.uuid for d in record.devices] == [d.uuid for d in self.inventory.devices]
            for device in record.devices:
                missing = {name for name in READINGS if getattr(device, name) is None}
                assert missing == set(device.absent) - {"processes"}
        return record

    def sample(self) -> Sample:
        record = self.next()
        if isinstance(record, Inventory):
            record = self.next()
        assert isinstance(record, Sample)
        return record

    def until(self, wanted: Callable[[Sample], bool]) -> Sample:
        deadline = time.monotonic() + BOUND
        while not wanted(sample := self.sample()):
            assert time.monotonic() < deadline, f"no such sample; the last is {sample}"
        return sample

    def wait_for(self, *readers: FakeReader) -> None:
        """Returns when these have answered what they were asked."""
        threads = self.sampler._opening.opened.threads
        assert threads is not None
        slots = [slot for slot in threads.slots if slot.reader in readers]
        with threads.changed:
            assert threads.changed.wait_for(
                lambda: all(slot.answered == threads.tick for slot in slots), BOUND
            )

    def state(self) -> DriverState:
        assert self.inventory is not None
        return self.inventory.driver_state

    def problem(self) -> Problem | None:
        assert self.inventory is not None
        return self.inventory.problem

    def close(self) -> None:
        self._thread.shutdown(wait=True)


Readers = list[FakeReader]
Open = Callable[..., Stream]


def owned(pid: int) -> Facts:
    if pid == 12:
        return unseen(Absence.LOST)
    return {"user": f"user{pid}", "command": f"command {pid}", "start_time": 100.0 + pid}


def fake_owners(pids: Iterable[int]) -> Iterator[tuple[int, Facts]]:
    for pid in pids:
        yield pid, owned(pid)
