"""Who a process is: its user, its command line, and the container that it runs in."""

from __future__ import annotations

import pwd
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from gputop.agent.device import Absence
from gputop.agent.linux import procfs
from gputop.agent.linux.cgroup import Cgroup, parse_cgroup
from gputop.agent.masking import masked_arguments
from gputop.agent.threads import SlowResults

ANSWER_SECONDS = 0.1
"""Seconds to wait for a user's name or a command line. They usually come at once; otherwise a
later look has them."""
COMMAND_BYTES = 4096
"""Bytes read of a command line: it is sent with each sample, and nobody reads more."""
CGROUP_BYTES = 1 << 16


class Identity(NamedTuple):
    """Facts of a process that seldom change."""

    values: Mapping[str, Any]
    """Values of `user`, `command`, `unmasked` and the fields of `Cgroup`."""
    absent: Mapping[str, Absence]
    is_pending: bool
    """True if the user's name or the command line has not been answered yet."""


class IdentityReader:
    """Reads in /proc who processes are; used by one thread."""

    def __init__(self, proc: str, *, secrets: bool) -> None:
        """Read `proc`; with `secrets`, keep the unmasked command lines, too."""
        self._proc = proc
        self._secrets = secrets
        # Reading a command line blocks while the process holds its memory, as it may while it
        # waits for storage. A directory service may never answer.
        self._command_lines = SlowResults(self._read_command_line, ANSWER_SECONDS)
        self._user_names = SlowResults(user_name, ANSWER_SECONDS)

    def read(
        self,
        pid: int,
        stat: procfs.Stat,
        before: Identity | None,
    ) -> Identity:
        """Return who a process is, given who it was. Raises OSError if it is gone.

        Values that may not be read are absent. Until the command line is read, the command is the
        one before, or the name of the executable.
        """
        values: dict[str, Any] = {}
        absent: dict[str, Absence] = {}
        self._add_cgroup(pid, values, absent)
        has_name = self._add_user(pid, values, absent)
        has_command = self._add_command(pid, stat, before, values)
        return Identity(values, absent, is_pending=not (has_name and has_command))

    def forget(self, pid: int, stat: procfs.Stat) -> None:
        """Drop what is kept of a process."""
        self._command_lines.forget((pid, stat.start_ticks))

    def user(self, pid: int) -> str:
        """Return the user's name, or the number until the name is known.

        Raises OSError if it is hidden, ValueError for nonsense.
        """
        number = self._user_number(pid)
        return self._user_names.get(number) or str(number)

    def _add_cgroup(
        self,
        pid: int,
        values: dict[str, Any],
        absent: dict[str, Absence],
    ) -> None:
        cgroup = Cgroup()
        try:
            data = procfs.read(f"{self._proc}/{pid}/cgroup", CGROUP_BYTES)
            cgroup = parse_cgroup(procfs.text(data))
        except FileNotFoundError:
            # The kernel has no control groups, or the process is gone: the next read fails, too.
            absent.update(dict.fromkeys(Cgroup._fields, Absence.NOT_SUPPORTED))
        except PermissionError:
            absent.update(dict.fromkeys(Cgroup._fields, Absence.NO_PERMISSION))
        values.update(cgroup._asdict())

    def _add_user(
        self,
        pid: int,
        values: dict[str, Any],
        absent: dict[str, Absence],
    ) -> bool:
        """Return True if the name is known, or never will be."""
        try:
            number = self._user_number(pid)
        except PermissionError:
            values["user"] = None
            absent["user"] = Absence.NO_PERMISSION
            return True
        name = self._user_names.get(number)
        values["user"] = name or str(number)
        return name is not None

    def _add_command(
        self,
        pid: int,
        stat: procfs.Stat,
        before: Identity | None,
        values: dict[str, Any],
    ) -> bool:
        """Return True if the command line was read."""
        data = self._command_lines.take((pid, stat.start_ticks))
        if data is None and before is not None:
            values["command"] = before.values["command"]
            values["unmasked"] = before.values["unmasked"]
            return False
        command, unmasked = parse_command_line(data or b"")
        values["command"] = command or stat.name
        values["unmasked"] = None
        if self._secrets and unmasked and unmasked != command:
            values["unmasked"] = unmasked
        return data is not None

    def _read_command_line(self, key: tuple[int, int]) -> bytes:
        pid, _ = key
        try:
            return procfs.read(f"{self._proc}/{pid}/cmdline", COMMAND_BYTES)
        except PermissionError:
            return b""

    def _user_number(self, pid: int) -> int:
        """Return the user's number. Raises OSError if it is hidden, ValueError for nonsense."""
        try:
            status = procfs.read(f"{self._proc}/{pid}/status")
        except PermissionError:
            # The directory belongs to the user, or to root if the process protects itself.
            owner = Path(f"{self._proc}/{pid}").stat().st_uid
            if owner == 0:
                raise
            return owner
        match = re.search(rb"^Uid:\s+(\d+)", status, re.MULTILINE)
        if match is None:
            raise ValueError("not the content of /proc/PID/status")
        return int(match[1])


@lru_cache(maxsize=1024)
def parse_command_line(data: bytes) -> tuple[str, str]:
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
