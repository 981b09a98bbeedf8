"""State of the dashboard: the latest records of the stream, and their history."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.device import Device, DeviceSample, DeviceState, qualified
from gputop.agent.problem import Problem
from gputop.agent.snapshot import (
    EVENTS,
    DriverState,
    Event,
    Host,
    Inventory,
    Machine,
    MachineState,
    Record,
    Sample,
    Source,
)
from gputop.agent.times import is_old, silence_limit
from gputop.health.findings import Finding
from gputop.schema.limits import DEVICES
from gputop.stream.child import Interruption
from gputop.stream.history import CAPACITY, History
from gputop.stream.process_history import ProcessHistory

if TYPE_CHECKING:
    from gputop.health.judge import Judge, Judgement
    from gputop.health.why import Situation, WhyReport

MOST_HELD = CAPACITY
"""Most records to keep during a pause."""
STOPPED_AFTER = 1.0
"""Longest time between two ticks of a running dashboard. After a longer time, it was suspended or
delayed."""


class Telemetry:
    """Stream of records so far: the data to show, and its problems."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        replayed: bool = False,
        show_secrets: bool = False,
    ) -> None:
        self._clock = clock
        """Clock for ages. A replay has its own clock."""
        self.replayed = replayed
        """True for a recording, whose pids may belong to other processes by now."""
        self.show_secrets = show_secrets
        self.host_name: str | None = None
        """Name of the only host to show, if there are several; None for all."""
        self.inventory: Inventory | None = None
        self.sample: Sample | None = None
        self.latest: Sample | None = None
        """Newest sample. During a pause, this is not the one on screen."""
        self.paused = False
        self._reported: deque[Event] = deque(maxlen=EVENTS)
        self._held: deque[Record] = deque()
        self._known: Mapping[str, DeviceSample] = {}
        self._by_uuid: dict[str | None, Device] = {}
        self.history = History()
        self.process_history = ProcessHistory()
        self._judge: Judge | None = None
        """Created on first use, because the first screen does not load the rules."""
        self._situation: Situation
        self._events: dict[str | None, deque[Event]] = defaultdict(
            lambda: deque(maxlen=EVENTS),
        )
        self.host: Host | None = None
        self.interruption: Problem | None = None
        self._broken_off = False
        """True if the stream ended after the newest sample."""
        self.restarting = False
        """True after an interruption until the driver answers again."""
        self.moving = False
        """True while a replay jumps: its clock has changed, and `restart` has not finished reading.
        """
        self.began_at = self.received_at = clock()
        self._ticked_at, self._stopped_seconds = time.monotonic(), 0.0

    def receive(self, record: Record | Interruption) -> None:
        """Process a record or the end of the stream. During a pause, the screen does not change."""
        if isinstance(record, Interruption):
            self.interruption = record.problem
            self._broken_off |= not record.left_out
            return
        if isinstance(record, Inventory):
            # A restarted sampler has no devices at first. Keep showing the
            # last data and the reason for the interruption, which may end this
            # sampler, too.
            starting = record.driver_state is DriverState.STARTING
            known = self.inventory is not None and self.inventory.devices
            self.restarting = starting and (self._broken_off or bool(known))
        if self.restarting:
            if isinstance(record, Sample) and not self.paused:
                self.host = record.host
            return
        if isinstance(record, Sample):
            record = record.with_secrets(shown=self.show_secrets)
            self.latest = record
            self.interruption, self._broken_off = None, False
            self.received_at = self._clock()
            self._ticked_at, self._stopped_seconds = time.monotonic(), 0.0
            self._reported.extend(record.events)
        if self.paused:
            self._held.append(record)
            if len(self._held) <= MOST_HELD:
                return
            record = (
                self._held.popleft()
                # No record may be lost, but a chart cannot show more than these.
            )
        self._show(record)

    def restart(self, records: Iterable[Record | Event]) -> None:
        """Start again with these records. Events among them happened before."""
        fresh = Telemetry(self._clock, replayed=self.replayed)
        for record in records:
            if isinstance(record, Event):
                fresh._reported.append(record)
                fresh._events[record.device_uuid].append(record)
            else:
                fresh.receive(record)
        fresh.host_name = self.host_name
        # Replace everything at once, because another thread may read it.
        self.__dict__.update(fresh.__dict__)

    def pause(self) -> None:
        """Freeze the screen, or let it catch up."""
        self.paused = not self.paused
        while not self.paused and self._held:
            self._show(self._held.popleft())

    def _show(self, record: Record) -> None:
        if isinstance(record, Inventory):
            self.inventory = record
            self._by_uuid = {}
            for device in reversed(record.devices):
                unknown = f"unknown:{device.index}"
                self._by_uuid[qualified(device.machine, unknown)] = device
                self._by_uuid[device.uuid] = device
        else:
            for event in (*record.events, *self._changes_of_state(record)):
                self._events[event.device_uuid or event.machine].append(event)
            # Events may name unknown devices.
            while len(self._events) > 2 * DEVICES:
                del self._events[next(iter(self._events))]
            self.sample, self.host = record, record.host
            self._known = {each.uuid: each for each in record.devices}
            self.history.add(record)
            self.process_history.add(record.processes)

    def _changes_of_state(self, sample: Sample) -> Iterator[Event]:
        """Yield events for devices that are lost or answer again. The kind of the event is the
        state."""
        for device in sample.devices:
            state = self.readings(device.uuid).state
            if device.state is not state:
                yield Event(sample.time, device.uuid, device.state.value)

    @property
    def findings(self) -> Sequence[Finding]:
        """All findings about the newest sample, even during a pause."""
        return self._conclude().findings

    @property
    def judgement(self) -> Judgement:
        """Judgement of the newest sample. Its means are those of the charts."""
        return self._conclude().judgement

    @property
    def problems(self) -> Mapping[str, Finding]:
        """Gravest finding above normal of each device; slowness comes first."""
        return self._conclude().problems

    def why(self, device: Device | None = None) -> WhyReport:
        """Return the page *Why is it slow?* about all visible devices, or about one device."""
        return self._conclude().report(self.devices, device)

    def _conclude(self) -> Situation:
        """Return the current findings, computed once per sample on demand.

        After a pause, only the last sample is judged.
        """
        from gputop.health.judge import Judge
        from gputop.health.why import NOTHING, Situation

        if self._judge is None:
            self._judge, self._situation = Judge(), NOTHING
        inventory, sample = self.inventory, self.latest
        is_new = self._situation.sample is not sample
        if is_new and inventory and sample and self.history.count:
            judgement = self._judge.judge(
                self.history,
                inventory,
                sample,
                self._reported,
            )
            self._situation = Situation(inventory, sample, judgement)
        return self._situation

    def events(self, uuid: str) -> list[Event]:
        """Return events of the device and of its whole machine, newest first."""
        device = self.find_device(uuid)
        keys = (uuid, device.machine if device else None)
        found = [event for key in keys for event in self._events.get(key, ())]
        return sorted(found, key=lambda event: -event.time)

    @property
    def _all_devices(self) -> tuple[Device, ...]:
        return self.inventory.devices if self.inventory else ()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the visible hosts."""
        if self.host_name is None:
            return self._all_devices
        return tuple(
            d for d in self._all_devices if d.machine == self.host_name
        )

    def find_device(self, uuid: str | None) -> Device | None:
        """Return the device with that UUID. A device of unknown UUID is matched by index."""
        return self._by_uuid.get(uuid)

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Visible machines of a stream of several machines; empty for one."""
        found = self.sample.machines if self.sample else ()
        if self.host_name is None:
            return found
        return tuple(each for each in found if each.name == self.host_name)

    @property
    def has_hosts(self) -> bool:
        """True if the stream has several hosts."""
        return self.sample is not None and len(self.sample.machines) > 1

    @property
    def has_ranks(self) -> bool:
        """True if a process has a rank in a parallel job."""
        processes = self.sample.processes if self.sample else ()
        return any(process.rank is not None for process in processes)

    def machine_of(self, device: Device) -> Machine | None:
        """Return the device's machine, if the stream has several."""
        return next(
            (each for each in self.machines if each.name == device.machine),
            None,
        )

    def host_of(self, device: Device) -> Host | None:
        """Return the readings of the device's host."""
        machine = self.machine_of(device)
        return self.host if machine is None else machine.host

    @property
    def simulated(self) -> bool:
        return (
            self.inventory is not None
            and self.inventory.source is Source.SIMULATED
        )

    @property
    def starting(self) -> bool:
        """True until the driver answers."""
        return (
            self.inventory is None
            or self.inventory.driver_state is DriverState.STARTING
        )

    @property
    def waiting_seconds(self) -> float:
        """Seconds without an answer from the driver, while it is starting."""
        return self._clock() - self.began_at

    @property
    def silent_seconds(self) -> float | None:
        """Age of the newest sample if it is too old or no other will come; else None."""
        age = self._clock() - self.received_at
        # Report it one interval before the limit: a sampler is punctual,
        # whatever its devices do.
        late = age - self._unread_seconds > self.silence_limit - self.interval
        silent = late or self._broken_off or self.restarting
        return age if silent and not self.moving else None

    def tick(self) -> None:
        """Record that the dashboard is running. Called more than once a second."""
        self._stopped_seconds, self._ticked_at = (
            self._unread_seconds,
            time.monotonic(),
        )

    @property
    def _unread_seconds(self) -> float:
        """Time that the dashboard itself was suspended since the newest sample."""
        return self._stopped_seconds + max(
            0.0,
            time.monotonic() - self._ticked_at - STOPPED_AFTER,
        )

    @property
    def silence_limit(self) -> float:
        """Seconds without a sample that count as a fault."""
        return silence_limit(self.interval)

    @property
    def interval(self) -> float:
        """Seconds between samples."""
        return self.inventory.interval_seconds if self.inventory else 1.0

    def old_seconds(self, shown: DeviceSample | Machine) -> float | None:
        """Return the age of an OK device or machine if it is too old to look current."""
        if shown.age_seconds is None or shown.state not in (
            DeviceState.OK,
            MachineState.OK,
        ):
            return None
        age = shown.age_seconds + (self.silent_seconds or 0.0)
        return age if is_old(age, self.interval) else None

    def readings(self, uuid: str) -> DeviceSample:
        """Return the newest readings of a device. If there are none, all are absent."""
        return self._known.get(uuid) or DeviceSample(uuid)


def local_inventory(inventory: Inventory | None) -> Inventory | None:
    """Return this machine's part of an inventory of several machines, as if it were alone."""
    if inventory is None or all(
        device.machine is None for device in inventory.devices
    ):
        return inventory
    return replace(
        inventory,
        devices=tuple(d.own for d in inventory.devices if d.is_here),
    )
