"""Who processes are, and what they take of the host: one file read for each at each look.

Now and then also for each of their child processes: a data loader's workers are on no device, and
the trainer that waits for them takes nothing itself.
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
from gputop.sources.interface import Owner
from gputop.sources.linux import procfs
from gputop.sources.linux.cgroup import Place, place_of
from gputop.sources.linux.procfs import PROC, Stat

WHO_SECONDS = 10.0
"""How often it is looked up again who a process is: it may execute another program, retitle itself,
change its user or be moved into a container, all with the pid and the start time that it has."""
WINDOW_SECONDS = 0.1
"""A CPU percentage over less than this would be noise: a tick is a hundredth of a second."""
LISTED_SECONDS = 1.0
"""How old the driver's list of processes may be: for so long a pid in it that another process has
taken says nothing about that one."""
CHILDREN_SECONDS = 2.0
"""How often the child processes are looked at: a trainer may have tens of them."""
MOST_CHILDREN = 64
"""More of them are left out: what each costs is a file read."""
COMMAND_BYTES = 4096
"""More of a command line is left out: it is sent with each sample, and nobody reads it."""
CGROUP_BYTES = 1 << 16

WAITING = "D"
"""The state of a process that waits for storage, or for something else that it cannot leave."""
GONE = (FileNotFoundError, ProcessLookupError)
CHILDREN_CPU = ("children_cpu_percent", "children_cpu_most_percent")
CHILDREN = ("children", *CHILDREN_CPU)
PLACE = tuple(f.name for f in dataclasses.fields(Place))
ALL = tuple(
    f.name for f in dataclasses.fields(Owner) if f.name not in ("unmasked", "absence", "absent")
)


@dataclass(frozen=True, slots=True)
class _Who:
    """What seldom changes about a process."""

    command: str
    unmasked: str | None
    user: str | None
    place: Place
    absent: Mapping[str, Absence] = field(default_factory=dict)


class _Cpu(NamedTuple):
    """What a process had taken of the CPU at a moment, and the share that came of it."""

    at: float
    ticks: int
    percent: float | None = None

    def then(self, at: float, ticks: int) -> _Cpu:
        seconds = at - self.at
        if seconds < WINDOW_SECONDS:
            return self
        taken = max(0, ticks - self.ticks) / procfs.TICKS_PER_SECOND
        return _Cpu(at, ticks, 100 * taken / seconds)


@dataclass(frozen=True, slots=True)
class _Children:
    """The child processes of one, as they were at a look."""

    at: float
    each: Mapping[int, tuple[int, _Cpu]] = field(default_factory=dict)
    """By pid: the start in ticks, and the CPU."""
    waiting: bool = False
    absence: Absence | None = None
    """Why they are not known."""

    @property
    def percents(self) -> list[float]:
        """Of those that were there for two looks."""
        return [cpu.percent for _, cpu in self.each.values() if cpu.percent is not None]


class _Known(NamedTuple):
    """A process as it was at the last look."""

    start_ticks: int
    who: _Who
    who_at: float
    cpu: _Cpu
    children: _Children
    seen_from: float = -math.inf
    """Since when the pid is its own, where another one had it before."""


class Owners:
    """Who processes are, asked of /proc; used by one thread.

    A process whose time is over, or whose pid another one has now, is found out at each look.
    """

    def __init__(self, proc: str = PROC, *, secrets: bool = False) -> None:
        """`secrets` asks for command lines with their secrets, too."""
        self._proc = proc
        self._secrets = secrets
        self._boot = procfs.BootTime(proc)
        self._known: dict[int, _Known] = {}

    def of(self, pid: int) -> Owner:
        """The owner of `pid` now; CPU since the look before. Never raises, but may block."""
        try:
            stat = procfs.read_stat(pid, self._proc)
            known = self._known[pid] = self._look(pid, stat)
        except (OSError, ValueError) as error:
            return self._unseen(pid, error)
        absent = dict(known.who.absent)
        if time.monotonic() - known.seen_from < LISTED_SECONDS:
            # Who is listed may be the one that had the pid.
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
            user=known.who.user,
            command=known.who.command,
            unmasked=known.who.unmasked,
            start_time=stat.started(self._boot.now()),
            cpu_percent=known.cpu.percent,
            memory_resident_bytes=stat.resident_bytes,
            parent_pid=stat.parent_pid or None,
            container=known.who.place.container,
            pod=known.who.place.pod,
            slurm_job=known.who.place.slurm_job,
            io_wait=stat.state == WAITING or children.waiting,
            children=len(children.each) if children.absence is None else None,
            children_cpu_percent=sum(percents, 0.0) if known_cpu else None,
            children_cpu_most_percent=max(percents, default=0.0) if known_cpu else None,
            absent=absent,
        )

    def keep(self, pids: set[int]) -> None:
        """Forgets all others."""
        for pid in self._known.keys() - pids:
            del self._known[pid]

    def _look(self, pid: int, stat: Stat) -> _Known:
        now = time.monotonic()
        known = self._known.get(pid)
        if known is None or known.start_ticks != stat.start_ticks:
            who = self._who(pid, stat)
            cpu, children = _Cpu(now, stat.cpu_ticks), self._children(pid, now, _Children(now))
            since = -math.inf if known is None else now
            return _Known(stat.start_ticks, who, now, cpu, children, since)
        cpu = known.cpu.then(now, stat.cpu_ticks)
        children = known.children
        if now - children.at >= CHILDREN_SECONDS:
            children = self._children(pid, now, children)
        if now - known.who_at < WHO_SECONDS:
            return known._replace(cpu=cpu, children=children)
        who = self._who(pid, stat)
        return known._replace(who=who, who_at=now, cpu=cpu, children=children)

    def _children(self, pid: int, now: float, before: _Children) -> _Children:
        """Never raises: a process can be known without its children."""
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
            now_cpu = cpu.then(now, stat.cpu_ticks) if cpu and same else _Cpu(now, stat.cpu_ticks)
            each[child] = stat.start_ticks, now_cpu
            waiting = waiting or stat.state == WAITING
        return _Children(now, each, waiting)

    def _who(self, pid: int, stat: Stat) -> _Who:
        """Raises OSError where the process is gone meanwhile; what is refused is absent."""
        absent: dict[str, Absence] = {}
        try:
            text = procfs.text(procfs.read(f"{self._proc}/{pid}/cgroup", CGROUP_BYTES))
            place = place_of(text)
        except FileNotFoundError:
            # A kernel without control groups; or the process is gone, as the next read tells.
            place = Place()
            absent |= dict.fromkeys(PLACE, Absence.NOT_SUPPORTED)
        except PermissionError:
            place = Place()
            absent |= dict.fromkeys(PLACE, Absence.NO_PERMISSION)
        try:
            user = self._user(pid)
        except PermissionError:
            user = None
            absent["user"] = Absence.NO_PERMISSION
        command, unmasked = self._command(pid)
        unmasked = unmasked if self._secrets and unmasked != command else ""
        return _Who(command or stat.name, unmasked or None, user, place, absent)

    def _command(self, pid: int) -> tuple[str, str]:
        """Return the command line without its secrets, and with them.

        Empty for a kernel thread, a zombie, and where it is not permitted.
        """
        try:
            data = procfs.read(f"{self._proc}/{pid}/cmdline", COMMAND_BYTES)
        except PermissionError:
            return "", ""
        return _command_line(data)

    def _user(self, pid: int) -> str:
        """Raises OSError where it is not told, ValueError for nonsense."""
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

    def _unseen(self, pid: int, error: OSError | ValueError) -> Owner:
        """What is known of a process whose numbers cannot be read."""
        if isinstance(error, PermissionError):
            # /proc is mounted with hidepid=1: all see the directory, only its user what is in it.
            try:
                user = self._user(pid)
            except (OSError, ValueError):
                return Owner(absence=Absence.NO_PERMISSION)
            hidden = (name for name in ALL if name != "user")
            return Owner(user=user, absent=dict.fromkeys(hidden, Absence.NO_PERMISSION))
        if not isinstance(error, GONE):
            return Owner(absence=Absence.ERROR)
        # hidepid=2 hides the directory, too; else it is gone, or in a pid namespace of its own.
        return Owner(absence=Absence.NO_PERMISSION if _exists(pid) else Absence.LOST)


def _exists(pid: int) -> bool:
    """Whether there is a process of another user with that pid."""
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
    """Return the content of /proc/PID/cmdline as text: with its secrets masked, and as it is."""
    # A title of its own is one string, shorter than the arguments were, and the rest is zeros.
    arguments = procfs.text(data.rstrip(b"\0")).split("\0")
    if len(arguments) == 1:
        arguments = arguments[0].split(" ")
    return " ".join(masked_arguments(arguments)), " ".join(arguments)


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """Its name; the number where it has none here. May block: a directory service may be asked."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
