"""The newest of a stream, and what can only be counted over it, at one moment."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from gputop.schema.device import silence_limit
from gputop.schema.snapshot import DriverState, Event, Inventory, Record, Sample
from gputop.stream.child import Interruption, StreamChild

if TYPE_CHECKING:
    from gputop.problem import Problem

XidKey = tuple[str | None, int | None]
"""Device and number; each None where the driver does not say which."""


class Xids(NamedTuple):
    """How often a device reported an Xid, and when last, in Unix seconds."""

    times: int
    last: float


@dataclass(frozen=True, slots=True)
class Latest:
    """Grows with `after`; another thread can have it as it is."""

    inventory: Inventory | None = None
    sample: Sample | None = None
    received: float = 0.0
    """Monotonic time of the sample."""
    xids: Mapping[XidKey, Xids] = field(default_factory=dict)
    interruptions: int = 0

    def after(self, record: Record | Interruption, now: float) -> Latest:
        """What is known when that has come, at that monotonic time."""
        match record:
            case Inventory():
                return replace(self, inventory=record)
            case Sample():
                xids = _counted(self.xids, record.events)
                return replace(self, sample=record, received=now, xids=xids)
            case Interruption():
                return replace(self, interruptions=self.interruptions + 1)

    def current(self, now: float) -> tuple[Inventory, Sample] | None:
        """Both, while the sample is no older than a stream may be silent."""
        if self.inventory is None or self.sample is None:
            return None
        fresh = now - self.received <= silence_limit(self.inventory.interval_seconds)
        return (self.inventory, self.sample) if fresh else None


def _counted(xids: Mapping[XidKey, Xids], events: Iterable[Event]) -> Mapping[XidKey, Xids]:
    found = dict(xids)
    for event in events:
        if event.kind == "xid":
            key = event.device_uuid, event.code
            before = found.get(key, Xids(0, event.time))
            found[key] = Xids(before.times + 1, max(before.last, event.time))
    return found


class Watch:
    """Follows the stream of a child, for those who ask what is known now."""

    def __init__(
        self,
        tell: Callable[[Problem], None],
        also: Callable[[Record | Interruption], None] | None = None,
    ) -> None:
        """`tell` gets each new problem, `also` each record."""
        self.latest = Latest()
        """Replaced as a whole."""
        self._tell = tell
        self._also = also
        self._told: Problem | None = None

    async def follow(self, child: StreamChild) -> None:
        """For ever; tells a problem once, until the driver has answered again."""
        async with contextlib.aclosing(child.records()) as records:
            async for record in records:
                self.take(record)

    def take(self, record: Record | Interruption) -> None:
        """One record, as it comes."""
        self.latest = self.latest.after(record, time.monotonic())
        if self._also is not None:
            self._also(record)
        if isinstance(record, Sample):
            return
        if record.problem is not None and record.problem != self._told:
            self._told = record.problem
            self._tell(record.problem)
        elif isinstance(record, Inventory) and record.driver_state is DriverState.OK:
            self._told = None
