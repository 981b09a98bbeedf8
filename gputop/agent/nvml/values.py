"""Conversion of NVML's numbers and return codes to our units, or to reasons for their absence."""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import Any, NamedTuple

from gputop.agent.device import Absence, Device, DeviceSample
from gputop.agent.nvml.bindings import nvml
from gputop.agent.units import limits_of

UNAVAILABLE = (-1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
"""NVML's "not available": all 32 or 64 bits set, which is -1 if signed."""
_UNKNOWN_STATES = tuple(range(16, 33))
"""No performance states. 32 means "unknown"."""

_ABSENCES = {
    nvml.NVML_ERROR_NO_PERMISSION: Absence.NO_PERMISSION,
    nvml.NVML_ERROR_TIMEOUT: Absence.TIMED_OUT,
    nvml.NVML_ERROR_NOT_FOUND: Absence.NO_DATA_YET,
    nvml.NVML_ERROR_NO_DATA: Absence.NO_DATA_YET,
    nvml.NVML_ERROR_NOT_READY: Absence.NO_DATA_YET,
    nvml.NVML_ERROR_GPU_IS_LOST: Absence.LOST,
    nvml.NVML_ERROR_RESET_REQUIRED: Absence.LOST,
    nvml.NVML_ERROR_NOT_SUPPORTED: Absence.NOT_SUPPORTED,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Absence.NOT_SUPPORTED,
    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Absence.NOT_SUPPORTED,
    nvml.NVML_ERROR_DEPRECATED: Absence.NOT_SUPPORTED,
}

_NEVER_ZERO = {
    *("sm_clock_max_mhz", "memory_clock_max_mhz", "video_clock_max_mhz"),
    *("power_limit_watts", "power_limit_requested_watts"),
    *("power_limit_default_watts", "power_limit_max_watts"),
    *("temperature_slowdown_celsius", "temperature_shutdown_celsius"),
    *("memory_temperature_max_celsius", "pcie_generation", "pcie_width"),
    *("pcie_generation_max", "pcie_width_max"),
}
"""Limits and maxima. For these, some drivers return 0 for "none"."""

_IN_THOUSANDTHS = ("_watts", "_joules")
_WHOLE = {
    f.name
    for cls in (Device, DeviceSample)
    for f in fields(cls)
    if f.type == "int | None"
}
"""Names of integers in the schema. An NVML field may be a number of any type."""


def absence_of(code: int) -> Absence:
    """Return the reason that a return code stands for."""
    return _ABSENCES.get(code, Absence.ERROR)


def absence_or_lost(code: int) -> Absence:
    """Return the reason that a return code stands for. Raises `NVMLError` if the device is lost."""
    if code == nvml.NVML_ERROR_GPU_IS_LOST:
        raise nvml.NVMLError(code)
    return absence_of(code)


class _Scale(NamedTuple):
    """How the numbers of one name are converted."""

    divisor: int
    least: float
    most: float
    is_whole: bool
    missing: tuple[int, ...]
    """Numbers that stand for "not available"."""


@functools.cache
def _scale_of(name: str) -> _Scale:
    divisor = 1000 if name.endswith(_IN_THOUSANDTHS) else 1
    least, most = limits_of(name)
    # The driver counts these without rounding errors.
    if name.endswith("_utilization_percent"):
        most = 100
    missing: tuple[int, ...] = UNAVAILABLE
    if name in _NEVER_ZERO:
        missing += (0,)
    # A margin of -1 is a real value: one degree above the maximum.
    if name == "temperature_margin_celsius":
        missing = UNAVAILABLE[1:]
    if name == "performance_state":
        missing += _UNKNOWN_STATES
    return _Scale(divisor, least, most, name in _WHOLE, missing)


def converted(name: str, raw: Any) -> Any:
    """Convert NVML's value to the unit of the name, or to the reason for its absence."""
    # It is a word, or a reason already.
    if type(raw) not in (int, float):
        if raw is None:
            return Absence.NOT_SUPPORTED
        return Absence.NO_DATA_YET if raw == "" else raw
    scale = _scale_of(name)
    if raw in scale.missing:
        return Absence.NOT_SUPPORTED
    value = raw if scale.divisor == 1 else raw / scale.divisor
    if not scale.least <= value <= scale.most:
        return Absence.ERROR
    return round(value) if scale.is_whole else value


def total(*parts: int | Absence) -> int | Absence:
    """Return the sum, or the reason of the first missing part."""
    found = 0
    for part in parts:
        if isinstance(part, Absence):
            return part
        found += part
    return found
