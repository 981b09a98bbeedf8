"""Owners of the processes on the devices: users, places, and use of the host's resources.

Each look at a process reads one file. Its identity is read again when its name changes, and every
`IDENTITY_SECONDS`. Every `CHILDREN_SECONDS`, one file per child process is read: the workers of a
data loader use no device, but the trainer waits for them.
"""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gputop.agent.device import Absence
from gputop.agent.interface import Facts, unseen
from gputop.agent.lines import rounded
from gputop.agent.linux import procfs
from gputop.agent.linux.cgroup import Cgroup, parse_cgroup
from gputop.agent.linux.containers import container_names
from gputop.agent.linux.host import WINDOW_SECONDS
from gputop.agent.linux.procfs import PROC, Stat
from gputop.agent.linux.ranks import Rank, rank_of, read_variables
from gputop.agent.masking import masked_arguments
from gputop.agent.threads import SlowResults

ANSWER_SECONDS = 0.1
"""Seconds to wait for a user's name, a command line or a container's name. The answer is usually
immediate. If not, a later look finds it."""
COMMAND_BYTES = 4096
"""Most bytes of a command line to read, because it is sent with every sample."""
CGROUP_BYTES = 1 << 16
IDENTITY_SECONDS = 60.0
"""Seconds between reads of a process's identity. A process may change its arguments or its user, or
be moved into a container, and keep its pid and start time. A process that executes another program
or takes another name is read again at once."""
LISTED_SECONDS = 2.0
"""Highest age of the driver's process list in seconds. Within this time, a process with a reused
pid could be mistaken for the previous one."""
CHILDREN_SECONDS = 2.0
"""Seconds between reads of the child processes. A trainer may have tens of them."""
MOST_CHILDREN = 64
"""Most child processes to read. Each costs a file read."""

WAITING = "D"
"""State of a process in uninterruptible sleep, mostly waiting for storage."""
CHILDREN_CPU = ("children_cpu_percent", "children_cpu_most_percent")
CHILDREN = ("children", *CHILDREN_CPU)
PARENT = ("parent_command", "parent_start_time")


_Key = tuple[int, int]
"""A process by its pid and its start time in ticks."""


class _Cpu(NamedTuple):
    """CPU time that a process had used at a moment, and its share since the previous look."""

    at: float
    ticks: int
    percent: float | None = None

    def after(self, at: float, ticks: int) -> _Cpu:
        """Return the CPU time at a later moment, with the share in between."""
        seconds = at - self.at
        if seconds < WINDOW_SECONDS:
            return self
        taken = max(0, ticks - self.ticks) / procfs.TICKS_PER_SECOND
        return _Cpu(at, ticks, rounded(100 * taken / seconds))


@dataclass(eq=False, repr=False)
class _Known:
    """A process as of the last look."""

    pid: int
    stat: Stat
    cpu: _Cpu
    seen_from: float = -math.inf
    """Earliest moment at which a list may name the process, if its pid was reused."""
    facts: dict[str, Any] = field(default_factory=dict)
    identity_at: float = -math.inf
    user: int = 0
    """The user's number."""
    cgroup: str = ""
    """Text of its control groups; empty if it is in no container."""
    home: str = ""
    """Host name, and the id of its container if it is in one."""
    parent_pid: int = 0
    parent: Stat | None = None
    """State of the parent; None if it cannot be read."""
    children_at: float = -math.inf
    children: Mapping[_Key, _Cpu] = field(default_factory=dict)
    """CPU of each child process."""
    child_waits: bool = False
    has_names: bool = False
    """True if all names were known at the last look at the identity."""

    @property
    def key(self) -> _Key:
        return self.pid, self.stat.start_ticks

    @property
    def parent_key(self) -> _Key:
        start = self.parent.start_ticks if self.parent else 0
        return self.parent_pid, start


class _Texts(NamedTuple):
    """Command line and variables of a process, which only its memory has."""

    command: str = ""
    """With masked secrets. Empty for a kernel thread and a zombie."""
    unmasked: str = ""
    variables: Mapping[str, str] | Absence = Absence.NO_DATA_YET


class Owners:
    """Finds the owners of processes in /proc. For one thread.

    Each look notices that a process has ended or that its pid was reused.
    """

    def __init__(
        self,
        proc: str = PROC,
        *,
        secrets: bool = False,
        root: Path = Path("/"),
    ) -> None:
        """Read `proc`, and the files of container runtimes under `root`.

        With `secrets`, keep the unmasked command lines, too.
        """
        self._proc = proc
        self._secrets = secrets
        self._boot = procfs.BootTime(proc)
        self._known: dict[int, _Known] = {}
        # Reading these texts blocks while the process holds its memory lock,
        # which it may do while it waits for storage. A directory service or a
        # network file system may never answer.
        self._users = SlowResults(user_name, ANSWER_SECONDS)
        self._texts = SlowResults(self._read_texts, ANSWER_SECONDS)
        self._read_now: set[_Key] = set()
        """Processes whose texts were read in this look. A parent has many children."""
        self._hostname = socket.gethostname()
        self._containers = SlowResults(
            partial(container_names, root=root), ANSWER_SECONDS
        )

    def look_up(self, pids: Iterable[int]) -> Iterator[tuple[int, Facts]]:
        """Yield the facts of each process from /proc, and forget all other processes. May block."""
        wanted = set()
        self._read_now.clear()
        for pid in pids:
            wanted.add(pid)
            yield pid, self._owner_of(pid)
        texts = set()
        containers = set()
        for pid in [*self._known]:
            known = self._known[pid]
            if pid in wanted:
                texts |= {known.key, known.parent_key}
                containers.add(known.cgroup)
            else:
                del self._known[pid]
        self._texts.keep(texts)
        self._containers.keep(containers)

    def _owner_of(self, pid: int) -> Facts:
        now = time.monotonic()
        try:
            known = self._look(pid, now)
        # hidepid=1 hides the content.
        except PermissionError:
            return unseen(Absence.NO_PERMISSION)
        except (FileNotFoundError, ProcessLookupError):
            # hidepid=2 hides the directory, too.
            if _exists(pid):
                return unseen(Absence.NO_PERMISSION)
            # The process has ended, or is in another pid namespace.
            return unseen(Absence.LOST)
        except (OSError, ValueError):
            return unseen(Absence.ERROR)
        if now - known.seen_from < LISTED_SECONDS:
            # The driver may have listed an earlier process with this pid.
            return unseen(Absence.NO_DATA_YET)
        return known.facts.copy()

    def _look(self, pid: int, now: float) -> _Known:
        """Return the process with the pid. Raises OSError or ValueError if it is hidden."""
        stat = procfs.read_stat(pid, self._proc)
        known = self._known.get(pid)
        if known is None:
            known = _Known(pid, stat, _Cpu(now, stat.cpu_ticks))
        elif known.stat.start_ticks != stat.start_ticks:
            known = _Known(pid, stat, _Cpu(now, stat.cpu_ticks), seen_from=now)
        is_renamed = known.stat.name != stat.name
        known.stat = stat
        known.cpu = known.cpu.after(now, stat.cpu_ticks)
        if now - known.children_at >= CHILDREN_SECONDS:
            self._look_at_children(known, now)
        is_due = is_renamed or now - known.identity_at >= IDENTITY_SECONDS
        # A process gets a new parent when its parent ends.
        if is_due or known.parent_pid != stat.parent_pid:
            self._look_at_identity(known)
            known.identity_at = now
            known.has_names = False
        if not known.has_names:
            known.has_names = self._add_names(known, again=is_due)
        known.facts.update(
            start_time=self._boot.start_of(stat),
            cpu_percent=known.cpu.percent,
            memory_resident_bytes=stat.resident_bytes,
            parent_pid=stat.parent_pid,
            io_wait=stat.state == WAITING or known.child_waits,
        )
        if known.cpu.percent is None:
            known.facts["cpu_percent"] = Absence.NO_DATA_YET
        # The parent is outside of this container.
        if stat.parent_pid == 0:
            known.facts["parent_pid"] = Absence.LOST
        self._known[pid] = known
        return known

    def _look_at_children(self, known: _Known, now: float) -> None:
        known.children_at = now
        known.child_waits = False
        before = known.children
        known.children = {}
        try:
            pids = procfs.read_children(known.pid, self._proc)
        except (OSError, ValueError):
            # The kernel does not list children, or the process has ended.
            known.facts.update(dict.fromkeys(CHILDREN, Absence.NOT_SUPPORTED))
            return
        cpus = {}
        for pid in pids[:MOST_CHILDREN]:
            try:
                stat = procfs.read_stat(pid, self._proc)
            except (OSError, ValueError):
                # The child has just ended.
                continue
            key = (pid, stat.start_ticks)
            cpu = before.get(key) or _Cpu(now, stat.cpu_ticks)
            cpus[key] = cpu.after(now, stat.cpu_ticks)
            if stat.state == WAITING:
                known.child_waits = True
        known.children = cpus
        known.facts.update(_children_facts(cpus))

    def _look_at_identity(self, known: _Known) -> None:
        """Read the user's number and control groups. Raises OSError if the process has ended."""
        known.cgroup, place = self._read_cgroup(known.pid)
        known.facts.update(place)
        known.home = self._hostname
        container = place["container"]
        if isinstance(container, str):
            known.home = f"{self._hostname}/{container}"
        known.user = self._user_number(known.pid)
        known.parent = None
        known.parent_pid = known.stat.parent_pid
        with contextlib.suppress(OSError, ValueError):
            known.parent = procfs.read_stat(known.parent_pid, self._proc)

    def _read_cgroup(self, pid: int) -> tuple[str, Facts]:
        """Return the text of a process's control groups, and its facts.

        The text is empty if the process is in no container.
        """
        try:
            data = procfs.read(f"{self._proc}/{pid}/cgroup", CGROUP_BYTES)
        except OSError:
            # The kernel has no control groups, or the process has ended. In
            # that case the next read fails, too.
            return "", dict.fromkeys(Cgroup._fields, Absence.NOT_SUPPORTED)
        text = procfs.text(data)
        place = parse_cgroup(text)
        if place.container is None and place.pod is None:
            text = ""
        return text, place._asdict()

    def _add_names(self, known: _Known, *, again: bool) -> bool:
        """Add the names of the user, the program and the container, and the rank.

        With `again`, they are read anew. Returns True if all are known. Until then the user is a
        number, the container an id, and the command the name of the executable.
        """
        facts = known.facts
        user = self._users.get(known.user)
        facts["user"] = user or str(known.user)
        texts = self._texts_of(known.key, again=again)
        own = texts or _Texts()
        facts["command"] = own.command or known.stat.name
        facts["unmasked"] = None
        if self._secrets and own.unmasked != own.command:
            facts["unmasked"] = own.unmasked
        facts.update(_rank_facts(own, known))
        has_all = user is not None and texts is not None
        facts.update(dict.fromkeys(PARENT))
        if known.parent is not None:
            texts = self._texts_of(known.parent_key, again=again)
            has_all = has_all and texts is not None
            command = texts.command if texts else ""
            facts["parent_command"] = command or known.parent.name
            facts["parent_start_time"] = self._boot.start_of(known.parent)
        if known.cgroup:
            names = self._containers.get(known.cgroup, again=again)
            has_all = has_all and names is not None
            facts.update(names or {})
        return has_all

    def _texts_of(self, key: _Key, *, again: bool) -> _Texts | None:
        """Return the texts of a process, or None until they are known."""
        again = again and key not in self._read_now
        self._read_now.add(key)
        return self._texts.get(key, again=again)

    def _user_number(self, pid: int) -> int:
        """Return the user's number. Raises OSError if hidden, ValueError if unreadable."""
        status = procfs.read(f"{self._proc}/{pid}/status")
        match = re.search(rb"^Uid:\s+(\d+)", status, re.MULTILINE)
        if match is None:
            raise ValueError("not the content of /proc/PID/status")
        return int(match[1])

    def _read_texts(self, key: _Key) -> _Texts:
        pid, _ = key
        command = b""
        variables: Mapping[str, str] | Absence
        with contextlib.suppress(OSError):
            command = procfs.read(f"{self._proc}/{pid}/cmdline", COMMAND_BYTES)
        try:
            variables = read_variables(pid, self._proc)
        except PermissionError:
            variables = Absence.NO_PERMISSION
        except OSError:
            # The process has just ended.
            variables = Absence.LOST
        return _Texts(*parse_command_line(command), variables)


def _rank_facts(texts: _Texts, known: _Known) -> Facts:
    """Return the rank of a process, or why it is unknown."""
    if isinstance(texts.variables, Absence):
        return dict.fromkeys(Rank._fields, texts.variables)
    return rank_of(texts.variables, known.home, known.parent_pid)._asdict()


def _children_facts(cpus: Mapping[_Key, _Cpu]) -> Facts:
    """Return the facts of `CHILDREN`: the number of children, and the CPU of those read twice."""
    percents = [
        cpu.percent for cpu in cpus.values() if cpu.percent is not None
    ]
    if cpus and not percents:
        absent = dict.fromkeys(CHILDREN_CPU, Absence.NO_DATA_YET)
        return {"children": len(cpus), **absent}
    return {
        "children": len(cpus),
        "children_cpu_percent": rounded(sum(percents, 0.0)),
        "children_cpu_most_percent": max(percents, default=0.0),
    }


def parse_command_line(data: bytes) -> tuple[str, str]:
    """Return the content of /proc/PID/cmdline as text, with secrets masked and unmasked.

    Both are empty for a kernel thread and a zombie.
    """
    arguments = procfs.arguments_of(data)
    return " ".join(masked_arguments(arguments)), " ".join(arguments)


def user_name(uid: int) -> str:
    """Return the user's name, or the number if it has no name here.

    May block: a directory service may be queried.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError, OSError):
        return str(uid)


def _exists(pid: int) -> bool:
    """Return True if there is a process of another user with that pid."""
    if pid <= 0:
        return False
    try:
        # Signal 0 only checks the permission to send a signal.
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False
