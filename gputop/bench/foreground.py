"""Stress tests in the foreground: their progress on the terminal, and signals that end them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gputop.bench import course
from gputop.bench.events import Done, Failed, Planned
from gputop.bench.group import Group
from gputop.bench.pairs import Pairs
from gputop.bench.progress import Gathered, Progressing, Together
from gputop.bench.watch import Watch
from gputop.console import say

if TYPE_CHECKING:
    from gputop.bench.conditions import Trace
    from gputop.bench.course import Course
    from gputop.bench.events import Event
    from gputop.bench.group import Ending
    from gputop.bench.plan import Request, Target
    from gputop.bench.watch import Limit, Watching

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the run of one device, and how it went on the way there."""

    target: Target
    last: Done | Failed
    course: Course


async def attended(requests: Sequence[Request]) -> list[Ended]:
    """Runs them together to their ends, in the order of the requests."""
    bar: Progressing | Together
    if len(requests) == 1:
        bar = Progressing(sys.stderr, requests[0].seconds)
    else:
        bar = Together(sys.stderr)
    runs = Pairs(requests) if requests[0].kind == "pairs" else Group(requests)
    with Watch() as watch:
        return await attend(runs, requests, bar, watch)


async def attend(
    runs: Group | Pairs,
    requests: Sequence[Request],
    bar: Progressing | Together | Gathered,
    watch: Watching,
) -> list[Ended]:
    """Follows runs to their ends, in the order of the requests.

    The first signal stops the workers, a second one kills them.
    """
    stops: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if stops:
            runs.kill()
        else:
            stops.append(asyncio.create_task(runs.stop()))

    with signals(interrupted):
        ticking = asyncio.create_task(bar.keep_drawing())
        try:
            return await followed(runs, requests, bar, watch)
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, *stops, return_exceptions=True)
            bar.clear()


class Taking(Protocol):
    """Who is told what happens."""

    def take(self, target: Target, event: Event) -> None:
        """Something happened on a device."""


async def followed(
    runs: Group | Pairs,
    requests: Sequence[Request],
    bar: Progressing | Taking,
    watch: Watching,
    ending: Ending | None = None,
) -> list[Ended]:
    """Follows runs to their ends, in the order of the requests."""
    recorders = {request.target: course.Recorder() for request in requests}
    ends: dict[Target, Done | Failed] = {}
    async with contextlib.aclosing(runs.events(watch, ending or _say_limit)) as events:
        async for target, event in events:
            if isinstance(bar, Progressing):
                bar.take(event)
            else:
                bar.take(target, event)
            if isinstance(event, Planned):  # of pairs the one together counts
                recorders[target] = course.Recorder()
            recorders[target].take(event)
            if isinstance(event, Done | Failed):
                ends[target] = event
    traces = {trace.target: trace for trace in runs.traces}
    return [
        Ended(target, ends[target], _course(recorder, traces.get(target)))
        for target, recorder in recorders.items()
    ]


def _course(recorder: course.Recorder, trace: Trace | None) -> Course:
    if trace is None:
        return recorder.course()
    return recorder.course(course.readings(trace.moments), trace.intervals())


@contextlib.contextmanager
def signals(act: Callable[[], None]) -> Iterator[None]:
    """Has `act` called for those that end a program."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _say_limit(target: Target, limit: Limit) -> None:
    say(f"{target.label}: {limit.title[0].lower()}{limit.title[1:]}, {limit.why}")
