"""Several machines as one stream. Each has its own child, read independently of the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gputop.agent.device import THIS_MACHINE
from gputop.agent.pacing import uptime
from gputop.agent.problem import Problem
from gputop.agent.snapshot import Inventory, Sample
from gputop.stream.agent_archive import BOOTSTRAP, PYTHON, agent_input
from gputop.stream.child import (
    Interruption,
    Patience,
    Snapshot,
    StreamChild,
    StreamError,
    first_snapshot,
    snapshots,
)
from gputop.stream.launch import StreamOptions
from gputop.stream.merge import (
    MachineStream,
    inventory_of,
    sample_of,
    still_connects,
)
from gputop.stream.ssh import (
    CONNECT_SECONDS,
    after_output,
    explain_absence,
    ssh_command,
)

if TYPE_CHECKING:
    from gputop.agent.snapshot import Record

PATIENCE = Patience(
    start=CONNECT_SECONDS + 22.0,
    first_pause=1.0,
    longest_pause=60.0,
)
"""Enough time to connect and authenticate, to send the agent at 8 kB/s, and to start Python from a
slow file system."""
SLACK = 1.25
"""Longest wait for late machines before a merged sample, in intervals."""
AWAITED = 2.5
"""Silence after which merged samples no longer wait for a machine, in intervals."""
SOONEST_SECONDS = 0.1
"""Minimum seconds between two merged samples."""


def child_of(
    host: str, remote: Sequence[str] | None, options: StreamOptions
) -> StreamChild:
    """Return the stream of a host over `ssh`, or this machine's own for `localhost`.

    `remote` is the command that starts gputop there. Without it, the agent is sent over.
    """
    if host == THIS_MACHINE:
        return StreamChild(options.command, options.interval)
    if remote is None:
        words = [*PYTHON, "-c", BOOTSTRAP, *options.flags]
        first_input = agent_input()
    else:
        words = [*remote, *options.words]
        first_input = b""
    return StreamChild(
        ssh_command(host, words),
        options.interval,
        patience=PATIENCE,
        first_input=first_input,
    )


class Machines:
    """The merged streams of all machines. It is a stream like a `StreamChild`."""

    def __init__(
        self,
        hosts: Sequence[str],
        interval: float,
        remote: Sequence[str] | None = None,
    ) -> None:
        self._interval = interval
        self._children: dict[str, StreamChild] = {}
        self._machines: dict[str, MachineStream] = {}
        for host in hosts:
            child = child_of(
                host, remote, StreamOptions(interval, control=True)
            )
            child.ask(next=True)
            self._children[host] = child
            self._machines[host] = MachineStream(host, uptime())
        self._readers: list[asyncio.Task[None]] = []
        self._arrived = asyncio.Event()
        self._changed = False
        """True if a machine came or went since the last sample."""

    def spawn(self) -> None:
        """Start the children. This needs no event loop. `records` retries a failed start."""
        for child in self._children.values():
            with contextlib.suppress(OSError):
                child.spawn()

    def ask(self, **wanted: Any) -> None:
        """Request settings of all children: see `StreamChild.ask`."""
        self._interval = wanted.get("interval", self._interval)
        for child in self._children.values():
            child.ask(**wanted)

    async def close(self) -> None:
        """End all children at the same time."""
        await self._stop_reading()
        await asyncio.gather(
            *(child.close() for child in self._children.values())
        )

    async def records(self) -> AsyncGenerator[Record]:
        """Yield an inventory whenever it changes, and a sample at about the interval, forever."""
        self._readers = [
            asyncio.create_task(self._read(host)) for host in self._children
        ]
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
                await asyncio.gather(
                    self._due(), asyncio.sleep(SOONEST_SECONDS)
                )
                for reader in self._readers:
                    if reader.done() and not reader.cancelled():
                        # An error of gputop must not look like a silent
                        # machine.
                        reader.result()
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
                machine.add_record(record, now, time.time())
                if isinstance(record, Sample):
                    child.ask_next()
                self._changed = self._changed or machine.state is not before
                self._arrived.set()

    async def _due(self) -> None:
        """Wait for a sample of each answering machine, a change of state, or the time limit."""
        deadline = uptime() + SLACK * self._interval
        while not self._complete() and not self._changed:
            left = deadline - uptime()
            if left <= 0:
                return
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()

    def _complete(self) -> bool:
        limit = uptime() - AWAITED * self._interval
        awaited = [
            machine
            for machine in self._machines.values()
            if machine.arrived_since(limit)
        ]
        return bool(awaited) and all(machine.fresh for machine in awaited)


async def merged_snapshots(
    hosts: Sequence[str],
    remote: Sequence[str] | None,
    interval: float,
    *,
    gpm: bool,
) -> AsyncGenerator[Snapshot | Interruption]:
    """Yield merged snapshots of all hosts, starting when each has answered or failed."""
    machines = Machines(hosts, interval, remote)
    machines.ask(gpm=gpm)
    deadline = uptime() + PATIENCE.start
    inventory: Inventory | None = None
    try:
        async with contextlib.aclosing(machines.records()) as records:
            async for record in records:
                if isinstance(record, Inventory):
                    inventory = record
                    continue
                settled = not still_connects(record) or uptime() > deadline
                if inventory is not None and settled:
                    yield Snapshot(inventory, record)
    finally:
        await machines.close()


async def host_snapshots(
    hosts: Sequence[str],
    remote: Sequence[str] | None = None,
    *,
    gpm: bool = True,
    waits: Callable[[Snapshot], bool] = lambda _: False,
    timeout_seconds: float = PATIENCE.start,
) -> dict[str, Snapshot | Problem]:
    """Return a snapshot of each host, or its problem. All hosts are read at the same time.

    It is the first snapshot in which each device has answered or is known not to respond. While
    `waits` returns true for it, a later one is taken.
    """
    answers = {}
    for host in hosts:
        child = child_of(host, remote, StreamOptions(0.5, gpm=gpm))
        answer = _snapshot(host, child, waits, timeout_seconds)
        answers[host] = asyncio.create_task(answer)
    await asyncio.gather(*answers.values())
    return {host: answer.result() for host, answer in answers.items()}


async def _snapshot(
    host: str,
    child: StreamChild,
    waits: Callable[[Snapshot], bool],
    seconds: float,
) -> Snapshot | Problem:
    explain = partial(explain_absence, host)
    try:
        async with asyncio.timeout(seconds):
            found = snapshots(child, 2 * seconds, explain)
            return await first_snapshot(found, complete=True, waits=waits)
    except StreamError as error:
        return error.problem
    except TimeoutError:
        why = f"it sent nothing within {seconds:g} s"
        if child.printed:
            return after_output(
                host, f"it sent no reading within {seconds:g} s", child.printed
            )
        return Problem(
            f"{host} is unreachable", why, f"`ssh {host}` may say more"
        )
