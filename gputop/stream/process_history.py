"""History of processes: their use of the host and of their GPUs in the last minutes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from gputop.agent.snapshot import Process

CAPACITY = 600
"""Samples kept per process: ten minutes at one per second, in 10 kB."""
MOST_PROCESSES = 2048
"""Most processes kept, including those that have ended. The oldest are dropped first."""

Key = tuple[int, float | None, str | None]


class Usage(NamedTuple):
    """Numbers of a process in one sample, over all of its devices; NaN if missing."""

    cpu_percent: float
    memory_resident_bytes: float
    memory_used_bytes: float
    """Sum over its devices."""
    sm_utilization_percent: float
    """From the device with the largest value."""


_read = attrgetter(*Usage._fields)


def key_of(process: Process) -> Key:
    """Return the identity of a process. A pid alone is not enough, because pids are reused."""
    return process.pid, process.start_time, process.machine


class _Series:
    """Numbers of a process, one per sample."""

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        """Number of the first sample, and the number after the last one."""
        self.numbers = array("f")

    def add(self, number: int, usage: Iterable[float]) -> None:
        """Add the numbers of a sample. Samples without the process become gaps."""
        width = len(Usage._fields)
        missed = min(number - self.end, CAPACITY)
        self.numbers.extend([math.nan] * (width * missed))
        self.numbers.extend(usage)
        self.end = number + 1
        if len(self.numbers) > 2 * width * CAPACITY:
            del self.numbers[: -width * CAPACITY]


class ProcessHistory:
    """Recent numbers of all processes of a stream."""

    def __init__(self) -> None:
        self.count = 0
        """Number of samples that were added so far."""
        self._series: dict[Key, _Series] = {}

    def add(self, processes: Iterable[Process]) -> None:
        """Add the processes of a sample."""
        usages: dict[Key, Usage] = {}
        for process in processes:
            key = key_of(process)
            usage = Usage(
                *(math.nan if v is None else v for v in _read(process))
            )
            if key in usages:
                usage = _together(usages[key], usage)
            usages[key] = usage
        for key, usage in usages.items():
            series = self._series.pop(key, None) or _Series(self.count)
            series.add(self.count, usage)
            # The newest series is the last one.
            self._series[key] = series
        while len(self._series) > MOST_PROCESSES:
            del self._series[next(iter(self._series))]
        self.count += 1

    def series(self, process: Process, name: str) -> list[float]:
        """Return the numbers of that name up to the newest sample, NaN if missing."""
        found = self._series.get(key_of(process))
        if found is None:
            return []
        at = Usage._fields.index(name)
        gone = min(self.count - found.end, CAPACITY)
        return [*found.numbers[at :: len(Usage._fields)], *[math.nan] * gone]


def _together(one: Usage, other: Usage) -> Usage:
    """Return the combined numbers of a process that uses two devices."""
    memory = one.memory_used_bytes + other.memory_used_bytes
    # A comparison with NaN is False, so a known value replaces an unknown one.
    busiest = other.sm_utilization_percent
    if one.sm_utilization_percent > busiest or math.isnan(busiest):
        busiest = one.sm_utilization_percent
    return one._replace(
        memory_used_bytes=memory, sm_utilization_percent=busiest
    )
