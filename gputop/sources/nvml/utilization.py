"""How busy a device was between two questions: the samples that the driver itself has taken.

The call is in https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html. The driver
keeps about a hundred, five or six a second on many devices, each the mean of the time since the one
before. What clock their times are of it does not say (mostly it is that since boot), so they are
compared with each other only.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gputop.schema.device import SERIES_READINGS, Absence
from gputop.sources.nvml.calls import check, function, nvml
from gputop.sources.nvml.fields import VALUE_TYPES
from gputop.sources.nvml.question import SLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputop.sources.nvml.fields import Clock

_ROOM = 256
"""Samples: more than the driver keeps of utilization (100), or of anything (120)."""
_ROW = struct.Struct("QQ")
"""`nvmlSample_t`: the time in microseconds, and a number of any type."""
_NO_TYPE = 0xFFFF_FFFF
_BUSY = nvml.NVML_GPU_UTILIZATION_SAMPLES


class BusySamples:
    """A source: what was sampled since the call before, and seconds from one to the next.

    One device's; the first call only begins.
    """

    names = " ".join(SERIES_READINGS)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows = ctypes.create_string_buffer(_ROW.size * _ROOM)
        self._begun = False
        self._seen = 0
        """The time of the newest one so far, in microseconds."""
        self._new_at = clock()
        """When there was a new one, or all were asked for, the last time."""
        self._steps: deque[int] = deque(maxlen=64)
        """Microseconds from one to the next: the median is not moved by gaps."""

    def __call__(self, handle: Any) -> tuple[tuple[int, ...] | Absence, float | Absence]:
        now = self._clock()
        # All of them where none comes: their clock may have been set back.
        wants_all = not self._begun or now - self._new_at > SLOW
        return self.take(self._fetch(handle, 0 if wants_all else self._seen), now)

    def take(
        self, rows: Sequence[tuple[int, int | None]], now: float
    ) -> tuple[tuple[int, ...] | Absence, float | Absence]:
        """What is new among these: times with percentages, None for an impossible one, in order."""
        silent = now - self._new_at > SLOW
        set_back = silent and bool(rows) and rows[-1][0] < self._seen
        if set_back:
            self._seen = 0
        new = [percent for time, percent in rows if self._is_next(time)]
        if new or silent:
            self._new_at = now
        if set_back or not self._begun:
            self._begun = True
            return Absence.NO_DATA_YET, Absence.NO_DATA_YET
        sound = tuple(percent for percent in new if percent is not None)
        if new and not sound:
            return Absence.ERROR, Absence.ERROR
        step = _median(self._steps) / 1e6 if self._steps else Absence.NO_DATA_YET
        return sound, step

    def _is_next(self, time: int) -> bool:
        """Whether it is newer than all before it, as every one is at most once."""
        if time <= self._seen:
            return False
        if self._seen:
            self._steps.append(time - self._seen)
        self._seen = time
        return True

    def _fetch(self, handle: Any, since: int) -> list[tuple[int, int | None]]:
        """Time and percentage of what the driver has after that time, oldest first."""
        try:
            kind, found = self._ask(handle, since)
        except nvml.NVMLError_NotFound:  # nothing new: some take none while it is idle
            return []
        # Where no type is said, it is what the documentation says.
        number, _ = VALUE_TYPES.get(kind, VALUE_TYPES[nvml.NVML_VALUE_TYPE_UNSIGNED_INT])
        rows = [(time, _percent(number(raw))) for time, raw in _ROW.iter_unpack(found)]
        return sorted(rows, key=itemgetter(0))

    def _ask(self, handle: Any, since: int) -> tuple[int, bytes]:
        """The values' type and the rows after that time; raises `NVMLError`.

        nvidia-ml-py's own function asks how many there are first, and makes room for as many as the
        driver says, whatever that is: this is half the calls.
        """
        call = function("nvmlDeviceGetSamples")
        if call is None:
            found, rows = nvml.nvmlDeviceGetSamples(handle, _BUSY, since)
            return found, b"".join(map(bytes, rows))
        kind, count = ctypes.c_uint(_NO_TYPE), ctypes.c_uint(_ROOM)
        room = ctypes.byref(kind), ctypes.byref(count), self._rows
        check(call(handle, _BUSY, ctypes.c_ulonglong(since), *room))
        return kind.value, self._rows.raw[: _ROW.size * min(count.value, _ROOM)]


def _percent(value: float) -> int | None:
    return round(value) if 0 <= value <= 100 else None  # nor if it is no number


def _median(values: Iterable[int]) -> float:
    """What `statistics` has brings in fractions and decimals, which nothing else here needs."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
