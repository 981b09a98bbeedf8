"""Processes in /proc: their state, child processes and start times.

A process is identified by its pid and start time, because pids are reused.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from gputop.agent.lines import rounded

PROC = "/proc"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
"""Unit of CPU and start times in /proc/PID/stat."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """Content of /proc/PID/stat; `man proc_pid_stat` numbers the fields."""

    name: str
    """Name of the executable, cut at 15 bytes, or a name that the process has set."""
    parent_pid: int
    """Pid of the parent; 0 if there is none in this pid namespace."""
    cpu_ticks: int
    """Ticks in user and kernel mode, of all threads, including those that have ended."""
    start_ticks: int
    """Start in ticks since boot. Together with the pid, it identifies the process."""
    resident_bytes: int
    """Resident memory as the kernel counts it quickly: off by a few pages."""
    state: str = ""
    """One letter: `R` is running, `S` sleeping, `D` in uninterruptible sleep, mostly for storage.
    """

    @property
    def started(self) -> float:
        """Start in Unix seconds, counted from `BOOT_TIME`."""
        return rounded(BOOT_TIME + self.start_ticks / TICKS_PER_SECOND)


def read(
    path: str,
    limit: int = 4096,
) -> bytes:
    """Return the first bytes of a file in /proc, in one read. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def text(data: bytes) -> str:
    """Decode bytes of another process. Bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", "surrogateescape")


def parse_stat(data: bytes) -> Stat:
    """Parse the content of /proc/PID/stat. Raises ValueError for anything else."""
    # The name may contain spaces, parentheses and line ends: only the last ")"
    # ends it.
    before, end, after = data.rpartition(b")")
    fields = after.split()
    if not end or len(fields) < 22:
        raise ValueError("not the content of /proc/PID/stat")
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return Stat(
        name=text(before.partition(b"(")[2]),
        parent_pid=int(fields[1]),
        cpu_ticks=user_ticks + system_ticks,
        start_ticks=int(fields[19]),
        resident_bytes=max(0, int(fields[21])) * PAGE_BYTES,
        state=text(fields[0]),
    )


def read_stat(
    pid: int,
    proc: str = PROC,
) -> Stat:
    """Read a process. Raises OSError if it has ended or is hidden, ValueError if unreadable."""
    return parse_stat(read(f"{proc}/{pid}/stat"))


def read_children(
    pid: int,
    proc: str = PROC,
) -> tuple[int, ...]:
    """Return the pids of the running children of its first thread, up to some hundreds.

    Raises OSError if the process has ended or is hidden, or if the kernel does not list children.
    Raises ValueError if the file is unreadable.
    """
    data = read(f"{proc}/{pid}/task/{pid}/children")
    # Each number ends with a space, or was cut off.
    *whole, _ = data.split(b" ")
    return tuple(map(int, whole))


def boot_time(proc: str = PROC) -> float:
    """Return the kernel's start in Unix seconds, as the kernel reports it now.

    It is the same for every process, and stays while the clock is slewed. It moves when the clock
    is set. If /proc does not show it, it is computed from the clocks.
    """
    with contextlib.suppress(OSError):
        data = Path(f"{proc}/stat").read_bytes()
        match = re.search(rb"^btime (\d+)$", data, re.MULTILINE)
        if match:
            return int(match[1])
    return math.floor(_ahead())


def _ahead() -> float:
    """Return the seconds from the boot clock to the time of day. They change only if it is set."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


BOOT_TIME = boot_time()
"""Base of start times until the clock is set.

A program that acts on processes loads this module at its start, so that its sampler uses the same
base.
"""


STEP_SECONDS = 1.5
"""Smallest difference that means that a clock was set. A leap second is less."""


class BootTime:
    """Base of start times: `BOOT_TIME`, or the kernel's value after the clock was set.

    The age of a process stays right after the step, and its start time stays the same until then.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc
        self._seconds = BOOT_TIME
        self._ahead = _ahead()

    def now(self) -> float:
        """Return the base in Unix seconds."""
        ahead = _ahead()
        if abs(ahead - self._ahead) > STEP_SECONDS:
            self._seconds = boot_time(self._proc)
            self._ahead = ahead
        return self._seconds

    def start_of(self, stat: Stat) -> float:
        """Return when a process started, in Unix seconds."""
        return rounded(self.now() + stat.start_ticks / TICKS_PER_SECOND)


def is_process(
    stat: Stat,
    start_time: float,
    proc: str = PROC,
) -> bool:
    """Return True if this is the process with that start time, in Unix seconds.

    The time may have been read by another process, before or after the clock was set.
    """
    return any(
        round((start_time - boot) * TICKS_PER_SECOND) == stat.start_ticks
        for boot in (BOOT_TIME, boot_time(proc))
    )


def arguments_of(data: bytes) -> list[str]:
    """Return the arguments in the content of /proc/PID/cmdline.

    A title that the process has set is one string, with zeros after it.
    """
    arguments = text(data.rstrip(b"\0")).split("\0")
    if len(arguments) == 1:
        return arguments[0].split(" ")
    return arguments
