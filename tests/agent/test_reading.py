"""The threads that read the devices: one, and one more for each device that was slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gputop.agent import reading as module
from gputop.agent.device import Device
from gputop.agent.interface import DeviceReading, Reader
from gputop.agent.problem import Problem
from gputop.agent.reading import STUCK_SECONDS, ReadingThreads
from tests.agent.fakes import BOUND, FakeReader, Time, answer

PATIENCE = 60.0
"""Seconds that a tick would wait for a device that it waits for."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def readers() -> Iterator[list[FakeReader]]:
    readers = [FakeReader(Device(n, f"GPU-{n}", "Fake"), answer(f"GPU-{n}")) for n in range(8)]
    for reader in readers:
        reader.gate.set()
    yield readers
    for reader in readers:
        reader.gate.set()


class Machine:
    """Devices, the threads that read them, and who reads which."""

    def __init__(self, readers: list[FakeReader]) -> None:
        self.readers = readers
        self.by: list[tuple[int, int]] = []
        """The thread and the device of each read, in order."""
        self.threads = ReadingThreads(readers, self.read)

    def read(self, reader: Reader) -> tuple[DeviceReading, ...]:
        self.by.append((threading.get_ident(), reader.device.index))
        return reader.read(gpm=True)

    def tick(self, patience: float = PATIENCE) -> dict[int, list[int]]:
        """Reads all; returns the devices that each thread read, in its order."""
        self.by.clear()
        self.threads.read_all(patience)
        found: dict[int, list[int]] = {}
        for thread, index in [*self.by]:
            found.setdefault(thread, []).append(index)
        return found

    def hang(self, index: int) -> None:
        """Lets the device hang in this tick."""
        self.readers[index].gate.clear()
        self.readers[index].asked.clear()
        self.tick(patience=0.01)
        assert self.readers[index].asked.wait(BOUND)

    def wait_for(self, index: int) -> None:
        slot = self.threads.slots[index]
        with self.threads.changed:
            assert self.threads.changed.wait_for(lambda: slot.answered == self.threads.tick, BOUND)


@pytest.fixture
def machine(clock: Time, readers: list[FakeReader]) -> Iterator[Machine]:
    machine = Machine(readers)
    yield machine
    machine.threads.end(Problem("Over", "the test has ended", "Start another"))


def test_one_thread_reads_all_devices_in_order(machine: Machine) -> None:
    (first,) = machine.tick().items()
    assert first[1] == [*range(8)]
    assert [machine.tick() for _ in range(3)] == [dict([first])] * 3


def test_the_devices_behind_a_stuck_one_are_read_by_another_thread(
    machine: Machine, clock: Time
) -> None:
    (stuck,) = machine.tick()
    machine.hang(3)
    assert machine.by == [(stuck, index) for index in range(4)]
    clock.now += STUCK_SECONDS + 0.01
    ((other, devices),) = machine.tick().items()
    assert other != stuck
    # Those that were not read in the tick before come first.
    assert devices == [4, 5, 6, 7, 0, 1, 2]
    assert [machine.tick() for _ in range(2)] == [{other: [0, 1, 2, 4, 5, 6, 7]}] * 2
