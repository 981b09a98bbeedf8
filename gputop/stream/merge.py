"""What several machines say, as the inventory and the sample of one stream. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.schema.device import THIS_MACHINE, Absence
from gputop.schema.snapshot import DriverState, Inventory, Sample, Source
from gputop.stream.machine import no_host

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gputop.stream.machine import MachineStream


NOT_ASKED = no_host(Absence.DISABLED)
"""This machine, where it is not one of them."""


def inventory_of(machines: Collection[MachineStream], interval: float, time: float) -> Inventory:
    """All devices, in the order of their machines; of the rest what all have alike."""
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
    """Return what all of them have `now`, by our uptime; `time` is the same as Unix seconds.

    All times are those of our clock: a value was read `age_seconds` before the time of the sample,
    and events have been moved from their machine's clock. Recordings keep them like this. Only a
    machine's `time`, and the start of its processes, are by its own clock.
    """
    states = tuple(each.machine(now) for each in machines)
    own = next((state.host for state in states if state.name == THIS_MACHINE), NOT_ASKED)
    return Sample(
        time=time,
        host=own,
        devices=tuple(reading for each in machines for reading in each.readings(now)),
        processes=tuple(process for each in machines for process in each.processes),
        events=tuple(event for each in machines for event in each.take_events()),
        machines=states,
        uptime_seconds=now,
    )


def _common(values: Sequence[str | None]) -> str | None:
    return values[0] if values and len({*values}) == 1 else None
