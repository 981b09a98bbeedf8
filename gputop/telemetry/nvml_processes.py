"""NVML's processes: how to ask who they are and what they use, and the answers as one list."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pynvml as nvml

from gputop.telemetry.nvml_question import SECOND, Question, Source, absence_of, value_of
from gputop.telemetry.reading import GpuProcess
from gputop.telemetry.snapshot import Absence, ProcessKind

_LISTS = ("Compute", "Graphics", "MPSCompute")
_NONE = (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND)
"""Codes for an empty answer: nvidia-ml-py raises the first one, too."""
_LONGEST_PERIOD = 1.25
"""Seconds within which a process at work has a row: the driver makes one a second, or more."""
_AHEAD = 1.0
"""Seconds that a row may be newer than this moment; those further on are garbage."""

Percentages = tuple[int | None, int | None, int | None, int | None]
"""Of SMs, memory, encoder and decoder."""


def process_questions(driver_version: tuple[int, ...]) -> list[Question]:
    """What `merge` takes the answers to: three lists, and who uses how much."""
    # These drivers fill in a wider struct for version 3 than nvidia-ml-py and all others know.
    versions = ("v2", "v3") if (535, 43) <= driver_version <= (535, 86) else ("v3", "v2")
    lists = [
        [getattr(nvml, f"nvmlDeviceGet{word}RunningProcesses_{v}") for v in versions]
        for word in _LISTS
    ]
    return [Question("", *calls, seconds=SECOND) for calls in (*lists, _USAGE)]


def _usage(call: Callable[[Any, int], Any]) -> Source:
    """The newest percentages by pid; the driver leaves out who used nothing.

    It has a ring of rows for all processes, and at times hands out ones that were never filled in.
    Asked for what came since the call before, it would have none for a process at work whenever
    that was less than a period ago, and a stale one where it was long ago: so it is always the time
    up to now.
    """

    def source(handle: Any) -> Mapping[int, Percentages]:
        now = time.time()
        since, until = int((now - _LONGEST_PERIOD) * 1e6), int((now + _AHEAD) * 1e6)
        newest: dict[int, tuple[int, Percentages]] = {}
        for row in _rows(call, handle, since):
            percentages = row.smUtil, row.memUtil, row.encUtil, row.decUtil
            sound = since < row.timeStamp <= until and max(percentages) <= 100
            if sound and row.timeStamp >= newest.get(row.pid, (0,))[0]:
                newest[row.pid] = row.timeStamp, percentages
        return {pid: percentages for pid, (_, percentages) in newest.items()}

    return source


def _rows(call: Callable[[Any, int], Any], handle: Any, since: int) -> Any:
    try:
        return call(handle, since)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_INSUFFICIENT_SIZE:
            raise
    # nvidia-ml-py asks how many there are and makes just that room: another came in between.
    return call(handle, since)


_USAGE = [
    _usage(nvml.nvmlDeviceGetProcessesUtilizationInfo),
    _usage(nvml.nvmlDeviceGetProcessUtilization),
]


def merge(
    compute: Any, graphics: Any, mps: Any, usage: Any
) -> tuple[tuple[GpuProcess, ...], Absence | None]:
    """The processes by pid, from rows or return codes, and why the list may lack some."""
    kinds: dict[int, ProcessKind] = {}
    memory: dict[int, int] = {}
    missing = None
    for kind, rows in (
        (ProcessKind.MPS, mps),
        (ProcessKind.GRAPHICS, graphics),
        (ProcessKind.COMPUTE, compute),
    ):
        if isinstance(rows, int):
            # Where there is no graphics or no MPS, nothing is missing.
            reason = absence_of(rows)
            if rows not in _NONE and (
                kind is ProcessKind.COMPUTE or reason is not Absence.NOT_SUPPORTED
            ):
                missing = reason
            continue
        for row in rows:
            kinds[row.pid] = _both(kinds.get(row.pid, kind), kind)
            used = value_of("memory_used_bytes", row.usedGpuMemory)
            if not isinstance(used, Absence):
                # Each list has all that the process holds: a sum would count it twice.
                memory[row.pid] = max(used, memory.get(row.pid, 0))
    unknown = None if not isinstance(usage, int) or usage in _NONE else absence_of(usage)
    percentages: Mapping[int, Percentages] = usage if isinstance(usage, Mapping) else {}
    nothing: Percentages = (None, None, None, None) if unknown else (0, 0, 0, 0)
    processes = (
        GpuProcess(
            pid,
            kind,
            memory.get(pid),
            None if pid in memory else Absence.NOT_SUPPORTED,
            *percentages.get(pid, nothing),
            unknown,
        )
        for pid, kind in sorted(kinds.items())
    )
    return tuple(processes), missing


def _both(known: ProcessKind, kind: ProcessKind) -> ProcessKind:
    if known in (kind, ProcessKind.MPS):
        return known
    return ProcessKind.BOTH


def attributed(processes: tuple[GpuProcess, ...], missing: Absence | None) -> int | Absence:
    """Bytes that the listed processes hold; absent where one of them is, or its memory."""
    reasons = [missing, *(process.absence for process in processes)]
    reason = next((reason for reason in reasons if reason), None)
    return reason or sum(process.memory_used_bytes or 0 for process in processes)
