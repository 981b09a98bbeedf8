"""Merge the streams of several machines into one inventory and one sample."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from gputop.agent.device import (
    READINGS,
    THIS_MACHINE,
    Absence,
    Device,
    DeviceSample,
    qualified,
)
from gputop.agent.problem import Problem
from gputop.agent.snapshot import (
    EVENTS,
    DriverState,
    Event,
    Host,
    Inventory,
    Machine,
    MachineState,
    Process,
    Record,
    Sample,
    Source,
    carry_samples,
    without_samples,
)
from gputop.agent.times import silence_limit
from gputop.schema.limits import NUMBER_LIMIT
from gputop.stream.ssh import explain_absence

if TYPE_CHECKING:
    from gputop.stream.child import Interruption

UNREACHABLE = dict.fromkeys((*READINGS, "processes"), Absence.UNREACHABLE)


def no_host(reason: Absence) -> Host:
    """Return host readings that are all absent for this reason."""
    names = (field.name for field in fields(Host) if field.name != "absent")
    return Host(absent=dict.fromkeys(names, reason))


NO_HOST, NOT_ASKED = no_host(Absence.UNREACHABLE), no_host(Absence.DISABLED)
"""Host readings of an unreachable machine, and of this machine if it is not in the list."""
_OF_INVENTORY = (
    "hostname",
    "source",
    "driver_state",
    "driver_version",
    "cuda_version",
    "gputop_version",
    "unlisted_gpus",
)


class MachineStream:
    """State of one machine's stream. UUIDs get the machine's name, so that they stay unique.

    Clocks of different machines are never compared, only durations that one machine measured. `now`
    is the uptime of the machine that runs this code.
    """

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.state = MachineState.CONNECTING
        self.inventory: Inventory | None = None
        """Inventory of the newest sample, or the newest inventory before the first sample."""
        self.fresh = False
        """True if the newest sample was not yet passed on."""
        self._announced: Inventory | None = None
        """Newest inventory. It takes effect with its first sample: devices must match readings."""
        self._sample: Sample | None = None
        self._events: list[Event] = []
        self._silent_since = now
        """Time at which the newest sample was made, or the connection began."""
        self._arrived_at: float | None = None
        """Time at which the newest sample arrived and the next one was requested."""
        self._retry_at: float | None = None
        self._problem: Problem | None = None
        self._unread: Problem | None = None
        """Reason why the newest line could not be read; None after a readable one."""
        self._restarting = False

    def add_record(
        self, record: Record | Interruption, now: float, time: float
    ) -> None:
        """Add a record that arrived `now`; `time` is the same moment in Unix seconds."""
        if isinstance(record, Sample):
            self._add_sample(record, now, time)
        elif isinstance(record, Inventory):
            self._add_inventory(record, now)
        elif record.left_out:
            self._unread = record.problem
        else:
            self.state = MachineState.AWAY
            self._problem = explain_absence(self.name, record)
            self._retry_at = now + record.retry_seconds
            self._arrived_at = None

    def _add_inventory(self, inventory: Inventory, now: float) -> None:
        # A restarted sampler has no devices at first, so keep the old ones.
        starting = inventory.driver_state is DriverState.STARTING
        self._restarting = starting and bool(self.devices)
        if self.state is MachineState.AWAY:
            self.state = MachineState.CONNECTING
            self._silent_since = now
            self._retry_at = None
        self._announced = self._named(inventory)
        if self.state is not MachineState.OK and not self._restarting:
            self.inventory = self._announced

    def _add_sample(
        self,
        sample: Sample,
        now: float,
        time: float,
    ) -> None:
        late = self._lateness(sample, now)
        self._arrived_at = now
        if self._announced is None or self._restarting:
            return
        renamed = self._renamed(sample)
        if self.fresh and self._sample is not None:
            devices = carry_samples(self._sample.devices, renamed.devices)
            renamed = replace(renamed, devices=tuple(devices))
        self.inventory = self._announced
        self.state = MachineState.OK
        self.fresh = True
        self._sample = renamed
        self._silent_since = now - late
        self._retry_at = self._problem = self._unread = None
        for event in sample.events:
            age = late + sample.time - event.time
            self._events.append(self._event(event, time, age))
        del self._events[:-EVENTS]

    def _lateness(self, sample: Sample, now: float) -> float:
        """Return the age in seconds of a sample that arrives `now`.

        It includes the travel time of the request, so it is slightly too large. It is 0 for the
        first sample, whose request had to wait for the connection, and for an older gputop.
        """
        if sample.waited_seconds is None or self._arrived_at is None:
            return 0.0
        return max(0.0, now - self._arrived_at - sample.waited_seconds)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the machine. They are kept while it is unreachable."""
        return self.inventory.devices if self.inventory else ()

    @property
    def _newest(self) -> Sample | None:
        """Newest sample of the machine; None while it is unreachable."""
        return self._sample if self.state is MachineState.OK else None

    @property
    def processes(self) -> tuple[Process, ...]:
        """Processes of the machine; empty while it is unreachable."""
        return self._newest.processes if self._newest else ()

    def readings(self, now: float) -> tuple[DeviceSample, ...]:
        """Return the readings of each device. All are absent while the machine is unreachable."""
        if self._newest is None:
            return tuple(
                DeviceSample(d.uuid, absent=UNREACHABLE) for d in self.devices
            )
        readings = []
        for device in self._newest.devices:
            if not self.fresh:
                device = without_samples(device)  # noqa: PLW2901
            if device.age_seconds is not None:
                device = device.aged(now - self._silent_since)  # noqa: PLW2901
            readings.append(device)
        return tuple(readings)

    def pop_events(self) -> tuple[Event, ...]:
        """Return the events since the last call, and mark the newest sample as sent."""
        self.fresh = False
        events, self._events = tuple(self._events), []
        return events

    def arrived_since(self, moment: float) -> bool:
        """Return True if the machine is reachable and a sample has arrived since `moment`."""
        if self._arrived_at is None or self.state is not MachineState.OK:
            return False
        return self._arrived_at >= moment

    def machine(self, now: float) -> Machine:
        """Return the machine's state, versions, host readings and problem."""
        silent = now - self._silent_since
        problems = [self._problem]
        # Report an unreadable line only if no sample has come for a long time.
        interval = self.inventory.interval_seconds if self.inventory else 1.0
        if silent > silence_limit(interval):
            problems.append(self._unread)
        machine = Machine(
            self.name,
            self.state,
            age_seconds=silent,
            host=NO_HOST,
        )
        if self._retry_at is not None:
            machine = replace(
                machine, retry_seconds=max(0.0, self._retry_at - now)
            )
        if self.inventory is not None:
            problems.append(self.inventory.problem)
            common = {
                name: getattr(self.inventory, name) for name in _OF_INVENTORY
            }
            machine = replace(machine, **common)
        if self._sample is not None:
            problems.append(self._sample.problem)
            machine = replace(machine, time=self._sample.time)
        if self._newest is not None:
            machine = replace(machine, host=self._newest.host)
        return replace(machine, problem=next(filter(None, problems), None))

    def _named(self, inventory: Inventory) -> Inventory:
        devices = []
        for device in inventory.devices:
            parent = device.parent_uuid
            named = replace(
                device,
                machine=self.name,
                uuid=qualified(self.name, device.uuid),
                parent_uuid=parent and qualified(self.name, parent),
            )
            devices.append(named)
        return replace(inventory, devices=tuple(devices))

    def _renamed(self, sample: Sample) -> Sample:
        devices = [
            replace(each, uuid=qualified(self.name, each.uuid))
            for each in sample.devices
        ]
        processes = []
        for process in sample.processes:
            uuid = qualified(self.name, process.device_uuid)
            processes.append(
                replace(process, machine=self.name, device_uuid=uuid)
            )
        return replace(
            sample, devices=tuple(devices), processes=tuple(processes)
        )

    def _event(
        self,
        event: Event,
        time: float,
        age: float,
    ) -> Event:
        """Return the event with this machine's names, and the time `age` seconds before `time`."""
        at = time - age
        # The decoder rejects larger numbers.
        if abs(at) >= NUMBER_LIMIT:
            at = time
        uuid = event.device_uuid and qualified(self.name, event.device_uuid)
        return replace(
            event,
            machine=self.name,
            device_uuid=uuid,
            time=at,
        )


def inventory_of(
    machines: Collection[MachineStream], interval: float, time: float
) -> Inventory:
    """Return one inventory: all devices, in the order of the machines, and common versions."""
    devices: list[Device] = []
    settled = []
    sources = set()
    cpu_name = None
    for each in machines:
        inventory = each.inventory
        if inventory is None:
            continue
        devices += inventory.devices
        sources.add(inventory.source)
        if inventory.driver_state is not DriverState.STARTING:
            settled.append(inventory)
        if each.name == THIS_MACHINE:
            cpu_name = inventory.cpu_name
    return Inventory(
        time=time,
        hostname=", ".join(each.name for each in machines),
        source=Source.SIMULATED
        if sources == {Source.SIMULATED}
        else Source.NVML,
        driver_state=DriverState.OK if settled else DriverState.STARTING,
        interval_seconds=interval,
        cpu_name=cpu_name,
        driver_version=_common({each.driver_version for each in settled}),
        cuda_version=_common({each.cuda_version for each in settled}),
        devices=tuple(devices),
    )


def sample_of(
    machines: Collection[MachineStream],
    now: float,
    time: float,
) -> Sample:
    """Return one sample of all machines. `now` is our uptime, `time` the same in Unix seconds.

    A value was read `age_seconds` before the time of the sample. Events have times of our clock.
    Only a machine's `time` and the start times of its processes use that machine's clock.
    """
    own = NOT_ASKED
    states: list[Machine] = []
    devices: list[DeviceSample] = []
    processes: list[Process] = []
    events: list[Event] = []
    for each in machines:
        state = each.machine(now)
        states.append(state)
        devices += each.readings(now)
        processes += each.processes
        events += each.pop_events()
        if each.name == THIS_MACHINE:
            own = state.host
    return Sample(
        time=time,
        host=own,
        devices=tuple(devices),
        processes=tuple(processes),
        events=tuple(events),
        machines=tuple(states),
        uptime_seconds=now,
    )


def still_connects(sample: Sample) -> bool:
    """Return True if a machine is still connecting, or its sampler is still starting."""
    for machine in sample.machines:
        starts = machine.driver_state is DriverState.STARTING
        if machine.state is MachineState.CONNECTING:
            return True
        if machine.state is MachineState.OK and starts:
            return True
    return False


def _common(values: set[str | None]) -> str | None:
    return values.pop() if len(values) == 1 else None
