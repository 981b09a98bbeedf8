"""Client of the relay: its process, the GPUs that Ray lends, and their workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gputop import from_checkout
from gputop.bench.cluster.node_readings import NodeFacts, node_facts
from gputop.bench.plan.interpreters import GET_TORCH
from gputop.bench.run.worker_launch import STEP_SECONDS, ChildProcess
from gputop.bounds import RELAY_LINE_BYTES, UNREADABLE_LINES, WORKER_LINES
from gputop.compat import module_command, timeout
from gputop.console import COULD_NOT_RUN, FAULT
from gputop.problem import Problem, ProblemError
from gputop.stream.launch import child_environment
from gputop.text import visible

if TYPE_CHECKING:
    from typing_extensions import Self

    from gputop.bench.plan.request import Request

CONNECT_SECONDS = 30.0
"""Timeout of the connection. Ray itself waits for two minutes, and prints meanwhile."""
LOOK_SECONDS = 120.0
"""Timeout of the GPUs' facts: longer than the relay waits for Ray."""
WAY_SECONDS = 0.8
"""Round trip to a worker, added to its deadlines."""
RELAY = "gputop.bench.cluster.relay"


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """Nodes and GPUs of a cluster, and the GPUs that Ray has not lent to anybody."""

    nodes: int
    gpus: int
    free: int


class Cluster:
    """A Ray cluster that was joined. Leaving it ends everything started there."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._posts: dict[int, LentGpu] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def join(cls, address: str) -> tuple[Self, ClusterSize]:
        """Join the cluster at an address, `auto` for this machine's; raise `ProblemError`."""
        if find_spec("ray") is None:
            why = f"{visible(sys.executable)} has no ray"
            install = from_checkout("'.[ray]'")
            raise ProblemError(Problem("Ray is not installed", why, f"Type {install}"))
        process = await ChildProcess.start(
            *(*module_command(RELAY), address),
            environment={**child_environment(), **QUIET},
            limit=RELAY_LINE_BYTES,
        )
        cluster = cls(process)
        try:
            async with timeout(CONNECT_SECONDS):
                said = await cluster._answer
        except asyncio.TimeoutError:
            said = {"failed": f"it did not answer within {CONNECT_SECONDS:.0f} s"}
        except BaseException:
            await cluster.leave()
            raise
        if "ray" in said:
            return cluster, ClusterSize(said["nodes"], said["gpus"], said["free"])
        await cluster.leave()
        raise _refused(address, str(said.get("failed") or said.get("lost")))

    async def lend_gpus(self, count: int, python: str | None, *, cpu: bool) -> list[LentGpu]:
        """Return that many GPUs that nobody else on the cluster has."""
        self._posts = {number: LentGpu(number, self.send) for number in range(count)}
        self.send(place=count, python=python, cpu=cpu)
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(LOOK_SECONDS):
                await asyncio.gather(*(post.known.wait() for post in self._posts.values()))
        self._tell_apart()
        return list(self._posts.values())

    def _tell_apart(self) -> None:
        """Name the hosts: nodes that share a name get their ids added."""
        known = [(post, post.message) for post in self._posts.values() if post.message is not None]
        named = Counter(host for host, _ in {(said["host"], said["node"]) for _, said in known})
        for post, said in known:
            host, node = said["host"], said["node"]
            post.set_host(f"{host} ({node[:6]})" if named[host] > 1 else host, said)

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
        strays = 0
        # A line without an end, or one that is no JSON object.
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            while strays < UNREADABLE_LINES and (line := await self._process.readline()):
                said = json.loads(line)
                post = self._posts.get(said.get("post"))
                strays = strays + 1 if post is None else 0
                if post is not None:
                    post.handle_message(said)
                elif not self._answer.done():
                    self._answer.set_result(said)
                await asyncio.sleep(0)  # a line that is there already lets nothing else have a turn
        lines = (await self._process.errors()).decode(errors="replace").strip().splitlines()
        why = visible(lines[-1], 300) if lines else "it said nothing"
        if not self._answer.done():
            self._answer.set_result({"lost": f"the connection to Ray has ended: {why}"})
        for post in self._posts.values():
            post.status_of_death = COULD_NOT_RUN  # which is no fault of the device
            post.handle_message({"lost": "the connection to Ray has ended"})


QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_LOG_TO_DRIVER_EVENT_LEVEL": "FATAL",
}


def _refused(address: str, why: str) -> ProblemError:
    where = "of this machine" if address == "auto" else f"at {visible(address)}"
    remedy = "Start it with `ray start --head`, or name its address as `ray start` prints it"
    if "ersion mismatch" in why:
        remedy = "Run gputop in the Python that the cluster was started with"
    what = f"The Ray cluster {where} cannot be used"
    return ProblemError(Problem(what, visible(why, 600), remedy))


class LentGpu:
    """A GPU that Ray has lent: the `Launcher` of its one worker, and that `Worker`.

    The fields are set once the node has answered.
    """

    def __init__(self, number: int, send: Callable[..., None]) -> None:
        self._order = partial(send, post=number)
        self.known = asyncio.Event()
        self.message: dict[str, Any] | None = None
        self.facts: NodeFacts | None = None
        self.problem: str | None = None
        """Reason why there is no GPU to work on."""
        self.on_readings: Callable[[str], None] = lambda _: None
        self.host: str | None = None
        self.status_of_death = FAULT
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
        elif "readings" in said:
            self.on_readings(str(said["readings"]))
        elif "line" in said:
            if self._lines.qsize() < WORKER_LINES:  # a session ends one that says so much
                self._lines.put_nowait(str(said["line"]).encode())
        elif not self.known.is_set():
            self.problem = str(said.get("lost"))
            self.known.set()
        elif not self._over.is_set():
            self._end(said)

    def _end(self, said: dict[str, Any]) -> None:
        if "ended" in said:
            self.status, self._errors = said["ended"], str(said.get("errors", "")).encode()
        else:
            what = f"The stress test on {visible(self.host or '')} was lost"
            remedy = "See `ray status`, and whether the node still answers"
            self.lost = Problem(what, visible(str(said.get("lost"))), remedy)
        self._over.set()
        self._lines.put_nowait(b"")

    def set_host(self, host: str, message: dict[str, Any]) -> None:
        """Set the host's name, and read the facts that the node has sent."""
        self.host = host
        try:
            self.facts = node_facts(message, host)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.problem = f"{host}: {error}"

    async def find_python(self, request: Request) -> str:  # noqa: ARG002 - as a place has it
        """Return the interpreter on the node; raise `ProblemError` if it has no torch."""
        assert self.facts is not None
        python = self.facts.python
        if not self.facts.has_torch:
            what, why = f"{self.host} cannot run the stress test", f"{python} there has no torch"
            remedy = f"Install torch for it: {GET_TORCH}"
            raise ProblemError(Problem(what, why, remedy))
        return python

    async def start(self, python: str, request: Request, order: bytes) -> Self:  # noqa: ARG002
        """Start the worker on the node."""
        self._order(start=order.decode())
        return self

    async def readline(self) -> bytes:
        return await self._lines.get()

    def write(self, line: bytes) -> None:
        self._order(tell=line.decode())

    def signal(self, number: signal.Signals) -> None:
        if not self._over.is_set():
            self._order(signal=int(number))

    async def ended(self, seconds: float) -> bool:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds + WAY_SECONDS)
        return self._over.is_set()

    async def errors(self) -> bytes:
        return self._errors

    async def close(self) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Give the GPU back to Ray, which ends the worker."""
        self._order(leave=True)
