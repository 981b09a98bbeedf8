"""Details of one process, read from /proc while somebody looks at it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from gputop.frozen import dataclass
from gputop.masking import masked_arguments
from gputop.sources.linux import procfs
from gputop.sources.linux.procfs import PROC

COMMAND_BYTES = 1 << 15
"""Bytes read of a command line: secrets are searched for in all of them."""
ENVIRONMENT_BYTES = 1 << 22
"""Bytes read of an environment; the kernel allows a few MiB."""
STATUS_BYTES = 1 << 16
MOST_PARENTS = 32
_STATUS = re.compile(rb"^(Threads|SigIgn|SigCgt):\s+(\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessDetails:
    """Properties of a process that no sample has. All text is foreign."""

    command: str
    """Command line without its secrets; empty for a kernel thread and a zombie."""
    unmasked: str
    state: str
    """One letter, as in `Stat`."""
    threads: int
    parents: tuple[tuple[int, str], ...]
    """Pid and name of each, the nearest first."""
    caught: int
    """Signals that it handles itself, as bits: the lowest is signal 1."""
    ignored: int
    directory: str | None
    """Working directory; it and the environment are None if that is not permitted to know."""
    environment: tuple[tuple[str, str], ...] | None
    """Environment that it was started with, in its order: secret, not to be logged or kept."""


def read_details(pid: int, start_time: float, proc: str = PROC) -> ProcessDetails:
    """Return the details of a process of this machine. Raises ProcError.

    May block for a process that hangs in the kernel.
    """
    what = f"Process {pid} is not shown"
    with procfs.explained(what):
        stat = procfs.read_stat(pid, proc)
        status = dict(_STATUS.findall(procfs.read(f"{proc}/{pid}/status", STATUS_BYTES)))
        arguments = procfs.arguments_of(procfs.read(f"{proc}/{pid}/cmdline", COMMAND_BYTES))
        directory = environment = None
        with contextlib.suppress(OSError):
            directory = str(Path(f"{proc}/{pid}/cwd").readlink())
            with Path(f"{proc}/{pid}/environ").open("rb") as file:
                variables = procfs.text(file.read(ENVIRONMENT_BYTES)).split("\0")
            pairs = (each.partition("=") for each in variables if each)
            environment = tuple((name, value) for name, _, value in pairs)
        details = ProcessDetails(
            " ".join(masked_arguments(arguments)),
            " ".join(arguments),
            stat.state,
            int(status.get(b"Threads", b"1")),
            _parents(stat.parent_pid, proc),
            int(status.get(b"SigCgt", b"0"), 16),
            int(status.get(b"SigIgn", b"0"), 16),
            directory,
            environment,
        )
        # At the end: until here all of it was that process's, or empty.
        procfs.expect(pid, start_time, what, proc)
    return details


def _parents(pid: int, proc: str) -> tuple[tuple[int, str], ...]:
    found: dict[int, str] = {}
    while pid and pid not in found and len(found) < MOST_PARENTS:
        try:
            stat = procfs.read_stat(pid, proc)
        except (OSError, ValueError):
            break
        found[pid], pid = stat.name, stat.parent_pid
    return tuple(found.items())
