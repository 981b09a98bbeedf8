"""Merge several machines: the state of each one's stream, and all as one inventory and sample."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import fields, replace

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
from gputop.stream.child import Interruption
from gputop.stream.ssh import explain_absence

ACK_SECONDS = 0.25
"""Longest time that an acknowledgement takes on a good line."""
LEAP_SECONDS = 0.05
"""Contradiction of the bounds, in seconds, that means that a clock was set. Drift during transfer,
which the bounds leave out, is less."""
DRIFT = 2e-4
"""Largest drift of two clocks in seconds per second: 100 ppm each, as without NTP."""

UNREACHABLE = dict.fromkeys((*READINGS, "processes"), Absence.UNREACHABLE)


def uptime() -> float:
    """Return the clock of `Sample.uptime_seconds`, which also counts suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def no_host(reason: Absence) -> Host:
    """Return the readings of a machine of which nothing is known, with the reason."""
    names = (field.name for field in fields(Host) if field.name != "absent")
    return Host(absent=dict.fromkeys(names, reason))


NO_HOST, NOT_ASKED = no_host(Absence.UNREACHABLE), no_host(Absence.DISABLED)
"""Readings of a machine that is away, and of this machine if it is not one of them."""
_OF_INVENTORY = (
    *(
        "hostname",
        "source",
        "driver_state",
        "driver_version",
        "cuda_version",
        "gputop_version",
    ),
    "unlisted_gpus",
)


class ClockOffset:
    """The reader's clock minus the sender's, estimated from the samples.

    No sample arrives before it is made: that gives an upper bound, too large by the shortest
    transfer time of a sample. A sender that knows the reader's clock gives a lower bound, too small
    by the shortest transfer time of an acknowledgement. The offset is `ACK_SECONDS` above that, or
    the upper bound, which is usually smaller, unless every sample is late.
    """

    def __init__(self) -> None:
        self._upper, self._lower = math.inf, -math.inf
        self._theirs = self._now = -math.inf

    def made_at(self, theirs: float, now: float, echo: float | None = None) -> float:
        """Return when a sample that arrives `now` was made, by the reader's clock, never later."""
        upper, lower = now - theirs, -math.inf
        if echo is not None and echo <= now:
            lower = echo - theirs
        drift = DRIFT * (now - self._now)
        known = min(upper, self._upper + drift), max(lower, self._lower - drift)
        # Samples come in order, so a clock that does not advance was set. One that leaps, or stood
        # still with a paused virtual machine, makes the bounds contradict each other.
        if theirs <= self._theirs or known[1] - known[0] > LEAP_SECONDS:
            known = upper, lower
        (self._upper, self._lower), self._theirs, self._now = known, theirs, now
        offset = self._upper
        if self._lower > -math.inf:
            offset = min(offset, self._lower + ACK_SECONDS)
        return min(now, theirs + offset)  # which rounding could exceed


class MachineStream:
    """State of one machine's stream, in names unique among all machines.

    Times are by our uptime, which nobody sets. Ages count from when a value was read over there,
    not from its arrival. `ClockOffset` converts from the machine's uptime, since its time of day
    may be set.
    """

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.inventory: Inventory | None = None
        """The one that holds for its newest sample, if there is one."""
        self._announced: Inventory | None = None
        """The newest one: devices and their readings come together."""
        self._sample: Sample | None = None
        self._events: list[Event] = []
        self._arrived_at = self._asked_at = now
        self.made_at = now
        """Time at which its newest sample was made."""
        self._offset = ClockOffset()
        self._retry_at: float | None = None
        self._problem: Problem | None = None
        self._unread: Problem | None = None
        """Reason that the newest line could not be read, until a readable one comes."""
        self._restarting = False
        self.state = MachineState.CONNECTING
        self.fresh = False
        """True if there is a sample that was not yet sent on."""

    def add_record(
        self, record: Record | Interruption, now: float, time: float
    ) -> None:
        """Add what arrived `now`; `time` is the same moment as Unix seconds."""
        if isinstance(record, Interruption):
            if record.left_out:
                self._unread = record.problem
            else:
                self._leave(
                    explain_absence(self.name, record), now + record.retry_seconds
                )
            return
        if isinstance(record, Inventory):
            # A restarted sampler knows nothing yet: its devices keep their place.
            self._restarting = (
                bool(self.devices) and record.driver_state is DriverState.STARTING
            )
            if self.state is MachineState.AWAY:
                self.state, self._asked_at, self._retry_at = (
                    MachineState.CONNECTING,
                    now,
                    None,
                )
            self._announced = self._named(record)
            if self.state is not MachineState.OK and not self._restarting:
                self.inventory = self._announced
            return
        # From every sample: those of a starting driver are small, and arrive fastest.
        theirs = record.time if record.uptime_seconds is None else record.uptime_seconds
        made_at = self._offset.made_at(theirs, now, record.echo_seconds)
        if self._announced is not None and not self._restarting:
            self.inventory, renamed = self._announced, self._renamed(record)
            if self.fresh and self._sample is not None:
                devices = tuple(carry_samples(self._sample.devices, renamed.devices))
                renamed = replace(renamed, devices=devices)
            self._arrived_at, self.made_at = now, made_at
            self.fresh, self._sample = True, renamed
            self.state, self._problem, self._retry_at = MachineState.OK, None, None
            self._unread = None
            ahead = (
                time - (now - made_at) - record.time
            )  # our time of day against theirs
            self._events += [self._event(event, ahead, time) for event in record.events]
            del self._events[:-EVENTS]

    def _leave(self, problem: Problem, retry_at: float) -> None:
        if self.state is MachineState.OK:
            self._asked_at = self.made_at
        self._offset = ClockOffset()  # it may have restarted, or be another machine
        self.state, self._problem, self._retry_at = MachineState.AWAY, problem, retry_at

    @property
    def devices(self) -> tuple[Device, ...]:
        """Its devices, also while it is away: they keep their place."""
        return self.inventory.devices if self.inventory else ()

    @property
    def processes(self) -> tuple[Process, ...]:
        """Its processes; none while it is away."""
        return (
            self._sample.processes
            if self._sample and self.state is MachineState.OK
            else ()
        )

    def readings(self, now: float) -> tuple[DeviceSample, ...]:
        """Return the readings of each device; all are absent while it is away."""
        if self.state is not MachineState.OK or self._sample is None:
            return tuple(DeviceSample(d.uuid, absent=UNREACHABLE) for d in self.devices)
        devices = self._sample.devices
        if not self.fresh:
            devices = tuple(without_samples(device) for device in devices)
        since = now - self.made_at
        return tuple(
            device if device.age_seconds is None else device.aged(since)
            for device in devices
        )

    def pop_events(self) -> tuple[Event, ...]:
        """Return the events since the last call, and mark the newest sample as sent."""
        self.fresh = False
        events, self._events = tuple(self._events), []
        return events

    def arrived_since(self, moment: float) -> bool:
        """Return True if it has sent a sample after that moment, and is not away."""
        return self.state is MachineState.OK and self._arrived_at >= moment

    def machine(self, now: float) -> Machine:
        """Return its state and what does not belong to a device."""
        inventory, sample = self.inventory, self._sample
        answers = self.state is MachineState.OK and sample is not None
        since = self.made_at if answers else self._asked_at
        # A bad line between good ones is no problem, nor is a shell's output before them.
        late = now - since > silence_limit(
            inventory.interval_seconds if inventory else 1.0
        )
        problems = [self._problem, self._unread if late else None]
        problems += [known.problem for known in (inventory, sample) if known]
        return Machine(
            self.name,
            self.state,
            now - since,
            None if self._retry_at is None else max(0.0, self._retry_at - now),
            next(filter(None, problems), None),
            sample.time if sample else None,
            host=sample.host if answers and sample else NO_HOST,
            **{name: getattr(inventory, name) for name in _OF_INVENTORY if inventory},
        )

    def _named(self, inventory: Inventory) -> Inventory:
        devices = tuple(
            replace(
                device,
                machine=self.name,
                uuid=qualified(self.name, device.uuid),
                parent_uuid=device.parent_uuid
                and qualified(self.name, device.parent_uuid),
            )
            for device in inventory.devices
        )
        return replace(inventory, devices=devices)

    def _renamed(self, sample: Sample) -> Sample:
        devices = tuple(
            replace(d, uuid=qualified(self.name, d.uuid)) for d in sample.devices
        )
        processes = tuple(
            replace(
                p, machine=self.name, device_uuid=qualified(self.name, p.device_uuid)
            )
            for p in sample.processes
        )
        return replace(sample, devices=devices, processes=processes)

    def _event(self, event: Event, ahead: float, now: float) -> Event:
        at = event.time + ahead
        at = (
            at if abs(at) < NUMBER_LIMIT else now
        )  # or nobody could decode the merged sample
        uuid = event.device_uuid and qualified(self.name, event.device_uuid)
        return replace(event, machine=self.name, device_uuid=uuid, time=at)


def inventory_of(
    machines: Collection[MachineStream], interval: float, time: float
) -> Inventory:
    """Return the inventory of all devices in the order of their machines, and what all share."""
    known = [each.inventory for each in machines if each.inventory is not None]
    settled = [each for each in known if each.driver_state is not DriverState.STARTING]
    simulated = known and all(each.source is Source.SIMULATED for each in known)
    own = next((each.inventory for each in machines if each.name == THIS_MACHINE), None)
    return Inventory(
        time=time,
        hostname=", ".join(each.name for each in machines),
        source=Source.SIMULATED if simulated else Source.NVML,
        driver_state=DriverState.OK if settled else DriverState.STARTING,
        interval_seconds=interval,
        cpu_name=own.cpu_name if own else None,
        driver_version=_common([each.driver_version for each in settled]),
        cuda_version=_common([each.cuda_version for each in settled]),
        devices=tuple(device for each in machines for device in each.devices),
    )


def sample_of(machines: Collection[MachineStream], now: float, time: float) -> Sample:
    """Return the sample of all machines `now`, by our uptime; `time` is the same as Unix seconds.

    All times are by our clock: a value was read `age_seconds` before the time of the sample, and
    events are converted from their machine's clock. Recordings keep them so. Only a machine's
    `time`, and the start of its processes, are by its own clock.
    """
    states = tuple(each.machine(now) for each in machines)
    own = next(
        (state.host for state in states if state.name == THIS_MACHINE), NOT_ASKED
    )
    return Sample(
        time=time,
        host=own,
        devices=tuple(reading for each in machines for reading in each.readings(now)),
        processes=tuple(process for each in machines for process in each.processes),
        events=tuple(event for each in machines for event in each.pop_events()),
        machines=states,
        uptime_seconds=now,
    )


def _common(values: Sequence[str | None]) -> str | None:
    return values[0] if values and len({*values}) == 1 else None
