import threading

import pytest

from gputop.agent import reading as module
from gputop.agent.device import Device
from gputop.agent.interface import DeviceReading, Reader
from gputop.agent.problem import Problem
from gputop.agent.reading import ReadingThreads
from tests.agent.fakes import BOUND, FakeReader, Time, answer


class Machine:
    def __init__(self, count: int) -> None:
        self.readers = [
            FakeReader(Device(n, f"GPU-{n}", "Fake"), answer(f"GPU-{n}")) for n in range(count)
        ]
        for reader in self.readers:
            reader.gate.set()
        self.by: list[tuple[int, int]] = []
        self.threads = ReadingThreads(self.readers, self.read)

    def read(self, reader: Reader) -> tuple[DeviceReading, ...]:
        self.by.append((threading.get_ident(), reader.device.index))
        return reader.read(gpm=True)

    def tick(self, patience: float = 60.0) -> dict[int, list[int]]:
        self.by.clear()
        self.threads.read_all(patience)
        found: dict[int, list[int]] = {}
        for thread, index in [*self.by]:
            found.setdefault(thread, []).append(index)
        return found


@pytest.mark.parametrize(("count", "slow"), [(8, 3), (2, 0)])
def test_the_devices_behind_a_stuck_one_are_read_by_another_thread(
    count: int, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    machine = Machine(count)
    first = machine.tick()
    (stuck,) = first
    assert first == {stuck: [*range(count)]}
    assert machine.tick() == first
    hung = machine.readers[slow]
    hung.gate.clear()
    hung.asked.clear()
    machine.tick(patience=0.01)
    assert hung.asked.wait(BOUND)
    assert machine.by == [(stuck, index) for index in range(slow + 1)]
    clock.now += 0.31
    ((other, devices),) = machine.tick().items()
    assert other != stuck
    before, after = range(slow), range(slow + 1, count)
    # Those that were not read in the tick before come first.
    assert devices == [*after, *before]
    assert machine.tick() == {other: [*before, *after]}
    hung.gate.set()
    machine.threads.end(Problem("Over", "the test has ended", "Start another"))
