"""The reading of a device, made of the answers to all questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputop.agent.device import READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.agent.interface import DeviceReading
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.processes import ProcessList
from gputop.agent.nvml.values import absence_of, total

# In the order in which they count.
STATE_OF_CODE = {
    nvml.NVML_ERROR_GPU_IS_LOST: DeviceState.LOST,
    nvml.NVML_ERROR_RESET_REQUIRED: DeviceState.NEEDS_RESET,
}

DRIVER_IS_GONE = {
    nvml.NVML_ERROR_UNINITIALIZED,
    nvml.NVML_ERROR_DRIVER_NOT_LOADED,
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
"""Codes for a device that may mean that the whole driver was unloaded or replaced."""


def device_reading(
    device: Device,
    found: dict[str, Any],
    answers: Sequence[Any],
    listed: ProcessList,
    attributed: int | Absence,
    held: int | Absence,
) -> DeviceReading:
    """Return the reading of a device whose values, `found`, come from these answers.

    `attributed` are the bytes held by its processes, `held` by those of all that share its memory.
    """
    if listed.missing:
        found["processes"] = listed.missing
    found["memory_attributed_bytes"] = attributed
    used = found["memory_used_bytes"]
    rest = total(used, held)
    if not isinstance(rest, Absence):
        # The lists are older than the memory, by up to a second.
        rest = max(0, used - held)
    found["memory_unattributed_bytes"] = rest
    state, fields = state_of(answers), schema_fields(found)
    sample = DeviceSample(device.uuid, state, age_seconds=0.0, **fields)
    return DeviceReading(device, sample, listed.processes)


def common_failure(answers: Iterable[Any]) -> int | None:
    """Return the code with which all answers failed, or None if any has a value.

    A value that a device does not support, or not yet, is no failure.
    """
    code = None
    for answer in answers:
        if isinstance(answer, int):
            passing = absence_of(answer) in (Absence.NOT_SUPPORTED, Absence.NO_DATA_YET)
            code = code if passing else code or answer
        elif not isinstance(answer, Absence):
            is_empty = answer and all(isinstance(value, Absence) for value in answer)
            if not is_empty:
                return None
    return code


def state_of(answers: Sequence[Any]) -> DeviceState:
    """Return the device's state according to its answers.

    A device that needs a reset may still answer some queries. One that answers none with a value
    does not respond.
    """
    for code, state in STATE_OF_CODE.items():
        if code in answers:
            return state
    silent = common_failure(answers) is not None
    return DeviceState.NOT_RESPONDING if silent else DeviceState.OK


def unreadable(device: Device, code: int) -> DeviceReading:
    """Return the reading of a device that answers everything with that code."""
    sample = DeviceSample(
        uuid=device.uuid,
        state=STATE_OF_CODE.get(code, DeviceState.NOT_RESPONDING),
        age_seconds=0.0,
        absent=dict.fromkeys((*READINGS, "processes"), absence_of(code)),
    )
    return DeviceReading(device, sample)


def schema_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as fields of a dataclass, with the reasons for the others as `absent`."""
    known: dict[str, Any] = {}
    absent: dict[str, Absence] = {}
    for name, value in found.items():
        if isinstance(value, Absence):
            absent[name] = value
        else:
            known[name] = value
    return {**known, "absent": absent}


OLDER_SECONDS = 0.05
"""Seconds from which a reading is said to be older than the others."""


def older_by(began: float, *oldest: float) -> float | None:
    """Return the seconds by which the oldest reading is older than a read that began then."""
    seconds = began - min(oldest)
    return seconds if seconds >= OLDER_SECONDS else None
