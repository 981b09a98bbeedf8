"""The threads that read the devices of a driver.

One thread reads all devices, one after another. If it gets stuck on a device, it keeps that device,
and a new thread takes over the others. So there is one thread, plus one for each device that has
ever been slow. A device that hangs does not delay the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from gputop.agent.device import Device, DeviceSample
from gputop.agent.interface import DeviceReading, DriverError, Reader
from gputop.agent.problem import Problem
from gputop.agent.selection import Chosen
from gputop.agent.snapshot import Process, carry_samples, without_samples
from gputop.agent.times import silence_limit

STUCK_SECONDS = 0.3
"""Seconds in a read after which a thread keeps that device and gives away the others."""
LOOK_SECONDS = 0.1
"""Seconds between two checks for stuck threads while a sample waits for its readings."""

Read = Callable[[Reader], tuple[DeviceReading, ...]]


class KnownGpu(NamedTuple):
    """A GPU and its MIG instances, with their samples and processes."""

    devices: tuple[Device, ...] = ()
    samples: tuple[DeviceSample, ...] = ()
    processes: tuple[Process, ...] = ()


@dataclass(eq=False, repr=False)
class ReaderSlot:
    """A reader and its last reading. The lock of its `ReadingThreads` protects it."""

    reader: Reader
    instances: frozenset[str] | None = None
    """UUIDs of the MIG instances to read; None for all."""
    answered: int = 0
    """Number of the newest tick at which the device was read."""
    busy_since: float | None = None
    """Start of the current read; None if there is none."""
    was_slow: bool = False
    """True if the last read took longer than `STUCK_SECONDS`."""
    read_at: float = 0.0
    """Start of the last complete read. No value in `known` is older. 0 before the first read."""
    heard_at: float = 0.0
    """End of the last complete read, or the start of the threads."""
    known: KnownGpu = field(default_factory=KnownGpu)
    was_taken: bool = False
    """True if `known` was sent."""

    def is_stuck(self, now: float) -> bool:
        """Return True if the current read takes too long."""
        return (
            self.busy_since is not None
            and now - self.busy_since > STUCK_SECONDS
        )

    def is_hung(self, now: float, interval: float) -> bool:
        """Return True if the device counts as not responding.

        A device that answers each question slowly is slow, not hung.
        """
        if self.busy_since is None:
            return False
        # Before that, the device may not have been asked: the interval was
        # longer, or the reader of the stream had stopped.
        heard_at = max(
            self.heard_at, self.reader.heard_at, self.busy_since - interval
        )
        # Report it on the last tick before the limit.
        return now - heard_at > silence_limit(interval) - interval / 2

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPU and its MIG instances, or a placeholder before the first read."""
        return self.known.devices or (self.reader.device,)

    def take(self) -> KnownGpu:
        """Return the current state to send. The driver's own samples are returned only once."""
        samples = self.known.samples
        if self.was_taken:
            samples = tuple(map(without_samples, samples))
        self.was_taken = True
        return self.known._replace(samples=samples)

    def keep(self, readings: Sequence[DeviceReading], began: float) -> None:
        """Store the readings of a read that began at `began`."""
        chosen = []
        for number, reading in enumerate(readings):
            is_gpu = number == 0
            if (
                is_gpu
                or self.instances is None
                or reading.device.uuid in self.instances
            ):
                chosen.append(reading)
        samples = tuple(reading.sample for reading in chosen)
        if not self.was_taken:
            samples = tuple(carry_samples(self.known.samples, samples))
        self.was_taken = False
        processes: list[Process] = []
        for reading in chosen:
            processes += reading.processes
        devices = tuple(reading.device for reading in chosen)
        self.known = KnownGpu(devices, samples, tuple(processes))
        self.read_at = began


class ReadingThreads:
    """Reads the devices of one driver until the driver is gone."""

    def __init__(self, readers: Iterable[Reader], read: Read) -> None:
        """Start the first thread.

        `read` is called with a reader. It raises `DriverError` if the driver is gone.
        """
        self.changed = threading.Condition()
        """Notified when a thread becomes idle and when the driver is gone."""
        now = time.monotonic()
        self.slots = [ReaderSlot(reader, heard_at=now) for reader in readers]
        self.tick = 0
        """Number of the newest tick. Devices with an older reading are due."""
        self.problem: Problem | None = None
        """Reason why the driver is gone, or None."""
        self._read = read
        self._groups: list[list[ReaderSlot]] = []
        """Slots of each thread."""
        with self.changed:
            self._start_thread([*self.slots])

    def read_all(
        self,
        patience: float,
        enough: Callable[[], bool] | None = None,
    ) -> None:
        """Read all devices. Wait for the quick ones, for at most `patience` seconds.

        With `enough`, wait for all devices, or until it returns True.
        """
        with self.changed:
            self.tick += 1
            self.changed.notify_all()
            self._relieve()
            while not self.changed.wait_for(
                lambda: self._has_answers(enough),
                min(patience, LOOK_SECONDS),
            ):
                patience -= LOOK_SECONDS
                if patience <= 0:
                    return
                self._relieve()

    def devices(self) -> list[Device]:
        """Return all GPUs and MIG instances, with placeholders for those not read yet."""
        devices: list[Device] = []
        with self.changed:
            for slot in self.slots:
                devices += slot.devices
        return devices

    def keep(self, chosen: Chosen) -> None:
        """From now on, read only these GPUs, and only their chosen MIG instances."""
        with self.changed:
            left_out = []
            for slot in self.slots:
                uuid = slot.devices[0].uuid
                if uuid in chosen:
                    slot.instances = chosen[uuid]
                else:
                    left_out.append(slot)
            for group in (self.slots, *self._groups):
                group[:] = [slot for slot in group if slot not in left_out]

    def wait_for_end(self) -> Problem:
        """Wait until the driver is gone, and return the reason."""
        with self.changed:
            self.changed.wait_for(lambda: self.problem is not None)
            assert self.problem is not None
            return self.problem

    def _has_answers(
        self,
        enough: Callable[[], bool] | None,
    ) -> bool:
        """Return True if the wait is over: all devices, or all quick ones, have been read."""
        if self.problem is not None or (enough is not None and enough()):
            return True
        now = time.monotonic()
        for slot in self.slots:
            is_slow = slot.was_slow or slot.is_stuck(now)
            if slot.answered < self.tick and (
                enough is not None or not is_slow
            ):
                return False
        return True

    def _relieve(self) -> None:
        """Move the other devices of each stuck thread to a new thread."""
        now = time.monotonic()
        for group in [*self._groups]:
            for slot in [*group]:
                if slot.is_stuck(now) and len(group) > 1:
                    group.remove(slot)
                    others = [*group]
                    group[:] = [slot]
                    self._start_thread(others)

    def _start_thread(self, group: list[ReaderSlot]) -> None:
        thread = threading.Thread(
            target=self._run, args=(group,), name="reading", daemon=True
        )
        thread.start()
        self._groups.append(group)

    def _run(self, group: list[ReaderSlot]) -> None:
        while True:
            slot = self._next(group)
            if slot is None:
                return
            tick = self.tick
            began = time.monotonic()
            try:
                readings = self._read(slot.reader)
            except DriverError as error:
                self.end(error.problem)
                return
            with self.changed:
                slot.keep(readings, began)
                slot.answered = tick
                slot.busy_since = None
                slot.heard_at = time.monotonic()
                slot.was_slow = slot.heard_at - began > STUCK_SECONDS

    def _next(self, group: list[ReaderSlot]) -> ReaderSlot | None:
        """Wait for a due device of this thread. None means that the thread should end.

        The device that has waited longest comes first.
        """
        with self.changed:
            # Only once: a thread that notified after each wait would wake the
            # other idle threads, and they would wake it, without end.
            if not self._is_due(group):
                self.changed.notify_all()
                self.changed.wait_for(
                    lambda: self.problem is not None or self._is_due(group)
                )
            if self.problem is not None:
                return None
            slot = min(group, key=attrgetter("answered"))
            slot.busy_since = time.monotonic()
            return slot

    def _is_due(self, group: list[ReaderSlot]) -> bool:
        return any(slot.answered < self.tick for slot in group)

    def end(self, problem: Problem) -> None:
        """End all threads, because the driver is gone."""
        with self.changed:
            if self.problem is None:
                self.problem = problem
            self.changed.notify_all()
