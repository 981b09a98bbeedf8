"""The host: the machine itself, and the owners of processes on its devices.

Each look at a process reads one file. Every `CHILDREN_SECONDS` it also reads one file for each
child process: the workers of a data loader are on no device, but the trainer waits for them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from gputop.agent.device import Absence
from gputop.agent.interface import OWNER_FIELDS, unseen, with_owner
from gputop.agent.linux import machine, procfs
from gputop.agent.linux.identity import Identity, IdentityReader
from gputop.agent.linux.procfs import PROC, Stat
from gputop.agent.snapshot import Host, Process

SLOW_SECONDS = 2.0
"""Seconds between reads of clocks and temperatures, which cost a file for each core."""
WINDOW_SECONDS = 0.1
"""Shortest window of a CPU percentage. Less would be noise: a tick is a hundredth of a second."""


class HostReader:
    """Reads the machine. Percentages cover the time since the previous read."""

    def __init__(self, root: Path = machine.ROOT) -> None:
        self._root = root
        self._times_at = time.monotonic()
        self._times = machine.cpu_times(root)
        self._cores: tuple[float, ...] = ()
        self._slow_at = -math.inf
        self._clock: float | None = None
        self._temperature: float | None = None

    def read(self) -> Host:
        """Return the machine now."""
        now = time.monotonic()
        if now - self._times_at >= WINDOW_SECONDS:
            self._read_cores(now)
        if now - self._slow_at >= SLOW_SECONDS:
            self._read_slow(now)
        memory = machine.memory(self._root)
        values: dict[str, Any] = {
            "cpu_percent": _mean(self._cores),
            "cpu_core_percent": self._cores,
            "memory_used_bytes": memory.used,
            "memory_total_bytes": memory.total,
            "memory_available_bytes": memory.available,
            "load_average": machine.load_average(self._root),
            "cpu_clock_mhz": self._clock,
            "cpu_temperature_celsius": self._temperature,
        }
        absent = {
            name: Absence.NOT_SUPPORTED
            for name, value in values.items()
            if value is None or value == ()
        }
        if self._times and not self._cores:
            absent["cpu_percent"] = Absence.NO_DATA_YET
            absent["cpu_core_percent"] = Absence.NO_DATA_YET
        return Host(**values, absent=absent)

    def _read_cores(self, now: float) -> None:
        times = machine.cpu_times(self._root)
        self._cores = machine.cpu_percents(self._times, times)
        self._times = times
        self._times_at = now

    def _read_slow(self, now: float) -> None:
        self._clock = _rounded(machine.cpu_clock_mhz(self._root))
        self._temperature = _rounded(machine.cpu_temperature_celsius(self._root))
        self._slow_at = now


def _mean(values: tuple[float, ...]) -> float | None:
    if not values:
        return None
    return round(sum(values) / len(values), 3)


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value, 3)


IDENTITY_SECONDS = 10.0
"""Seconds between looks at who a process is: it may execute another program, change its title or
user, or be moved into a container, all with the same pid and start time."""
LISTED_SECONDS = 1.0
"""Age in seconds that the driver's list of processes may have. Within this time a reused pid could
be mistaken for the process before."""
CHILDREN_SECONDS = 2.0
"""Seconds between looks at the child processes: a trainer may have tens of them."""
MOST_CHILDREN = 64
"""Child processes that are read at most: each costs a file read."""

WAITING = "D"
"""State of a process in an uninterruptible wait, mostly for storage."""
CHILDREN_CPU = ("children_cpu_percent", "children_cpu_most_percent")
CHILDREN = ("children", *CHILDREN_CPU)


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
        return _Cpu(at, ticks, round(100 * taken / seconds, 3))


class _Children(NamedTuple):
    """Child processes of a process, as they were at a look."""

    at: float
    cpus: Mapping[tuple[int, int], _Cpu] = MappingProxyType({})
    """CPU of each by its pid and its start in ticks."""
    values: Mapping[str, Any] = MappingProxyType({})
    """Values of `CHILDREN`: how many there are, and the CPU of those that were there twice."""
    absent: Mapping[str, Absence] = MappingProxyType({})
    waiting: bool = False


@dataclass(eq=False, repr=False)
class _Known:
    """State of a process at the last look."""

    stat: Stat
    identity: Identity
    identity_at: float
    cpu: _Cpu
    children: _Children
    seen_from: float
    """Moment from which the pid is its own, if another process had it before."""


class Owners:
    """Finds the owners of processes in /proc; used by one thread.

    Each look notices a process that has ended, or whose pid another process has now.
    """

    def __init__(
        self,
        proc: str = PROC,
        *,
        secrets: bool = False,
    ) -> None:
        """Read `proc`; with `secrets`, keep the unmasked command lines, too."""
        self._proc = proc
        self._boot = procfs.BootTime(proc)
        self._identities = IdentityReader(proc, secrets=secrets)
        self._known: dict[int, _Known] = {}

    def complete(self, listed: Process) -> Process:
        """Return a process with its owner now, and its CPU since the look before.

        Never raises, but may block.
        """
        now = time.monotonic()
        try:
            stat = procfs.read_stat(listed.pid, self._proc)
            known = self._look(listed.pid, stat, now)
        except (OSError, ValueError) as error:
            return self._hidden(listed, error)
        if now - known.seen_from < LISTED_SECONDS:
            # The driver may have listed the process that had the pid before.
            return unseen(listed, Absence.NO_DATA_YET)
        return _completed(listed, known, self._boot.now())

    def forget_others(self, pids: set[int]) -> None:
        """Forget all processes but these."""
        for pid in self._known.keys() - pids:
            known = self._known.pop(pid)
            self._identities.forget(pid, known.stat)

    def _look(
        self,
        pid: int,
        stat: Stat,
        now: float,
    ) -> _Known:
        known = self._known.get(pid)
        if known is None or known.stat.start_ticks != stat.start_ticks:
            known = _Known(
                stat,
                identity=self._identities.read(pid, stat, None),
                identity_at=now,
                cpu=_Cpu(now, stat.cpu_ticks),
                children=self._children(pid, now, {}),
                seen_from=-math.inf if known is None else now,
            )
            self._known[pid] = known
            return known
        known.stat = stat
        known.cpu = known.cpu.after(now, stat.cpu_ticks)
        if now - known.children.at >= CHILDREN_SECONDS:
            known.children = self._children(pid, now, known.children.cpus)
        if known.identity.is_pending or now - known.identity_at >= IDENTITY_SECONDS:
            known.identity = self._identities.read(pid, stat, known.identity)
            known.identity_at = now
        return known

    def _children(
        self,
        pid: int,
        now: float,
        before: Mapping[tuple[int, int], _Cpu],
    ) -> _Children:
        """Return the child processes now. Never raises: a process can be known without them."""
        try:
            pids = procfs.read_children(pid, self._proc)
        except PermissionError:
            return _Children(now, absent=dict.fromkeys(CHILDREN, Absence.NO_PERMISSION))
        except (
            OSError,
            ValueError,
        ):  # a kernel that does not list them, or the process is gone
            return _Children(now, absent=dict.fromkeys(CHILDREN, Absence.NOT_SUPPORTED))
        cpus = {}
        waiting = False
        for child in pids[:MOST_CHILDREN]:
            try:
                stat = procfs.read_stat(child, self._proc)
            except (OSError, ValueError):
                continue  # it has just ended
            key = (child, stat.start_ticks)
            cpu = before.get(key) or _Cpu(now, stat.cpu_ticks)
            cpus[key] = cpu.after(now, stat.cpu_ticks)
            waiting = waiting or stat.state == WAITING
        values, absent = _children_values(cpus)
        return _Children(now, cpus, values, absent, waiting)

    def _hidden(self, listed: Process, error: OSError | ValueError) -> Process:
        """Return what is known of a process whose numbers cannot be read."""
        if isinstance(error, PermissionError):
            # /proc is mounted with hidepid=1, which hides the files but not the directory.
            try:
                user = self._identities.user(listed.pid)
            except (OSError, ValueError):
                return unseen(listed, Absence.NO_PERMISSION)
            absent = dict.fromkeys(OWNER_FIELDS, Absence.NO_PERMISSION)
            del absent["user"]
            return with_owner(listed, absent, user=user)
        if not isinstance(error, (FileNotFoundError, ProcessLookupError)):
            return unseen(listed, Absence.ERROR)
        if _exists(listed.pid):  # hidepid=2 hides the directory, too
            return unseen(listed, Absence.NO_PERMISSION)
        return unseen(
            listed, Absence.LOST
        )  # it is gone, or in a pid namespace of its own


def _children_values(
    cpus: Mapping[tuple[int, int], _Cpu],
) -> tuple[dict[str, Any], dict[str, Absence]]:
    """Return the values of `CHILDREN`, and the reasons for those that are absent."""
    percents = [cpu.percent for cpu in cpus.values() if cpu.percent is not None]
    values: dict[str, Any] = {"children": len(cpus)}
    if cpus and not percents:
        return values, dict.fromkeys(CHILDREN_CPU, Absence.NO_DATA_YET)
    values["children_cpu_percent"] = round(sum(percents, 0.0), 3)
    values["children_cpu_most_percent"] = max(percents, default=0.0)
    return values, {}


def _completed(
    listed: Process,
    known: _Known,
    booted: float,
) -> Process:
    absent = {**known.identity.absent, **known.children.absent}
    if known.cpu.percent is None:
        absent["cpu_percent"] = Absence.NO_DATA_YET
    if known.stat.parent_pid == 0:  # outside of the container that this is in
        absent["parent_pid"] = Absence.LOST
    return with_owner(
        listed,
        absent,
        start_time=known.stat.started(booted),
        cpu_percent=known.cpu.percent,
        memory_resident_bytes=known.stat.resident_bytes,
        parent_pid=known.stat.parent_pid or None,
        io_wait=known.stat.state == WAITING or known.children.waiting,
        **known.identity.values,
        **known.children.values,
    )


def _exists(pid: int) -> bool:
    """Return True if there is a process of another user with that pid."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)  # checks only whether this process may send a signal
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False
