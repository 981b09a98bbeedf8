"""Processes on a device: the questions for lists and utilization, and the merged list."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, Optional

from gputop.agent.device import Absence
from gputop.agent.interface import UTILIZATIONS
from gputop.agent.nvml.bindings import nvml, read_field
from gputop.agent.nvml.query import Question, Source
from gputop.agent.nvml.values import converted, total
from gputop.agent.snapshot import Process, ProcessKind

LISTED_SECONDS = 2.0
"""Seconds between two requests for the processes: of all questions, these take the driver longest
(4.5 ms on a laptop's RTX 4090, where memory takes 0.01 ms)."""
_NONE = (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND)
"""Error codes of an empty answer. nvidia-ml-py raises the first one itself."""
_AHEAD = 1.0
"""Seconds that a row may be in the future. A later time is garbage."""
_LARGEST_PID = 1 << 22
"""Largest pid of Linux. Larger ones, and 0, mean "not available"."""

Percentages = tuple[Optional[int], ...]
"""Percentages of SM, memory, encoder and decoder utilization."""
_SHARES = ("smUtil", "memUtil", "encUtil", "decUtil")
_NOTHING: Percentages = (None, None, None, None)
_IDLE: Percentages = (0, 0, 0, 0)


LISTS = {
    "mps_processes": ProcessKind.MPS,
    "graphics_processes": ProcessKind.GRAPHICS,
    "compute_processes": ProcessKind.COMPUTE,
}
"""Names of the lists of processes, and the kind of process on each."""
USAGE = "process_utilization"
"""Name of the percentages by pid."""


def process_lists(driver_version: tuple[int, ...]) -> list[Question]:
    """Return the questions for the lists of processes."""
    # The struct of these drivers for version 3 is wider than nvidia-ml-py
    # expects.
    versions = ("v3", "v2")
    if (535, 43) <= driver_version <= (535, 86):
        versions = ("v2", "v3")
    questions = []
    words = {"mps": "MPSCompute", "graphics": "Graphics", "compute": "Compute"}
    for kind, word in words.items():
        sources: list[Source] = []
        for version in versions:
            name = f"nvmlDeviceGet{word}RunningProcesses_{version}"
            sources.append(partial(_rows, getattr(nvml, name)))
        name = f"{kind}_processes"
        questions.append(Question(name, *sources, interval=LISTED_SECONDS))
    return questions


def process_utilization() -> Question:
    """Return the question for the utilization of the processes on one device."""
    usage = _Usage()
    return Question(
        USAGE,
        partial(usage.since, nvml.nvmlDeviceGetProcessesUtilizationInfo),
        partial(usage.since, nvml.nvmlDeviceGetProcessUtilization),
        interval=LISTED_SECONDS,
    )


def _rows(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the rows of a list; empty if the driver has none."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value in _NONE:
            return []
        if error.value != nvml.NVML_ERROR_INSUFFICIENT_SIZE:
            raise
    # A process was added after nvidia-ml-py had sized the buffer.
    return call(*arguments)


class _Usage:
    """Utilization of each process since the previous call.

    The driver has a ring of samples for all processes of a device. The clock of their times is
    undocumented (on some it is the time since boot), so they are compared only with each other.
    """

    def __init__(self) -> None:
        self._begun = False
        self._seen = 0
        """Time of the newest row so far, by the driver's clock."""

    def since(
        self, call: Callable[[Any, int], Any], handle: Any
    ) -> Mapping[int, Percentages] | Absence:
        """Return percentages by pid. The driver leaves out idle processes."""
        # Newest plausible time, by either clock
        latest = int((time.time() + _AHEAD) * 1e6)
        # The clock was set back.
        if self._seen > latest:
            self._begun = False
        seen = self._seen if self._begun else 0
        newest: dict[int, tuple[int, Percentages]] = {}
        for row in _rows(call, handle, seen):
            pid, when = read_field(row, "pid"), read_field(row, "timeStamp")
            percentages = tuple(_percent(row, name) for name in _SHARES)
            # The driver sometimes returns rows that were never filled in.
            sound = seen < when <= latest and percentages != _NOTHING
            if sound and when >= newest.get(pid, (0,))[0]:
                newest[pid] = when, percentages
        begun, self._begun = self._begun, True
        self._seen = max((when for when, _ in newest.values()), default=seen)
        if newest and not begun:
            # The first answer covers the whole ring.
            return Absence.NO_DATA_YET
        # A busy process has a row in every second, or nearly.
        return {pid: percentages for pid, (_, percentages) in newest.items()}


def _percent(row: Any, name: str) -> int | None:
    """Return a percentage of a row, or None for an impossible number."""
    percent: int = read_field(row, name)
    return percent if percent <= 100 else None


class ProcessList(NamedTuple):
    """Processes of a device by pid, and the reason why some may be missing."""

    processes: tuple[Process, ...]
    missing: Absence | None

    @property
    def held_bytes(self) -> int | Absence:
        """Bytes held by the processes, or the reason why some are missing."""
        held: int | Absence = self.missing or 0
        for process in self.processes:
            used = process.memory_used_bytes or 0
            held = total(held, process.absent.get("memory_used_bytes", used))
        return held

    def without(self, pids: Collection[int]) -> ProcessList:
        """Return the list without these processes."""
        if not pids:
            return self
        left = tuple(each for each in self.processes if each.pid not in pids)
        return self._replace(processes=left)


def merge_processes(uuid: str, found: dict[str, Any]) -> ProcessList:
    """Remove the lists of processes from `found`, and return the device's processes."""
    usage = found.pop(USAGE, Absence.NOT_SUPPORTED)
    kinds: dict[int, ProcessKind] = {}
    memory: dict[int, int] = {}
    missing = None
    for name, kind in LISTS.items():
        rows = found.pop(name)
        if isinstance(rows, Absence):
            # Without support for graphics or MPS, nothing is missing.
            if (
                rows is not Absence.NOT_SUPPORTED
                or kind is ProcessKind.COMPUTE
            ):
                missing = rows
            continue
        for row in rows:
            if not 0 < row.pid <= _LARGEST_PID:
                # The process has no pid.
                missing = missing or Absence.ERROR
                continue
            if kinds.get(row.pid, kind) not in (kind, ProcessKind.MPS):
                kinds[row.pid] = ProcessKind.BOTH
            else:
                kinds.setdefault(row.pid, kind)
            used = converted("memory_used_bytes", row.usedGpuMemory)
            if not isinstance(used, Absence):
                # Each list has the total memory of the process, so a sum would
                # count it twice.
                memory[row.pid] = max(used, memory.get(row.pid, 0))
    processes = []
    for pid, kind in sorted(kinds.items()):
        used, absent = _utilization(usage, pid)
        if pid not in memory:
            absent["memory_used_bytes"] = Absence.NOT_SUPPORTED
        processes.append(
            Process(
                pid,
                uuid,
                kind,
                memory.get(pid),
                **used,
                absent=absent,
            )
        )
    return ProcessList(tuple(processes), missing)


def _utilization(
    usage: Mapping[int, Percentages] | Absence, pid: int
) -> tuple[dict[str, Any], dict[str, Absence]]:
    """Return the utilization of a process by name, and the reasons for missing values."""
    if isinstance(usage, Absence):
        return {}, dict.fromkeys(UTILIZATIONS, usage)
    used: dict[str, Any] = {}
    absent: dict[str, Absence] = {}
    for name, value in zip(UTILIZATIONS, usage.get(pid, _IDLE)):
        used[name] = value
        # The driver returned an impossible number.
        if value is None:
            absent[name] = Absence.ERROR
    return used, absent
