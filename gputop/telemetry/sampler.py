"""The loop behind `gputop stream`: a reader thread for each device, an emitter at the interval.

At each tick every reader that is free reads its device. The emitter waits for them a moment, then
sends what there is, on time: a device that hangs holds up its own thread only, and shows its age.
"""

from __future__ import annotations

import dataclasses
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gputop import __version__
from gputop.telemetry.cpu import cpu_name
from gputop.telemetry.host import FIRST_WINDOW_SECONDS, HostReader, Owners
from gputop.telemetry.reading import (
    Driver,
    DriverError,
    GpuProcess,
    Owner,
    OwnersOf,
    Reader,
    Reading,
)
from gputop.telemetry.snapshot import (
    READINGS,
    Absence,
    Device,
    DeviceSample,
    DeviceState,
    DriverState,
    Inventory,
    Problem,
    Process,
    Record,
    Sample,
    Source,
    silence_limit,
)

RETRY_SECONDS = 5.0
"""How often a driver that could not be used is tried again: it may be loaded meanwhile."""
GRACE_SECONDS = 0.1
"""How long a tick waits for readers that answered the last one."""
FIRST_GRACE_SECONDS = 1.0
"""How long the first sample with devices waits for all of them."""


def pause(seconds: float) -> None:
    """Sleeps that long, if it is in the future."""
    if seconds > 0:
        threading.Event().wait(seconds)


@dataclass
class _Slot:
    """A reader and what it read last; guarded by the sampler's condition."""

    reader: Reader
    owners: OwnersOf
    asked: int = 0
    answered: int = 0
    since: float = 0.0
    """Monotonic time of the last answer, or of the start."""
    reading: Reading | None = None
    owned: tuple[tuple[GpuProcess, Owner], ...] = ()
    late: bool = False


@dataclass(frozen=True)
class _Opened:
    """What came of starting the driver so far; replaced as a whole."""

    driver: Driver | None = None
    problem: Problem | None = None
    slots: tuple[_Slot, ...] = ()

    @property
    def state(self) -> DriverState:
        if self.driver is not None:
            return DriverState.OK
        return DriverState.STARTING if self.problem is None else DriverState.UNAVAILABLE


class Sampler:
    """Yields the records of this machine's stream, for ever, on time."""

    def __init__(
        self,
        start: Callable[[], Driver],
        interval: float,
        source: Source = Source.NVML,
        owners: Callable[[], OwnersOf] = Owners,
    ) -> None:
        self._start = start
        self._interval = interval
        self._source = source
        self._host = HostReader()
        self._new_owners = owners
        self._changed = threading.Condition()
        self._opened = _Opened()
        self._hostname, self._cpu_name = socket.gethostname(), cpu_name()

    @property
    def settled(self) -> bool:
        """Whether the driver answered, or failed to."""
        return self._opened.state is not DriverState.STARTING

    def records(self) -> Iterator[Record]:
        """An inventory, then samples, and a new inventory before the sample that differs."""
        threading.Thread(target=self._open, name="driver", daemon=True).start()
        sent: Inventory | None = None
        for opened in self._ticks():
            # Once for both records: a reader may learn more about its device between them.
            devices = tuple(slot.reader.device for slot in opened.slots)
            inventory = self._inventory(opened, devices)
            if sent is None or dataclasses.replace(inventory, time=sent.time) != sent:
                sent = inventory
                yield inventory
            yield self._sample(opened.slots, devices)

    def _ticks(self) -> Iterator[_Opened]:
        """Once at each interval, and as soon as the driver has answered for the first time.

        Yields what was asked at that tick: the driver may open at any moment.
        """
        pause(FIRST_WINDOW_SECONDS)
        due = time.monotonic()
        asked: _Opened | None = None
        for tick in itertools.count(1):
            opened = self._opened
            grace = GRACE_SECONDS if opened is asked else FIRST_GRACE_SECONDS
            asked = opened
            self._read_all(opened.slots, tick, grace)
            yield opened
            due += self._interval
            if opened.state is DriverState.STARTING and self._settles_before(due):
                # Nobody should wait a whole interval for the first values.
                due = time.monotonic()
                continue
            now = time.monotonic()
            pause(due - now)
            # The machine slept, or nobody read the stream: no burst to catch up.
            due = max(due, now - self._interval)

    def _settles_before(self, due: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self.settled, timeout=max(0.0, due - time.monotonic())
            )

    def _open(self) -> None:
        """Starts the driver, however long that takes, and again while it cannot be used."""
        while True:
            try:
                driver = self._start()
                readers = driver.readers()
            except DriverError as error:
                with self._changed:
                    self._opened = _Opened(problem=error.problem)
                    self._changed.notify_all()
                pause(RETRY_SECONDS)
                continue
            slots = tuple(
                _Slot(reader, self._new_owners(), since=time.monotonic()) for reader in readers
            )
            with self._changed:
                self._opened = _Opened(driver, slots=slots)
                self._changed.notify_all()
            for slot in slots:
                threading.Thread(
                    target=self._read_for_ever, args=(slot,), name="device", daemon=True
                ).start()
            return

    def _read_for_ever(self, slot: _Slot) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: slot.asked > slot.answered)
                tick = slot.asked
            reading = slot.reader.read()
            # Here, and not by the emitter: /proc blocks for a process that hangs in the kernel.
            owned = tuple((listed, slot.owners.of(listed.pid)) for listed in reading.processes)
            slot.owners.keep({listed.pid for listed in reading.processes})
            with self._changed:
                slot.answered, slot.reading, slot.since = tick, reading, time.monotonic()
                slot.owned = owned
                slot.late = False
                self._changed.notify_all()

    def _read_all(self, slots: tuple[_Slot, ...], tick: int, grace: float) -> None:
        """Asks every reader; returns when those that are not late have answered, or after grace."""
        with self._changed:
            for slot in slots:
                slot.asked = tick
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: all(slot.late or slot.answered >= tick for slot in slots), grace
            )
            for slot in slots:
                slot.late = slot.answered < tick

    def _inventory(self, opened: _Opened, devices: tuple[Device, ...]) -> Inventory:
        return Inventory(
            time=time.time(),
            source=self._source,
            driver_state=opened.state,
            interval_seconds=self._interval,
            driver_version=opened.driver.driver_version if opened.driver else None,
            cuda_version=opened.driver.cuda_version if opened.driver else None,
            problem=opened.problem,
            devices=devices,
            hostname=self._hostname,
            cpu_name=self._cpu_name,
            gputop_version=__version__,
        )

    def _sample(self, slots: tuple[_Slot, ...], devices: tuple[Device, ...]) -> Sample:
        pairs = tuple(zip(slots, devices, strict=True))
        with self._changed:
            now = time.monotonic()
            limit = silence_limit(self._interval)
            samples = tuple(_current(slot, device.uuid, now, limit) for slot, device in pairs)
            groups = [(device.uuid, slot.owned) for slot, device in pairs]
        hung = {sample.uuid for sample in samples if sample.state is DeviceState.NOT_RESPONDING}
        processes = tuple(
            _process(uuid, listed, owner, hung=uuid in hung)
            for uuid, owned in groups
            for listed, owner in owned
        )
        return Sample(time.time(), self._host.read(), samples, processes)


def _current(slot: _Slot, uuid: str, now: float, limit: float) -> DeviceSample:
    """What is known of a device now: its last reading with its age, or why there is none."""
    silent = now - slot.since
    if slot.reading is not None and silent <= limit:
        return dataclasses.replace(slot.reading.sample, uuid=uuid, age_seconds=silent)
    reason = Absence.NO_DATA_YET if silent <= limit else Absence.TIMED_OUT
    return DeviceSample(
        uuid=uuid,
        state=DeviceState.OK if silent <= limit else DeviceState.NOT_RESPONDING,
        age_seconds=None if slot.reading is None and silent <= limit else silent,
        absent=dict.fromkeys((*READINGS, "processes"), reason),
    )


def _process(uuid: str, listed: GpuProcess, owner: Owner, *, hung: bool) -> Process:
    """What the driver and the host say of a process, together.

    Of a device that does not respond its processes are still shown: they are who to ask.
    """
    memory, reason = listed.memory_used_bytes, listed.absence
    if hung:
        memory, reason = None, Absence.TIMED_OUT
    absent = {} if reason is None else {"memory_used_bytes": reason}
    if owner.absence is not None:
        absent |= dict.fromkeys(("user", "command", "start_time"), owner.absence)
    return Process(
        pid=listed.pid,
        device_uuid=uuid,
        kind=listed.kind,
        memory_used_bytes=memory,
        user=owner.user,
        command=owner.command,
        start_time=owner.start_time,
        absent=absent,
    )
