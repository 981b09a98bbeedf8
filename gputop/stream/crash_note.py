"""Report a crash of native code in one line on standard error.

NVML runs inside `gputop stream`. If it crashes, the kernel ends the process, and the user would
only see "Segmentation fault". So a second, small process reads the output of Python's faulthandler
and prints one line about the crash.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal

from gputop.agent.problem import Problem
from gputop.console import print_message

FATAL = "Fatal Python error: "
"""Start of faulthandler's output. The rest of the line names the signal."""


def say_if_it_crashes() -> None:
    """Start a process that reports a crash of this one.

    Call this before starting threads, because it forks.
    """
    reading, writing = os.pipe()
    try:
        child = os.fork()
    # The limit on processes is reached.
    except OSError:
        return
    if child == 0:
        os.close(writing)
        _wait(reading)
    os.close(reading)
    faulthandler.enable(writing, all_threads=False)


def _wait(reading: int) -> None:
    """Wait for the end of the watched process, print a crash, and exit."""
    try:
        # Only the watched process handles these signals.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # A reader gets end of file only after all processes have closed the pipe.
        for descriptor in (0, 1):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        with open(reading, encoding="utf-8", errors="replace") as pipe:
            first = pipe.readline().strip()
        if first.startswith(FATAL):
            problem = Problem(
                "The NVIDIA library crashed",
                f"this process ended with it ({first.removeprefix(FATAL).lower()})",
                "Start it again. If this repeats, reinstall or update the driver",
                "nvml",
            )
            print_message(f"error: {problem}.")
    finally:
        os._exit(0)
