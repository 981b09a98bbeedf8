"""The first sampler, forked from this process while that is still small.

A fork does without the start of an interpreter and without loading again what both need, and the
two share its memory. Later samplers are started by `launch`, as all other children are.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from gputop.stream.launch import die_with

SLOWEST_POLL_SECONDS = 0.05


def can_fork() -> bool:
    """Return True if this process has a single thread, as a fork copies no others."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - pathlib is slower
    except OSError:
        return False


class Forked:
    """A forked child, with what is used of a `subprocess.Popen`."""

    def __init__(self, work: Callable[[], None], title: Sequence[str]) -> None:
        """Start a child that does `work` and ends. Raises `OSError` if it cannot be started.

        Its standard streams are pipes. It appears as `title` in lists of processes.
        """
        self.returncode: int | None = None
        parent, pipes = os.getpid(), list[int]()
        try:
            for _ in range(3):
                pipes += os.pipe()
            self.pid = os.fork()
        except OSError:
            for each in pipes:
                os.close(each)
            raise
        read_input, write_input, read_output, write_output, read_errors, write_errors = pipes
        if self.pid == 0:
            _run(work, title, parent, (read_input, write_output, write_errors))
        for each in (read_input, write_output, write_errors):
            os.close(each)
        os.set_blocking(write_input, False)
        self.stdin = os.fdopen(write_input, "wb", 0)
        self.stdout, self.stderr = (os.fdopen(each, "rb", 0) for each in (read_output, read_errors))

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        if self.returncode is None:
            # Another thread may wait, too: then that one is told.
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        deadline, pause = time.monotonic() + timeout, 0.0005
        while (status := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("the sampler", timeout)
            pause = min(2 * pause, left, SLOWEST_POLL_SECONDS)
            time.sleep(pause)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended: its pid may be another's by now."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(
    work: Callable[[], None], title: Sequence[str], parent: int, streams: Sequence[int]
) -> NoReturn:
    """Do the work in the child, with nothing of the parent's but its memory."""
    status = 1
    try:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        os.setsid()  # Ctrl+C in the terminal is for the dashboard
        for target, each in enumerate(streams):
            os.dup2(each, target)
        _close_others()
        _forget_working_directory()
        die_with(parent)
        _show_title(title)
        gc.freeze()  # what was loaded before is shared as long as nobody touches it
        gc.enable()
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - what the parent does next must not run here
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _close_others() -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if int(name) > 2:
                os.close(int(name))


def _forget_working_directory() -> None:
    """Import nothing from it, as with -P: its psutil.py is not the one that is meant."""
    with contextlib.suppress(OSError):
        safe = getattr(sys.flags, "safe_path", False)
        if not safe and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109
            del sys.path[0]


def _show_title(words: Sequence[str]) -> None:
    """Replace the command line that the kernel shows of this process, as far as there is room."""
    import ctypes

    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib is slower
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        title = b"\0".join(os.fsencode(each) for each in words)[: end - start - 1]
        if 0 < start < end:
            ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)
