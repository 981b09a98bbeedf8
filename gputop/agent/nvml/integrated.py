"""Integrated devices (GB10, Jetson). They use the host's memory, and their drivers report less.

No NVML call identifies them. Some drivers, and libraries that replace one, return numbers that are
not readings: a part of the host's memory as the device's own, or 0 for every sensor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from gputop.agent.device import Absence

MEMORY_NAMES = tuple(
    f"memory_{each}_bytes" for each in ("total", "used", "free", "reserved")
)
# From Tegra K1 to Thor (which has two, because it was renumbered), and GB10.
_SHARED_CAPABILITIES = {
    "3.2",
    "5.3",
    "6.2",
    "7.2",
    "8.7",
    "10.1",
    "11.0",
    "12.1",
}
_SHARED_NAMES = r"\b(GB10|N1X?|Orin|Tegra|Thor|Xavier)\b"
CONTRADICTIONS = 3
"""Readings in a row that must contradict each other. A single one may be garbage."""
_HOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_is_shared(
    name: str | None,
    compute_capability: str | None,
    total_bytes: int | Absence,
) -> bool | Absence:
    """Return True if the device uses the host's memory.

    Missing memory alone is no evidence. Chips without their own memory are identified by compute
    capability, or by name if the driver does not report that.
    """
    if compute_capability in _SHARED_CAPABILITIES:
        return True
    if not isinstance(total_bytes, Absence):
        return False
    named = total_bytes is Absence.NOT_SUPPORTED and re.search(
        _SHARED_NAMES, name or ""
    )
    return True if named else total_bytes


class MemoryCheck:
    """Compares the memory of a device with the memory of its processes.

    A total below that is not the device's memory, but a reserved part of the host's.
    """

    def __init__(self) -> None:
        self._contradictions = 0

    @property
    def is_shared(self) -> bool:
        """True if processes have held more than the total for several readings."""
        return self._contradictions >= CONTRADICTIONS

    def remove_contradiction(
        self, found: dict[str, Any], held: int | Absence
    ) -> None:
        """Replace the device's memory by an error if its processes hold more than the total."""
        total = found["memory_total_bytes"]
        if isinstance(total, Absence) or isinstance(held, Absence):
            return
        # More than the host's memory is garbage.
        if not total < held <= _HOST_BYTES:
            self._contradictions = 0
            return
        self._contradictions += 1
        found |= dict.fromkeys(MEMORY_NAMES, Absence.ERROR)


class ZeroCheck:
    """Separates zeros of a driver without sensors from readings.

    The temperature of a running chip is not 0 °C, and its power is not 0 W. If neither is known to
    be more, zeros are not readings. A sensor that has returned more than 0 exists.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        """Names of readings that were not 0 at some time."""

    def remove_zeros(self, found: dict[str, Any]) -> None:
        """Replace zeros of missing sensors by the reason that they are missing."""
        self._seen |= {
            name
            for name, value in found.items()
            if _is_number(value) and value
        }
        if not self._seen.isdisjoint(_PROOFS) or all(
            found.get(name) != 0 for name in _SENSORS
        ):
            return
        for name, value in found.items():
            if (
                name not in self._seen
                and _is_sensor(name)
                and _is_nothing(value)
            ):
                found[name] = Absence.NOT_SUPPORTED


_PROOFS = ("temperature_celsius", "power_watts")
_SENSORS = (*_PROOFS, "sm_clock_mhz")
_UNITS = ("_percent", "_celsius", "_watts", "_joules", "_mhz")
_STATES = ("performance_state", "clock_event_reasons", "clock_event_seconds")


def _is_sensor(name: str) -> bool:
    return name.endswith(_UNITS) or name in _STATES


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _is_nothing(value: Any) -> bool:
    """Return True for 0, and for a row or table of zeros."""
    if isinstance(value, Mapping):
        value = (*value.values(),)
    if isinstance(value, tuple):
        return not any(value)
    return _is_number(value) and not value
