"""The stream of several hosts on standard output, as `gputop stream --host` writes it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence

from gputop.agent.options import AgentOptions
from gputop.agent.sender import leave_with_parent, write_to_stdout
from gputop.agent.snapshot import Record, Sample
from gputop.stream.machines import Machines
from gputop.stream.merge import still_connects


def run_several(
    hosts: Sequence[str],
    remote: Sequence[str] | None,
    options: AgentOptions,
    write: Callable[[Record], None] = write_to_stdout,
) -> None:
    """Write the merged stream of several machines.

    With a count, earlier samples are left out until each machine has answered or is away.
    """
    leave_with_parent()
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(
            _write_several(Machines(hosts, options.interval, remote), options, write)
        )


async def _write_several(
    machines: Machines, options: AgentOptions, write: Callable[[Record], None]
) -> None:
    left = options.count or math.inf
    machines.ask(gpm=options.gpm)
    try:
        async with contextlib.aclosing(machines.records()) as records:
            async for record in records:
                if isinstance(record, Sample):
                    if left < math.inf and still_connects(record):
                        continue
                    left -= 1
                write(record)
                if left == 0:
                    return
    finally:
        await machines.close()
