"""The limit on threads and processes (`ulimit -u`): its signs, and the problem for the user."""

from __future__ import annotations

import errno
import os
import re
import resource

from gputop.agent.problem import Problem

_SIGNS = "|".join(
    (
        # Python, unless it is "at interpreter shutdown"
        "can't start new thread(?! at)",
        os.strerror(errno.EAGAIN),  # fork, shells and libgomp
        "no more threads or processes",  # another gputop, below
    )
)


def says_process_limit(error: BaseException | str) -> bool:
    """Return True for an error, or for what a process wrote, if no thread or process could start.

    The system gives the same error number for a write that would block. Python's buffered output
    has words of its own for that.
    """
    if isinstance(error, OSError) and error.errno != errno.EAGAIN:
        return False
    return re.search(_SIGNS, str(error)) is not None


def process_limit_problem(what: str) -> Problem:
    """Return the problem that no thread or process can be started, with the limits to raise."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    shown = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    return Problem(
        what,
        f"no more threads or processes can be started (`ulimit -u`: {shown})",
        "Raise `ulimit -u` (RLIMIT_NPROC) or pids.max of the container's cgroup, or end programs",
    )
