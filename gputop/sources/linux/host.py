"""The host: its CPU, memory and load, and the owners of processes.

Each look at an owner reads one file of the process, and every `CHILDREN_SECONDS` one of each child
process: a data loader's workers are on no device, and the trainer that waits for them uses no CPU.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import psutil

from gputop.masking import masked_arguments
from gputop.schema.codec import rounded
from gputop.schema.device import Absence
from gputop.schema.snapshot import Host, Process
from gputop.sources.interface import OWNER_FIELDS, unseen, with_owner
from gputop.sources.linux import procfs
from gputop.sources.linux.procfs import PROC, Cgroup, Stat, parse_cgroup
from gputop.threads import SlowResults

Value = TypeVar("Value")

SLOW_SECONDS = 2.0
"""Seconds between reads of clocks and temperatures, which cost a file for each core."""
WINDOW_SECONDS = 0.1
"""Shortest window of a CPU percentage. Less would be noise: a tick is a hundredth of a second."""
CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class HostReader:
    """Reads the machine. Percentages cover the time since the previous read."""

    def __init__(self) -> None:
        self._read_at = time.monotonic()
        self._slow_at = -SLOW_SECONDS
        self._clock: float | None = None
        self._temperature: float | None = None
        self._cores: tuple[float, ...] | None = ()
        _read_or_none(_core_percent)

    def read(self) -> Host:
        """Return the machine now."""
        now = time.monotonic()
        if now - self._read_at >= WINDOW_SECONDS:
            self._cores = _read_or_none(_core_percent)
            self._read_at = now
        cores = self._cores or ()
        if now - self._slow_at >= SLOW_SECONDS:
            self._slow_at = now
            self._clock, self._temperature = _cpu_clock(), _cpu_temperature()
        memory = _read_or_none(psutil.virtual_memory)
        values: dict[str, Any] = {
            "cpu_percent": rounded(sum(cores) / len(cores)) if cores else None,
            "cpu_core_percent": cores,
            # Not available without swapping: psutil leaves shared memory out of `used`.
            "memory_used_bytes": memory.total - memory.available if memory else None,
            "memory_total_bytes": memory.total if memory else None,
            "memory_available_bytes": memory.available if memory else None,
            "load_average": tuple(map(rounded, _read_or_none(os.getloadavg) or ())),
            "cpu_clock_mhz": self._clock,
            "cpu_temperature_celsius": self._temperature,
        }
        missing = (name for name, value in values.items() if value is None or value == ())
        absent = dict.fromkeys(missing, Absence.NOT_SUPPORTED)
        if self._cores == ():
            absent["cpu_percent"] = absent["cpu_core_percent"] = Absence.NO_DATA_YET
        return Host(**values, absent=absent)


def _read_or_none(call: Callable[[], Value]) -> Value | None:
    """Return what the call reads, or None if a sandbox hides that part of /proc (`subset=pid`).

    psutil also passes on what a kernel or a container leaves out of /sys.
    """
    try:
        return call()
    except (NotImplementedError, OSError, ValueError):
        return None


def _core_percent() -> tuple[float, ...]:
    return tuple(psutil.cpu_percent(percpu=True))


def _cpu_clock() -> float | None:
    frequency = _read_or_none(psutil.cpu_freq)
    return rounded(frequency.current) if frequency and frequency.current else None


def _cpu_temperature() -> float | None:
    sensors = psutil.sensors_temperatures()
    for name in CPU_SENSORS:
        if sensors.get(name):
            return rounded(max(float(entry.current) for entry in sensors[name]))
    return None


IDENTITY_SECONDS = 10.0
"""Seconds between looks at who a process is: it may execute another program, change its title or
user, or be moved into a container, all with the same pid and start time."""
LISTED_SECONDS = 1.0
"""Age in seconds that the driver's list of processes may have. For so long a pid in it that was
reused says nothing about the new process."""
CHILDREN_SECONDS = 2.0
"""Seconds between looks at the child processes: a trainer may have tens of them."""
ANSWER_SECONDS = 0.1
"""Seconds to wait for a user's name, or a command line. Mostly they take no time; if they do, a
later look has them."""
MOST_CHILDREN = 64
"""Child processes that are read at most: each costs a file read."""
COMMAND_BYTES = 4096
"""Bytes read of a command line: it is sent with each sample, and nobody reads more."""
CGROUP_BYTES = 1 << 16

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
        return _Cpu(at, ticks, rounded(100 * taken / seconds))


class _Children(NamedTuple):
    """Child processes of a process, as they were at a look."""

    at: float
    each: Mapping[tuple[int, int], _Cpu]
    """CPU by pid and start in ticks."""
    values: Mapping[str, Any] = MappingProxyType({})
    """Values of `CHILDREN`: how many, and the CPU of those that were there for two looks."""
    absent: Mapping[str, Absence] = MappingProxyType({})
    waiting: bool = False


class _Identity(NamedTuple):
    """Facts of a process that seldom change."""

    values: Mapping[str, Any]
    absent: Mapping[str, Absence]
    is_pending: bool = False
    """True if the user's name or the command line has not been answered yet."""


@dataclass(eq=False, repr=False, slots=True)
class _Known:
    """State of a process at the last look."""

    stat: Stat
    identity: _Identity
    identity_at: float
    cpu: _Cpu
    children: _Children
    seen_from: float = -math.inf
    """Moment from which the pid is its own, if another process had it before."""


def _completed(listed: Process, known: _Known, booted: float) -> Process:
    stat, children = known.stat, known.children
    absent = {**known.identity.absent, **children.absent}
    if known.cpu.percent is None:
        absent["cpu_percent"] = Absence.NO_DATA_YET
    if not stat.parent_pid:
        # Outside of the container that this is in.
        absent["parent_pid"] = Absence.LOST
    return with_owner(
        listed,
        absent,
        start_time=stat.started(booted),
        cpu_percent=known.cpu.percent,
        memory_resident_bytes=stat.resident_bytes,
        parent_pid=stat.parent_pid or None,
        io_wait=stat.state == WAITING or children.waiting,
        **known.identity.values,
        **children.values,
    )


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
        # The kernel lets readers of a command line wait for the memory of the process, which one
        # that waits for storage may hold. A directory service may never answer.
        self._command_lines = SlowResults(self._read_command_line, ANSWER_SECONDS)
        self._user_names = SlowResults(user_name, ANSWER_SECONDS)

    def complete(self, listed: Process) -> Process:
        """Return a process with its owner now, and its CPU since the look before.

        Never raises, but may block.
        """
        pid, now = listed.pid, time.monotonic()
        try:
            known = self._updated(pid, procfs.read_stat(pid, self._proc), now)
        except (OSError, ValueError) as error:
            return self._hidden(listed, error)
        if now - known.seen_from < LISTED_SECONDS:
            # The driver may have listed the process that had the pid before.
            return unseen(listed, Absence.NO_DATA_YET)
        return _completed(listed, known, self._boot.now())

    def forget_others(self, pids: set[int]) -> None:
        """Forget all processes but these."""
        for pid in self._known.keys() - pids:
            stat = self._known.pop(pid).stat
            self._command_lines.forget((pid, stat.start_ticks))

    def _updated(self, pid: int, stat: Stat, now: float) -> _Known:
        known = self._known.get(pid)
        if known is None or known.stat.start_ticks != stat.start_ticks:
            identity, children = self._identity(pid, stat), self._children(pid, now, {})
            since = -math.inf if known is None else now
            cpu = _Cpu(now, stat.cpu_ticks)
            known = _Known(stat, identity, now, cpu, children, since)
            self._known[pid] = known
            return known
        known.stat, known.cpu = stat, known.cpu.after(now, stat.cpu_ticks)
        if now - known.children.at >= CHILDREN_SECONDS:
            known.children = self._children(pid, now, known.children.each)
        if known.identity.is_pending or now - known.identity_at >= IDENTITY_SECONDS:
            known.identity = self._identity(pid, stat, known.identity)
            known.identity_at = now
        return known

    def _children(self, pid: int, now: float, before: Mapping[tuple[int, int], _Cpu]) -> _Children:
        """Return the child processes now. Never raises: a process can be known without them."""
        try:
            pids = procfs.read_children(pid, self._proc)[:MOST_CHILDREN]
        except PermissionError:
            return _Children(now, {}, absent=dict.fromkeys(CHILDREN, Absence.NO_PERMISSION))
        except (OSError, ValueError):  # a kernel that does not list them, or it has just gone
            return _Children(now, {}, absent=dict.fromkeys(CHILDREN, Absence.NOT_SUPPORTED))
        each: dict[tuple[int, int], _Cpu] = {}
        waiting = False
        for child in pids:
            try:
                stat = procfs.read_stat(child, self._proc)
            except (OSError, ValueError):
                continue  # it has just ended
            cpu = before.get((child, stat.start_ticks), _Cpu(now, stat.cpu_ticks))
            each[child, stat.start_ticks] = cpu.after(now, stat.cpu_ticks)
            waiting = waiting or stat.state == WAITING
        percents = [cpu.percent for cpu in each.values() if cpu.percent is not None]
        if each and not percents:
            absent = dict.fromkeys(CHILDREN_CPU, Absence.NO_DATA_YET)
            return _Children(now, each, {"children": len(each)}, absent, waiting)
        values = len(each), rounded(sum(percents, 0.0)), max(percents, default=0.0)
        return _Children(now, each, dict(zip(CHILDREN, values, strict=True)), waiting=waiting)

    def _identity(self, pid: int, stat: Stat, before: _Identity | None = None) -> _Identity:
        """Return who a process is, and was before. Raises OSError if it is gone.

        What is refused is absent. Until it is answered, the command is the one before or the name
        of the executable, and the user is a number.
        """
        absent: dict[str, Absence] = {}
        cgroup = Cgroup()
        try:
            text = procfs.text(procfs.read(f"{self._proc}/{pid}/cgroup", CGROUP_BYTES))
            cgroup = parse_cgroup(text)
        except FileNotFoundError:
            # A kernel without control groups; or the process is gone, as the next read tells.
            absent |= dict.fromkeys(Cgroup._fields, Absence.NOT_SUPPORTED)
        except PermissionError:
            absent |= dict.fromkeys(Cgroup._fields, Absence.NO_PERMISSION)
        user, name = None, None
        try:
            number = self._user_number(pid)
            name = self._user_names.get(number)
            user = name or str(number)
        except PermissionError:
            absent["user"] = Absence.NO_PERMISSION
        data = self._command_lines.take((pid, stat.start_ticks))
        if data is None and before is not None:
            command, unmasked = before.values["command"], before.values["unmasked"]
        else:
            command, unmasked = _command_line(data or b"")
            command = command or stat.name
            if not self._secrets or unmasked == command:
                unmasked = ""
        own = {"user": user, "command": command, "unmasked": unmasked or None}
        is_pending = data is None or (user is not None and name is None)
        return _Identity(own | cgroup._asdict(), absent, is_pending)

    def _read_command_line(self, key: tuple[int, int]) -> bytes:
        try:
            return procfs.read(f"{self._proc}/{key[0]}/cmdline", COMMAND_BYTES)
        except PermissionError:
            return b""

    def _user_number(self, pid: int) -> int:
        """Return the user's number. Raises OSError if it is hidden, ValueError for nonsense."""
        try:
            status = procfs.read(f"{self._proc}/{pid}/status")
        except PermissionError:
            # The owner of the directory is the user, but for a process that protects itself: root.
            owner = Path(f"{self._proc}/{pid}").stat().st_uid
            if not owner:
                raise
            return owner
        match = re.search(rb"^Uid:\s+(\d+)", status, re.MULTILINE)
        if match is None:
            raise ValueError("not the content of /proc/PID/status")
        return int(match[1])

    def _hidden(self, listed: Process, error: OSError | ValueError) -> Process:
        """Return what is known of a process whose numbers cannot be read."""
        if isinstance(error, PermissionError):
            # /proc is mounted with hidepid=1: all see the directory, only its user what is in it.
            try:
                number = self._user_number(listed.pid)
                user = self._user_names.get(number) or str(number)
            except (OSError, ValueError):
                return unseen(listed, Absence.NO_PERMISSION)
            hidden = (name for name in OWNER_FIELDS if name != "user")
            return with_owner(listed, dict.fromkeys(hidden, Absence.NO_PERMISSION), user=user)
        if not isinstance(error, (FileNotFoundError, ProcessLookupError)):
            return unseen(listed, Absence.ERROR)
        # hidepid=2 hides the directory, too; else it is gone, or in a pid namespace of its own.
        return unseen(listed, Absence.NO_PERMISSION if _exists(listed.pid) else Absence.LOST)


def _exists(pid: int) -> bool:
    """Return True if there is a process of another user with that pid."""
    try:
        if pid > 0:
            os.kill(pid, 0)  # signal 0 is sent to nobody: only the right to send it is checked
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)
    return False


@lru_cache(maxsize=1024)
def _command_line(data: bytes) -> tuple[str, str]:
    """Return the content of /proc/PID/cmdline as text, with secrets masked and unmasked.

    Both are empty for a kernel thread and a zombie.
    """
    arguments = procfs.arguments_of(data)
    return " ".join(masked_arguments(arguments)), " ".join(arguments)


def user_name(uid: int) -> str:
    """Return the user's name, or the number if it has none here.

    May block: a directory service may be asked.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
