"""Where a stress test's worker runs, and the worker as a session has it; here, a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gputop.bench.plan import interpreters, orders
from gputop.bounds import WORKER_LINE_BYTES
from gputop.console import COULD_NOT_RUN
from gputop.problem import Problem
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request

WORKER = Path(__file__).parents[1] / "worker" / "__main__.py"

STEP_SECONDS = 1.0
"""What a process may take to end, or its pipes to be read to their ends."""
KEPT_ERROR_BYTES = 4096
READ_ERROR_BYTES, READ_ERROR_PAUSE = 1 << 16, 0.05
"""Of standard error at once, and seconds between: whoever floods it has to wait."""


class PlaceError(Exception):
    """No worker can be started there; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Worker(Protocol):
    """A worker that was started: its input, its output and its end."""

    @property
    def status(self) -> int | None:
        """Of its process, a signal where negative; None while it runs, or where it is not known."""

    @property
    def lost(self) -> Problem | None:
        """Why nothing is heard of it any more, where its place is to blame."""

    async def readline(self) -> bytes:
        """What it says next, b"" at the end; raises `ValueError` for a line without an end."""

    def tell(self, line: bytes) -> None:
        """Writes to its standard input, also where nobody reads that any more."""

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal, while it runs."""

    async def ended(self, seconds: float) -> bool:
        """Whether it ends within that time."""

    async def errors(self) -> bytes:
        """The end of its standard error, once it has ended."""

    async def close(self) -> None:
        """Kills it where it has not ended, and lets go of all that it held."""


class Place(Protocol):
    """Where a worker can run."""

    @property
    def host(self) -> str | None:
        """The name of that machine; None for this one."""

    @property
    def status_of_death(self) -> int:
        """The exit status of a run whose worker ended by itself and without a word."""

    async def find(self, request: Request) -> str:
        """The path of the interpreter there; raises `PlaceError`. May be cancelled."""

    async def start(self, python: str, request: Request, order: bytes) -> Worker:
        """A worker there, with the first line of its input; raises `PlaceError`."""


class Here:
    """This machine."""

    host: str | None = None
    status_of_death = COULD_NOT_RUN  # nearly always there was too little memory

    async def find(self, request: Request) -> str:
        """The interpreter that has torch."""
        cuda = request.target.kind == "cuda"
        found = await interpreters.find(request.python, cuda=cuda)
        if found.chosen is None:
            assert found.problem is not None
            raise PlaceError(found.problem)
        return found.chosen.path

    async def start(self, python: str, request: Request, order: bytes) -> LocalWorker:
        """A child process in a session of its own."""
        try:
            process = await asyncio.create_subprocess_exec(
                python,
                str(WORKER),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl+C in the terminal is for the dashboard
                env=orders.environment(request.target, request.peer),
                limit=WORKER_LINE_BYTES,
            )
        except OSError as error:
            what = f"{visible(python)} cannot be started"
            remedy = "Choose another interpreter with --python"
            raise PlaceError(Problem(what, str(error.strerror or error), remedy)) from error
        worker = LocalWorker(process)
        worker.tell(order)
        return worker


class LocalWorker:
    """A child process and its pipes."""

    lost: Problem | None = None

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process, self._lines = process, process.stdout
        self._errors = b""
        self._reading = asyncio.create_task(self._keep_errors())

    @property
    def status(self) -> int | None:
        return self._process.returncode

    async def readline(self) -> bytes:
        return await self._lines.readline()

    def tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the worker has ended
            self._process.stdin.write(line)

    def signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # afterwards the pid is not ours
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def ended(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)
        return self._process.returncode is not None

    async def errors(self) -> bytes:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reading), STEP_SECONDS)
        return self._errors

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self.signal(signal.SIGKILL)
        # To the ends of its pipes: what is left open there outlives the event loop.
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(self._process.communicate(), STEP_SECONDS)

    async def _keep_errors(self) -> None:
        """Reads standard error to its end: the worker must not wait for it. Keeps the tail."""
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(READ_ERROR_BYTES):
            self._errors = (self._errors + data)[-KEPT_ERROR_BYTES:]
            await asyncio.sleep(READ_ERROR_PAUSE)
