"""`gputop bench --ray`: the relay's process, the GPUs that Ray assigns, and the runs on them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gputop import from_checkout
from gputop.agent.problem import Problem, ProblemError
from gputop.bench.cluster.messages import (
    Ended,
    Joined,
    Lent,
    Lost,
    Order,
    Output,
    Place,
    Refused,
    Release,
    Report,
    Signal,
    Start,
    Write,
    from_line,
    to_line,
)
from gputop.bench.cluster.node_facts import node_facts
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

    from gputop.bench.cluster.node_actor import NodeAnswer
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


class Cluster:
    """A connection to a Ray cluster. Leaving the cluster ends everything started there."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._answer: asyncio.Future[Joined | Refused] = (
            asyncio.get_running_loop().create_future()
        )
        self._posts: dict[int, LentGpu] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def join(cls, address: str) -> tuple[Self, Joined]:
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
                answer = await cluster._answer
        except TimeoutError:
            why = f"it did not answer within {CONNECT_SECONDS:.0f} s"
            answer = Refused(why)
        except BaseException:
            await cluster.leave()
            raise
        if isinstance(answer, Joined):
            return cluster, answer
        await cluster.leave()
        raise _refused(address, answer.why)

    async def lend_gpus(
        self, count: int, python: str | None, *, cpu: bool
    ) -> list[LentGpu]:
        """Return `count` GPUs for exclusive use, in the order of hosts and GPUs."""
        self._posts = {
            number: LentGpu(number, self.send) for number in range(count)
        }
        self.send(Place(count, python, cpu))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await asyncio.gather(
                    *(post.known.wait() for post in self._posts.values())
                )
        self._tell_apart()
        return sorted(self._posts.values(), key=lambda post: post.number)

    def _tell_apart(self) -> None:
        """Set the names of the hosts. Nodes with the same name get their ids appended."""
        nodes: Counter[tuple[str, str]] = Counter()
        for post in self._posts.values():
            if post.answer is not None:
                nodes[post.answer.host, post.answer.node] += 1
        hosts = Counter(host for host, _ in nodes)
        for post in self._posts.values():
            if post.answer is not None:
                host, node = post.answer.host, post.answer.node
                name = f"{host} ({node[:6]})" if hosts[host] > 1 else host
                post.set_host(name, post.answer, nodes[host, node])

    def send(self, order: Order) -> None:
        """Send an order to the relay."""
        self._process.write(to_line(order))

    async def leave(self) -> None:
        """End the relay, and with it everything that Ray has started for it."""
        self._process.close_input()
        await self._process.ended(STEP_SECONDS)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._process.close()

    async def _read(self) -> None:
        # The relay sent an endless line, or a line that is not a message.
        with contextlib.suppress(ValueError):
            while line := await self._process.readline():
                self._handle(from_line(line))
                # Yield to the event loop; a ready line would not.
                await asyncio.sleep(0)
        lines = (
            (await self._process.errors())
            .decode(errors="replace")
            .strip()
            .splitlines()
        )
        why = visible(lines[-1], 300) if lines else "it had no output"
        over = "the connection to Ray has ended"
        self._handle(Refused(f"{over}: {why}"))
        for number, post in self._posts.items():
            post.handle(Lost(number, over))

    def _handle(self, message: Order | Report) -> None:
        if isinstance(message, Joined | Refused):
            if not self._answer.done():
                self._answer.set_result(message)
        elif isinstance(message, Lent | Output | Ended | Lost):
            post = self._posts.get(message.post)
            if post is not None:
                post.handle(message)


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

    def __init__(self, post: int, send: Callable[[Order], None]) -> None:
        self._post, self._send = post, send
        self.known = asyncio.Event()
        self.answer: NodeAnswer | None = None
        self.target: Target | None = None
        self.held: str | None = None
        """Reason why the GPU counts as in use, or None if it is free."""
        self.problem: str | None = None
        """Reason why no GPU was assigned."""
        self.status: int | None = None
        self.lost: Problem | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._over = asyncio.Event()
        self._errors = b""

    def handle(self, message: Lent | Output | Ended | Lost) -> None:
        """Handle a message of the relay about this GPU or its worker."""
        if isinstance(message, Lent):
            self.answer = message.answer
            self.known.set()
        elif isinstance(message, Output):
            # The run ends a worker that prints too much.
            if self._lines.qsize() < WORKER_LINES:
                self._lines.put_nowait(message.line.encode())
        elif self.known.is_set():
            self._end(message)
        elif isinstance(message, Lost):
            self.problem = message.why
            self.known.set()

    def _end(self, message: Ended | Lost) -> None:
        if self._over.is_set():
            return
        if isinstance(message, Ended):
            self.status = message.status
            self._errors = message.errors.encode()
        else:
            what = f"The stress test on {visible(self.host or '')} was lost"
            remedy = "See `ray status`, and whether the node still answers"
            self.lost = Problem(what, visible(message.why), remedy)
        self._over.set()
        self._lines.put_nowait(b"")

    @property
    def agent_folders(self) -> Sequence[str]:
        """Empty, because the worker's archive also contains the agent."""
        return ()

    @property
    def number(self) -> tuple[str, int, int]:
        """Host, index and MIG index: the sort key of the GPUs of a cluster."""
        target = self.target
        if target is None:
            return self.host or "", 0, 0
        return self.host or "", target.index or 0, target.mig_index or 0

    def set_host(self, host: str, answer: NodeAnswer, beside: int) -> None:
        """Set the host's name, and the GPU by the node's answer; see `node_facts`."""
        self.host = host
        try:
            self.target, self.held = node_facts(answer, host, beside)
        except ValueError as error:
            self.problem = f"{host}: {error}"

    async def find_python(self, request: Request) -> str:  # noqa: ARG002 - part of the interface
        """Return the interpreter on the node; raise `ProblemError` if it has no torch."""
        assert self.answer is not None
        python = self.answer.python
        if self.answer.torch is None:
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
        uuid = request.target.uuid
        self._send(Start(self._post, order.decode(), uuid))
        return self

    async def readline(self) -> bytes:
        return await self._lines.get()

    def write(self, line: bytes) -> None:
        self._send(Write(self._post, line.decode()))

    def signal(self, number: signal.Signals) -> None:
        if not self._over.is_set():
            self._send(Signal(self._post, int(number)))

    async def ended(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds + WAY_SECONDS)
        return self._over.is_set()

    async def errors(self) -> bytes:
        return self._errors

    async def close(self) -> None:
        """Give the GPU back to Ray, which ends the worker."""
        self._send(Release(self._post))


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
        answer = next(iter(usable.values())).answer
        assert answer is not None
        meeting = answer.address
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


def _count(devices: int | None, found: Joined) -> int:
    has = f"the cluster has {found.gpus} on {found.nodes} node{'s' * (found.nodes != 1)}"
    if devices is not None and devices > found.gpus:
        raise RunRefusedError(
            f"There are no {devices} GPUs: {has}. Ask for fewer.", USAGE
        )
    if not found.gpus:
        see = "See `ray status`. `ray start --num-gpus` sets the number of a node's GPUs."
        raise RunRefusedError(f"There is no GPU: {has}. {see}")
    wanted = found.free if devices is None else devices
    if not wanted or wanted > found.free:
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
        target = post.target
        if target is not None:
            if post.held is None or ignore_busy:
                usable[target] = post
                continue
            why = f"it is {post.held}; add --ignore-busy to test it anyway"
            device = target.uuid, target.place, target.name
        why = visible(why, 400)
        left_out.append(
            DeviceOutcome(post.host or "", *device, None, why, COULD_NOT_RUN)
        )
        await post.close()
    return usable, left_out
