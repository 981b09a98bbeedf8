"""The host's part of a sample: its values, the time they cover, and why values are missing."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from gputop.agent.device import Absence
from gputop.agent.lines import rounded
from gputop.agent.linux import machine
from gputop.agent.snapshot import Host

SLOW_SECONDS = 2.0
"""Seconds between reads of clocks and temperatures. They cost one file per core."""
WINDOW_SECONDS = 0.1
"""Shortest window of a CPU percentage. A tick is 10 ms, so a shorter window would be noise."""
CPU_SAMPLE_SECONDS = 1.0
"""Seconds between notes of the CPU's use, if samples are further apart."""


class HostReader:
    """Reads the machine. Percentages cover the time since the previous read."""

    def __init__(self, root: Path = machine.ROOT) -> None:
        self._root = root
        self._times_at = time.monotonic()
        self._times = machine.cpu_times(root)
        self._cores: tuple[float, ...] = ()
        self._noted = self._times
        self._notes: list[tuple[float, ...]] = []
        """Percent of each core, from one note to the next."""
        self._slow_at = -math.inf
        self._clock: float | None = None
        self._temperature: float | None = None

    def note_cpu(self) -> None:
        """Note how busy the CPU was since the last note. The next `read` returns all notes.

        Call it every `CPU_SAMPLE_SECONDS` between two reads.
        """
        self._note(machine.cpu_times(self._root))

    def read(self) -> Host:
        """Return the machine's readings now."""
        now = time.monotonic()
        if now - self._times_at >= WINDOW_SECONDS:
            self._read_cores(now)
        if now - self._slow_at >= SLOW_SECONDS:
            self._clock = machine.cpu_clock_mhz(self._root)
            self._temperature = machine.cpu_temperature_celsius(self._root)
            self._slow_at = now
        memory = machine.memory(self._root)
        values: dict[str, Any] = {
            "cpu_percent": None,
            "cpu_core_percent": self._cores,
            "memory_used_bytes": memory.used,
            "memory_total_bytes": memory.total,
            "memory_available_bytes": memory.available,
            "load_average": machine.load_average(self._root),
            "cpu_clock_mhz": self._clock,
            "cpu_temperature_celsius": self._temperature,
        }
        if self._cores:
            values["cpu_percent"] = _mean(self._cores)
        absent = {}
        for name, value in values.items():
            if value is None or value == ():
                absent[name] = Absence.NOT_SUPPORTED
        if self._times and not self._cores:
            absent["cpu_percent"] = Absence.NO_DATA_YET
            absent["cpu_core_percent"] = Absence.NO_DATA_YET
        host = Host(
            **values,
            cpu_samples_percent=tuple(map(_mean, self._notes)),
            cpu_core_max_samples_percent=tuple(map(max, self._notes)),
            absent=absent,
        )
        self._notes.clear()
        return host

    def _read_cores(self, now: float) -> None:
        times = machine.cpu_times(self._root)
        self._cores = machine.cpu_percents(self._times, times)
        if self._notes:
            self._note(times)
        self._noted = times
        self._times = times
        self._times_at = now

    def _note(self, times: machine.CpuTimes) -> None:
        cores = machine.cpu_percents(self._noted, times)
        if cores:
            self._notes.append(cores)
        self._noted = times


def _mean(values: tuple[float, ...]) -> float:
    return rounded(sum(values) / len(values))
