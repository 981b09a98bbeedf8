"""Owners of processes: user, command, container, CPU and memory.

Each look reads one file of the process, and every `CHILDREN_SECONDS` one of each child process: a
data loader's workers are on no device, and the trainer that waits for them uses no CPU itself.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pwd
import re
import time
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gputop.frozen import dataclass
from gputop.masking import masked_arguments
from gputop.schema.device import Absence
from gputop.sources.interface import OWNER_FIELDS, Owner
from gputop.sources.linux import procfs
from gputop.sources.linux.procfs import PROC, Stat

ID_DIGITS = 12
"""Digits of a container's id that its own tools show."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Container, pod and Slurm job of a process, each None if it is in none."""

    container: str | None = None
    """First digits of the id, or the name where containers have no id (LXC, systemd-nspawn)."""
    pod: str | None = None
    """Uid of the Kubernetes pod, with dashes where it has them."""
    slurm_job: str | None = None


# The id alone (cgroupfs driver), or behind the runtime's name (systemd driver; with colons where
# containerd has one and the kubelet has the other). conmon watches a container from outside of it,
# as does lxc.monitor; qemu is a machine, but no container.
_CONTAINER = re.compile(
    r"/(?:(?![^/]*conmon)[^/]*[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)"
    r"|/(?:lxc/|lxc\.payload[./])(?P<lxc>[^/]+)"
    r"|/machine-(?!qemu)(?P<scope>[^/]+)\.scope(?=/|$)"
    r"|/systemd-nspawn@(?P<service>[^/]+)\.service(?=/|$)"
)
# Of a static pod it is a digest, without dashes.
_POD = re.compile(
    r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
# In front of the name, or behind it, stands the node's where one machine runs several slurmd.
_JOB = re.compile(
    r"/(?:slurm(?:_[^/]*)?|(?:[^/]*_)?slurmstepd\.scope)/(?:uid_[0-9]+/)?job_([0-9]+)(?=/|$)"
)


def parse_cgroup(cgroup: str) -> Cgroup:
    """Parse the text of `/proc/PID/cgroup`, of version 1 or 2, or of both at once.

    Of nested containers the innermost counts. Never raises; names come as they are.
    """
    # `hierarchy:controllers:path`; in version 1 a hierarchy may know nothing of the container.
    paths = [line.split(":", 2)[-1].removesuffix(" (deleted)") for line in cgroup.split("\n")]
    return Cgroup(
        next(filter(None, map(_container, paths)), None),
        next(filter(None, map(_pod, paths)), None),
        next(filter(None, map(_slurm_job, paths)), None),
    )


def _container(path: str) -> str | None:
    found = None
    for match in _CONTAINER.finditer(path):
        found = match
    if found is None:
        return None
    if found["id"]:
        return found["id"][:ID_DIGITS]
    # systemd escapes the dash, the one such character that a machine's name may have.
    return found["lxc"] or (found["scope"] or found["service"]).replace("\\x2d", "-")


def _pod(path: str) -> str | None:
    uids: list[str] = _POD.findall(path) if "kubepods" in path else []
    return uids[-1].replace("_", "-") if uids else None


def _slurm_job(path: str) -> str | None:
    match = _JOB.search(path)
    return match[1] if match else None


IDENTITY_SECONDS = 10.0
"""Seconds between looks at who a process is: it may execute another program, change its title or
user, or be moved into a container, all with the same pid and start time."""
WINDOW_SECONDS = 0.1
"""Shortest window of a CPU percentage. Less would be noise: a tick is a hundredth of a second."""
LISTED_SECONDS = 1.0
"""Age in seconds that the driver's list of processes may have. For so long a pid in it that was
reused says nothing about the new process."""
CHILDREN_SECONDS = 2.0
"""Seconds between looks at the child processes: a trainer may have tens of them."""
MOST_CHILDREN = 64
"""Child processes that are read at most: each costs a file read."""
COMMAND_BYTES = 4096
"""Bytes read of a command line: it is sent with each sample, and nobody reads more."""
CGROUP_BYTES = 1 << 16

WAITING = "D"
"""State of a process in an uninterruptible wait, mostly for storage."""
GONE = (FileNotFoundError, ProcessLookupError)
CHILDREN_CPU = ("children_cpu_percent", "children_cpu_most_percent")
CHILDREN = ("children", *CHILDREN_CPU)
CGROUP = tuple(f.name for f in dataclasses.fields(Cgroup))


@dataclass(frozen=True, slots=True)
class _Identity:
    """Properties of a process that seldom change."""

    command: str
    unmasked: str | None
    user: str | None
    cgroup: Cgroup
    absent: Mapping[str, Absence] = field(default_factory=dict)


class _Cpu(NamedTuple):
    """CPU time that a process had used at a moment, and its share since the moment before."""

    at: float
    ticks: int
    percent: float | None = None

    def after(self, at: float, ticks: int) -> _Cpu:
        """Return the same at a later moment."""
        seconds = at - self.at
        if seconds < WINDOW_SECONDS:
            return self
        taken = max(0, ticks - self.ticks) / procfs.TICKS_PER_SECOND
        return _Cpu(at, ticks, 100 * taken / seconds)


@dataclass(frozen=True, slots=True)
class _Children:
    """Child processes of a process, as they were at a look."""

    at: float
    each: Mapping[int, tuple[int, _Cpu]] = field(default_factory=dict)
    """Start in ticks, and CPU, by pid."""
    waiting: bool = False
    absence: Absence | None = None
    """Reason that they are not known."""

    @property
    def percents(self) -> list[float]:
        """CPU shares of those that were there for two looks."""
        return [cpu.percent for _, cpu in self.each.values() if cpu.percent is not None]


class _Known(NamedTuple):
    """State of a process at the last look."""

    start_ticks: int
    identity: _Identity
    identity_at: float
    cpu: _Cpu
    children: _Children
    seen_from: float = -math.inf
    """Moment from which the pid is its own, if another process had it before."""


class Owners:
    """Finds the owners of processes in /proc; used by one thread.

    Each look notices a process that has ended, or whose pid another process has now.
    """

    def __init__(self, proc: str = PROC, *, secrets: bool = False) -> None:
        """Read `proc`; with `secrets`, keep the unmasked command lines, too."""
        self._proc = proc
        self._secrets = secrets
        self._boot = procfs.BootTime(proc)
        self._known: dict[int, _Known] = {}

    def find(self, pid: int) -> Owner:
        """Return the owner of `pid` now, with its CPU since the look before.

        Never raises, but may block.
        """
        try:
            stat = procfs.read_stat(pid, self._proc)
            known = self._known[pid] = self._updated(pid, stat)
        except (OSError, ValueError) as error:
            return self._hidden(pid, error)
        identity, absent = known.identity, dict(known.identity.absent)
        if time.monotonic() - known.seen_from < LISTED_SECONDS:
            # The driver may have listed the process that had the pid before.
            return Owner(absence=Absence.NO_DATA_YET)
        if known.cpu.percent is None:
            absent["cpu_percent"] = Absence.NO_DATA_YET
        if not stat.parent_pid:
            # Outside of the container that this is in.
            absent["parent_pid"] = Absence.LOST
        children, percents = known.children, known.children.percents
        if children.absence is not None:
            absent |= dict.fromkeys(CHILDREN, children.absence)
        elif children.each and not percents:
            absent |= dict.fromkeys(CHILDREN_CPU, Absence.NO_DATA_YET)
        known_cpu = children.absence is None and (percents or not children.each)
        return Owner(
            user=identity.user,
            command=identity.command,
            unmasked=identity.unmasked,
            start_time=stat.started(self._boot.now()),
            cpu_percent=known.cpu.percent,
            memory_resident_bytes=stat.resident_bytes,
            parent_pid=stat.parent_pid or None,
            container=identity.cgroup.container,
            pod=identity.cgroup.pod,
            slurm_job=identity.cgroup.slurm_job,
            io_wait=stat.state == WAITING or children.waiting,
            children=len(children.each) if children.absence is None else None,
            children_cpu_percent=sum(percents, 0.0) if known_cpu else None,
            children_cpu_most_percent=max(percents, default=0.0) if known_cpu else None,
            absent=absent,
        )

    def forget_others(self, pids: set[int]) -> None:
        """Forget all processes but these."""
        for pid in self._known.keys() - pids:
            del self._known[pid]

    def _updated(self, pid: int, stat: Stat) -> _Known:
        now = time.monotonic()
        known = self._known.get(pid)
        if known is None or known.start_ticks != stat.start_ticks:
            identity = self._identity(pid, stat)
            cpu, children = _Cpu(now, stat.cpu_ticks), self._children(pid, now, _Children(now))
            since = -math.inf if known is None else now
            return _Known(stat.start_ticks, identity, now, cpu, children, since)
        known = known._replace(cpu=known.cpu.after(now, stat.cpu_ticks))
        if now - known.children.at >= CHILDREN_SECONDS:
            known = known._replace(children=self._children(pid, now, known.children))
        if now - known.identity_at >= IDENTITY_SECONDS:
            known = known._replace(identity=self._identity(pid, stat), identity_at=now)
        return known

    def _children(self, pid: int, now: float, before: _Children) -> _Children:
        """Return the child processes now. Never raises: a process can be known without them."""
        try:
            pids = procfs.read_children(pid, self._proc)[:MOST_CHILDREN]
        except PermissionError:
            return _Children(now, absence=Absence.NO_PERMISSION)
        except (OSError, ValueError):  # a kernel that does not list them, or it has just gone
            return _Children(now, absence=Absence.NOT_SUPPORTED)
        each: dict[int, tuple[int, _Cpu]] = {}
        waiting = False
        for child in pids:
            try:
                stat = procfs.read_stat(child, self._proc)
            except (OSError, ValueError):
                continue  # it has just ended
            start, cpu = before.each.get(child, (None, None))
            same = cpu is not None and start == stat.start_ticks
            now_cpu = cpu.after(now, stat.cpu_ticks) if cpu and same else _Cpu(now, stat.cpu_ticks)
            each[child] = stat.start_ticks, now_cpu
            waiting = waiting or stat.state == WAITING
        return _Children(now, each, waiting)

    def _identity(self, pid: int, stat: Stat) -> _Identity:
        """Return who a process is. Raises OSError if it is gone; what is refused is absent."""
        absent: dict[str, Absence] = {}
        cgroup = Cgroup()
        try:
            text = procfs.text(procfs.read(f"{self._proc}/{pid}/cgroup", CGROUP_BYTES))
            cgroup = parse_cgroup(text)
        except FileNotFoundError:
            # A kernel without control groups; or the process is gone, as the next read tells.
            absent |= dict.fromkeys(CGROUP, Absence.NOT_SUPPORTED)
        except PermissionError:
            absent |= dict.fromkeys(CGROUP, Absence.NO_PERMISSION)
        try:
            user = self._user(pid)
        except PermissionError:
            user = None
            absent["user"] = Absence.NO_PERMISSION
        try:
            data = procfs.read(f"{self._proc}/{pid}/cmdline", COMMAND_BYTES)
        except PermissionError:
            data = b""
        command, unmasked = _command_line(data)
        unmasked = unmasked if self._secrets and unmasked != command else ""
        return _Identity(command or stat.name, unmasked or None, user, cgroup, absent)

    def _user(self, pid: int) -> str:
        """Return the user's name. Raises OSError if it is hidden, ValueError for nonsense."""
        try:
            status = procfs.read(f"{self._proc}/{pid}/status")
        except PermissionError:
            # The owner of the directory is the user, but for a process that protects itself: root.
            owner = Path(f"{self._proc}/{pid}").stat().st_uid
            if not owner:
                raise
            return user_name(owner)
        match = re.search(rb"^Uid:\s+(\d+)", status, re.MULTILINE)
        if match is None:
            raise ValueError("not the content of /proc/PID/status")
        return user_name(int(match[1]))

    def _hidden(self, pid: int, error: OSError | ValueError) -> Owner:
        """Return what is known of a process whose numbers cannot be read."""
        if isinstance(error, PermissionError):
            # /proc is mounted with hidepid=1: all see the directory, only its user what is in it.
            try:
                user = self._user(pid)
            except (OSError, ValueError):
                return Owner(absence=Absence.NO_PERMISSION)
            hidden = (name for name in OWNER_FIELDS if name != "user")
            return Owner(user=user, absent=dict.fromkeys(hidden, Absence.NO_PERMISSION))
        if not isinstance(error, GONE):
            return Owner(absence=Absence.ERROR)
        # hidepid=2 hides the directory, too; else it is gone, or in a pid namespace of its own.
        return Owner(absence=Absence.NO_PERMISSION if _exists(pid) else Absence.LOST)


def _exists(pid: int) -> bool:
    """Return True if there is a process of another user with that pid."""
    try:
        if pid > 0:
            os.kill(pid, 0)  # signal 0 is sent to nobody: only the right to send it is checked
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


@lru_cache(maxsize=1024)
def _command_line(data: bytes) -> tuple[str, str]:
    """Return the content of /proc/PID/cmdline as text, with secrets masked and unmasked.

    Both are empty for a kernel thread and a zombie.
    """
    # A title of its own is one string, shorter than the arguments were, and the rest is zeros.
    arguments = procfs.text(data.rstrip(b"\0")).split("\0")
    if len(arguments) == 1:
        arguments = arguments[0].split(" ")
    return " ".join(masked_arguments(arguments)), " ".join(arguments)


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """Return the user's name, or the number if it has none here.

    May block: a directory service may be asked.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
