"""`gputop bench --ray`: the same test on many GPUs of a cluster, under supervision."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.bench.cluster.client import Cluster
from gputop.bench.cluster.node_readings import parse_readings
from gputop.bench.plan.devices import RunRefusedError
from gputop.bench.results.outliers import DeviceOutcome
from gputop.bench.run.group import DeviceGroup
from gputop.bench.run.group_state import GroupState
from gputop.bench.run.progress import follow_on_a_line, many_devices
from gputop.bench.run.supervision import START_SECONDS, SupervisedRun
from gputop.bench.run.worker_launch import LaunchError
from gputop.console import COULD_NOT_RUN, USAGE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from gputop.bench.cluster.client import ClusterSize, LentGpu
    from gputop.bench.events import Event
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.conditions import Trace
    from gputop.bench.run.session import Session
    from gputop.bench.run.state import RunState
    from gputop.bench.run.supervision import RunLimit

    Requesting = Callable[[Sequence[Target]], list[Request]]
    """Makes the requests for some targets; may raise `RunRefusedError`."""
    Following = Callable[[DeviceGroup, GroupState, "ClusterWatch"], Awaitable[list[RunState]]]


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """The options of a run on a cluster."""

    address: str
    devices: int | None
    """Number of GPUs, or None for all that Ray has not lent to anybody."""
    cpu: bool
    """True if the nodes' CPUs are tested in place of their GPUs, as a trial."""
    ignore_busy: bool
    python: str | None
    """Path of the interpreter on the nodes, or None for Ray's own."""


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """The ends of the runs on a cluster."""

    ends: Sequence[RunState]
    not_begun: Sequence[DeviceOutcome]
    """Devices that could not be tested, and why."""


class ClusterWatch:
    """Supervision of the runs. It needs no thread: nothing draws in this process."""

    def __init__(self, posts: Mapping[Target, LentGpu]) -> None:
        self._posts = posts

    async def events(
        self, session: Session, trace: Trace, ending: Callable[[RunLimit], None]
    ) -> AsyncGenerator[Event]:
        """Yield the session's events; a limit ends it early. Close it with `aclosing`."""
        post = self._posts[trace.target]
        facts = post.facts
        assert facts is not None
        ward = SupervisedRun(session, trace, ending)

        def take(line: str) -> None:
            found = parse_readings(line, facts.inventory)
            if found is not None:
                ward.check_sample(facts.inventory, found)

        try:
            async with contextlib.aclosing(ward.events()) as events:
                async for event in events:
                    if post.on_readings is not take:  # the worker has said its first word
                        post.on_readings = take
                        ward.set_deadline(START_SECONDS)
                    yield event
        finally:
            ward.set_deadline(None)


async def follow_on_terminal(
    runs: DeviceGroup, group: GroupState, watch: ClusterWatch
) -> list[RunState]:
    """Follow the runs with a line of progress."""
    return await follow_on_a_line(runs, group, watch, many_devices)


def run_on_cluster(
    order: ClusterRequest, requesting: Requesting, follow: Following = follow_on_terminal
) -> ClusterResult:
    """Run the same test on many GPUs of a cluster; raise `RunRefusedError`.

    `follow` shows them until they have ended.
    """
    return asyncio.run(_burn(order, requesting, follow))


async def _burn(order: ClusterRequest, requesting: Requesting, follow: Following) -> ClusterResult:
    try:
        cluster, found = await Cluster.join(order.address)
    except LaunchError as error:
        raise RunRefusedError(f"{error}.") from None
    try:
        posts = await cluster.lend_gpus(_count(order, found), order.python, cpu=order.cpu)
        usable, not_begun = _look_over(posts, ignore_busy=order.ignore_busy)
        if not usable:
            why = "; ".join(dict.fromkeys(member.problem or "" for member in not_begun))
            raise RunRefusedError(f"No GPU of the cluster can be tested: {why}.")
        for member in not_begun:
            print_message(
                f"warning: {', '.join(filter(None, (member.host, member.place)))} is left out: "
                f"{member.problem}"
            )
        requests = requesting(list(usable))
        gpus = list(usable.values())
        watched = {request.target: gpu for request, gpu in zip(requests, gpus, strict=True)}
        group = GroupState(requests)
        runs = DeviceGroup(requests, group.traces, gpus)
        return ClusterResult(await follow(runs, group, ClusterWatch(watched)), not_begun)
    finally:
        await cluster.leave()


def _count(order: ClusterRequest, found: ClusterSize) -> int:
    """Return the number of GPUs to ask for; raise `RunRefusedError` if Ray has fewer."""
    has = f"the cluster has {found.gpus} on {found.nodes} node{'s' * (found.nodes != 1)}"
    if order.devices is not None and order.devices > found.gpus:
        raise RunRefusedError(f"There are no {order.devices} GPUs: {has}. Ask for fewer.", USAGE)
    if not found.gpus:
        raise RunRefusedError(
            f"There is no GPU: {has}. See `ray status`; a node says how many it has by "
            "`ray start --num-gpus`."
        )
    wanted = order.devices or max(1, found.free)
    if wanted > found.free:
        raise RunRefusedError(
            f"Only {found.free} of {found.gpus} GPUs are free, Ray has lent the others. "
            "Wait for them, or ask for fewer with --devices."
        )
    if order.devices is None and found.free < found.gpus:
        print_message(f"{found.gpus - found.free} of {found.gpus} GPUs are in use by Ray: left out")
    return wanted


def _look_over(
    posts: Sequence[LentGpu], *, ignore_busy: bool
) -> tuple[dict[Target, LentGpu], list[DeviceOutcome]]:
    """Return the GPUs that can be tested, and why the others, which are given back, cannot."""
    usable: dict[Target, LentGpu] = {}
    left_out: list[DeviceOutcome] = []
    for post in posts:
        why = post.problem
        if post.facts is not None:
            held = None if ignore_busy else post.facts.held
            why = why or (held and f"it is {held}; add --ignore-busy to test it anyway")
            if why is None:
                usable[post.facts.target] = post
                continue
        left_out.append(_not_begun(post, visible(why or "its node has not answered in time", 400)))
        post.give_back()
    return usable, left_out


def _not_begun(post: LentGpu, why: str) -> DeviceOutcome:
    if post.facts is None:
        return DeviceOutcome(post.host or "", None, "a GPU", "GPU", None, why, COULD_NOT_RUN)
    target = post.facts.target
    return DeviceOutcome(
        post.host or "", target.uuid, target.place, target.name, None, why, COULD_NOT_RUN
    )
