"""The limit on threads and processes (`ulimit -u`): how to detect it, and the problem to show."""

from __future__ import annotations

import errno
import os
import re
import resource

from gputop.agent.problem import Problem

_SIGNS = "|".join(
    (
        # Python's message. "at interpreter shutdown" has another cause.
        "can't start new thread(?! at)",
        # Message of fork, shells and libgomp.
        os.strerror(errno.EAGAIN),
        # Message of another gputop, see below.
        "no more threads or processes",
    )
)


def says_process_limit(error: BaseException | str) -> bool:
    """Return True if an error or a program's output means that no thread or process could start.

    The system uses the same error number for a write that would block, but the message of Python's
    buffered output differs.
    """
    if isinstance(error, OSError) and error.errno != errno.EAGAIN:
        return False
    return re.search(_SIGNS, str(error)) is not None


def process_limit_problem(what: str) -> Problem:
    """Return the problem that no thread or process can be started, and the limits to raise."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    shown = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    return Problem(
        what,
        f"no more threads or processes can be started (`ulimit -u`: {shown})",
        "Raise `ulimit -u` (RLIMIT_NPROC) or pids.max of the container's cgroup, or end programs",
    )
