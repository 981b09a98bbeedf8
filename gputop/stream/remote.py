"""Several machines as one stream: each has a child of its own, and none waits for another."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gputop.problem import Problem
from gputop.schema.device import THIS_MACHINE, old_after
from gputop.stream.child import (
    Interruption,
    Patience,
    Snapshot,
    StreamChild,
    StreamError,
    snapshots,
    waits,
)
from gputop.stream.flow import uptime
from gputop.stream.launch import command
from gputop.stream.machine import MachineStream
from gputop.stream.merge import inventory_of, sample_of
from gputop.stream.ssh import CONNECT_SECONDS, REMOTE_COMMAND, explained, ssh_command, stream_words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from gputop.schema.snapshot import Inventory, Record

PATIENCE = Patience(start=CONNECT_SECONDS + 15.0, first_pause=1.0, longest_pause=60.0)
"""For a connection with its authentication, and an interpreter on a slow file system."""
SLACK = 1.25
"""Of an interval: how long a sample waits for machines that are a little late."""
AWAITED = 2.5
"""Intervals after which a machine that says nothing is not waited for."""
MARGIN_SECONDS = 0.01
"""By which what becomes old is older than it may be, so that no rounding makes it young again."""
SOONEST_SECONDS = 0.1
"""Between two samples, however fast machines send them, or come and go."""


def child_of(
    host: str, remote: Sequence[str], interval: float, *, gpm: bool = True, control: bool = False
) -> StreamChild:
    """The stream of a host: over `ssh`, or this machine's own where it is named `localhost`."""
    if host == THIS_MACHINE:
        own = command(interval=interval, gpm=gpm, control=control)
        return StreamChild(own, interval)
    words = stream_words(remote, interval=interval, gpm=gpm, control=control)
    return StreamChild(ssh_command(host, words), interval, patience=PATIENCE)


class Machines:
    """The streams of all machines put together; a stream as a `StreamChild` is one."""

    def __init__(
        self, hosts: Sequence[str], interval: float, remote: Sequence[str] = REMOTE_COMMAND
    ) -> None:
        self._interval = interval
        self._children = {
            host: child_of(host, remote, interval, control=True) for host in dict.fromkeys(hosts)
        }
        for child in self._children.values():
            child.ask(acknowledge=True)
        now = uptime()
        self._machines = {host: MachineStream(host, explained, now) for host in self._children}
        self._readers: list[asyncio.Task[None]] = []
        self._arrived = asyncio.Event()
        self._changed = False
        """Whether a machine came or went since the last sample."""

    def spawn(self) -> None:
        """Starts the children: needs no event loop, and one that cannot be is tried again."""
        for child in self._children.values():
            with contextlib.suppress(OSError):
                child.spawn()

    def ask(self, **wanted: Any) -> None:
        """Asks all of them, as a child is asked."""
        self._interval = wanted.get("interval", self._interval)
        for child in self._children.values():
            child.ask(**wanted)

    async def close(self) -> None:
        """Ends all children at the same time."""
        await self._stop_reading()
        await asyncio.gather(*(child.close() for child in self._children.values()))

    async def records(self) -> AsyncGenerator[Record]:
        """An inventory whenever it changes, and a sample at about the interval, for ever."""
        self._readers = [asyncio.create_task(self._read(host)) for host in self._children]
        try:
            last: Inventory | None = None
            while True:
                streams = self._machines.values()
                inventory = inventory_of(streams, self._interval, time.time())
                if last is None or replace(inventory, time=last.time) != last:
                    last = inventory
                    yield inventory
                self._changed = False
                yield sample_of(streams, uptime(), time.time())
                await asyncio.gather(self._due(), asyncio.sleep(SOONEST_SECONDS))
                for reader in self._readers:
                    if reader.done() and not reader.cancelled():
                        reader.result()  # a fault of our own is not to be a silent machine
        finally:
            await self._stop_reading()

    async def _stop_reading(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _read(self, host: str) -> None:
        machine, child = self._machines[host], self._children[host]
        async with contextlib.aclosing(child.records()) as records:
            async for record in records:
                before, now = machine.state, uptime()
                machine.take(record, now, time.time())
                if not isinstance(record, Interruption):
                    child.acknowledge(record, now)
                self._changed = self._changed or machine.state is not before
                self._arrived.set()

    async def _due(self) -> None:
        """Until all that are on time have said something new, or some time after the interval.

        One that becomes old before that is not waited for, so that the screen says it.
        """
        began = uptime()
        while not self._complete():
            left = min(began + SLACK * self._interval, self._next_old(began)) - uptime()
            if left <= 0:
                return
            if self._changed:
                # So many come or go together that each is not to have a picture of its own.
                await asyncio.sleep(SOONEST_SECONDS)
                return
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()

    def _next_old(self, after: float) -> float:
        """Return when the next machine becomes old, if nothing comes of it; half an interval on.

        Of many machines each becomes old at another moment.
        """
        limit = old_after(self._interval) + MARGIN_SECONDS
        due = (machine.made_at + limit for machine in self._machines.values())
        first = min((moment for moment in due if moment > after), default=math.inf)
        return max(first, after + self._interval / 2)

    def _complete(self) -> bool:
        limit = uptime() - AWAITED * self._interval
        awaited = [machine for machine in self._machines.values() if machine.arrived_since(limit)]
        return bool(awaited) and all(machine.fresh for machine in awaited)


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """One host at one moment: what it has, or why there is nothing."""

    host: str
    snapshot: Snapshot | None = None
    problem: Problem | None = None
    """Where there is no snapshot."""


async def host_snapshots(
    hosts: Sequence[str],
    remote: Sequence[str] = REMOTE_COMMAND,
    *,
    gpm: bool = True,
    timeout_seconds: float = PATIENCE.start,
) -> list[HostSnapshot]:
    """One snapshot of each host, asked at the same time, in the order given; none is raised for.

    It is the first in which every device has answered, or does not respond.
    """
    return await asyncio.gather(
        *(
            _snapshot(host, child_of(host, remote, 0.5, gpm=gpm), timeout_seconds)
            for host in dict.fromkeys(hosts)
        )
    )


async def _snapshot(host: str, child: StreamChild, timeout_seconds: float) -> HostSnapshot:
    found = snapshots(child, 2 * timeout_seconds, lambda each: explained(host, each))
    try:
        async with asyncio.timeout(timeout_seconds), contextlib.aclosing(found):
            async for each in found:
                if isinstance(each, Snapshot) and not waits(each.sample):
                    return HostSnapshot(host, each)
    except StreamError as error:
        return HostSnapshot(host, problem=error.problem)
    except TimeoutError:
        pass
    why = f"it sent nothing within {timeout_seconds:g} s"
    return HostSnapshot(host, problem=Problem(f"{host} is away", why, f"`ssh {host}` may say more"))
