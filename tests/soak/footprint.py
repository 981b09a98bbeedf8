"""What a process takes: memory that is its own, objects, threads and open files."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of one process at one moment."""

    pid: int
    bytes: int
    """Of its own and written to: who shares the rest, as code, comes and goes."""
    objects: int
    """That the garbage collector knows, garbage among them."""
    threads: int
    descriptors: int

    def __str__(self) -> str:
        mib = self.bytes / (1 << 20)
        return f"{mib:7.1f} {self.objects:8d} {self.threads:3d} {self.descriptors:3d}"


def footprint(pid: int, folder: Path) -> Footprint:
    """The footprint of a process of which the `witness` writes to that folder."""
    proc = Path("/proc") / str(pid)
    # Before it is asked to count: that makes threads of nothing, and no descriptor stays.
    threads, descriptors = (len(list((proc / kind).iterdir())) for kind in ("task", "fd"))
    objects = _objects(pid, folder)
    rows = (line.split() for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
    own = sum(int(row[1]) << 10 for row in rows if row[0] == "Private_Dirty:")
    return Footprint(pid, own, objects, threads, descriptors)


def _objects(pid: int, folder: Path, timeout: float = 10.0) -> int:
    answer, deadline = folder / str(pid), time.monotonic() + timeout
    answer.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    while not answer.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not count its objects within {timeout:g} s")
        time.sleep(0.02)
    return int(answer.read_text())
