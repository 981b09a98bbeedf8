"""One of several machines: what its own stream says, in the names that all of them share. Pure."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from gputop.bounds import EVENTS
from gputop.schema.codec import LIMIT
from gputop.schema.device import (
    READINGS,
    THIS_MACHINE,
    Absence,
    Device,
    DeviceSample,
    qualified,
    silence_limit,
)
from gputop.schema.snapshot import (
    DriverState,
    Event,
    Host,
    Inventory,
    Machine,
    MachineState,
    Process,
    Sample,
    carry_samples,
    without_samples,
)
from gputop.stream.child import Interruption
from gputop.stream.flow import ClockOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.problem import Problem
    from gputop.schema.snapshot import Record

UNREACHABLE = dict.fromkeys((*READINGS, "processes"), Absence.UNREACHABLE)


def no_host(reason: Absence) -> Host:
    """A machine of which nothing is known, and why."""
    names = (field.name for field in fields(Host) if field.name != "absent")
    return Host(absent=dict.fromkeys(names, reason))


NO_HOST = no_host(Absence.UNREACHABLE)


class MachineStream:
    """A machine as far as its stream has come. Times are by our uptime, which nobody sets.

    Ages are counted from when a value was read over there, not from when it arrived. When that was
    by our clock, `ClockOffset` knows from the machine's uptime: its time of day may be set.
    """

    def __init__(
        self, name: str, explain: Callable[[str, Interruption], Problem], now: float
    ) -> None:
        self.name = name
        self._explain = explain
        self._inventory: Inventory | None = None
        self._sample: Sample | None = None
        self._events: list[Event] = []
        self._arrived_at = self._asked_at = now
        self.made_at = now
        """When its newest sample was made."""
        self._offset = ClockOffset()
        self._retry_at: float | None = None
        self._problem: Problem | None = None
        self._unread: Problem | None = None
        """Why the newest line could not be read, if none that could came after it."""
        self._restarting = False
        self.state = MachineState.CONNECTING
        self.fresh = False
        """Whether there is a sample that has not been taken."""

    def take(self, record: Record | Interruption, now: float, time: float) -> None:
        """Takes in what arrived `now`; `time` is the same moment as Unix seconds."""
        if isinstance(record, Interruption):
            if not record.left_out:
                self._leave(self._explain(self.name, record), now + record.retry_seconds)
            else:
                self._unread = record.problem
            return
        if isinstance(record, Inventory):
            starting = record.driver_state is DriverState.STARTING
            # A sampler that was started again knows nothing yet: its devices keep their place.
            self._restarting = starting and bool(self.devices)
            if self.state is MachineState.AWAY:
                self.state, self._asked_at = MachineState.CONNECTING, now
            if not self._restarting:
                self._inventory = self._named(record)
            return
        # Of every sample: those of a driver that starts are small, and have the shortest way.
        theirs = record.time if record.uptime_seconds is None else record.uptime_seconds
        made_at = self._offset.made_at(theirs, now, record.echo_seconds)
        if self._inventory is not None and not self._restarting:
            renamed = self._renamed(record)
            if self.fresh and self._sample is not None:
                devices = tuple(carry_samples(self._sample.devices, renamed.devices))
                renamed = replace(renamed, devices=devices)
            self._arrived_at, self.made_at = now, made_at
            self.fresh, self._sample = True, renamed
            self.state, self._problem, self._retry_at = MachineState.OK, None, None
            self._unread = None
            ahead = time - (now - made_at) - record.time  # our time of day against theirs
            self._events += [self._event(event, ahead, time) for event in record.events]
            del self._events[:-EVENTS]

    def _leave(self, problem: Problem, retry_at: float) -> None:
        if self.state is MachineState.OK:
            self._asked_at = self.made_at
        self._offset = ClockOffset()  # it may have been started again, or be another machine
        self.state, self._problem, self._retry_at = MachineState.AWAY, problem, retry_at

    @property
    def devices(self) -> tuple[Device, ...]:
        """Also of one that is away: they keep their place."""
        return self._inventory.devices if self._inventory else ()

    @property
    def inventory(self) -> Inventory | None:
        """What its stream said last, in the shared names."""
        return self._inventory

    @property
    def processes(self) -> tuple[Process, ...]:
        """None of one that is away."""
        return self._sample.processes if self._sample and self._answers else ()

    @property
    def _answers(self) -> bool:
        return self.state is MachineState.OK

    def readings(self, now: float) -> tuple[DeviceSample, ...]:
        """Of each device; all absent while it is away."""
        if not self._answers or self._sample is None:
            return tuple(DeviceSample(d.uuid, absent=UNREACHABLE) for d in self.devices)
        devices = self._sample.devices
        if not self.fresh:
            devices = tuple(without_samples(device) for device in devices)
        since = now - self.made_at
        return tuple(
            device
            if device.age_seconds is None
            else replace(device, age_seconds=device.age_seconds + since)
            for device in devices
        )

    def take_events(self) -> tuple[Event, ...]:
        """Those that came since they were last taken, and with them the newest sample."""
        self.fresh = False
        events, self._events = tuple(self._events), []
        return events

    def arrived_since(self, moment: float) -> bool:
        """Whether it has sent a sample after that moment, and is not away."""
        return self._answers and self._arrived_at >= moment

    def machine(self, now: float) -> Machine:
        """Its state and what does not belong to a device."""
        inventory, sample = self._inventory, self._sample
        answers = self._answers and sample is not None
        since = self.made_at if answers else self._asked_at
        # A bad line between good ones is no problem, nor is what a shell says before them.
        late = now - since > silence_limit(inventory.interval_seconds if inventory else 1.0)
        problem = self._problem or (self._unread if late else None)
        made = Machine(self.name, self.state, now - since, problem=problem)
        if self._retry_at is not None and self.state is MachineState.AWAY:
            made = replace(made, retry_seconds=max(0.0, self._retry_at - now))
        if inventory is None:
            return replace(made, host=NO_HOST)
        return replace(
            made,
            problem=made.problem or inventory.problem or (sample.problem if sample else None),
            time=sample.time if sample else None,
            hostname=inventory.hostname,
            source=inventory.source,
            driver_state=inventory.driver_state,
            driver_version=inventory.driver_version,
            cuda_version=inventory.cuda_version,
            gputop_version=inventory.gputop_version,
            host=sample.host if answers and sample else NO_HOST,
        )

    def _named(self, inventory: Inventory) -> Inventory:
        devices = tuple(
            replace(
                device,
                machine=self.name,
                uuid=self._uuid(device.uuid),
                parent_uuid=None if device.parent_uuid is None else self._uuid(device.parent_uuid),
            )
            for device in inventory.devices
        )
        return replace(inventory, devices=devices)

    def _renamed(self, sample: Sample) -> Sample:
        devices, processes = sample.devices, sample.processes
        if self.name != THIS_MACHINE:
            devices = tuple(replace(d, uuid=self._uuid(d.uuid)) for d in devices)
        processes = tuple(
            replace(p, machine=self.name, device_uuid=self._uuid(p.device_uuid)) for p in processes
        )
        return replace(sample, devices=devices, processes=processes)

    def _event(self, event: Event, ahead: float, now: float) -> Event:
        at = event.time + ahead
        at = at if abs(at) < LIMIT else now  # or nobody could read what it is put together into
        uuid = None if event.device_uuid is None else self._uuid(event.device_uuid)
        return replace(event, machine=self.name, device_uuid=uuid, time=at)

    def _uuid(self, uuid: str) -> str:
        return qualified(self.name, uuid)
