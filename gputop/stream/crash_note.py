"""A line on standard error if native code ends this process: Python cannot write it any more.

NVML runs inside `gputop stream`. When it crashes, the kernel ends the process, and a user of the
command would see "Segmentation fault" alone. So a small process reads what Python's faulthandler
writes at the end of this one, and says in one line what happened.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys

from gputop.agent.problem import Problem

FATAL = "Fatal Python error: "
"""Beginning of what faulthandler writes; the rest of the line is the signal in words."""


def say_if_it_crashes() -> None:
    """Start the process that waits for the end of this one.

    Call it before there are threads: it forks.
    """
    if faulthandler.is_enabled():  # who switched it on wants the traceback
        return
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:  # no more processes are allowed
        os.close(reading)
        os.close(writing)
        return
    if child == 0:
        os.close(writing)
        _wait(reading)
    os.close(reading)
    faulthandler.enable(writing, all_threads=False)


def _wait(reading: int) -> None:
    """Wait for the end of the other process, and end this one."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # they are the other one's
        for descriptor in (
            0,
            1,
        ):  # whose readers wait for the last process that has them open
            with contextlib.suppress(OSError):
                os.close(descriptor)
        with open(reading, encoding="utf-8", errors="replace") as pipe:
            first = pipe.readline().strip()
        if first.startswith(FATAL):
            cause = first.removeprefix(FATAL).lower()
            print(
                f"gputop: error: {crash_problem(cause)}.", file=sys.stderr, flush=True
            )
    finally:
        os._exit(0)


def crash_problem(cause: str) -> Problem:
    """Return the problem for a user who started the command."""
    return Problem(
        "The NVIDIA library crashed",
        f"it took this process with it ({cause})",
        "Start it again. If it goes on, reinstall or update the driver",
        "nvml",
    )
