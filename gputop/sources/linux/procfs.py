"""Processes in /proc: state, details and container, and signals to them; and the CPU's name.

A process is identified by its pid and start time, since pids are reused. The dashboard loads this
module, so it loads nothing that reads the machine, such as psutil.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gputop.problem import Problem, ProblemError

PROC = "/proc"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
"""Unit of CPU and start times in /proc/PID/stat."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
COMMAND_BYTES = 1 << 15
"""Bytes read of a command line: secrets are searched for in all of them."""
ENVIRONMENT_BYTES = 1 << 22
"""Bytes read of an environment; the kernel allows a few MiB."""
STATUS_BYTES = 1 << 16
MOST_PARENTS = 32
_STATUS_ROWS = rb"(?m)^(Threads|SigIgn|SigCgt):\s+(\w+)$"


class Stat(NamedTuple):
    """Content of /proc/PID/stat; `man proc_pid_stat` numbers the fields."""

    name: str
    """Name of the executable, cut at 15 bytes, or the one that the process gave itself."""
    parent_pid: int
    """Pid of the parent; 0 if there is none in this pid namespace."""
    cpu_ticks: int
    """Ticks in user and in kernel mode, of all threads, ended ones included."""
    start_ticks: int
    """Start in ticks since boot: with the pid, the identity of a process."""
    resident_bytes: int
    """Resident memory as the kernel counts it for speed: some pages too few or too many."""
    state: str = ""
    """One letter: `R` runs, `S` sleeps, `D` waits uninterruptibly, mostly for storage."""

    def started(self, boot: float) -> float:
        """Return when the process started if the kernel did at `boot`; both in Unix seconds."""
        return round(boot + self.start_ticks / TICKS_PER_SECOND, 3)


def read(path: str, limit: int = 4096) -> bytes:
    """Return the first bytes of a file in /proc, in one read. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def text(data: bytes) -> str:
    """Decode bytes of another process: what is not UTF-8 becomes surrogates."""
    return data.decode("utf-8", "surrogateescape")


def parse_stat(data: bytes) -> Stat:
    """Parse the content of /proc/PID/stat. Raises ValueError for anything else."""
    # The name may have spaces, parentheses and line ends in it: only the last ")" is its end.
    before, end, after = data.rpartition(b")")
    fields = after.split(None, 22)
    if not end or len(fields) < 22:
        raise ValueError("not the content of /proc/PID/stat")
    return Stat(
        text(before.partition(b"(")[2]),
        int(fields[1]),
        int(fields[11]) + int(fields[12]),
        int(fields[19]),
        max(0, int(fields[21])) * PAGE_BYTES,
        text(fields[0]),
    )


def read_stat(pid: int, proc: str = PROC) -> Stat:
    """Read a process. Raises OSError if it is gone or hidden, ValueError for nonsense."""
    return parse_stat(read(f"{proc}/{pid}/stat"))


def read_children(pid: int, proc: str = PROC) -> tuple[int, ...]:
    """Return the pids of running children of its first thread, up to some hundreds.

    Raises OSError if it is gone or hidden, or the kernel does not list them, ValueError for
    nonsense.
    """
    data = read(f"{proc}/{pid}/task/{pid}/children")
    *whole, _ = data.split(b" ")  # each ends with a space: what does not was cut off
    return tuple(int(word) for word in whole)


def boot_time(proc: str = PROC) -> float:
    """Return when the kernel says now that it started, in Unix seconds.

    It is the same for every process, and with a slewed clock, but moves when the clock is set. If
    /proc does not show it, it is computed from the clocks.
    """
    with contextlib.suppress(OSError):
        data = Path(f"{proc}/stat").read_bytes()
        if match := re.search(rb"^btime (\d+)$", data, re.MULTILINE):
            return int(match[1])
    return math.floor(_ahead())


def _ahead() -> float:
    """Return seconds from boot time to time of day. They change if the clock is set, not slewed."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


BOOT_TIME, _AHEAD = boot_time(), _ahead()
"""Moment from which start times are counted, until the clock is set.

A program that acts on processes loads this module at its start, so that its sampler counts from the
same moment.
"""
STEP_SECONDS = 1.5
"""Change that means that a clock was set; a leap second is less."""


class BootTime:
    """Moment from which start times are counted: `BOOT_TIME`, or the kernel's after a clock step.

    So the age of a process stays right after the step, and its start time the same until then.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc
        self._seconds, self._ahead = BOOT_TIME, _AHEAD

    def now(self) -> float:
        """Return it in Unix seconds."""
        ahead = _ahead()
        if abs(ahead - self._ahead) > STEP_SECONDS:
            self._seconds, self._ahead = boot_time(self._proc), ahead
        return self._seconds


def is_process(stat: Stat, start_time: float, proc: str = PROC) -> bool:
    """Return True if it is the process of that start time, in Unix seconds.

    The time may have been read in another process, before or after the clock was set.
    """
    return any(
        round((start_time - boot) * TICKS_PER_SECOND) == stat.start_ticks
        for boot in (BOOT_TIME, boot_time(proc))
    )


def send_signal(pid: int, start_time: float, number: int, proc: str = PROC) -> Problem | None:
    """Send a signal to a process of this machine, if it is still the one of that start time.

    No other process can get it, even if the pid is reused at this moment (Linux 5.3 and later).
    Returns the problem if it was not sent.
    """
    what = f"Process {pid} got no signal"
    if pid <= 1:
        return Problem(what, "pid 1 and below are the system and groups", "Choose another process")
    if pid == os.getpid():
        return Problem(what, "it is this gputop", "Quit it with q")
    try:
        with explained(what), _handle(pid) as handle:
            expect(pid, start_time, what, proc)
            if handle is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    except ProblemError as error:
        return error.problem
    return None


def arguments_of(data: bytes) -> list[str]:
    """Return the arguments in the content of /proc/PID/cmdline.

    A title of its own is one string, shorter than the arguments were, and the rest is zeros.
    """
    arguments = text(data.rstrip(b"\0")).split("\0")
    return arguments[0].split(" ") if len(arguments) == 1 else arguments


def expect(pid: int, start_time: float, what: str, proc: str) -> None:
    """Check that a process has that start time. Raises ProblemError, or as `read_stat`."""
    if not is_process(read_stat(pid, proc), start_time, proc):
        raise ProblemError(
            Problem(what, "it ended, and another process has its pid", "Choose it again")
        )


@contextlib.contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """Yield a descriptor of the process that has that pid now, or None if there is none."""
    try:
        # Missing from a Python that was built for an old kernel.
        handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        raise
    except OSError:
        # An old kernel, or a sandbox that does not know the call.
        handle = None
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the system's errors into a ProblemError."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError, OverflowError):
        why, remedy = "it has ended", "The list is updated at the next reading"
    except PermissionError:
        why, remedy = "it is not yours, or protected", "Run gputop as its user or as root"
    except OSError as error:
        why, remedy = error.strerror or str(error), "Try again"
    except ValueError as error:
        why, remedy = str(error), "Check that /proc is the kernel's"
    else:
        return
    raise ProblemError(Problem(what, why, remedy))


class ProcessDetails(NamedTuple):
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
    """Return the details of a process of this machine. Raises ProblemError.

    May block for a process that hangs in the kernel.
    """
    from gputop.masking import masked_arguments

    what = f"Process {pid} is not shown"
    with explained(what):
        stat = read_stat(pid, proc)
        status = dict(re.findall(_STATUS_ROWS, read(f"{proc}/{pid}/status", STATUS_BYTES)))
        arguments = arguments_of(read(f"{proc}/{pid}/cmdline", COMMAND_BYTES))
        directory = environment = None
        with contextlib.suppress(OSError):
            directory = str(Path(f"{proc}/{pid}/cwd").readlink())
            with Path(f"{proc}/{pid}/environ").open("rb") as file:
                variables = text(file.read(ENVIRONMENT_BYTES)).split("\0")
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
        expect(pid, start_time, what, proc)
    return details


def _parents(pid: int, proc: str) -> tuple[tuple[int, str], ...]:
    found: dict[int, str] = {}
    while pid and pid not in found and len(found) < MOST_PARENTS:
        try:
            stat = read_stat(pid, proc)
        except (OSError, ValueError):
            break
        found[pid], pid = stat.name, stat.parent_pid
    return tuple(found.items())


ID_DIGITS = 12
"""Digits of a container's id that its own tools show."""


class Cgroup(NamedTuple):
    """Container, pod and Slurm job of a process, each None if it is in none."""

    container: str | None = None
    """First digits of the id, or the name where containers have no id (LXC, systemd-nspawn)."""
    pod: str | None = None
    """Uid of the Kubernetes pod, with dashes where it has them."""
    slurm_job: str | None = None


# The id alone (cgroupfs driver), or behind the runtime's name (systemd driver; with colons where
# containerd has one and the kubelet has the other). conmon watches a container from outside of it,
# as does lxc.monitor; qemu is a machine, but no container.
_CONTAINER = (
    r"/(?:(?![^/]*conmon)[^/]*[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)"
    r"|/(?:lxc/|lxc\.payload[./])(?P<lxc>[^/]+)"
    r"|/machine-(?!qemu)(?P<scope>[^/]+)\.scope(?=/|$)"
    r"|/systemd-nspawn@(?P<service>[^/]+)\.service(?=/|$)"
)
# Of a static pod it is a digest, without dashes.
_POD = r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
# In front of the name, or behind it, stands the node's where one machine runs several slurmd.
_JOB = r"/(?:slurm(?:_[^/]*)?|(?:[^/]*_)?slurmstepd\.scope)/(?:uid_[0-9]+/)?job_([0-9]+)(?=/|$)"


def parse_cgroup(cgroup: str) -> Cgroup:
    """Parse the text of `/proc/PID/cgroup`, of version 1 or 2, or of both at once.

    Of nested containers the innermost counts. Never raises; names come as they are.
    """
    # `hierarchy:controllers:path`; in version 1 a hierarchy may know nothing of the container.
    paths = [line.split(":", 2)[-1].removesuffix(" (deleted)") for line in cgroup.split("\n")]
    return Cgroup(
        next(filter(None, map(_container, paths)), None),
        next(filter(None, map(_pod, paths)), None),
        next((found[1] for path in paths if (found := re.search(_JOB, path))), None),
    )


def _container(path: str) -> str | None:
    matches = [*re.finditer(_CONTAINER, path)]
    if not matches:
        return None
    found = matches[-1]
    if found["id"]:
        return found["id"][:ID_DIGITS]
    # systemd escapes the dash, the one such character that a machine's name may have.
    return found["lxc"] or (found["scope"] or found["service"]).replace("\\x2d", "-")


def _pod(path: str) -> str | None:
    uids: list[str] = re.findall(_POD, path) if "kubepods" in path else []
    return uids[-1].replace("_", "-") if uids else None


def cpu_name() -> str | None:
    """Return the processor's marketing name, or None if /proc/cpuinfo has none."""
    with contextlib.suppress(OSError):
        content = Path("/proc/cpuinfo").read_text(errors="replace")
        if found := re.search(r"^(?:model name|Model)\s*:(.*)", content, re.MULTILINE):
            return " ".join(found[1].split())
    return None
