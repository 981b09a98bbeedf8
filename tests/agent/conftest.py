import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from gputop.agent import opening, reading, sampler
from gputop.agent.device import Device
from gputop.agent.interface import Driver
from gputop.agent.sampler import Sampler
from gputop.agent.selection import Selection
from tests.agent.fakes import INTERVAL, Clock, FakeReader, Open, Stream, answer, fake_owners


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(sampler, "pause", clock.pause)
    monkeypatch.setattr(opening, "pause", clock.pause)
    wall = SimpleNamespace(
        monotonic=lambda: clock.now,
        time=lambda: 1e9 + clock.now,
        clock_gettime=lambda _: clock.now,
        CLOCK_BOOTTIME=7,
    )
    monkeypatch.setattr(sampler, "time", wall)
    monkeypatch.setattr(reading, "time", wall)
    # A reader whose gate is open answers, however busy this machine is.
    monkeypatch.setattr(sampler, "PATIENCE", 1e5)
    monkeypatch.setattr(sampler, "LONGEST_PATIENCE", 60.0)
    # A pause is one pause, and the fake clock waits in it for what should end it.
    monkeypatch.setattr(sampler, "CPU_SAMPLE_SECONDS", math.inf)
    yield clock
    clock.end()


@pytest.fixture
def readers() -> Iterator[list[FakeReader]]:
    readers = [FakeReader(Device(n, f"GPU-{n}", "Fake"), answer(f"GPU-{n}")) for n in range(3)]
    for reader in readers:
        reader.gate.set()
    yield readers
    for reader in readers:
        reader.gate.set()


@pytest.fixture
def opened(clock: Clock) -> Iterator[Open]:
    streams = []

    def open_stream(
        start: Callable[[], Driver], interval: float = INTERVAL, selection: Selection | None = None
    ) -> Stream:
        made = Sampler(start, interval, owners=fake_owners, selection=selection)
        streams.append(Stream(made))
        return streams[-1]

    yield open_stream
    clock.end()
    for stream in streams:
        stream.close()
