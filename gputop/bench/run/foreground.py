"""Stress tests in the foreground: their progress on the terminal, and signals that end them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gputop.bench.run.group_state import GroupState
from gputop.bench.run.pairs import runner
from gputop.bench.run.progress import ProgressLine, one_device, several_devices
from gputop.bench.run.watch import Watch
from gputop.console import print_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.group import Ending, Group
    from gputop.bench.run.pairs import Pairs
    from gputop.bench.run.progress import Text
    from gputop.bench.run.state import RunState
    from gputop.bench.run.watch import Limit, Watching

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_in_foreground(requests: Sequence[Request]) -> list[RunState]:
    """Run them together to their ends, in the order of the requests."""
    group = GroupState(requests)
    with Watch() as watch:
        text = several_devices if group.is_several else one_device
        return await follow_on_a_line(runner(group), group, watch, text)


async def follow_on_a_line(
    runs: Group | Pairs, group: GroupState, watch: Watching, text: Text
) -> list[RunState]:
    """Follow runs to their ends with a line of progress, in the order of the requests.

    The first signal stops the workers, a second one kills them.
    """
    stops: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if stops:
            runs.kill()
        else:
            stops.append(asyncio.create_task(runs.stop()))

    line = ProgressLine(sys.stderr, group, text)
    with signals(interrupted):
        ticking = asyncio.create_task(line.keep_drawing())
        try:
            return await follow(runs, group, watch, _say_limit)
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, *stops, return_exceptions=True)
            line.clear()


async def follow(
    runs: Group | Pairs, group: GroupState, watch: Watching, ending: Ending
) -> list[RunState]:
    """Follow runs to their ends, in the order of the requests; `group` takes in their events."""
    async with contextlib.aclosing(runs.events(watch, ending)) as events:
        async for target, event in events:
            group.take(target, event)
    return list(group.runs.values())


@contextlib.contextmanager
def signals(act: Callable[[], None]) -> Iterator[None]:
    """Have `act` called for the signals that end a program."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _say_limit(target: Target, limit: Limit) -> None:
    print_message(f"{target.label}: {limit.title[0].lower()}{limit.title[1:]}, {limit.why}")
