"""`gputop bench --ray`: the relay's process, the GPUs that Ray assigns, and the runs on them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gputop import from_checkout
from gputop.agent.problem import Problem, ProblemError
from gputop.bench.cluster.node_facts import NodeFacts, node_facts
from gputop.bench.plan.request import Request, RunRefusedError, Target
from gputop.bench.results.outliers import DeviceOutcome
from gputop.bench.run.device_runner import DeviceRunner
from gputop.bench.run.progress import follow_on_a_line
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner
from gputop.bench.run.worker_launch import (
    GET_TORCH,
    STEP_SECONDS,
    ChildProcess,
    Launcher,
)
from gputop.console import COULD_NOT_RUN, USAGE, print_message
from gputop.stream.launch import child_environment, module_command
from gputop.text import visible

if TYPE_CHECKING:
    from typing import Self

    from gputop.bench.run.device_run import DeviceRun

    Requesting = Callable[[Sequence[Target]], list[Request]]
    """Makes the requests for some targets; may raise `RunRefusedError`."""

WORKER_LINES = 2000
"""Most unread lines of a worker. A run does not write that many at once."""
RELAY_LINE_BYTES = 1 << 20
"""Longest line of the relay, in bytes."""
CONNECT_SECONDS = 30.0
"""Timeout of the connection. Ray's own timeout is two minutes, and it prints in the meantime."""
LOOK_SECONDS = 120.0
"""Timeout for the facts of all GPUs. It is longer than the relay's timeout for Ray."""
WAY_SECONDS = 0.8
"""Round trip to a worker, added to its deadlines."""
RELAY = "gputop.bench.cluster.relay"


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """Number of a cluster's nodes, of its GPUs, and of the GPUs that are not in use by Ray."""

    nodes: int
    gpus: int
    free: int


class Cluster:
    """A connection to a Ray cluster. Leaving the cluster ends everything started there."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._answer: asyncio.Future[dict[str, Any]] = (
            asyncio.get_running_loop().create_future()
        )
        self._posts: dict[int, LentGpu] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def join(cls, address: str) -> tuple[Self, ClusterSize]:
        """Join the cluster at an address, `auto` for this machine's; raise `ProblemError`."""
        if find_spec("ray") is None:
            why = f"{visible(sys.executable)} has no ray"
            install = from_checkout("'.[ray]'")
            raise ProblemError(
                Problem("Ray is not installed", why, f"Type {install}")
            )
        process = await ChildProcess.start(
            *(*module_command(RELAY), address),
            environment={**child_environment(), **QUIET},
            limit=RELAY_LINE_BYTES,
        )
        cluster = cls(process)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                said = await cluster._answer
        except TimeoutError:
            said = {
                "failed": f"it did not answer within {CONNECT_SECONDS:.0f} s"
            }
        except BaseException:
            await cluster.leave()
            raise
        if "ray" in said:
            return cluster, ClusterSize(
                said["nodes"], said["gpus"], said["free"]
            )
        await cluster.leave()
        raise _refused(address, str(said.get("failed") or said.get("lost")))

    async def lend_gpus(
        self, count: int, python: str | None, *, cpu: bool
    ) -> list[LentGpu]:
        """Return `count` GPUs for exclusive use, in the order of hosts and GPUs."""
        self._posts = {
            number: LentGpu(number, self.send) for number in range(count)
        }
        self.send(
            place=count,
            python=python,
            cpu=cpu,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await asyncio.gather(
                    *(post.known.wait() for post in self._posts.values())
                )
        self._tell_apart()
        return sorted(self._posts.values(), key=lambda post: post.number)

    def _tell_apart(self) -> None:
        """Set the names of the hosts. Nodes with the same name get their ids appended."""
        known = [post for post in self._posts.values() if post.message]
        nodes = [
            (post.message["host"], post.message["node"]) for post in known
        ]
        lent, named = Counter(nodes), Counter(host for host, _ in set(nodes))
        for post, (host, node) in zip(known, nodes, strict=True):
            name = f"{host} ({node[:6]})" if named[host] > 1 else host
            post.set_host(name, lent[host, node])

    def send(self, **order: Any) -> None:
        """Send an order to the relay."""
        self._process.write(json.dumps(order).encode() + b"\n")

    async def leave(self) -> None:
        """End the relay, and with it everything that Ray has started for it."""
        self._process.close_input()
        await self._process.ended(STEP_SECONDS)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._process.close()

    async def _read(self) -> None:
        # The relay sent an endless line, or a line that is not a JSON object.
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            while line := await self._process.readline():
                said = json.loads(line)
                post = self._posts.get(said.get("post"))
                if post is not None:
                    post.handle_message(said)
                elif not self._answer.done():
                    self._answer.set_result(said)
                await asyncio.sleep(
                    0
                )  # yield to the event loop; a ready line would not
        lines = (
            (await self._process.errors())
            .decode(errors="replace")
            .strip()
            .splitlines()
        )
        why = visible(lines[-1], 300) if lines else "it had no output"
        if not self._answer.done():
            self._answer.set_result(
                {"lost": f"the connection to Ray has ended: {why}"}
            )
        for post in self._posts.values():
            post.handle_message({"lost": "the connection to Ray has ended"})


QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_LOG_TO_DRIVER_EVENT_LEVEL": "FATAL",
}


def _refused(address: str, why: str) -> ProblemError:
    where = (
        "of this machine" if address == "auto" else f"at {visible(address)}"
    )
    remedy = "Start it with `ray start --head`, or name its address as `ray start` prints it"
    if "ersion mismatch" in why:
        remedy = "Run gputop in the Python that the cluster was started with"
    what = f"The Ray cluster {where} cannot be used"
    return ProblemError(Problem(what, visible(why, 600), remedy))


class LentGpu(Launcher):
    """A GPU that Ray has assigned to this run: both the `Launcher` of its worker and the `Worker`.

    The fields are set when the node has answered.
    """

    def __init__(self, number: int, send: Callable[..., None]) -> None:
        self._order = partial(send, post=number)
        self.known = asyncio.Event()
        self.message: dict[str, Any] = {}
        self.facts: NodeFacts | None = None
        self.problem: str | None = None
        """Reason why no GPU was assigned."""
        self.status: int | None = None
        self.lost: Problem | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._over = asyncio.Event()
        self._errors = b""

    def handle_message(self, said: dict[str, Any]) -> None:
        """Handle a message of the relay about this GPU or its worker."""
        if "facts" in said:
            self.message = said["facts"]
            self.known.set()
        elif "line" in said:
            if (
                self._lines.qsize() < WORKER_LINES
            ):  # the session ends a worker that prints too much
                self._lines.put_nowait(str(said["line"]).encode())
        elif not self.known.is_set():
            self.problem = str(said.get("lost"))
            self.known.set()
        elif not self._over.is_set():
            self._end(said)

    def _end(self, said: dict[str, Any]) -> None:
        if "ended" in said:
            self.status, self._errors = (
                said["ended"],
                str(said.get("errors", "")).encode(),
            )
        else:
            what = f"The stress test on {visible(self.host or '')} was lost"
            remedy = "See `ray status`, and whether the node still answers"
            self.lost = Problem(what, visible(str(said.get("lost"))), remedy)
        self._over.set()
        self._lines.put_nowait(b"")

    @property
    def agent_folders(self) -> Sequence[str]:
        """Empty, because the worker's archive also contains the agent."""
        return ()

    @property
    def number(self) -> tuple[str, int, int]:
        """Host, index and MIG index: the sort key of the GPUs of a cluster."""
        if self.facts is None:
            return self.host or "", 0, 0
        target = self.facts.target
        return self.host or "", target.index or 0, target.mig_index or 0

    def set_host(self, host: str, beside: int) -> None:
        """Set the host's name, and parse the facts from the node; see `node_facts`."""
        self.host = host
        try:
            self.facts = node_facts(self.message, host, beside)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.problem = f"{host}: {error}"

    async def find_python(self, request: Request) -> str:  # noqa: ARG002 - part of the interface
        """Return the interpreter on the node; raise `ProblemError` if it has no torch."""
        assert self.facts is not None
        python = self.facts.python
        if self.facts.target.torch is None:
            what, why = (
                f"{self.host} cannot run the stress test",
                f"{python} there has no torch",
            )
            remedy = f"Install torch for it: {GET_TORCH}"
            raise ProblemError(Problem(what, why, remedy))
        return python

    async def start(
        self,
        python: str,  # noqa: ARG002
        request: Request,
        order: bytes,
    ) -> Self:
        """Start the worker on the node."""
        self._order(start=order.decode(), uuid=request.target.uuid)
        return self

    async def readline(self) -> bytes:
        return await self._lines.get()

    def write(self, line: bytes) -> None:
        self._order(tell=line.decode())

    def signal(self, number: signal.Signals) -> None:
        if not self._over.is_set():
            self._order(signal=int(number))

    async def ended(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds + WAY_SECONDS)
        return self._over.is_set()

    async def errors(self) -> bytes:
        return self._errors

    async def close(self) -> None:
        """Give the GPU back to Ray, which ends the worker."""
        self._order(leave=True)


async def run_on_cluster(
    address: str,
    requesting: Requesting,
    *,
    devices: int | None,
    cpu: bool,
    ignore_busy: bool,
    python: str | None,
    head: str = "",
) -> tuple[Sequence[DeviceRun], Sequence[DeviceOutcome]]:
    """Run the same test on many GPUs of a cluster; raise `RunRefusedError`.

    Return the ended runs, and the devices that could not be tested with the reasons.

    A line that begins with `head` shows the progress. Without `devices` the test takes all GPUs
    that are not in use by Ray. With `cpu` it uses the nodes' CPUs instead, as a trial. `python` is
    the interpreter on the nodes, or None for Ray's own.
    """
    try:
        cluster, found = await Cluster.join(address)
    except ProblemError as error:
        raise RunRefusedError(f"{error}.") from None
    try:
        posts = await cluster.lend_gpus(
            _count(devices, found), python, cpu=cpu
        )
        usable, not_begun = await _look_over(posts, ignore_busy=ignore_busy)
        if not usable:
            why = "; ".join(
                dict.fromkeys(member.problem or "" for member in not_begun)
            )
            raise RunRefusedError(
                f"No GPU of the cluster can be tested: {why}."
            )
        for member in not_begun:
            where = ", ".join(filter(None, (member.host, member.place)))
            print_message(f"warning: {where} is left out: {member.problem}")
        # All ranks of a collective connect to the first rank at `HOST:PORT`.
        meeting = next(iter(usable.values())).message.get("address")
        requests = [
            replace(each, rendezvous=meeting)
            for each in requesting(list(usable))
        ]
        targets = (request.target for request in requests)
        gpus = dict(zip(targets, usable.values(), strict=True))

        def on_node(
            request: Request, device: DeviceRun, *, waits: bool
        ) -> DeviceRunner:
            gpu = gpus[request.target]
            return DeviceRunner(request, device, waits=waits, launcher=gpu)

        runner = Runner(Run(requests), on_node)
        ended = await follow_on_a_line(runner, head)
        return ended, not_begun
    finally:
        await cluster.leave()


def _count(devices: int | None, found: ClusterSize) -> int:
    has = f"the cluster has {found.gpus} on {found.nodes} node{'s' * (found.nodes != 1)}"
    if devices is not None and devices > found.gpus:
        raise RunRefusedError(
            f"There are no {devices} GPUs: {has}. Ask for fewer.", USAGE
        )
    if not found.gpus:
        see = "See `ray status`. `ray start --num-gpus` sets the number of a node's GPUs."
        raise RunRefusedError(f"There is no GPU: {has}. {see}")
    wanted = devices or max(1, found.free)
    if wanted > found.free:
        why = f"Only {found.free} of {found.gpus} GPUs are free, the others are in use by Ray."
        raise RunRefusedError(
            f"{why} Wait for them, or ask for fewer with --devices."
        )
    if devices is None and found.free < found.gpus:
        print_message(
            f"{found.gpus - found.free} of {found.gpus} GPUs are in use by Ray: left out"
        )
    return wanted


async def _look_over(
    posts: Sequence[LentGpu], *, ignore_busy: bool
) -> tuple[dict[Target, LentGpu], list[DeviceOutcome]]:
    """Return the usable GPUs, and the others with the reasons. Give the others back to Ray."""
    usable: dict[Target, LentGpu] = {}
    left_out: list[DeviceOutcome] = []
    for post in posts:
        why = post.problem or "its node did not answer in time"
        device: tuple[str | None, str, str] = (None, "a GPU", "GPU")
        if post.facts is not None:
            target, held = post.facts.target, post.facts.held
            if held is None or ignore_busy:
                usable[target] = post
                continue
            why = f"it is {held}; add --ignore-busy to test it anyway"
            device = target.uuid, target.place, target.name
        why = visible(why, 400)
        left_out.append(
            DeviceOutcome(post.host or "", *device, None, why, COULD_NOT_RUN)
        )
        await post.close()
    return usable, left_out
