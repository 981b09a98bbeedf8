"""Interpreters with the user's torch, and the processes that are started in them.

Each candidate is probed in a process of its own. The probe does not import torch, because that
takes seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import gputop
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.stream.launch import child_environment
from gputop.text import visible

WORKER_LINE_BYTES = 1 << 16
"""Bytes of one line of a stress test's worker."""

if TYPE_CHECKING:
    from typing import Self

    from gputop.bench.plan.request import Request, Target

PROBE_SECONDS = 20.0
"""Timeout of a probe: an interpreter on a network file system may start slowly."""
CANNOT_START = "Python with torch cannot be started"
OLDEST_PYTHON = (3, 9)
GET_TORCH = "https://pytorch.org/get-started"

# This program and the next one have to be valid in every Python from 2 on. Modules in the working
# directory are ignored. End of file on the input means that gputop has ended.
LISTEN = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import os, threading
def listen():
    os.read(0, 1)
    os._exit(1)
listening = threading.Thread(target=listen)
listening.daemon = True
listening.start()
"""

# A folder `torch` without a module in it is not torch.
PROBE = """
import json
answer = {"python": list(sys.version_info[:3]), "torch": None}
if sys.version_info >= (3, 9):
    import importlib.metadata, importlib.util
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin:
        try:
            answer["torch"] = importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            answer["torch"] = "of unknown version"
print("\\n" + json.dumps(answer))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that was probed. It is usable if it has torch and no fault."""

    path: str
    origin: str
    """How it was found: `--python`, `active virtual environment`, `on the PATH`."""
    torch_version: str | None = None
    fault: str | None = None

    @property
    def usable(self) -> bool:
        """True if the worker can run in it."""
        return self.torch_version is not None and self.fault is None

    def __str__(self) -> str:
        state = self.fault or (
            f"torch {self.torch_version}" if self.torch_version else "no torch"
        )
        return visible(f"{self.path} ({self.origin}): {state}")


@dataclass(frozen=True, slots=True)
class InterpreterSearch:
    """The chosen interpreter, or None, and all that were probed."""

    chosen: Interpreter | None
    looked_at: tuple[Interpreter, ...]
    refused: Problem | None = None
    """Reason why no process can be started, or None."""

    @property
    def problem(self) -> Problem | None:
        """Problem with its remedy, or None if an interpreter was chosen."""
        if self.chosen is not None or self.refused is not None:
            return self.refused
        why = f"looked at {'; '.join(map(str, self.looked_at)) or 'none'}"
        remedy = "Name a Python that has it with `gputop --python PATH`"
        if working := next(
            (each for each in self.looked_at if each.fault is None), None
        ):
            install = (
                f"Install torch for {visible(working.path)} ({GET_TORCH}), or "
            )
            remedy = install + remedy[0].lower() + remedy[1:]
        return Problem("No Python with torch was found", why, remedy)


async def find_interpreter(
    explicit: str | None = None, *, cuda: bool = False
) -> InterpreterSearch:
    """Probe the candidates in their order, and choose the first that has torch.

    `explicit` (from `--python`) is the only candidate if given. With `cuda`, a torch for CPUs only
    is the last choice.
    """
    looked_at: list[Interpreter] = []
    for path, origin in candidates(explicit):
        try:
            looked_at.append(await _probe(path, origin))
        except ProblemError as error:
            return InterpreterSearch(None, tuple(looked_at), error.problem)
        for_cpus = (looked_at[-1].torch_version or "").endswith("+cpu")
        if looked_at[-1].usable and not (cuda and for_cpus):
            return InterpreterSearch(looked_at[-1], tuple(looked_at))
    usable = (each for each in looked_at if each.usable)
    return InterpreterSearch(next(usable, None), tuple(looked_at))


def candidates(explicit: str | None = None) -> tuple[tuple[str, str], ...]:
    """Return paths and their origins, best first, each path once."""
    if explicit is not None:
        return ((explicit, "--python"),)
    named: list[tuple[str | None, str]] = [
        (_python_of("VIRTUAL_ENV"), "active virtual environment"),
        (_python_of("CONDA_PREFIX"), "active conda environment"),
        (sys.executable or None, "gputop's own"),
        (shutil.which("python3"), "on the PATH"),
        (shutil.which("python"), "on the PATH"),
    ]
    found: dict[str, str] = {}
    for path, origin in named:
        if path:
            # Not resolved, because the python of a virtual environment is a link to its base.
            found.setdefault(os.path.abspath(path), origin)  # noqa: PTH100
    return tuple(found.items())


def _python_of(variable: str) -> str | None:
    prefix = os.environ.get(variable)
    return str(Path(prefix, "bin", "python")) if prefix else None


class NoAnswerError(Exception):
    """Reason why an interpreter did not run a program to its end."""


async def run_program(
    path: str, program: str, seconds: float
) -> tuple[bytes, int | None]:
    """Return the output and status of a program in this Python; raise `NoAnswerError`.

    Raise `ProblemError` if no process can be started, so another Python would not help.
    """
    try:
        process = await ChildProcess.start(
            path,
            "-c",
            LISTEN + program,
            environment=os.environ,
            limit=WORKER_LINE_BYTES,
        )
    except FileNotFoundError:
        raise NoAnswerError("there is no such file") from None
    except OSError as error:
        raise NoAnswerError((error.strerror or str(error)).lower()) from None
    try:
        async with asyncio.timeout(seconds):
            output = await process.read()
            await process.ended(seconds)
        if process.status and says_process_limit(
            (await process.errors()).decode(errors="replace")
        ):
            raise ProblemError(process_limit_problem(CANNOT_START))
    except TimeoutError:
        raise NoAnswerError(
            f"it did not answer within {seconds:g} s"
        ) from None
    finally:
        await process.close()
    return output, process.status


def answer_in(output: bytes, *keys: str) -> dict[str, Any]:
    """Return the last line that is a JSON object with one of the keys, or raise `ValueError`.

    Output of the interpreter at its start or end is ignored.
    """
    for line in reversed(output.splitlines()):
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(line)
            if isinstance(document, dict) and document.keys() & {*keys}:
                return document
    raise ValueError("there is no answer")


async def _probe(path: str, origin: str) -> Interpreter:
    torch_version = fault = None
    try:
        output, status = await run_program(path, PROBE, PROBE_SECONDS)
        answer = answer_in(output, "python")
        version, torch_version = (
            tuple(answer["python"]),
            answer["torch"] and str(answer["torch"]),
        )
        if version < OLDEST_PYTHON:
            fault = f"Python {'.'.join(map(str, version))}, and the worker needs 3.9 or later"
    except NoAnswerError as error:
        fault = str(error)
    except (ValueError, LookupError, TypeError):
        fault = "it does not answer like a Python" + (
            f" (status {status})" if status else ""
        )
    return Interpreter(path, origin, torch_version, fault)


def worker_environment(target: Target, *others: Target) -> dict[str, str]:
    """Return the worker's environment, with its device as the first visible one.

    The worker unsets variables that change its figures, and reports them.
    """
    found = dict(child_environment())
    if target.kind == "cuda":
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        seen = (each.uuid or str(each.index) for each in (target, *others))
        found["CUDA_VISIBLE_DEVICES"] = ",".join(seen)
    return found


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

    lost: Problem | None
    """Reason why a remote worker is not reachable any more."""

    async def readline(self) -> bytes:
        """Return the next line, b"" at the end; raise `ValueError` for an endless line."""

    def write(self, line: bytes) -> None:
        """Write to standard input. A closed pipe is ignored."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal while it runs."""

    async def ended(self, seconds: float) -> bool:
        """True if it ends within that time."""

    async def errors(self) -> bytes:
        """Return the end of its standard error once it has ended."""

    async def close(self) -> None:
        """Kill it if it still runs, and release its resources."""


class Launcher:
    """Starts workers on this machine, or in a subclass on another one."""

    host: str | None = None
    """Name of the machine, or None for this one."""

    @property
    def agent_folders(self) -> Sequence[str]:
        """Folders or archives from which the worker imports the agent and nvidia-ml-py.

        Empty if its Python finds them by itself.
        """
        return agent_folders()

    async def find_python(self, request: Request) -> str:
        """Return the path of the interpreter; raise `ProblemError`. May be cancelled."""
        cuda = request.target.kind == "cuda"
        found = await find_interpreter(request.python, cuda=cuda)
        if found.chosen is None:
            assert found.problem is not None
            raise ProblemError(found.problem)
        return found.chosen.path

    async def start(
        self,
        python: str,
        request: Request,
        order: bytes,
    ) -> Worker:
        """Start a worker with the first line of its input; raise `ProblemError`."""
        environment = worker_environment(request.target, *request.peers)
        try:
            worker = await ChildProcess.start(
                python,
                str(WORKER),
                environment=environment,
                limit=WORKER_LINE_BYTES,
            )
        except OSError as error:
            what = f"{visible(python)} cannot be started"
            remedy = "Choose another interpreter with --python"
            raise ProblemError(
                Problem(what, str(error.strerror or error), remedy)
            ) from error
        worker.write(order)
        return worker


def agent_folders() -> tuple[str, ...]:
    """Return the folders of this gputop and of nvidia-ml-py."""
    found = [Path(gputop.__file__).parents[1]]
    spec = find_spec("pynvml")
    if spec is not None and spec.origin is not None:
        found.append(Path(spec.origin).parent)
    return tuple(str(folder) for folder in found)


class ChildProcess:
    """A child process and its pipes, in a session of its own."""

    lost: Problem | None = None

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process, self._lines = process, process.stdout
        self._errors = b""
        self._reading = asyncio.create_task(self._keep_errors())

    @classmethod
    async def start(
        cls, *arguments: str, environment: Mapping[str, str], limit: int
    ) -> Self:
        """Start a process whose lines have at most `limit` bytes.

        Raise `OSError`, or `ProblemError` if no process can be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # Ctrl+C in the terminal is for the dashboard
                start_new_session=True,
                env=environment,
                limit=limit,
            )
        except (
            OSError,
            RuntimeError,
        ) as error:  # before Python 3.12 asyncio starts a thread
            if not says_process_limit(error):
                raise
            # asyncio would log a traceback about the half-started process.
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            raise ProblemError(process_limit_problem(CANNOT_START)) from None
        return cls(process)

    @property
    def status(self) -> int | None:
        return self._process.returncode

    async def readline(self) -> bytes:
        return await self._lines.readline()

    async def read(self) -> bytes:
        """Return all of its output."""
        return await self._lines.read()

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the worker has ended
            self._process.stdin.write(line)

    def close_input(self) -> None:
        """Close standard input, which ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        if (
            self._process.returncode is None
        ):  # later the pid may be of another process
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
        # Read the pipes to their ends, because open pipes outlive the event loop.
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(self._process.communicate(), STEP_SECONDS)

    async def _keep_errors(self) -> None:
        """Read standard error to its end, so that the worker never blocks; keep the tail."""
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(READ_ERROR_BYTES):
            self._errors = (self._errors + data)[-KEPT_ERROR_BYTES:]
            await asyncio.sleep(READ_ERROR_PAUSE)
