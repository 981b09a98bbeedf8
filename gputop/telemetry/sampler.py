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
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from gputop import __version__
from gputop.telemetry.cpu import cpu_name
from gputop.telemetry.host import FIRST_WINDOW_SECONDS, HostReader
from gputop.telemetry.owners import Owners
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
    Event,
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
GRACE_SECONDS = 0.15
"""How long a tick waits for readers that answered the last one: so much older than the interval can
be what is shown, and drawing it takes time, too."""
LONGEST_AHEAD_SECONDS = 2.0
"""Where the interval is longer, what takes long is asked for with the rest, lest it be too old."""
FIRST_GRACE_SECONDS = 1.0
"""How long the first sample with devices waits for all of them."""

MOST_EVENTS = 1000
"""Between two samples: a device that fails can report thousands a second."""


def pause(seconds: float, cut_short: threading.Event | None = None) -> bool:
    """Sleeps that long, if it is in the future, or until the event; whether that came."""
    return (cut_short or threading.Event()).wait(max(0.0, seconds))


class _Owned(NamedTuple):
    """A reading, and who the processes are that it lists."""

    reading: Reading
    owners: tuple[Owner, ...]


@dataclass
class _Slot:
    """A reader and what it read last; guarded by the sampler's condition."""

    reader: Reader
    owners: OwnersOf
    asked: int = 0
    answered: int = 0
    since: float = 0.0
    """Monotonic time of the last answer, or of the start."""
    readings: tuple[_Owned, ...] = ()
    late: bool = False

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPU and its instances, as far as they are known."""
        return tuple(owned.reading.device for owned in self.readings) or (self.reader.device,)


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
        *,
        gpm: bool = True,
    ) -> None:
        self._start = start
        self._interval = interval
        self._gpm = gpm
        self._source = source
        self._host = HostReader()
        self._new_owners = owners
        self._changed = threading.Condition()
        self._opened = _Opened()
        self._hurry = threading.Event()
        """Set where the next tick should come at once."""
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
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
            # Both from one look: a reader may learn more about its device between them.
            devices, sample = self._look(opened.slots)
            inventory = self._inventory(opened, devices)
            if sent is None or dataclasses.replace(inventory, time=sent.time) != sent:
                sent = inventory
                yield inventory
            yield sample

    def set_interval(self, seconds: float) -> None:
        """Another interval, from now on."""
        self._interval = seconds
        self._hurry.set()

    def set_gpm(self, *, wanted: bool) -> None:
        """Whether GPM is sampled: it costs the devices more than the rest."""
        self._gpm = wanted

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
            interval = self._interval
            due += interval
            if opened.state is DriverState.STARTING and self._settles_before(due):
                # Nobody should wait a whole interval for the first values.
                due = time.monotonic()
                continue
            now = time.monotonic()
            if pause(due - now, self._hurry):
                self._hurry.clear()
                due = time.monotonic()
            # The machine slept, or nobody read the stream: no burst to catch up.
            due = max(due, now - interval)

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
            threading.Thread(
                target=self._listen, args=(driver,), name="events", daemon=True
            ).start()
            return

    def _listen(self, driver: Driver) -> None:
        while True:
            events = driver.events()
            with self._changed:
                self._events += events

    def _read_for_ever(self, slot: _Slot) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: slot.asked > slot.answered)
                tick = slot.asked
            # Owners here, and not by the emitter: /proc blocks for one that hangs in the kernel.
            readings = tuple(
                _Owned(reading, tuple(slot.owners.of(p.pid) for p in reading.processes))
                for reading in slot.reader.read(gpm=self._gpm)
            )
            slot.owners.keep({p.pid for reading, _ in readings for p in reading.processes})
            with self._changed:
                slot.answered, slot.readings, slot.since = tick, readings, time.monotonic()
                slot.late = False
                self._changed.notify_all()
            # The next tick would wait for this; now nobody does.
            slot.reader.look_ahead(min(self._interval, LONGEST_AHEAD_SECONDS))

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

    def _look(self, slots: tuple[_Slot, ...]) -> tuple[tuple[Device, ...], Sample]:
        """The devices, and what is known of them, at one moment."""
        with self._changed:
            now = time.monotonic()
            looks = [(slot.devices, slot.readings, now - slot.since) for slot in slots]
            events = tuple(self._events)
            self._events.clear()
        limit = silence_limit(self._interval)
        devices = tuple(device for found, _, _ in looks for device in found)
        samples = tuple(
            _current(device, reading, silent, limit)
            for found, readings, silent in looks
            for device, reading in zip_longest(found, readings)
        )
        processes = tuple(
            _process(reading.device.uuid, listed, owner, hung=silent > limit)
            for _, readings, silent in looks
            for reading, owners in readings
            for listed, owner in zip(reading.processes, owners, strict=True)
        )
        return devices, Sample(time.time(), self._host.read(), samples, processes, events)


def _current(device: Device, owned: _Owned | None, silent: float, limit: float) -> DeviceSample:
    """What is known of a device now: its last reading with its age, or why there is none."""
    if owned is not None and silent <= limit:
        return dataclasses.replace(owned.reading.sample, age_seconds=silent)
    reason = Absence.NO_DATA_YET if silent <= limit else Absence.TIMED_OUT
    return DeviceSample(
        uuid=device.uuid,
        state=DeviceState.OK if silent <= limit else DeviceState.NOT_RESPONDING,
        age_seconds=None if owned is None and silent <= limit else silent,
        absent=dict.fromkeys((*READINGS, "processes"), reason),
    )


UTILIZATIONS = tuple(f.name for f in dataclasses.fields(GpuProcess) if "_utilization_" in f.name)
OWNED = tuple(f.name for f in dataclasses.fields(Owner) if not f.name.startswith("absen"))


def _process(uuid: str, listed: GpuProcess, owner: Owner, *, hung: bool) -> Process:
    """What the driver and the host say of a process, together.

    Of a device that does not respond its processes are still shown: they are who to ask.
    """
    values: dict[str, Any] = {name: getattr(owner, name) for name in OWNED}
    absent = dict(owner.absent)
    if owner.absence is not None:
        absent |= dict.fromkeys(OWNED, owner.absence)
    for names, reason in (
        (("memory_used_bytes",), listed.absence),
        (UTILIZATIONS, listed.utilization_absence),
    ):
        reason = Absence.TIMED_OUT if hung else reason  # noqa: PLW2901
        values |= {name: None if hung else getattr(listed, name) for name in names}
        absent |= dict.fromkeys(names, reason) if reason else {}
    return Process(pid=listed.pid, device_uuid=uuid, kind=listed.kind, absent=absent, **values)
