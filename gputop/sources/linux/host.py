"""CPU, memory and load of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from gputop.schema.codec import rounded
from gputop.schema.device import Absence
from gputop.schema.snapshot import Host

Value = TypeVar("Value")

SLOW_SECONDS = 2.0
"""Seconds between reads of clocks and temperatures, which cost a file for each core."""
FIRST_WINDOW_SECONDS = 0.1
"""Shortest window of a CPU percentage in seconds. Less would be noise."""
CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class HostReader:
    """Reads the machine. Percentages cover the time since the previous read."""

    def __init__(self) -> None:
        self._read_at = time.monotonic()
        self._slow_at = -SLOW_SECONDS
        self._clock: float | None = None
        self._temperature: float | None = None
        self._cores: tuple[float, ...] | None = ()
        _read_or_none(_core_percent)

    def read(self) -> Host:
        """Return the machine now."""
        now = time.monotonic()
        if now - self._read_at >= FIRST_WINDOW_SECONDS:
            self._cores = _read_or_none(_core_percent)
            self._read_at = now
        cores = self._cores or ()
        if now - self._slow_at >= SLOW_SECONDS:
            self._slow_at = now
            self._clock, self._temperature = _cpu_clock(), _cpu_temperature()
        memory = _read_or_none(psutil.virtual_memory)
        values: dict[str, Any] = {
            "cpu_percent": rounded(sum(cores) / len(cores)) if cores else None,
            "cpu_core_percent": cores,
            # Not available without swapping: psutil leaves shared memory out of `used`.
            "memory_used_bytes": memory.total - memory.available if memory else None,
            "memory_total_bytes": memory.total if memory else None,
            "memory_available_bytes": memory.available if memory else None,
            "load_average": tuple(map(rounded, _read_or_none(os.getloadavg) or ())),
            "cpu_clock_mhz": self._clock,
            "cpu_temperature_celsius": self._temperature,
        }
        missing = (name for name, value in values.items() if value is None or value == ())
        absent = dict.fromkeys(missing, Absence.NOT_SUPPORTED)
        if self._cores == ():
            absent["cpu_percent"] = absent["cpu_core_percent"] = Absence.NO_DATA_YET
        return Host(**values, absent=absent)


def _read_or_none(call: Callable[[], Value]) -> Value | None:
    """Return what the call reads, or None if a sandbox hides that part of /proc (`subset=pid`).

    psutil also passes on what a kernel or a container leaves out of /sys.
    """
    try:
        return call()
    except (NotImplementedError, OSError, ValueError):
        return None


def _core_percent() -> tuple[float, ...]:
    return tuple(psutil.cpu_percent(percpu=True))


def _cpu_clock() -> float | None:
    frequency = _read_or_none(psutil.cpu_freq)
    return rounded(frequency.current) if frequency and frequency.current else None


def _cpu_temperature() -> float | None:
    sensors = psutil.sensors_temperatures()
    for name in CPU_SENSORS:
        if sensors.get(name):
            return rounded(max(float(entry.current) for entry in sensors[name]))
    return None
