"""NVML's numbers and return codes as values in our units, or as reasons for their absence."""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import Any

from gputop.agent.device import Absence, Device, DeviceSample
from gputop.agent.nvml.bindings import nvml
from gputop.agent.units import limits_of

UNAVAILABLE = (-1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
"""NVML's "not available": all of 32 or 64 bits set, which is -1 if signed."""

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
"""Limits and maxima, which a device has or has not: some drivers have 0 for "none"."""

_WHOLE = {
    f.name
    for cls in (Device, DeviceSample)
    for f in fields(cls)
    if f.type == "int | None"
}
"""Names that are integers in the schema: an NVML field may be a number of any type."""


def absence_of(code: int) -> Absence:
    """Return the reason that a return code stands for."""
    return _ABSENCES.get(code, Absence.ERROR)


def absence_or_lost(code: int) -> Absence:
    """Return the reason that a return code stands for. Raises `NVMLError` if the device is lost."""
    if code == nvml.NVML_ERROR_GPU_IS_LOST:
        raise nvml.NVMLError(code)
    return absence_of(code)


def value_of(name: str, raw: Any) -> Any:
    """Convert NVML's value to the unit that the name ends in, or to the reason for its absence."""
    kind = type(raw)
    if (
        kind is not int and kind is not float and raw is not None
    ):  # words, or an absence
        return raw
    least, most, is_milli, is_whole = _numbers(name)
    if raw in UNAVAILABLE or raw is None:
        if raw != -1 or name != "temperature_margin_celsius":
            return Absence.NOT_SUPPORTED
    elif name == "performance_state":
        if raw > 15:  # of which 32 is "unknown"
            return Absence.NOT_SUPPORTED
    elif raw == 0 and name in _NEVER_ZERO:
        return Absence.NOT_SUPPORTED
    value = raw / 1000 if is_milli else raw
    if not least <= value <= most:
        return Absence.ERROR
    return round(value) if is_whole and kind is float else value


@functools.cache
def _numbers(name: str) -> tuple[float, float, bool, bool]:
    """Return the plausible range of a number, and two flags.

    The flags are True if NVML has it in milliwatts or millijoules, and if it is an integer.
    """
    least, most = limits_of(name)
    if name.endswith(
        "_utilization_percent"
    ):  # the driver's own percent has no rounding error
        most = 100
    return least, most, name.endswith(("_watts", "_joules")), name in _WHOLE


def total(*parts: int | Absence) -> int | Absence:
    """Return the sum, or the reason of the first missing part."""
    found = 0
    for part in parts:
        if isinstance(part, Absence):
            return part
        found += part
    return found
