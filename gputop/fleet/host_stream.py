"""Stream of one host of a fleet, for the ordinary monitor, from the same server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from gputop.agent.device import READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Event, Inventory, Record, Sample, Source
from gputop.fleet.client import AskError
from gputop.fleet.queries import NUMBERS
from gputop.fleet.server import one_of
from gputop.stream.child import Interruption
from gputop.stream.merge import no_host

if TYPE_CHECKING:
    from gputop.fleet.model import Fleet, Gpu
    from gputop.fleet.parse import Checked
    from gputop.fleet.watch import FleetWatch

HISTORY_SECONDS = 3600.0
"""Seconds of history that charts show when a host is opened."""
GONE = Problem(
    "No such host",
    "none of its GPUs is in the fleet",
    "Go back, and check whether it was renamed",
)
NO_HOST = no_host(Absence.NOT_SCRAPED)
UNREAD = dict.fromkeys((*READINGS, "processes"), Absence.NOT_SCRAPED)
LOST_XID = 79


class HostStream:
    """Stream of the GPUs of a host at each refresh of the fleet, after an hour of history."""

    def __init__(self, watch: FleetWatch, host: str) -> None:
        self._watch = watch
        self._host = host

    async def records(self) -> AsyncGenerator[Record | Interruption]:
        """Yield an inventory and samples without end, as a sampler does."""
        inventory: Inventory | None = None
        seen_xids: dict[str, int] = {}
        async for fleet in self._watch.fleets():
            gpus = [gpu for gpu in fleet.gpus if gpu.host == self._host]
            if not fleet.fresh and fleet.problems:
                yield Interruption(fleet.problems[0], left_out=True)
                if inventory is not None:
                    continue
            made = self._inventory(fleet, gpus)
            if inventory is None or replace(made, time=inventory.time) != inventory:
                opened = inventory is None or not inventory.devices
                inventory = made
                yield inventory
                if opened and gpus:
                    for sample in await self._past(gpus):
                        yield sample
            if not gpus:
                continue
            # The fleet itself does not ask for all readings, and for some at an earlier moment.
            details: dict[str, Checked] = {}
            absence = Absence.TIMED_OUT
            with suppress(AskError):
                details = await self._watch.details(_matcher(gpus), fleet.moment)
                absence = Absence.NOT_SCRAPED
            fresh = {name for name in NUMBERS if not fleet.lag_seconds(name)}
            samples = tuple(
                self._sample(gpu, details.get(gpu.key, {}), fresh, absence)
                for gpu in gpus
            )
            events = tuple(_new_xids(gpus, seen_xids, fleet.time))
            yield Sample(time=fleet.time, host=NO_HOST, devices=samples, events=events)

    def ask(self, **wanted: Any) -> None:
        """Change nothing: the screen of the fleet sets the interval."""

    async def close(self) -> None:
        """Close nothing: the watch belongs to the fleet."""

    def _inventory(self, fleet: Fleet, gpus: Sequence[Gpu]) -> Inventory:
        labels = gpus[0].labels if gpus else {}
        waiting = not fleet.gpus and not fleet.fresh
        return Inventory(
            time=fleet.time,
            hostname=self._host,
            source=Source.SIMULATED if fleet.simulated else Source.SCRAPED,
            driver_state=DriverState.STARTING if waiting else DriverState.OK,
            interval_seconds=max(self._watch.interval, self._watch.stale_after / 3),
            driver_version=labels.get("driver_version"),
            problem=None if gpus or waiting else GONE,
            devices=tuple(_device(place, gpu, gpus) for place, gpu in enumerate(gpus)),
        )

    async def _past(self, gpus: Sequence[Gpu]) -> list[Sample]:
        """Return earlier scrapes as samples; none if they cannot be read."""
        try:
            found = await self._watch.ranges(_matcher(gpus), HISTORY_SECONDS)
        except AskError:
            return []
        times = sorted({when for gpu in gpus for when in found.get(gpu.key, ())})
        return [
            Sample(
                time=when,
                host=NO_HOST,
                devices=tuple(
                    _read(gpu.key, values, {})
                    for gpu in gpus
                    if (values := found.get(gpu.key, {}).get(when))
                ),
            )
            for when in times[:-1]  # the newest is the present sample
        ]

    def _sample(
        self,
        gpu: Gpu,
        details: Mapping[str, float | None],
        fresh: set[str],
        absence: Absence,
    ) -> DeviceSample:
        """Return the fleet's readings if they are of the same moment, else the details.

        So both screens agree, and all readings are of one time.
        """
        values = dict(details) | {
            name: float(value)
            for name in fresh
            if (value := getattr(gpu, name, None)) is not None
        }
        more: dict[str, Any] = {}
        if gpu.clock_event_reasons is not None:
            more["clock_event_reasons"] = gpu.clock_event_reasons
        if gpu.is_older_than(self._watch.stale_after):
            more["state"] = (
                DeviceState.LOST if gpu.xid == LOST_XID else DeviceState.NOT_RESPONDING
            )
        return _read(gpu.key, values, more, gpu.age_seconds, absence)


def _read(
    key: str,
    values: Mapping[str, float | None],
    more: Mapping[str, Any],
    age: float | None = 0.0,
    absence: Absence = Absence.NOT_SCRAPED,
) -> DeviceSample:
    known = {name: v for name, v in values.items() if v is not None and name in NUMBERS}
    given = {
        name: _TYPES[NUMBERS[name]](value) for name, value in known.items()
    } | dict(more)
    absent = {
        name: Absence.ERROR if name in values else absence
        for name in UNREAD
        if name not in given
    }
    return DeviceSample(uuid=key, age_seconds=age, absent=absent, **given)


_TYPES: Mapping[str, Callable[[float], float]] = {
    "int": round,
    "bool": bool,
    "float": float,
}


def _device(place: int, gpu: Gpu, gpus: Sequence[Gpu]) -> Device:
    """Return a GPU as a device; a MIG instance has its GPU as parent, if that is present."""
    number, _, instance = gpu.index.partition(":")
    index = int(number) if number.isascii() and number.isdecimal() else place
    parent = None
    if instance:
        parent = next(
            (g.key for g in gpus if g.index == number and g.key != gpu.key), None
        )
        parent = parent or gpu.key.partition("/")[0]
    total = gpu.memory_total_bytes
    return Device(
        index=index,
        uuid=gpu.key,
        name=" MIG ".join(filter(None, (gpu.name, gpu.labels.get("mig_profile")))),
        parent_uuid=parent,
        mig_index=int(instance)
        if instance.isascii() and instance.isdecimal()
        else None,
        memory_total_bytes=None if total is None else round(total),
        absent=dict.fromkeys(NOT_EXPORTED, Absence.NOT_SCRAPED),
    )


NOT_EXPORTED = {field.name for field in fields(Device)} - {
    *(
        "index",
        "uuid",
        "name",
        "machine",
        "parent_uuid",
        "mig_index",
        "mig_gpu_instance",
    ),
    *("mig_compute_instance", "memory_total_bytes", "memory_is_shared", "absent"),
}
"""Fields of a device that no exporter reports."""


def _matcher(gpus: Iterable[Gpu]) -> str:
    return f"=~{one_of(sorted({gpu.uuid for gpu in gpus}))}"


def _new_xids(gpus: Iterable[Gpu], seen: dict[str, int], now: float) -> Iterable[Event]:
    """Yield events for new Xids, dated now as their time is unknown."""
    for gpu in gpus:
        if gpu.xid and seen.get(gpu.key) != gpu.xid:
            yield Event(time=now, device_uuid=gpu.key, kind="xid", code=gpu.xid)
        seen[gpu.key] = gpu.xid or 0
