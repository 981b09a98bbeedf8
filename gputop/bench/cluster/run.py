"""`gputop bench --ray`: from the cluster to the ends of all runs, whose GPUs are watched."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.bench.cluster.link import Cluster
from gputop.bench.cluster.readings import sample
from gputop.bench.plan.selection import RefusedError
from gputop.bench.results.outliers import Member
from gputop.bench.run.foreground import follow_on_a_line
from gputop.bench.run.group import Group
from gputop.bench.run.group_state import GroupState
from gputop.bench.run.places import PlaceError
from gputop.bench.run.progress import many_devices
from gputop.bench.run.watch import START_SECONDS, Ward
from gputop.console import COULD_NOT_RUN, USAGE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from gputop.bench.cluster.link import Found, Post
    from gputop.bench.events import Event
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.conditions import Trace
    from gputop.bench.run.session import Session
    from gputop.bench.run.state import RunState
    from gputop.bench.run.watch import Limit

    Requesting = Callable[[Sequence[Target]], list[Request]]
    """The requests for some targets; may raise `RefusedError`."""
    Following = Callable[[Group, GroupState, "ClusterWatch"], Awaitable[list[RunState]]]


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for of a cluster."""

    address: str
    devices: int | None
    """How many GPUs, None for all that Ray has not lent to anybody."""
    cpu: bool
    """Whether the CPUs of the nodes work in the place of their GPUs: to try it out."""
    ignore_busy: bool
    python: str | None
    """The path of the interpreter on the nodes; None for Ray's own."""


@dataclass(frozen=True, slots=True)
class Burned:
    """What became of a run on a cluster."""

    ends: Sequence[RunState]
    not_begun: Sequence[Member]
    """Devices that were to be tested and were not, and why."""


class ClusterWatch:
    """All runs that are under way together. It needs no thread: nothing draws in this process."""

    def __init__(self, posts: Mapping[Target, Post]) -> None:
        self._posts = posts

    async def events(
        self, session: Session, trace: Trace, ending: Callable[[Limit], None]
    ) -> AsyncGenerator[Event]:
        """The session's events, which a limit ends before their time; close it with `aclosing`."""
        post = self._posts[trace.target]
        facts = post.facts
        assert facts is not None
        ward = Ward(session, trace, ending)

        def take(line: str) -> None:
            found = sample(line, facts.inventory)
            if found is not None:
                ward.take(facts.inventory, found)

        try:
            async with contextlib.aclosing(ward.events()) as events:
                async for event in events:
                    if post.listen is not take:  # the worker has said its first word
                        post.listen = take
                        ward.wait(START_SECONDS)
                    yield event
        finally:
            ward.wait(None)


async def on_a_line(runs: Group, group: GroupState, watch: ClusterWatch) -> list[RunState]:
    """Follows the runs with a line of progress."""
    return await follow_on_a_line(runs, group, watch, many_devices)


def burn(order: Order, requesting: Requesting, follow: Following = on_a_line) -> Burned:
    """Runs the same test on many GPUs of a cluster; raises `RefusedError`.

    `follow` shows them until they have ended.
    """
    return asyncio.run(_burn(order, requesting, follow))


async def _burn(order: Order, requesting: Requesting, follow: Following) -> Burned:
    try:
        cluster, found = await Cluster.join(order.address)
    except PlaceError as error:
        raise RefusedError(f"{error}.") from None
    try:
        posts = await cluster.place(_count(order, found), order.python, cpu=order.cpu)
        usable, not_begun = _look_over(posts, ignore_busy=order.ignore_busy)
        if not usable:
            why = "; ".join(dict.fromkeys(member.problem or "" for member in not_begun))
            raise RefusedError(f"No GPU of the cluster can be tested: {why}.")
        for member in not_begun:
            print_message(
                f"warning: {', '.join(filter(None, (member.host, member.place)))} is left out: "
                f"{member.problem}"
            )
        requests = requesting(list(usable))
        places = list(usable.values())
        watched = {request.target: place for request, place in zip(requests, places, strict=True)}
        group = GroupState(requests)
        runs = Group(requests, group.traces, places)
        return Burned(await follow(runs, group, ClusterWatch(watched)), not_begun)
    finally:
        await cluster.leave()


def _count(order: Order, found: Found) -> int:
    """How many GPUs to ask for; raises `RefusedError` where Ray cannot give them."""
    has = f"the cluster has {found.gpus} on {found.nodes} node{'s' * (found.nodes != 1)}"
    if order.devices is not None and order.devices > found.gpus:
        raise RefusedError(f"There are no {order.devices} GPUs: {has}. Ask for fewer.", USAGE)
    if not found.gpus:
        raise RefusedError(
            f"There is no GPU: {has}. See `ray status`; a node says how many it has by "
            "`ray start --num-gpus`."
        )
    wanted = order.devices or max(1, found.free)
    if wanted > found.free:
        raise RefusedError(
            f"Only {found.free} of {found.gpus} GPUs are free, Ray has lent the others. "
            "Wait for them, or ask for fewer with --devices."
        )
    if order.devices is None and found.free < found.gpus:
        print_message(f"{found.gpus - found.free} of {found.gpus} GPUs are in use by Ray: left out")
    return wanted


def _look_over(
    posts: Sequence[Post], *, ignore_busy: bool
) -> tuple[dict[Target, Post], list[Member]]:
    """Those that can be tested, and why the others cannot; these are given back."""
    usable: dict[Target, Post] = {}
    left_out: list[Member] = []
    for post in posts:
        why = post.problem
        if post.facts is not None:
            held = None if ignore_busy else post.facts.held
            why = why or (held and f"it is {held}; add --ignore-busy to test it all the same")
            if why is None:
                usable[post.facts.target] = post
                continue
        left_out.append(_not_begun(post, visible(why or "its node has not answered in time", 400)))
        post.leave()
    return usable, left_out


def _not_begun(post: Post, why: str) -> Member:
    if post.facts is None:
        return Member(post.host or "", None, "a GPU", "GPU", None, why, COULD_NOT_RUN)
    target = post.facts.target
    return Member(post.host or "", target.uuid, target.place, target.name, None, why, COULD_NOT_RUN)
