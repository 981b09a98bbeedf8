"""Watches GPUs of a cluster while they are under stress, by what their nodes say of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from gputop.bench.cluster.readings import sample
from gputop.bench.watch import START_SECONDS, Limit, Ward, traced

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from gputop.bench.cluster.link import Post
    from gputop.bench.conditions import Trace
    from gputop.bench.events import Event
    from gputop.bench.plan import Target
    from gputop.bench.session import Session


class ClusterWatch:
    """All runs that are under way together. It needs no thread: nothing draws in this process."""

    def __init__(self, posts: Mapping[Target, Post]) -> None:
        self._posts = posts

    async def events(
        self, session: Session, trace: Trace, ending: Callable[[Limit], None]
    ) -> AsyncGenerator[Event]:
        """The session's events, which a limit ends before their time; close it with `aclosing`."""
        stops: list[asyncio.Task[None]] = []

        def end(limit: Limit) -> None:
            ending(limit)
            stops.append(asyncio.create_task(session.stop(limit.by)))

        post = self._posts[trace.target]
        facts = post.facts
        assert facts is not None
        ward = Ward(trace, lambda call, *arguments: call(*arguments), end, session.kill)

        def take(line: str) -> None:
            found = sample(line, facts.inventory)
            if found is not None:
                ward.take(facts.inventory, found)

        try:
            async with contextlib.aclosing(traced(session, trace)) as events:
                async for event in events:
                    if post.listen is not take:  # the worker has said its first word
                        post.listen = take
                        ward.wait(START_SECONDS)
                    yield event
            await asyncio.gather(*stops)
        finally:
            ward.wait(None)
