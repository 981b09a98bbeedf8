"""NVML's process lists: how to ask for them, and both as one."""

from __future__ import annotations

from typing import Any

import pynvml as nvml

from gputop.telemetry.nvml_question import SECOND, Answers, Question, absence_of, value_of
from gputop.telemetry.reading import GpuProcess
from gputop.telemetry.snapshot import Absence, ProcessKind


def process_lists(driver_version: tuple[int, ...]) -> list[Question]:
    """The questions for the compute and the graphics list; their answers are rows."""
    # These drivers fill in a wider struct for version 3 than nvidia-ml-py and all others know.
    versions = ("v2", "v3") if (535, 43) <= driver_version <= (535, 86) else ("v3", "v2")
    lists = []
    for kind in ("Compute", "Graphics"):
        calls = (getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_{v}") for v in versions)
        lists.append(Question("", *calls, seconds=SECOND))
    return lists


def merge(compute: Any, graphics: Any) -> tuple[tuple[GpuProcess, ...], Absence | None]:
    """Both lists as one, by pid, and why it may lack some."""
    kinds: dict[int, ProcessKind] = {}
    memory: dict[int, int] = {}
    missing = None
    for kind, rows in ((ProcessKind.GRAPHICS, graphics), (ProcessKind.COMPUTE, compute)):
        if isinstance(rows, int):
            # Some drivers fail to say "none", and where there is no graphics nothing is missing.
            none = rows in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND)
            if not none and (
                kind is ProcessKind.COMPUTE or absence_of(rows) is not Absence.NOT_SUPPORTED
            ):
                missing = absence_of(rows)
            continue
        for row in rows:
            kinds[row.pid] = kind if kinds.get(row.pid, kind) is kind else ProcessKind.BOTH
            used = value_of("memory_used_bytes", row.usedGpuMemory)
            if not isinstance(used, Absence):
                # Either list has all that the process holds: a sum would count it twice.
                memory[row.pid] = max(used, memory.get(row.pid, 0))
    processes = (
        GpuProcess(pid, kind, memory.get(pid), None if pid in memory else Absence.NOT_SUPPORTED)
        for pid, kind in sorted(kinds.items())
    )
    return tuple(processes), missing


def attributed(processes: tuple[GpuProcess, ...], missing: Absence | None) -> int | Absence:
    """Bytes that the listed processes hold; absent where one of them is, or its memory."""
    reasons = [missing, *(process.absence for process in processes)]
    reason = next((reason for reason in reasons if reason), None)
    return reason or sum(process.memory_used_bytes or 0 for process in processes)


def total(*parts: int | Absence) -> int | Absence:
    """Their sum, or why the first that is missing is."""
    reason = next((part for part in parts if isinstance(part, Absence)), None)
    return reason or sum(part for part in parts if not isinstance(part, Absence))


def add_attributed(found: Answers, bytes_: int | Absence, listed: int | Absence) -> None:
    """Of the memory in use, what its own processes hold; and what is left of it by all `listed`."""
    found.add("memory_attributed_bytes", bytes_)
    used = found.get("memory_used_bytes")
    reasons = [known for known in (used, listed) if isinstance(known, Absence)]
    # The lists are older than the memory, by up to a second.
    found.add("memory_unattributed_bytes", reasons[0] if reasons else max(0, used - listed))
