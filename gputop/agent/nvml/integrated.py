"""Integrated devices (GB10, Jetson): they use the host's memory, and their drivers say less.

NVML has no call for that. Some drivers, and libraries that stand in for one, answer with numbers
where they have none: a part of the host's memory as the device's own, or 0 for every sensor.
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
# From Tegra K1 to Thor (twice, since it was renumbered), and GB10.
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
"""Readings in a row that contradict each other before they are believed: one may be garbage."""
_HOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_is_shared(
    name: str | None,
    compute_capability: str | None,
    total_bytes: int | Absence,
) -> bool | Absence:
    """Return True if the device uses the host's memory.

    Missing memory alone is no evidence. The chips without memory of their own are identified by
    compute capability, or by name if the driver does not report that.
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
    """Compares the memory of a device with what its processes hold.

    A total below that is not the device's memory, but a part of the host's that was set aside.
    """

    def __init__(self) -> None:
        self._contradictions = 0

    @property
    def is_shared(self) -> bool:
        """True if processes have held more than the device has for a while."""
        return self._contradictions >= CONTRADICTIONS

    def remove_contradiction(
        self, found: dict[str, Any], held: int | Absence
    ) -> None:
        """Replace the device's memory by an error if its processes hold more than all of it."""
        total = found["memory_total_bytes"]
        if isinstance(total, Absence) or isinstance(held, Absence):
            return
        # More than the host has is garbage
        if not total < held <= _HOST_BYTES:
            self._contradictions = 0
            return
        self._contradictions += 1
        found |= dict.fromkeys(MEMORY_NAMES, Absence.ERROR)


class ZeroCheck:
    """Tells the zeros of a driver that has no sensors from readings.

    A chip that runs is neither at 0 °C nor without power. So where neither of these is known to be
    more, zeros are no readings. A reading that was more than 0 once is one.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        """Names of readings that were not 0."""

    def remove_zeros(self, found: dict[str, Any]) -> None:
        """Replace zeros of sensors that are not there by the reason that they are missing."""
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
    """Return True for 0, and for a row or table in which there is nothing else."""
    if isinstance(value, Mapping):
        value = (*value.values(),)
    if isinstance(value, tuple):
        return not any(value)
    return _is_number(value) and not value
