"""`gputop bench --ray`: the same test on many GPUs of a cluster, under supervision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.bench.cluster.client import Cluster, ClusterSize, LentGpu
from gputop.bench.cluster.node_readings import parse_readings
from gputop.bench.plan.devices import RunRefusedError
from gputop.bench.results.verdict import DeviceOutcome
from gputop.bench.run.group import DeviceGroup
from gputop.bench.run.group_state import GroupState
from gputop.bench.run.progress import follow_on_a_line, many_devices
from gputop.bench.run.session import Session
from gputop.bench.run.supervision import START_SECONDS, SupervisedRun
from gputop.console import COULD_NOT_RUN, USAGE, print_message
from gputop.problem import ProblemError
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.events import Event
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.state import RunState
    from gputop.bench.run.supervision import Ending, Take
    from gputop.bench.run.trace import Trace

    Requesting = Callable[[Sequence[Target]], list[Request]]
    """Makes the requests for some targets; may raise `RunRefusedError`."""


class ClusterWatch:
    """Supervision of the runs. It needs no thread: nothing draws in this process."""

    def __init__(self, posts: Mapping[Target, LentGpu]) -> None:
        self._posts = posts

    async def follow(self, session: Session, trace: Trace, ending: Ending, take: Take) -> None:
        """Call `take` with the session's events while its GPU is supervised."""
        post = self._posts[trace.target]
        facts = post.facts
        assert facts is not None
        ward = SupervisedRun(session, trace, ending)

        def take_readings(line: str) -> None:
            found = parse_readings(line, facts.inventory)
            if found is not None:
                ward.check_sample(facts.inventory, found)

        def received(event: Event) -> None:
            if post.on_readings is not take_readings:  # the worker has said its first word
                post.on_readings = take_readings
                ward.set_deadline(START_SECONDS)
            take(event)

        try:
            await ward.follow(received)
        finally:
            ward.set_deadline(None)


async def run_on_cluster(
    address: str,
    requesting: Requesting,
    *,
    devices: int | None,
    cpu: bool,
    ignore_busy: bool,
    python: str | None,
) -> tuple[Sequence[RunState], Sequence[DeviceOutcome]]:
    """Run the same test on many GPUs of a cluster; raise `RunRefusedError`.

    Return the ends of the runs, and the devices that could not be tested with the reasons.

    A line shows their progress. Without `devices` it takes all GPUs that Ray has not
    lent to anybody; with `cpu` it tests the nodes' CPUs in their place, as a trial. `python` is the
    interpreter on the nodes, or None for Ray's own.
    """
    try:
        cluster, found = await Cluster.join(address)
    except ProblemError as error:
        raise RunRefusedError(f"{error}.") from None
    try:
        posts = await cluster.lend_gpus(_count(devices, found), python, cpu=cpu)
        usable, not_begun = _look_over(posts, ignore_busy=ignore_busy)
        if not usable:
            why = "; ".join(dict.fromkeys(member.problem or "" for member in not_begun))
            raise RunRefusedError(f"No GPU of the cluster can be tested: {why}.")
        for member in not_begun:
            where = ", ".join(filter(None, (member.host, member.place)))
            print_message(f"warning: {where} is left out: {member.problem}")
        requests = requesting(list(usable))
        targets = (request.target for request in requests)
        gpus = dict(zip(targets, usable.values(), strict=True))

        def session(request: Request, *, waits: bool) -> Session:
            return Session(request, waits=waits, launcher=gpus[request.target])

        group, watch = GroupState(requests), ClusterWatch(gpus)
        runs = DeviceGroup(requests, group.traces, session)
        return await follow_on_a_line(runs, group, watch, many_devices), not_begun
    finally:
        await cluster.leave()


def _count(devices: int | None, found: ClusterSize) -> int:
    has = f"the cluster has {found.gpus} on {found.nodes} node{'s' * (found.nodes != 1)}"
    if devices is not None and devices > found.gpus:
        raise RunRefusedError(f"There are no {devices} GPUs: {has}. Ask for fewer.", USAGE)
    if not found.gpus:
        see = "See `ray status`; a node says how many it has by `ray start --num-gpus`."
        raise RunRefusedError(f"There is no GPU: {has}. {see}")
    wanted = devices or max(1, found.free)
    if wanted > found.free:
        why = f"Only {found.free} of {found.gpus} GPUs are free, Ray has lent the others."
        raise RunRefusedError(f"{why} Wait for them, or ask for fewer with --devices.")
    if devices is None and found.free < found.gpus:
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
        target = post.facts and post.facts.target
        device = (target.uuid, target.place, target.name) if target else (None, "a GPU", "GPU")
        why = visible(why or "its node has not answered in time", 400)
        left_out.append(DeviceOutcome(post.host or "", *device, None, why, COULD_NOT_RUN))
        post.give_back()
    return usable, left_out
