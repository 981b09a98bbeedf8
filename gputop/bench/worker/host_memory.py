"""Host memory that this process may still allocate, within the limits of its control groups.

It supports versions 1 and 2 of control groups. Ray sends this module to its nodes, so it imports
only the standard library.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

Limits = tuple[str, str, str]
"""Names of the files with a group's limit and usage, and of the row of `memory.stat` with the page
cache that the kernel reclaims first."""
VERSION_2: Limits = (
    "memory.max",
    "memory.current",
    "inactive_file",
)
VERSION_1: Limits = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)
INHERITED = "hierarchical_memory_limit"
"""Row of `memory.stat` in version 1: the lowest limit of the group and its ancestors. A container
may not see the ancestors themselves."""


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory available without swapping, or None if it is unknown."""
    available = []
    row = re.search(
        r"(?m)^MemAvailable:\s*([0-9]+) kB", _text(root / "proc/meminfo")
    )
    if row:
        available.append(int(row[1]) * 1024)
    for group, names in _groups(root):
        with contextlib.suppress(
            OSError, ValueError
        ):  # the group does not exist, or its limit is "max"
            available.append(_left_in(group, names))
    return min(available, default=None)


def _left_in(group: Path, names: Limits) -> int:
    """Return the bytes left in a control group. Raises OSError or ValueError without a limit."""
    limit_file, used_file, reclaimable_row = names
    rows = dict(re.findall(r"(?m)^(\w+) (\d+)$", _text(group / "memory.stat")))
    limit = int((group / limit_file).read_text())
    if names is VERSION_1 and INHERITED in rows:
        limit = min(limit, int(rows[INHERITED]))
    used = int((group / used_file).read_text())
    held = max(0, used - int(rows.get(reclaimable_row, "0")))
    return max(0, limit - held)


def _groups(root: Path) -> Iterator[tuple[Path, Limits]]:
    """Yield the folder of each control group of this process, from its own group upwards."""
    own = _own_groups(root)
    for mounted, folder, names in _mounts(root):
        if names not in own:
            continue
        group = own[names]
        below = PurePosixPath()
        # A container sees only a part of the tree. Its own group is often the
        # mounted folder itself.
        if group == mounted or mounted in group.parents:
            below = group.relative_to(mounted)
        if ".." in below.parts:
            below = PurePosixPath()
        for part in (below, *below.parents):
            yield root / folder.lstrip("/") / part, names


def _own_groups(root: Path) -> dict[Limits, PurePosixPath]:
    """Return the path of this process's group in the tree of each version."""
    groups = {}
    lines = re.findall(
        r"(?m)^\d+:([^:\n]*):(.*)$", _text(root / "proc/self/cgroup")
    )
    for controllers, path in lines:
        if not controllers:
            groups[VERSION_2] = PurePosixPath(path)
        elif "memory" in controllers.split(","):
            groups[VERSION_1] = PurePosixPath(path)
    return groups


_MOUNT = r"(?m)^\S+ \S+ \S+ (\S+) (\S+) .*- (cgroup2?) \S+ (\S+)$"
"""A line of /proc/self/mountinfo (`man proc_pid_mountinfo`): the mounted group, the folder, the
type and the options."""


def _mounts(root: Path) -> Iterator[tuple[PurePosixPath, str, Limits]]:
    """Yield each mounted tree: its group, its folder, and the files of its version."""
    for group, folder, kind, options in re.findall(
        _MOUNT, _text(root / "proc/self/mountinfo")
    ):
        if kind == "cgroup2":
            yield PurePosixPath(group), folder, VERSION_2
        elif "memory" in options.split(","):
            yield PurePosixPath(group), folder, VERSION_1


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace")
    return ""
