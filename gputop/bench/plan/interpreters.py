"""Choice of the Python that runs the worker: the one with the user's torch.

Each candidate is asked in a process of its own, without importing torch, which takes seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from gputop.compat import timeout
from gputop.problem import Problem
from gputop.text import visible

PROBE_SECONDS = 20.0
"""Timeout of a probe: an interpreter on a network file system may start slowly."""
KILL_SECONDS = 1.0
OLDEST_PYTHON = (3, 9)
GET_TORCH = "https://pytorch.org/get-started"

# Any Python from 2 on has to be able to read this and what follows. A module in the working
# directory is not the one that is meant; the end of the input is that of gputop.
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

# A directory of that name without a module in it is not torch.
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
print(json.dumps(answer))
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
        state = self.fault or (f"torch {self.torch_version}" if self.torch_version else "no torch")
        return visible(f"{self.path} ({self.origin}): {state}")


@dataclass(frozen=True, slots=True)
class InterpreterSearch:
    """The chosen interpreter, if any, and those probed up to it."""

    chosen: Interpreter | None
    looked_at: tuple[Interpreter, ...]

    @property
    def problem(self) -> Problem | None:
        """What is missing and what to type, or None if an interpreter was chosen."""
        if self.chosen is not None:
            return None
        why = f"looked at {'; '.join(map(str, self.looked_at)) or 'none'}"
        remedy = "Name a Python that has it with `gputop --python PATH`"
        if working := next((each for each in self.looked_at if each.fault is None), None):
            install = f"Install torch for {visible(working.path)} ({GET_TORCH}), or "
            remedy = install + remedy[0].lower() + remedy[1:]
        return Problem("No Python with torch was found", why, remedy)


async def find_interpreter(explicit: str | None = None, *, cuda: bool = False) -> InterpreterSearch:
    """Probe all candidates at once, and choose the first in order that has torch.

    `explicit` (from `--python`) is the only candidate if given. With `cuda`, a torch for CPUs only
    is the last choice.
    """
    probes = [asyncio.create_task(_probe(*each)) for each in candidates(explicit)]
    looked_at: list[Interpreter] = []
    try:
        for probe in probes:
            looked_at.append(await probe)
            for_cpus = (looked_at[-1].torch_version or "").endswith("+cpu")
            if looked_at[-1].usable and not (cuda and for_cpus):
                return InterpreterSearch(looked_at[-1], tuple(looked_at))
    finally:
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
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
            # Not resolved: the python of a virtual environment is a link to the one it is based on.
            found.setdefault(os.path.abspath(path), origin)  # noqa: PTH100
    return tuple(found.items())


def _python_of(variable: str) -> str | None:
    prefix = os.environ.get(variable)
    return str(Path(prefix, "bin", "python")) if prefix else None


class NoAnswerError(Exception):
    """An interpreter that did not run a program to its end, and why."""


async def run_program(path: str, program: str, seconds: float) -> tuple[bytes, int | None]:
    """Return the output and status of a program in this Python; raise `NoAnswerError`.

    The program has a process and a session of its own, which end at the timeout.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "-c",
            LISTEN + program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise NoAnswerError("there is no such file") from None
    except OSError as error:
        raise NoAnswerError((error.strerror or str(error)).lower()) from None
    assert process.stdout is not None
    try:
        async with timeout(seconds):
            # Not `communicate`: it may close the input, whose end is that of the process.
            output = await process.stdout.read()
            await process.wait()
    except asyncio.TimeoutError:
        raise NoAnswerError(f"it did not answer within {seconds:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), KILL_SECONDS)
    return output, process.returncode


async def _probe(path: str, origin: str) -> Interpreter:
    def faulty(why: str) -> Interpreter:
        return Interpreter(path, origin, fault=why)

    try:
        output, status = await run_program(path, PROBE, PROBE_SECONDS)
        answer = json.loads(output.splitlines()[-1])
        version, torch_version = tuple(answer["python"]), answer["torch"]
    except NoAnswerError as error:
        return faulty(str(error))
    except (ValueError, LookupError, TypeError):
        ended = f" (status {status})" if status else ""
        return faulty(f"it does not answer like a Python{ended}")
    if version < OLDEST_PYTHON:
        return faulty(f"Python {'.'.join(map(str, version))}, and the worker needs 3.9 or later")
    return Interpreter(path, origin, torch_version=torch_version and str(torch_version))
