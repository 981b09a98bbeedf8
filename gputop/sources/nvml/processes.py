"""NVML's processes: how to ask who they are and what they use, and the answers as one list."""

from __future__ import annotations

import ctypes
import math
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.schema.device import Absence
from gputop.schema.snapshot import ProcessKind
from gputop.sources.interface import GpuProcess
from gputop.sources.nvml.calls import check, function, nvml
from gputop.sources.nvml.question import SECOND, Answers, Question, Source, absence_of, value_of

if TYPE_CHECKING:
    from gputop.sources.nvml.fields import Clock

_LISTS = ("Compute", "Graphics", "MPSCompute")
_ROW = struct.Struct("I4xQII")
_ROOM, _MOST = 32, 1 << 20
"""Processes that there is room for at first, and that are believed."""
_NONE = (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND)
"""Codes for an empty answer: nvidia-ml-py raises the first one, too."""
_LONGEST_PERIOD = 1.25
"""Seconds within which the driver has a new row for a process at work: mostly it has several."""
_AHEAD = 1.0
"""Seconds that a row may be newer than this moment; what is from further on is garbage."""
_DRIFT = 0.01
"""How fast two clocks may go apart, where one of them is set by a little now and then."""

_LARGEST_PID = 1 << 22
"""That Linux gives out; beyond it, and 0, is what stands for "not available"."""

Percentages = tuple[int | None, int | None, int | None, int | None]
"""Of SMs, memory, encoder and decoder."""
_Newest = dict[int, tuple[int, Percentages]]


def process_questions(driver_version: tuple[int, ...], clock: Clock) -> list[Question]:
    """What `merge` takes the answers to: three lists, and who uses how much, of one device."""
    # These drivers fill in a wider struct for version 3 than nvidia-ml-py and all others know.
    versions = ("v2", "v3") if (535, 43) <= driver_version <= (535, 86) else ("v3", "v2")
    lists: list[list[Source]] = [
        [partial(_listed, f"nvmlDeviceGet{word}RunningProcesses_{v}") for v in versions]
        for word in _LISTS
    ]
    usage = _Usage(clock)
    return [Question("", *calls, seconds=SECOND) for calls in (*lists, usage.sources)]


class Listed(NamedTuple):
    """A row of a list, as nvidia-ml-py names what is in it: `nvmlProcessInfo_t`."""

    pid: int
    usedGpuMemory: int  # noqa: N815
    gpuInstanceId: int  # noqa: N815
    computeInstanceId: int  # noqa: N815


def _listed(name: str, handle: Any) -> Sequence[Any]:
    """The processes that this function lists; raises `NVMLError`.

    nvidia-ml-py's own asks how many there are first: this is half the calls.
    """
    call = function(name)
    if call is None:
        found: Sequence[Any] = getattr(nvml, name)(handle)
        return found
    count = ctypes.c_uint(_ROOM)
    while True:
        size = _ROW.size * count.value
        room = ctypes.create_string_buffer(2 * size)  # some drivers wrote wider rows than they said
        code = call(handle, ctypes.byref(count), room)
        if code != nvml.NVML_ERROR_INSUFFICIENT_SIZE or count.value > _MOST:
            break
        count.value = 2 * count.value + _ROOM
    check(code)
    return [*map(Listed._make, _ROW.iter_unpack(room.raw[: min(size, _ROW.size * count.value)]))]


class _Usage:
    """What each process used since the call before: both of the calls that say so, as `sources`.

    The driver has a ring of samples for all processes of a device. What clock their times are of it
    does not say (on some it is that since boot), so they are compared with each other only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = False
        self._seen = 0
        """The time of the newest row so far."""
        self._ahead = -math.inf
        """Seconds that the driver's clock is ahead of this one's, at least."""
        self._asked = clock()
        self._recent: _Newest = {}
        """The newest row by pid, with its time."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """What to ask, one after the other: kept here they would be a circle."""
        return (
            lambda handle: self._since(nvml.nvmlDeviceGetProcessesUtilizationInfo, handle),
            lambda handle: self._since(nvml.nvmlDeviceGetProcessUtilization, handle),
        )

    def _since(
        self, call: Callable[[Any, int], Any], handle: Any
    ) -> Mapping[int, Percentages] | Absence:
        """By pid; the driver leaves out who used nothing."""
        latest = int((time.time() + _AHEAD) * 1e6)  # by either clock
        if self._seen > latest:  # it was set back
            self._begun, self._ahead = False, -math.inf
        seen = self._seen if self._begun else 0
        newest: _Newest = {}
        for row in _rows(call, handle, seen):
            percentages = row.smUtil, row.memUtil, row.encUtil, row.decUtil
            # The driver at times hands out rows that were never filled in.
            sound = seen < row.timeStamp <= latest and max(percentages) <= 100
            if sound and row.timeStamp >= newest.get(row.pid, (0,))[0]:
                newest[row.pid] = row.timeStamp, percentages
        begun, self._begun = self._begun, True
        self._seen = max((when for when, _ in newest.values()), default=seen)
        self._recent = self._still(self._recent | newest if begun else newest)
        if newest and not begun:
            # They are of all the time that the ring goes back, and of who was at work in it.
            return Absence.NO_DATA_YET
        return {pid: percentages for pid, (_, percentages) in self._recent.items()}

    def _still(self, rows: _Newest) -> _Newest:
        """Those of who is at work: nothing new since a moment ago is not yet idle.

        The ring goes back a minute. The row that came soonest tells what time it is there.
        """
        now = self._clock()
        self._ahead -= _DRIFT * (now - self._asked)
        self._asked = now
        self._ahead = max([self._ahead, *(when / 1e6 - now for when, _ in rows.values())])
        oldest = now + self._ahead - _LONGEST_PERIOD
        return {pid: row for pid, row in rows.items() if row[0] / 1e6 > oldest}


def _rows(call: Callable[[Any, int], Any], handle: Any, seen: int) -> Any:
    try:
        return call(handle, seen)
    except nvml.NVMLError as error:
        if error.value in _NONE:
            return ()
        if error.value != nvml.NVML_ERROR_INSUFFICIENT_SIZE:
            raise
    # nvidia-ml-py makes room for as many rows as there were: another came in between.
    return call(handle, seen)


def merge(
    compute: Any, graphics: Any, mps: Any, usage: Any
) -> tuple[tuple[GpuProcess, ...], Absence | None]:
    """The processes by pid, from rows or return codes, and why the list may lack some.

    `usage` are percentages by pid, a return code, or an `Absence`.
    """
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
            if not 0 < row.pid <= _LARGEST_PID:
                missing = missing or Absence.ERROR  # somebody is there who has no name
                continue
            kinds[row.pid] = _both(kinds.get(row.pid, kind), kind)
            used = value_of("memory_used_bytes", row.usedGpuMemory)
            if not isinstance(used, Absence):
                # Each list has all that the process holds: a sum would count it twice.
                memory[row.pid] = max(used, memory.get(row.pid, 0))
    unknown = absence_of(usage) if isinstance(usage, int) else None
    if isinstance(usage, Absence):
        unknown = usage
    percentages: Mapping[int, Percentages] = {} if unknown else usage
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
