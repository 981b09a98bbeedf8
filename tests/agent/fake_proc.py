import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def stat_line(
    pid: int = 7,
    name: bytes = b"python",
    *,
    parent: int = 1,
    user_ticks: int = 0,
    system_ticks: int = 0,
    start: int = 500,
    pages: int = 3,
    state: bytes = b"S",
) -> bytes:
    """The content of /proc/PID/stat: 52 fields."""
    fields: list[object] = [state.decode(), parent, pid, pid, 0, -1, 4194304, 11, 22, 33, 44]
    fields += [user_ticks, system_ticks, 55, 66, 20, 0, 4, 0, start, 99999, pages]
    fields += [0] * (50 - len(fields))
    return b"%d (%s) %s\n" % (pid, name, " ".join(map(str, fields)).encode())


def process_files(
    pid: int,
    *,
    command: bytes = b"python\0train.py\0",
    cgroup: bytes = b"0::/user.slice\n",
    uid: int = 0,
    environ: bytes = b"HOME=/root\0",
    children: Iterable[int] = (),
    **stat: Any,
) -> dict[str, bytes]:
    """The files below /proc/PID of a process."""
    return {
        "stat": stat_line(pid, **stat),
        "cmdline": command,
        "cgroup": cgroup,
        "environ": environ,
        f"task/{pid}/children": b"".join(b"%d " % child for child in children),
        "status": b"Name:\tpython\nUid:\t%d\t9\t9\t9\nGid:\t0\n" % uid,
    }


class FakeProc:
    """The directory; what `forbidden` names in it cannot be opened."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.path = str(root)
        self.forbidden: set[str] = set()
        really_open = os.open

        def opened(path: Any, *rest: Any, **named: Any) -> int:
            below = os.fsdecode(path)
            if below.startswith(f"{self.path}/"):
                below = below.removeprefix(f"{self.path}/")
                if below in self.forbidden:
                    raise PermissionError(13, "Permission denied")
            return really_open(path, *rest, **named)

        monkeypatch.setattr(os, "open", opened)
        self.write("stat", b"cpu  1 2 3\nintr 0\nbtime 1700000000\nprocesses 5\n")

    def write(self, path: str, content: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)

    def add(self, pid: int = 7, **process: Any) -> None:
        for name, content in process_files(pid, **process).items():
            self.write(f"{pid}/{name}", content)
