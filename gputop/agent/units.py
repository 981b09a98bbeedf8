"""Units at the end of readings' names, and the plausible range of each."""

from __future__ import annotations

from collections.abc import Mapping

UNITS = (
    "percent",
    "bytes_per_second",
    "bytes",
    "celsius",
    "watts",
    "joules",
    "mhz",
    "seconds",
)
Limits = tuple[float, float]
"""Smallest and largest plausible number."""
ANY_NUMBER: Limits = (0, 1 << 53)
_OF_UNIT: Mapping[str, Limits] = {
    # Quotients of counters sometimes exceed 100.
    "percent": (0, 101),
    "bytes": (0, 1 << 46),
    "bytes_per_second": (0, 1e14),
    "celsius": (-60, 250),
    "watts": (0, 20_000),
    "joules": (0, 1e13),
    "mhz": (0, 100_000),
}
_OF_NAME: Mapping[str, Limits] = {
    "temperature_margin_celsius": (-300, 300),
    "fan_percent": (0, 200),
    "performance_state": (0, 32),
    "pcie_generation": (0, 32),
    "pcie_width": (0, 64),
}


def unit_of(name: str) -> str:
    """Return the unit at the end of a name, or "" if there is none."""
    for unit in UNITS:
        if name.endswith(f"_{unit}"):
            return unit
    return ""


def limits_of(name: str) -> Limits:
    """Return the plausible range of a reading."""
    return _OF_NAME.get(name) or _OF_UNIT.get(unit_of(name), ANY_NUMBER)
