"""Snapshots of a stream, each a sample with its inventory: awaited, or the newest at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from gputop.problem import Problem, ProblemError
from gputop.schema.device import DeviceState, silence_limit
from gputop.schema.snapshot import DriverState, Event, Inventory, Record, Sample
from gputop.stream.child import Interruption, StreamChild
from gputop.stream.launch import command

ANSWER_SECONDS = 15.0
"""Seconds for the driver to answer, or be found missing."""


class StreamError(ProblemError):
    """No snapshot is available."""


class Snapshot(NamedTuple):
    """A sample, and the inventory that holds for it."""

    inventory: Inventory
    sample: Sample


class RecordStream(Protocol):
    """A source of records: a child, or a substitute."""

    def records(self) -> AsyncGenerator[Record | Interruption]: ...

    async def close(self) -> None: ...


def _stopped(interruption: Interruption) -> Problem:
    return replace(interruption.problem, remedy="Try again, or see what `gputop stream` says")


async def snapshots(
    stream: RecordStream,
    timeout_seconds: float = ANSWER_SECONDS,
    explain: Callable[[Interruption], Problem] = _stopped,
) -> AsyncGenerator[Snapshot | Interruption]:
    """Yield samples with their inventories, from when the driver answered or was found missing.

    Raises `StreamError` if neither happens in time, or the stream breaks off before; `explain`
    says why it broke off. Later interruptions are yielded. Closes the stream.
    """
    inventory: Inventory | None = None
    begun = False
    try:
        async with asyncio.timeout(timeout_seconds) as limit:
            async with contextlib.aclosing(stream.records()) as records:
                async for record in records:
                    if isinstance(record, Inventory):
                        inventory = record
                    elif isinstance(record, Interruption):
                        if begun:
                            yield record
                        elif not record.left_out:
                            raise StreamError(explain(record))
                    elif inventory and (
                        begun or inventory.driver_state is not DriverState.STARTING
                    ):
                        begun = True
                        limit.reschedule(None)  # before the yield: it is this task's alone
                        yield Snapshot(inventory, record)
    except TimeoutError:
        pass
    finally:
        await stream.close()
    raise StreamError(
        Problem(
            "The NVIDIA driver does not answer",
            f"it said nothing within {timeout_seconds:g} s",
            "Look for Xid errors in `dmesg`; a reboot may be needed",
        )
    )


async def one_snapshot(
    *, demo: bool = False, complete: bool = False, timeout_seconds: float = ANSWER_SECONDS
) -> Snapshot:
    """Return the first snapshot of a new sampler. Raises `StreamError` if there is none in time.

    With `complete`, the first in which every device has answered, or does not respond.
    """
    interval = 0.5
    count = None if complete else 1
    child = StreamChild(command(interval=interval, count=count, demo=demo), interval)
    async with contextlib.aclosing(snapshots(child, timeout_seconds)) as found:
        async for each in found:
            if isinstance(each, Snapshot) and not (complete and is_incomplete(each.sample)):
                return each
    raise AssertionError("the snapshots of a child have no end")


def is_incomplete(sample: Sample) -> bool:
    """Return True if a device may yet answer for the first time."""
    return any(each.state is DeviceState.OK and each.age_seconds is None for each in sample.devices)


XidKey = tuple[str | None, int | None]
"""Device and number; each None where the driver does not say which."""


class XidCount(NamedTuple):
    """Number of times that a device reported an Xid, and the last time, in Unix seconds."""

    times: int
    last: float


@dataclass(frozen=True, slots=True)
class LatestSnapshot:
    """Newest records of a stream. Immutable, so another thread can have it."""

    inventory: Inventory | None = None
    sample: Sample | None = None
    received: float = 0.0
    """Monotonic time of the sample."""
    xids: Mapping[XidKey, XidCount] = field(default_factory=dict)
    interruptions: int = 0

    def after(self, record: Record | Interruption, now: float) -> LatestSnapshot:
        """Return what is known when the record has come, at that monotonic time."""
        match record:
            case Inventory():
                return replace(self, inventory=record)
            case Sample():
                xids = _count_xids(self.xids, record.events)
                return replace(self, sample=record, received=now, xids=xids)
            case Interruption():
                return replace(self, interruptions=self.interruptions + 1)

    def current(self, now: float) -> Snapshot | None:
        """Return both, unless the sample is older than a stream may be silent."""
        if self.inventory is None or self.sample is None:
            return None
        fresh = now - self.received <= silence_limit(self.inventory.interval_seconds)
        return Snapshot(self.inventory, self.sample) if fresh else None


def _count_xids(
    xids: Mapping[XidKey, XidCount], events: Iterable[Event]
) -> Mapping[XidKey, XidCount]:
    found = dict(xids)
    for event in events:
        if event.kind == "xid":
            key = event.device_uuid, event.code
            before = found.get(key, XidCount(0, event.time))
            found[key] = XidCount(before.times + 1, max(before.last, event.time))
    return found


class StreamFollower:
    """Follows the stream of a child, for those who ask what is known now."""

    def __init__(
        self,
        on_problem: Callable[[Problem], None],
        on_record: Callable[[Record | Interruption], None] | None = None,
    ) -> None:
        """Pass each new problem to `on_problem`, and each record to `on_record`."""
        self.latest = LatestSnapshot()
        """Replaced as a whole."""
        self._on_problem = on_problem
        self._on_record = on_record
        self._reported: Problem | None = None

    async def follow(self, child: StreamChild) -> None:
        """Follow it forever. A problem is reported once, until the driver has answered again."""
        async with contextlib.aclosing(child.records()) as records:
            async for record in records:
                self.add_record(record)

    def add_record(self, record: Record | Interruption) -> None:
        """Update `latest` with a record, and report a new problem."""
        self.latest = self.latest.after(record, time.monotonic())
        if self._on_record is not None:
            self._on_record(record)
        if isinstance(record, Sample):
            return
        if record.problem is not None and record.problem != self._reported:
            self._reported = record.problem
            self._on_problem(record.problem)
        elif isinstance(record, Inventory) and record.driver_state is DriverState.OK:
            self._reported = None
