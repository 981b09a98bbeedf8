"""Signals to a process of this machine. They never reach another process with the same pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator

from gputop.agent.linux import procfs
from gputop.agent.linux.procfs import PROC
from gputop.agent.problem import Problem, ProblemError


def send_signal(
    pid: int,
    start_time: float,
    number: int,
    proc: str = PROC,
) -> None:
    """Send a signal to a process of this machine, if it still has that start time.

    No other process can receive it, even if the pid is reused at this moment (Linux 5.3 and later).
    Raises ProblemError if it was not sent.
    """
    what = f"Process {pid} got no signal"
    if pid <= 1:
        why = "pid 1 and below are the system and groups"
        raise ProblemError(Problem(what, why, "Choose another process"))
    if pid == os.getpid():
        raise ProblemError(
            Problem(what, "it is this gputop", "Quit it with q")
        )
    with explained(what), contextlib.ExitStack() as stack:
        handle = None
        # Python or the kernel may be old, or a sandbox refuses the call.
        with contextlib.suppress(AttributeError, OSError):
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
        expect(pid, start_time, what, proc)
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)


PATIENCE_SECONDS = 10.0
"""Longest wait in seconds for the end of a process after a signal."""
LOOK_SECONDS = 0.1


async def seconds_until_end(
    processes: dict[int, float],
    began: float,
    proc: str = PROC,
) -> tuple[float, int]:
    """Wait until all processes have ended, at most `PATIENCE_SECONDS`.

    `processes` has start times by pid, and `began` is the monotonic time of the signal. Returns the
    seconds since the signal, and the number of processes that still run.
    """
    left = processes
    while True:
        left = {
            pid: started
            for pid, started in left.items()
            if runs(pid, started, proc)
        }
        seconds = time.monotonic() - began
        if not left or seconds > PATIENCE_SECONDS:
            return seconds, len(left)
        await asyncio.sleep(LOOK_SECONDS)


def runs(
    pid: int,
    start_time: float,
    proc: str = PROC,
) -> bool:
    """Return True unless the process has ended. A zombie has ended."""
    try:
        stat = procfs.read_stat(pid, proc)
    except (OSError, ValueError):
        return False
    return stat.state not in ("Z", "X") and procfs.is_process(
        stat,
        start_time,
        proc,
    )


def expect(
    pid: int,
    start_time: float,
    what: str,
    proc: str,
) -> None:
    """Check that a process has that start time. Raises ProblemError, or as `read_stat`."""
    stat = procfs.read_stat(pid, proc)
    if not procfs.is_process(stat, start_time, proc):
        raise ProblemError(
            Problem(
                what,
                "it ended, and another process has its pid",
                "Choose it again",
            ),
        )


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Convert errors of the system into a ProblemError."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError, OverflowError):
        why, remedy = "it has ended", "The list is updated at the next reading"
    except PermissionError:
        why, remedy = (
            "it is not yours, or protected",
            "Run gputop as its user or as root",
        )
    except OSError as error:
        why, remedy = error.strerror or str(error), "Try again"
    except ValueError as error:
        why, remedy = str(error), "Check that /proc is the kernel's"
    else:
        return
    raise ProblemError(Problem(what, why, remedy))
