"""Start of a worker: its request and environment, the process, and its pipes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gputop.bench.plan import interpreters
from gputop.bench.plan import request as plan
from gputop.bench.plan.kinds import DTYPES
from gputop.bounds import WORKER_LINE_BYTES
from gputop.console import COULD_NOT_RUN
from gputop.problem import Problem, ProblemError
from gputop.stream.launch import child_environment
from gputop.text import visible

if TYPE_CHECKING:
    from typing_extensions import Self

    from gputop.bench.plan.request import Request, Target


HELLO_SECONDS = 60.0
"""Timeout of the worker's start: importing torch over a network may be slow."""
PREPARE_SECONDS = 60.0
"""Time for memory, choice of a size, checks and warm-up, on top of some products."""
PREPARE_PRODUCTS = 4
"""Products made in preparation if one takes nearly as long as the run."""
MARGIN_SECONDS = 10.0


def worker_environment(target: Target, *others: Target) -> dict[str, str]:
    """Return the worker's environment: one device visible, and the others behind it.

    The worker itself unsets what changes figures, and says what was set.
    """
    found = dict(child_environment())
    if target.kind == "cuda":
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        seen = (each.uuid or str(each.index) for each in (target, *others))
        found["CUDA_VISIBLE_DEVICES"] = ",".join(seen)
    return found


def prepare_seconds(seconds: float) -> float:
    """Return the longest time until the plan of a run of so many seconds."""
    # A product that is nearly as long as the run is not refused.
    return PREPARE_SECONDS + PREPARE_PRODUCTS * seconds


def wait_seconds(seconds: float) -> float:
    """Return the longest time until other workers are ready."""
    return HELLO_SECONDS + prepare_seconds(seconds) + MARGIN_SECONDS


def worker_request(request: Request, wait_seconds: float = 0.0) -> dict[str, Any]:
    """Return the first line of the worker's input. `wait_seconds` bounds the wait for `go`."""
    target = request.target
    return {
        "kind": request.kind,
        "device": target.kind,
        "name": target.name,
        "label": target.place,
        "peers": [each.place for each in request.peers],
        "dtype": request.dtype,
        "dtypes": [_dtype(name, target, verify_all=request.verify_all) for name in request.dtypes],
        "size": request.size,
        "seconds": request.seconds,
        "verify_all": request.verify_all,
        "host_bytes": request.host_bytes and request.host_bytes - plan.PROCESS_BYTES,
        "pci_bus_id": target.pci_bus_id,
        "hertz": request.hertz if request.kind == "pulse" else None,
        "rank": request.ranks.index(target) if request.ranks else 0,
        "ranks": len(request.ranks),
        "rendezvous": request.rendezvous,
        "wait_seconds": wait_seconds,
        "prepare_seconds": prepare_seconds(request.seconds),
        "free_bytes": target.memory_allowed_bytes,
        "bytes_per_row": plan.BYTES_PER_ROW,
        "fixed_bytes": plan.fixed_bytes(target.kind),
        "context_bytes": plan.CONTEXT_BYTES if target.kind == "cuda" else 0,
    }


VERIFIED_LARGER = 4
"""How much larger `auto` may be where every product is verified: that costs 1/N of its time."""


def _dtype(name: str, target: Target, *, verify_all: bool) -> dict[str, Any]:
    dtype = DTYPES[name]
    cuda = target.kind == "cuda"
    return {
        "name": name,
        "operand_bits": dtype.operand_bits,
        "result_bytes": dtype.result_bytes,
        "library_bytes": dtype.library_bytes(target.kind),
        "largest": plan.auto_limit(target, name, VERIFIED_LARGER if verify_all else 1),
        "fitting": plan.largest_fitting_size(target, name),
        "multiple": dtype.multiple if cuda else 1,
        "least": dtype.least if cuda else 1,
    }


WORKER = Path(__file__).parents[1] / "worker" / "__main__.py"

STEP_SECONDS = 1.0
"""Time for a process to end, or for its pipes to be read."""
KEPT_ERROR_BYTES = 4096
READ_ERROR_BYTES, READ_ERROR_PAUSE = 1 << 16, 0.05
"""Bytes of standard error per read, and the pause between: floods are slowed down."""


class Worker(Protocol):
    """A started worker: its input, its output and its end."""

    @property
    def status(self) -> int | None:
        """Exit code of the process: negative for a signal, None while running or unknown."""

    @property
    def lost(self) -> Problem | None:
        """Reason why a remote worker is not reachable any more."""

    async def readline(self) -> bytes:
        """Return the next line, b"" at the end; raise `ValueError` for an endless line."""

    def write(self, line: bytes) -> None:
        """Write to standard input, even if nobody reads it any more."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal while it runs."""

    async def ended(self, seconds: float) -> bool:
        """True if it ends within that time."""

    async def errors(self) -> bytes:
        """Return the end of its standard error once it has ended."""

    async def close(self) -> None:
        """Kill it if it still runs, and release its resources."""


class Launcher(Protocol):
    """Starts workers on a machine."""

    @property
    def host(self) -> str | None:
        """Name of the machine, or None for this one."""

    @property
    def status_of_death(self) -> int:
        """Exit status of a run whose worker ended by itself without a message."""

    async def find_python(self, request: Request) -> str:
        """Return the path of the interpreter; raise `ProblemError`. May be cancelled."""

    async def start(self, python: str, request: Request, order: bytes) -> Worker:
        """Start a worker with the first line of its input; raise `ProblemError`."""


class LocalLauncher:
    """Starts workers on this machine."""

    host: str | None = None
    status_of_death = COULD_NOT_RUN  # nearly always there was too little memory

    async def find_python(self, request: Request) -> str:
        """Return the interpreter that has torch."""
        cuda = request.target.kind == "cuda"
        found = await interpreters.find_interpreter(request.python, cuda=cuda)
        if found.chosen is None:
            assert found.problem is not None
            raise ProblemError(found.problem)
        return found.chosen.path

    async def start(self, python: str, request: Request, order: bytes) -> ChildProcess:
        """Start a child process."""
        environment = worker_environment(request.target, *request.peers)
        try:
            worker = await ChildProcess.start(
                python, str(WORKER), environment=environment, limit=WORKER_LINE_BYTES
            )
        except OSError as error:
            what = f"{visible(python)} cannot be started"
            remedy = "Choose another interpreter with --python"
            raise ProblemError(Problem(what, str(error.strerror or error), remedy)) from error
        worker.write(order)
        return worker


class ChildProcess:
    """A child process and its pipes, in a session of its own."""

    lost: Problem | None = None

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process, self._lines = process, process.stdout
        self._errors = b""
        self._reading = asyncio.create_task(self._keep_errors())

    @classmethod
    async def start(cls, *arguments: str, environment: Mapping[str, str], limit: int) -> Self:
        """Start one whose lines have at most `limit` bytes; raise `OSError`."""
        return cls(
            await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl+C in the terminal is for the dashboard
                env=environment,
                limit=limit,
            )
        )

    @property
    def status(self) -> int | None:
        return self._process.returncode

    async def readline(self) -> bytes:
        return await self._lines.readline()

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the worker has ended
            self._process.stdin.write(line)

    def close_input(self) -> None:
        """Close standard input, whose end is that of the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # afterwards the pid is not ours
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def ended(self, seconds: float) -> bool:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)
        return self._process.returncode is not None

    async def errors(self) -> bytes:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reading), STEP_SECONDS)
        return self._errors

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self.signal(signal.SIGKILL)
        # To the ends of its pipes: what is left open there outlives the event loop.
        with contextlib.suppress(asyncio.TimeoutError, OSError):
            await asyncio.wait_for(self._process.communicate(), STEP_SECONDS)

    async def _keep_errors(self) -> None:
        """Read standard error to its end, so that the worker never waits; keep the tail."""
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(READ_ERROR_BYTES):
            self._errors = (self._errors + data)[-KEPT_ERROR_BYTES:]
            await asyncio.sleep(READ_ERROR_PAUSE)
