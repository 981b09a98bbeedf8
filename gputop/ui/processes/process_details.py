"""Properties of a process of this machine that are not in samples. They are read on demand."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import NamedTuple

from gputop.agent.linux import procfs
from gputop.agent.linux.procfs import PROC
from gputop.agent.masking import masked_arguments
from gputop.ui.processes.signals import expect, explained

COMMAND_BYTES = 1 << 15
"""Most bytes of a command line to read. All of them are searched for secrets."""
ENVIRONMENT_BYTES = 1 << 22
"""Most bytes of an environment to read. The kernel allows a few MiB."""
MOST_PARENTS = 32
_STATUS_ROWS = rb"(?m)^(Threads|SigIgn|SigCgt):\s+(\w+)$"


class ProcessDetails(NamedTuple):
    """Properties of a process that are not in samples. All text is foreign."""

    command: str
    """Command line without secrets; empty for a kernel thread and a zombie."""
    unmasked: str
    state: str
    """One letter, as in `procfs.Stat`."""
    threads: int
    parents: tuple[tuple[int, str], ...]
    """Pid and name of each ancestor, the nearest first."""
    caught: int
    """Signals that the process handles itself, as bits. The lowest bit is signal 1."""
    ignored: int
    directory: str | None
    """Working directory. It and the environment are None if they cannot be read."""
    environment: tuple[tuple[str, str], ...] | None
    """Environment at its start, in its order. It is secret: do not log or store it."""


def read_details(
    pid: int,
    start_time: float,
    proc: str = PROC,
) -> ProcessDetails:
    """Return the details of a process of this machine. Raises ProblemError.

    May block if the process hangs in the kernel.
    """
    what = f"Process {pid} is not shown"
    with explained(what):
        details = _read(pid, proc)
        # Check at the end, so that everything read before belongs to that
        # process or is empty.
        expect(pid, start_time, what, proc)
    return details


def _read(pid: int, proc: str) -> ProcessDetails:
    stat = procfs.read_stat(pid, proc)
    status = dict(
        re.findall(
            _STATUS_ROWS,
            procfs.read(f"{proc}/{pid}/status"),
        ),
    )
    command_line = procfs.read(f"{proc}/{pid}/cmdline", COMMAND_BYTES)
    arguments = procfs.arguments_of(command_line)
    directory = environment = None
    with contextlib.suppress(OSError):
        directory = str(Path(f"{proc}/{pid}/cwd").readlink())
        environment = _environment(f"{proc}/{pid}/environ")
    return ProcessDetails(
        command=" ".join(masked_arguments(arguments)),
        unmasked=" ".join(arguments),
        state=stat.state,
        threads=int(status.get(b"Threads", b"1")),
        parents=_parents(stat.parent_pid, proc),
        caught=int(status.get(b"SigCgt", b"0"), 16),
        ignored=int(status.get(b"SigIgn", b"0"), 16),
        directory=directory,
        environment=environment,
    )


def _environment(file: str) -> tuple[tuple[str, str], ...]:
    data = procfs.read(file, ENVIRONMENT_BYTES)
    variables = []
    for variable in procfs.text(data).split("\0"):
        if variable:
            name, _, value = variable.partition("=")
            variables.append((name, value))
    return tuple(variables)


def _parents(pid: int, proc: str) -> tuple[tuple[int, str], ...]:
    parents: dict[int, str] = {}
    with contextlib.suppress(OSError, ValueError):
        while pid not in parents and len(parents) < MOST_PARENTS:
            stat = procfs.read_stat(pid, proc)
            parents[pid] = stat.name
            pid = stat.parent_pid
    return tuple(parents.items())
