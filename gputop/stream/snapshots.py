"""Snapshots of a stream, each a sample with its inventory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import NamedTuple

from gputop.compat import timeout_at
from gputop.problem import Problem, ProblemError
from gputop.schema.device import DeviceState
from gputop.schema.snapshot import DriverState, Inventory, Sample
from gputop.stream.child import Interruption, StreamChild
from gputop.stream.launch import StreamOptions

ANSWER_SECONDS = 15.0
"""Seconds for the driver to answer, or be found missing."""


class StreamError(ProblemError):
    """No snapshot is available."""


class Snapshot(NamedTuple):
    """A sample, and the inventory that holds for it."""

    inventory: Inventory
    sample: Sample


def _stopped(interruption: Interruption) -> Problem:
    return replace(interruption.problem, remedy="Try again, or see what `gputop stream` says")


async def snapshots(
    stream: StreamChild,
    timeout_seconds: float = ANSWER_SECONDS,
    explain: Callable[[Interruption], Problem] = _stopped,
) -> AsyncGenerator[Snapshot | Interruption]:
    """Yield samples with their inventories, from when the driver answered or was found missing.

    Raises `StreamError` if neither happens in time, or the stream breaks off before; `explain`
    says why it broke off. Later interruptions are yielded. Closes the stream.
    """
    inventory: Inventory | None = None
    deadline: float | None = asyncio.get_running_loop().time() + timeout_seconds
    try:
        async with contextlib.aclosing(stream.records()) as records:
            while True:
                async with timeout_at(deadline):  # not around the yield: it is this task's alone
                    record = await anext(records)
                if isinstance(record, Inventory):
                    inventory = record
                elif isinstance(record, Interruption):
                    if deadline is None:
                        yield record
                    elif not record.left_out:
                        raise StreamError(explain(record))
                elif inventory and (
                    deadline is None or inventory.driver_state is not DriverState.STARTING
                ):
                    deadline = None
                    yield Snapshot(inventory, record)
    except asyncio.TimeoutError:
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
    *, complete: bool = False, timeout_seconds: float = ANSWER_SECONDS
) -> Snapshot:
    """Return the first snapshot of a new sampler. Raises `StreamError` if there is none in time.

    With `complete`, the first in which every device has answered, or does not respond.
    """
    options = StreamOptions(0.5, count=None if complete else 1)
    child = StreamChild(options.command, options.interval)
    return await first_snapshot(child, timeout_seconds, complete=complete)


async def first_snapshot(
    stream: StreamChild,
    timeout_seconds: float,
    explain: Callable[[Interruption], Problem] = _stopped,
    *,
    complete: bool,
) -> Snapshot:
    """Return the first of `snapshots`, or the first `complete` one: every device has answered."""
    async with contextlib.aclosing(snapshots(stream, timeout_seconds, explain)) as found:
        async for each in found:
            if isinstance(each, Snapshot) and not (complete and _is_incomplete(each.sample)):
                return each
    raise AssertionError("the snapshots of a child have no end")


def _is_incomplete(sample: Sample) -> bool:
    return any(each.state is DeviceState.OK and each.age_seconds is None for each in sample.devices)
