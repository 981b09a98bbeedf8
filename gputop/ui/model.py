"""What the dashboard knows: the last records of the stream, and its history."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bounds import DEVICES, EVENTS
from gputop.health.conditions import find_alerts, machine_alerts
from gputop.schema.snapshot import (
    Device,
    DeviceSample,
    DeviceState,
    DriverState,
    Event,
    Host,
    Inventory,
    Machine,
    MachineState,
    Sample,
    Source,
    is_old,
    qualified,
    silence_limit,
)
from gputop.stream.child import Interruption
from gputop.stream.history import CAPACITY, History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gputop.health.findings import Finding
    from gputop.health.judge import Judge, Judgement
    from gputop.problem import Problem
    from gputop.schema.snapshot import Record


MOST_HELD = CAPACITY
"""Records that a pause keeps back."""
EVENTS_KEPT = 100
"""The last ones of each device."""


class Telemetry:
    """The stream as far as it has come."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        replayed: bool = False,
        show_secrets: bool = False,
    ) -> None:
        self._clock = clock
        """By which what came is new or old; a replay has its own."""
        self.replayed = replayed
        self.show_secrets = show_secrets
        """Whether it was recorded: what it names may be something else by now."""
        self.inventory: Inventory | None = None
        self.sample: Sample | None = None
        self.latest: Sample | None = None
        """The newest one; while it is paused, another than the one that is shown."""
        self.paused = False
        """Whether what is shown stays as it is."""
        self.alerts: list[Finding] = []
        """Of the newest sample: what is wrong is said also while the picture is paused."""
        self._reported: deque[Event] = deque(maxlen=EVENTS)
        """Those that are looked at for alerts."""
        self._held: deque[Record] = deque()
        self._known: Mapping[str, DeviceSample] = {}
        self._known_of: Sample | None = None
        """The sample that those are of."""
        self.history = History()
        self._judge: Judge | None = None
        """Made when its judgement is first wanted: the first screen does without the rules."""
        self._judgement: Judgement
        self._judged = -1
        self._events: dict[str | None, deque[Event]] = defaultdict(
            lambda: deque(maxlen=EVENTS_KEPT)
        )
        self.host: Host | None = None
        self.interruption: Problem | None = None
        self._broken_off = False
        """Whether the stream has ended since the newest sample."""
        self.restarting = False
        """Whether it broke off or devices are known, and the driver has not answered again."""
        self.began_at = self.received_at = clock()

    def take(self, record: Record | Interruption) -> None:
        """Takes in what came; while it is paused, what is shown stays as it is."""
        if isinstance(record, Interruption):
            self.interruption = record.problem
            self._broken_off |= not record.left_out
            return
        if isinstance(record, Inventory):
            # A sampler that was started again knows nothing yet: what was known is still shown, and
            # what ended the one before, which may end this one as well.
            starting = record.driver_state is DriverState.STARTING
            self.restarting = starting and (self._broken_off or bool(self.devices))
        if self.restarting:
            if isinstance(record, Sample) and not self.paused:
                self.host = record.host
            return
        if isinstance(record, Sample):
            record = record.with_secrets(shown=self.show_secrets)
            self.latest = record
            self.interruption, self._broken_off = None, False
            self.received_at = self._clock()
            self._reported.extend(record.events)
            readings = {sample.uuid: sample for sample in record.devices}
            hostname = self.inventory.hostname if self.inventory else ""
            self.alerts = machine_alerts(record.machines, record, hostname)
            self.alerts += find_alerts(self.devices, readings, self._reported, record.time)
        if self.paused and len(self._held) < MOST_HELD:
            self._held.append(record)
            return
        if self.paused:  # more than a chart can show: the oldest goes in, so that nothing is lost
            self._held.append(record)
            record = self._held.popleft()
        self._show(record)

    def begin_anew(self, records: Iterable[Record | Event]) -> None:
        """Forgets everything, and takes these in; events among them are from before."""
        fresh = Telemetry(self._clock, replayed=self.replayed)
        for record in records:
            if isinstance(record, Event):
                fresh._reported.append(record)
                fresh._events[record.device_uuid].append(record)
            else:
                fresh.take(record)
        self.__dict__.update(fresh.__dict__)  # at once: it may be looked at meanwhile

    def pause(self) -> None:
        """Stops the picture, or lets it catch up."""
        self.paused = not self.paused
        while not self.paused and self._held:
            self._show(self._held.popleft())

    def _show(self, record: Record) -> None:
        if isinstance(record, Inventory):
            self.inventory = record
        else:
            for event in (*record.events, *self._changes_of_state(record)):
                self._events[event.device_uuid or event.machine].append(event)
            while len(self._events) > 2 * DEVICES:  # events may name devices that there are not
                del self._events[next(iter(self._events))]
            self.sample, self.host = record, record.host
            self.history.add(record)

    def _changes_of_state(self, sample: Sample) -> Iterator[Event]:
        """Devices that are lost, or answer again: the kind is the state."""
        for device in sample.devices:
            state = self.readings(device.uuid).state
            if device.state is not state:
                yield Event(sample.time, device.uuid, device.state.value)

    @property
    def judgement(self) -> Judgement:
        """What the rules say of what is shown: found out once for each sample, where it is asked.

        A picture that catches up after a pause is judged at its end.
        """
        if self._judge is None:
            from gputop.health.judge import Judge, Judgement

            self._judge, self._judgement = Judge(), Judgement()
        if self._judged != self.history.count and self.inventory and self.sample:
            self._judged = self.history.count
            events = [event for known in self._events.values() for event in known]
            self._judgement = self._judge.judge(self.history, self.inventory, self.sample, events)
        return self._judgement

    def events(self, uuid: str) -> list[Event]:
        """What happened to the device, and what may have; the newest first."""
        device = find_device(self.devices, uuid)
        keys = (uuid, device.machine if device else None)
        found = [event for key in keys for event in self._events.get(key, ())]
        return sorted(found, key=lambda event: -event.time)

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.inventory.devices if self.inventory else ()

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Those of a stream of several; else none."""
        return self.sample.machines if self.sample else ()

    def machine_of(self, device: Device) -> Machine | None:
        """The one that the device is in, of several."""
        return next((each for each in self.machines if each.name == device.machine), None)

    def host_of(self, device: Device) -> Host | None:
        """The machine around the device."""
        machine = self.machine_of(device)
        return self.host if machine is None else machine.host

    @property
    def simulated(self) -> bool:
        return self.inventory is not None and self.inventory.source is Source.SIMULATED

    @property
    def scraped(self) -> bool:
        """Whether a server has told the readings, of a machine that is elsewhere."""
        return self.inventory is not None and self.inventory.source is Source.SCRAPED

    def elsewhere(self, device: Device) -> str:
        """The machine that the device is in: foreign text; "" where it is this one."""
        if self.inventory is not None and self.scraped:
            return self.inventory.hostname.rpartition("/")[2]  # without its cluster
        return "" if device.is_here else device.machine or ""

    @property
    def starting(self) -> bool:
        """Whether the driver has not answered yet."""
        return self.inventory is None or self.inventory.driver_state is DriverState.STARTING

    @property
    def waiting_seconds(self) -> float:
        """How long the driver has not answered, while it is starting."""
        return self._clock() - self.began_at

    @property
    def silent_seconds(self) -> float | None:
        """How old the newest sample is, once it is too old, or the next one may not come."""
        age = self._clock() - self.received_at
        # An interval before the limit: a sampler sends on time, whatever its devices do.
        late = age > self.silence_limit - self._interval
        return age if late or self._broken_off or self.restarting else None

    @property
    def silence_limit(self) -> float:
        """Seconds without a sample that are too many."""
        return silence_limit(self._interval)

    @property
    def _interval(self) -> float:
        return self.inventory.interval_seconds if self.inventory else 1.0

    def old_seconds(self, readings: DeviceSample) -> float | None:
        """How old these are, where they must not look like those of this moment."""
        if readings.state is not DeviceState.OK or readings.age_seconds is None:
            return None
        age = readings.age_seconds + (self.silent_seconds or 0.0)
        return age if is_old(age, self._interval) else None

    def behind_seconds(self, machine: Machine) -> float | None:
        """Return how far behind one of several machines is shown, or None if it is up to date."""
        if machine.state is not MachineState.OK or machine.age_seconds is None:
            return None
        age = machine.age_seconds + (self.silent_seconds or 0.0)
        return age if is_old(age, self._interval) else None

    def readings(self, uuid: str) -> DeviceSample:
        """The device's newest readings; without any, all of them absent."""
        if self._known_of is not self.sample:
            devices = self.sample.devices if self.sample else ()
            self._known_of, self._known = self.sample, {each.uuid: each for each in devices}
        return self._known.get(uuid) or DeviceSample(uuid)

    @property
    def process_count(self) -> int:
        """Rows that the processes on all devices take."""
        return len(self.sample.processes) if self.sample else 0


def own(inventory: Inventory | None) -> Inventory | None:
    """Of several machines what is this one's, as it alone would say it."""
    if inventory is None or all(device.machine is None for device in inventory.devices):
        return inventory
    return replace(inventory, devices=tuple(d.own for d in inventory.devices if d.is_here))


def find_device(devices: Sequence[Device], uuid: str | None) -> Device | None:
    """The device of that UUID; one that was unknown when it was chosen is known by its index."""
    if uuid is None:
        return None
    for device in devices:
        if uuid in (device.uuid, qualified(device.machine, f"unknown:{device.index}")):
            return device
    return None
