"""Conversion of NVML's numbers and return codes to our units, or to reasons for their absence."""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import Any

from gputop.agent.device import Absence, Device, DeviceSample
from gputop.agent.nvml.bindings import nvml
from gputop.agent.units import Limits, limits_of

UNAVAILABLE = (-1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
"""NVML's "not available": all 32 or 64 bits set, which is -1 if signed."""

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


def converted(name: str, raw: Any) -> Any:
    """Convert NVML's value to the unit of the name, or to the reason for its absence."""
    if raw is None:
        return Absence.NOT_SUPPORTED
    if raw == "":
        return Absence.NO_DATA_YET
    # It is a word, or a reason already.
    if type(raw) not in (int, float):
        return raw
    if _is_unavailable(name, raw):
        return Absence.NOT_SUPPORTED
    value = raw / 1000 if name.endswith(_IN_THOUSANDTHS) else raw
    least, most = _plausible(name)
    if not least <= value <= most:
        return Absence.ERROR
    return round(value) if name in _WHOLE else value


def _is_unavailable(name: str, raw: float) -> bool:
    if raw in UNAVAILABLE:
        # A margin of -1 is a real value: one degree above the maximum.
        return raw != -1 or name != "temperature_margin_celsius"
    if name == "performance_state":
        # 32 means "unknown".
        return raw > 15
    return raw == 0 and name in _NEVER_ZERO


@functools.cache
def _plausible(name: str) -> Limits:
    least, most = limits_of(name)
    if name.endswith(
        "_utilization_percent"
    ):  # the driver counts these without rounding errors
        most = 100
    return least, most


def total(*parts: int | Absence) -> int | Absence:
    """Return the sum, or the reason of the first missing part."""
    found = 0
    for part in parts:
        if isinstance(part, Absence):
            return part
        found += part
    return found
