"""The machine around the devices, as it is sent: over which time, and why a value is missing."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from gputop.agent.device import Absence
from gputop.agent.linux import machine
from gputop.agent.snapshot import Host

SLOW_SECONDS = 2.0
"""Seconds between reads of clocks and temperatures, which cost a file for each core."""
WINDOW_SECONDS = 0.1
"""Shortest window of a CPU percentage. Less would be noise: a tick is a hundredth of a second."""


class HostReader:
    """Reads the machine. Percentages cover the time since the previous read."""

    def __init__(self, root: Path = machine.ROOT) -> None:
        self._root = root
        self._times_at = time.monotonic()
        self._times = machine.cpu_times(root)
        self._cores: tuple[float, ...] = ()
        self._slow_at = -math.inf
        self._clock: float | None = None
        self._temperature: float | None = None

    def read(self) -> Host:
        """Return the machine now."""
        now = time.monotonic()
        if now - self._times_at >= WINDOW_SECONDS:
            self._read_cores(now)
        if now - self._slow_at >= SLOW_SECONDS:
            self._clock = machine.cpu_clock_mhz(self._root)
            self._temperature = machine.cpu_temperature_celsius(self._root)
            self._slow_at = now
        memory = machine.memory(self._root)
        values: dict[str, Any] = {
            "cpu_percent": _mean(self._cores),
            "cpu_core_percent": self._cores,
            "memory_used_bytes": memory.used,
            "memory_total_bytes": memory.total,
            "memory_available_bytes": memory.available,
            "load_average": machine.load_average(self._root),
            "cpu_clock_mhz": self._clock,
            "cpu_temperature_celsius": self._temperature,
        }
        absent = {}
        for name, value in values.items():
            if value is None or value == ():
                absent[name] = Absence.NOT_SUPPORTED
        if self._times and not self._cores:
            absent["cpu_percent"] = Absence.NO_DATA_YET
            absent["cpu_core_percent"] = Absence.NO_DATA_YET
        return Host(**values, absent=absent)

    def _read_cores(self, now: float) -> None:
        times = machine.cpu_times(self._root)
        self._cores = machine.cpu_percents(self._times, times)
        self._times = times
        self._times_at = now


def _mean(values: tuple[float, ...]) -> float | None:
    if not values:
        return None
    return round(sum(values) / len(values), 3)
