"""The loop behind `gputop stream`: a reader thread for each device, a sample at each interval.

At each tick every reader that is free reads its device. The loop waits a moment for them, then
sends what there is, on time: a device that hangs holds up its own thread only, and shows its age.

Quick readers take turns. Threads that read at the same time are no faster, since each call releases
Python's lock and waits to get it back, which takes longer than the call.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gputop import __version__, frozen
from gputop.bounds import EVENTS, IDENTIFY_SECONDS
from gputop.problem import Problem, ProblemError
from gputop.schema.codec import rounded
from gputop.schema.device import READINGS, Absence, Device, DeviceSample, DeviceState, silence_limit
from gputop.schema.snapshot import (
    DriverState,
    Event,
    Inventory,
    Process,
    Record,
    Sample,
    Source,
    carry_samples,
    without_samples,
)
from gputop.sources.interface import (
    DeviceReading,
    Driver,
    DriverError,
    OwnerLookup,
    Reader,
    ReplacedError,
    unanswered_process,
)
from gputop.sources.linux.host import WINDOW_SECONDS, HostReader, Owners
from gputop.sources.linux.machine import cpu_name
from gputop.sources.owner_thread import OwnerThread

if TYPE_CHECKING:
    from gputop.sources.selection import Chosen, Selection

RETRY_SECONDS = 2.0
"""Seconds between attempts to start a driver that could not be used: it may be loaded meanwhile."""
GRACE_SECONDS = 0.15
"""Seconds that a tick waits for readers that answered the last one, at short intervals. Values on
the screen can be that much older than the interval."""
LONGEST_AHEAD_SECONDS = 2.0
"""Longest time in seconds that slow values are asked for ahead: beyond it they would be too old."""
STALL_SECONDS = 0.02
"""Seconds after which a slow device no longer makes the others wait for their turn."""
TURNS_SECONDS = 0.1
"""Seconds for all turns of a tick: the rest of the devices is read at the same time."""
FIRST_GRACE_SECONDS = 1.0
"""Seconds that the first sample with devices waits for all of them, and every one at most."""


def pause(seconds: float, cut_short: threading.Event | None = None) -> bool:
    """Sleep that long, or until the event. Return True if the event came."""
    return (cut_short or threading.Event()).wait(max(0.0, seconds))


class _Current(NamedTuple):
    """A GPU and its known instances, their samples, and the processes on them."""

    devices: tuple[Device, ...] = ()
    samples: tuple[DeviceSample, ...] = ()
    processes: tuple[Process, ...] = ()


@dataclass(eq=False, repr=False, slots=True)
class _Slot:
    """A reader and what it read last; guarded by the sampler's lock."""

    reader: Reader
    ask: threading.Condition
    """Condition of the sampler's lock. Each slot has one, or each answer would wake all readers."""
    asked: int = 0
    answered: int = 0
    since: float = 0.0
    """Monotonic time of the last answer, or of the start."""
    read_at: float = 0.0
    """Start of the last read: no value in `known` is older."""
    asked_at: float = 0.0
    """Time of the question that it answers, or answered last."""
    known: _Current = field(default_factory=_Current)
    """Values that were read last."""
    sent: bool = False
    """True if that has been sent before."""
    identity: tuple[Device, ...] = ()
    """The GPU, or its placeholder, and its MIG instances: what the selection is made among."""
    identified: bool = False
    """True if the reader has been asked for that."""
    instances: frozenset[str] | None = None
    """UUIDs of the MIG instances that are read; None for all."""
    late: bool = False
    over: bool = False
    """True if the driver is gone, and the thread should end."""

    def current(self, now: float, interval: float) -> _Current:
        """Return what is known of its devices now: the last reading, or why there is none."""
        # While the interval was longer, or nobody read the stream, it was not asked. A device that
        # takes long over each question is slow, and does not hang.
        heard_at = max(self.since, self.reader.heard_at, self.asked_at - interval)
        # The last tick within the limit comes a moment before it, and is the one that tells.
        hung = now - heard_at > silence_limit(interval) - interval / 2
        age = rounded(now - (self.read_at or self.since))
        known = self.known
        devices = known.devices or (self.reader.device,)
        if hung:
            silent = (_silent(device, Absence.TIMED_OUT, age) for device in devices)
            return _Current(devices, tuple(silent), tuple(map(unanswered_process, known.processes)))
        if not known.devices:
            return _Current(devices, (_silent(devices[0], Absence.NO_DATA_YET),))
        new = map(without_samples, known.samples) if self.sent else known.samples
        return known._replace(samples=tuple(sample.aged(age) for sample in new))


@frozen.dataclass(frozen=True, slots=True)
class _Opened:
    """Result of starting the driver so far; replaced as a whole."""

    driver: Driver | None = None
    problem: Problem | None = None
    slots: tuple[_Slot, ...] = ()

    @property
    def state(self) -> DriverState:
        if self.driver is not None:
            return DriverState.OK
        return DriverState.STARTING if self.problem is None else DriverState.UNAVAILABLE


class Sampler:
    """Yields the records of this machine's stream forever, on time."""

    def __init__(
        self,
        start: Callable[[], Driver],
        interval: float,
        source: Source = Source.NVML,
        owners: Callable[[], OwnerLookup] = Owners,
        *,
        gpm: bool = True,
        selection: Selection | None = None,
        simulate: Callable[[Mapping[str, tuple[float, float]]], None] = lambda _: None,
    ) -> None:
        """Set how the driver starts.

        `selection` says which devices are read; None means all.
        `simulate` puts simulated devices under load, by their UUIDs.
        """
        self._start = start
        self._selection, self._left_out = selection, 0
        self._simulate = simulate
        self._interval = interval
        self._gpm = gpm
        self._source = source
        self._host = HostReader()
        self._owners = OwnerThread(owners())
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._opened = _Opened()
        self._waiting: deque[_Slot] = deque()
        """Slots whose turn comes in this tick."""
        self._hurry = threading.Event()
        """Set if the next tick should come at once."""
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._hostname, self._cpu_name = socket.gethostname(), cpu_name()

    def records(self) -> Iterator[Record]:
        """Yield an inventory, then samples, and a new inventory before the sample that differs."""
        threading.Thread(target=self._open, name="driver", daemon=True).start()
        sent: Inventory | None = None
        for opened in self._ticks():
            # Both at one moment: a reader may learn more about its device between them.
            devices, sample = self._current(opened.slots)
            inventory = self._inventory(opened, devices)
            if sent is None or frozen.replace(inventory, time=sent.time) != sent:
                sent = inventory
                yield inventory
            yield sample

    def set_interval(self, seconds: float) -> None:
        """Change the interval, from now on."""
        self._interval = seconds
        self._hurry.set()

    def set_gpm(self, *, wanted: bool) -> None:
        """Switch GPM on or off: it costs the devices more than all else."""
        begins = wanted and not self._gpm
        self._gpm = wanted
        if begins:  # it takes two ticks until there is a value
            self._hurry.set()

    def simulate(self, loads: Mapping[str, tuple[float, float]]) -> None:
        """Put exactly these devices under load if they are simulated."""
        self._simulate(loads)
        self._hurry.set()

    def _ticks(self) -> Iterator[_Opened]:
        """Read all devices at each interval, and as soon as the driver has answered.

        Yields the driver that was asked at that tick, since another may open at any moment; or,
        if that one is gone at the end of the tick, its successor.
        """
        pause(WINDOW_SECONDS)
        due = time.monotonic()
        asked: _Opened | None = None
        for tick in itertools.count(1):
            self._hurry.clear()
            opened = self._opened
            grace = _grace(self._interval) if opened is asked else FIRST_GRACE_SECONDS
            asked = opened
            self._read_all(opened.slots, tick, grace)
            self._look_up_owners(opened.slots, grace)
            gone = any(slot.over for slot in opened.slots)
            yield self._opened if gone else opened
            interval = self._interval
            due += interval
            hurried = pause(due - time.monotonic(), self._hurry)
            now = time.monotonic()
            # This process was stopped, or nobody read the stream: what was missed stays missed.
            if hurried or now - due > interval / 2:
                due = now

    def _open(self) -> None:
        """Start the driver, however long that takes, and again while it cannot be used.

        Raises `ReplacedError` if one that worked has come back as another.
        """
        worked = False
        while True:
            try:
                driver = self._start()
                slots = self._selected(driver)
            except DriverError as error:
                if worked and error.mismatch:
                    raise ReplacedError("the NVIDIA driver was replaced") from None
                with self._changed:
                    self._replace_opened(_Opened(problem=error.problem))
                pause(RETRY_SECONDS)
                continue
            self._run(driver, slots)
            worked = True
            with self._changed:
                self._changed.wait_for(lambda: self._opened.driver is None)
            driver.close()

    def _selected(self, driver: Driver) -> tuple[_Slot, ...]:
        """Return the GPUs to read, each with its thread. Raises `DriverError` without any."""
        selection = self._selection
        identifies = selection is not None and selection.needs_identities
        slots = [self._new_slot(reader, identifies=identifies) for reader in driver.readers()]
        if selection is None or not slots:
            return tuple(slots)
        if identifies:
            self._wait_for_identities(selection, slots)
        while True:
            with self._changed:
                silent = [slot for slot in slots if identifies and not slot.identified]
                identities = [slot.identity for slot in slots]
            uuids = [gpu.uuid for gpu, *_ in identities]
            devices = [device for identity in identities for device in identity]
            try:
                return self._keep(selection.among(devices, driver.pci_addresses), slots, uuids)
            except ProblemError as error:
                problem = error.problem
            if not silent:
                self._keep({}, slots, uuids)
                driver.close()
                raise DriverError(problem)
            # A new start of the driver could not help a device that hangs: wait for it instead.
            with self._changed:
                self._replace_opened(_Opened(problem=problem))
            self._wait_for_one(silent)

    def _wait_for_identities(self, selection: Selection, slots: Sequence[_Slot]) -> None:
        """Wait until all devices are identified, or the others cannot change the selection."""

        def is_enough() -> bool:
            devices = [device for slot in slots for device in slot.identity]
            return all(slot.identified for slot in slots) or selection.is_certain(devices)

        with self._changed:
            self._changed.wait_for(is_enough, IDENTIFY_SECONDS)

    def _wait_for_one(self, slots: Sequence[_Slot]) -> None:
        """Wait until one of these is identified, however long that takes."""
        with self._changed:
            self._changed.wait_for(lambda: any(slot.identified for slot in slots))

    def _new_slot(self, reader: Reader, *, identifies: bool) -> _Slot:
        slot = _Slot(reader, threading.Condition(self._lock), identity=(reader.device,))
        threading.Thread(
            target=self._read_for_ever, args=(slot, identifies), name="device", daemon=True
        ).start()
        return slot

    def _keep(
        self, chosen: Chosen, slots: Sequence[_Slot], uuids: Sequence[str]
    ) -> tuple[_Slot, ...]:
        """Return the slots of the chosen GPUs, and end the threads of the others.

        `uuids` are those of the slots when the selection was made: one may be identified meanwhile.
        """
        kept = []
        for slot, uuid in zip(slots, uuids, strict=True):
            if uuid in chosen:
                slot.instances = chosen[uuid]
                kept.append(slot)
        with self._changed:
            for slot in slots:
                slot.over = slot not in kept
                slot.ask.notify()
        self._left_out = len(slots) - len(kept)
        return tuple(kept)

    def _run(self, driver: Driver, slots: tuple[_Slot, ...]) -> None:
        now = time.monotonic()
        with self._changed:
            for slot in slots:
                slot.since = now
            self._replace_opened(_Opened(driver, slots=slots))
        threading.Thread(target=self._listen, args=(driver,), name="events", daemon=True).start()

    def _discard_driver(self, slot: _Slot, problem: Problem) -> None:
        """Drop the driver of that slot and all that was read with it: it is gone."""
        with self._changed:
            if slot.over:
                return
            for each in self._opened.slots:
                each.over = True
                each.ask.notify()
            self._replace_opened(_Opened(problem=problem))

    def _replace_opened(self, opened: _Opened) -> None:
        """Note what is known of the driver now, and tick at once if its state is another.

        The lock is held. Nobody should wait a whole interval for the first values.
        """
        if opened.state is not self._opened.state:
            self._hurry.set()
        self._opened = opened
        self._changed.notify_all()

    def _listen(self, driver: Driver) -> None:
        while self._opened.driver is driver:
            events = driver.events()
            with self._changed:
                self._events += events

    def _read_for_ever(self, slot: _Slot, identifies: bool) -> None:
        if identifies:
            identity = slot.reader.identify()
            with self._changed:
                slot.identity, slot.identified = identity, True
                self._changed.notify_all()
        while True:
            with slot.ask:
                slot.ask.wait_for(lambda: slot.over or slot.asked > slot.answered)
                if slot.over:
                    return
                tick = slot.asked
            began = time.monotonic()
            try:
                read = slot.reader.read(gpm=self._gpm)
            except DriverError as error:
                self._discard_driver(slot, error.problem)
                return
            read = _with_instances(read, slot.instances)
            processes = tuple(process for reading in read for process in reading.processes)
            devices = tuple(reading.device for reading in read)
            samples = tuple(reading.sample for reading in read)
            with self._changed:
                if not slot.sent:
                    samples = tuple(carry_samples(slot.known.samples, samples))
                slot.known = _Current(devices, samples, processes)
                slot.answered, slot.read_at = tick, began
                slot.since, slot.sent, slot.late = time.monotonic(), False, False
                if not self._waiting:
                    self._changed.notify_all()
            # The next tick would wait for this; now nobody does.
            slot.reader.look_ahead(min(self._interval, LONGEST_AHEAD_SECONDS))
            with self._changed:
                self._ask_next()

    def _read_all(self, slots: tuple[_Slot, ...], tick: int, grace: float) -> None:
        """Ask every reader; return when those that are not late have answered, or after grace."""
        with self._changed:
            now = time.monotonic()
            self._waiting = deque(slot for slot in slots if slot.answered >= slot.asked)
            for slot in slots:
                slot.asked = tick
            for slot in self._waiting:
                slot.asked_at = now
            self._ask_next()
            while self._waiting and time.monotonic() - now < TURNS_SECONDS:
                before = len(self._waiting)
                self._changed.wait(STALL_SECONDS)
                if len(self._waiting) == before:
                    self._ask_next()
            while self._waiting:
                self._ask_next()
            self._changed.wait_for(
                lambda: all(s.late or s.over or s.answered >= tick for s in slots),
                now + grace - time.monotonic(),
            )
            for slot in slots:
                slot.late = slot.answered < tick

    def _look_up_owners(self, slots: tuple[_Slot, ...], grace: float) -> None:
        with self._changed:
            listed = [process for slot in slots for process in slot.known.processes]
        self._owners.look_up(listed, grace)

    def _ask_next(self) -> None:
        """Wake the next slot that has not begun by itself; the lock is held."""
        while self._waiting:
            slot = self._waiting.popleft()
            if slot.answered < slot.asked:
                slot.ask.notify()
                return

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
            devices_left_out=self._left_out or None,
            unlisted_gpus=opened.driver.unlisted_gpus() if opened.driver else (),
        )

    def _current(self, slots: tuple[_Slot, ...]) -> tuple[tuple[Device, ...], Sample]:
        first: dict[str, _Current] = {}
        with self._changed:
            now = time.monotonic()
            for slot in slots:
                # Indices move when a device is lost: two readers may have found the same one.
                current = slot.current(now, self._interval)
                first.setdefault(current.devices[0].uuid, current)
                slot.sent = True
            events = tuple(self._events)
            self._events.clear()
        devices = tuple(device for each in first.values() for device in each.devices)
        sample = Sample(
            rounded(time.time()),
            self._host.read(),
            tuple(sample for each in first.values() for sample in each.samples),
            tuple(
                self._owners.complete(process)
                for each in first.values()
                for process in each.processes
            ),
            events,
            uptime_seconds=rounded(time.clock_gettime(time.CLOCK_BOOTTIME)),
        )
        return devices, sample


def _with_instances(
    read: tuple[DeviceReading, ...], instances: frozenset[str] | None
) -> tuple[DeviceReading, ...]:
    """Return the reading of the GPU, and those of these instances; None means all."""
    if instances is None:
        return read
    return (read[0], *(each for each in read[1:] if each.device.uuid in instances))


def _grace(interval: float) -> float:
    """Return the seconds that a tick waits: longer if what is late would be old at the next."""
    return max(GRACE_SECONDS, min(FIRST_GRACE_SECONDS, interval / 10))


def _silent(device: Device, reason: Absence, age: float | None = None) -> DeviceSample:
    """Return the sample of a device without an answer; one that hangs has an age."""
    return DeviceSample(
        uuid=device.uuid,
        state=DeviceState.OK if age is None else DeviceState.NOT_RESPONDING,
        age_seconds=age,
        absent=dict.fromkeys((*READINGS, "processes"), reason),
    )
