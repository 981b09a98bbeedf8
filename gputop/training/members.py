"""Processes of a training: the command and its descendants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

MOST_PARENTS = 50


def descends_from(pid: int, ancestor: int) -> bool:
    """Return True if `pid` is `ancestor` or a descendant of it. Both are of this machine."""
    for _ in range(MOST_PARENTS):
        if pid == ancestor:
            return True
        parent = parent_of(pid)
        if parent is None:
            return False
        pid = parent
    return False


def parent_of(pid: int) -> int | None:
    """Return the parent's pid, or None if the process is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name is in parentheses and may contain spaces.
    return int(status.rpartition(b")")[2].split()[1])


def members(pids: Iterable[int], ancestor: int) -> frozenset[int]:
    """Return the pids that descend from `ancestor`."""
    return frozenset(pid for pid in pids if descends_from(pid, ancestor))
