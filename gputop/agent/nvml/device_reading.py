"""The reading of a device, from the answers to all questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.agent.device import (
    Absence,
    Device,
    DeviceSample,
    DeviceState,
    without_readings,
)
from gputop.agent.interface import DeviceReading
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.processes import ProcessList
from gputop.agent.nvml.query import Answers
from gputop.agent.nvml.values import absence_of, total

STATE_OF_CODE = {
    nvml.NVML_ERROR_GPU_IS_LOST: DeviceState.LOST,
    nvml.NVML_ERROR_RESET_REQUIRED: DeviceState.NEEDS_RESET,
}
OLDER_SECONDS = 0.05
"""Smallest difference in age, in seconds, that is reported."""


def device_reading(
    device: Device,
    found: dict[str, Any],
    listed: ProcessList,
    attributed: int | Absence,
    held: int | Absence,
    answers: Answers,
    began: float,
) -> DeviceReading:
    """Return the reading of a device with the values `found`, from a read that began at `began`.

    `attributed` is the memory of its processes in bytes, `held` that of all processes in the memory
    that it shares.
    """
    if listed.missing:
        found["processes"] = listed.missing
    found["memory_attributed_bytes"] = attributed
    used = found["memory_used_bytes"]
    rest = total(used, held)
    if not isinstance(rest, Absence):
        # The process lists may be two seconds older than the memory.
        rest = max(0, used - held)
    found["memory_unattributed_bytes"] = rest
    older_by = began - answers.oldest
    if older_by >= OLDER_SECONDS:
        found["slow_age_seconds"] = older_by
    if answers.needs_reset:
        found["state"] = DeviceState.NEEDS_RESET
    sample = DeviceSample(device.uuid, age_seconds=0.0, **schema_fields(found))
    return DeviceReading(device, sample, listed.processes)


def unreadable(device: Device, code: int) -> DeviceReading:
    """Return the reading of a device that answers every question with that code."""
    state = STATE_OF_CODE.get(code, DeviceState.NOT_RESPONDING)
    sample = without_readings(
        device.uuid, state, absence_of(code), age_seconds=0.0
    )
    return DeviceReading(device, sample)


def schema_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as fields of a dataclass, with the reasons for missing ones in `absent`."""
    known: dict[str, Any] = {}
    absent: dict[str, Absence] = {}
    for name, value in found.items():
        if isinstance(value, Absence):
            absent[name] = value
        else:
            known[name] = value
    known["absent"] = absent
    return known
