"""The machine around the devices: its CPU, its memory and its load."""

from __future__ import annotations

import os
import time

import psutil

from gputop.telemetry.snapshot import Absence, Host

SLOW_SECONDS = 2.0
"""Clocks and temperatures cost a file for each core: they are read this often."""
FIRST_WINDOW_SECONDS = 0.1
"""A CPU percentage over less than this would be noise."""
CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class HostReader:
    """Reads the machine; percentages are of the time since the read before."""

    def __init__(self) -> None:
        self._read_at = time.monotonic()
        self._slow_at = -SLOW_SECONDS
        self._clock: float | None = None
        self._temperature: float | None = None
        self._cores: tuple[float, ...] = ()
        psutil.cpu_percent(percpu=True)

    def read(self) -> Host:
        """The machine now."""
        absent: dict[str, Absence] = {}
        now = time.monotonic()
        if now - self._read_at >= FIRST_WINDOW_SECONDS:
            self._cores = tuple(psutil.cpu_percent(percpu=True))
            self._read_at = now
        cores = self._cores
        if not cores:
            absent["cpu_percent"] = absent["cpu_core_percent"] = Absence.NO_DATA_YET
        if now - self._slow_at >= SLOW_SECONDS:
            self._slow_at = now
            self._clock, self._temperature = _cpu_clock(), _cpu_temperature()
        if self._clock is None:
            absent["cpu_clock_mhz"] = Absence.NOT_SUPPORTED
        if self._temperature is None:
            absent["cpu_temperature_celsius"] = Absence.NOT_SUPPORTED
        memory = psutil.virtual_memory()
        return Host(
            cpu_percent=sum(cores) / len(cores) if cores else None,
            cpu_core_percent=cores,
            # Not to be had without swapping: psutil leaves shared memory out of `used`.
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            load_average=os.getloadavg(),
            cpu_clock_mhz=self._clock,
            cpu_temperature_celsius=self._temperature,
            absent=absent,
        )


def _cpu_clock() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (NotImplementedError, OSError, ValueError):
        return None  # psutil passes on what a kernel or a container leaves out of /sys
    return frequency.current if frequency and frequency.current else None


def _cpu_temperature() -> float | None:
    sensors = psutil.sensors_temperatures()
    for name in CPU_SENSORS:
        if sensors.get(name):
            return max(float(entry.current) for entry in sensors[name])
    return None
