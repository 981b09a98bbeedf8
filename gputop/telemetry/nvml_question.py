"""Questions to a device: what NVML says, as values by name or the reason for their absence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pynvml as nvml

from gputop.telemetry.snapshot import Absence

# Seconds between questions that cost the driver more than others. A little under the round number:
# where the interval is one second, a tick that comes a moment early must not wait for the next.
SECOND = 0.95
SLOW = 4.95

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

Source = Callable[[Any], Any]
"""Asks a handle: what `Question` says, or raises `NVMLError`."""


class Question:
    """The values of `names`, in order, each perhaps an `Absence`; from the first source that can.

    `seconds` go by between two calls, according to what it costs the driver.
    """

    def __init__(self, names: str, *sources: Source, seconds: float = 0.0) -> None:
        self.names = names.split()
        self.sources = sources
        self.seconds = seconds


def absence_of(code: int) -> Absence:
    """The reason that a return code stands for."""
    return _ABSENCES.get(code, Absence.ERROR)


def sort(
    questions: Iterable[Question], answers: Iterable[Any]
) -> tuple[dict[str, Any], dict[str, Absence]]:
    """The values by name, and the reasons for those that are missing."""
    values: dict[str, Any] = {}
    absent: dict[str, Absence] = {}
    for question, answer in zip(questions, answers, strict=True):
        row = [absence_of(answer)] * len(question.names) if isinstance(answer, int) else answer
        for name, raw in zip(question.names, row, strict=True):
            value = value_of(name, raw)
            if isinstance(value, Absence):
                absent[name] = value
            else:
                values[name] = value
    return values, absent


def value_of(name: str, raw: Any) -> Any:
    """NVML's number in the unit that the name ends in, or why it is none."""
    if isinstance(raw, str):  # an absence too
        return raw
    # "Not available" is all bits set in 32 or 64 of them, which is -1 where they are signed.
    unavailable = raw in (None, -1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
    if unavailable or (name == "performance_state" and raw > 15):  # of which 32 is "unknown"
        return Absence.NOT_SUPPORTED
    if abs(raw) >= 1 << 63 or (name.endswith("_utilization_percent") and not 0 <= raw <= 100):
        return Absence.ERROR
    return raw / 1000 if name.endswith("_watts") else raw


def one(call: Callable[..., Any], *arguments: int) -> Source:
    """The one value of a call."""
    return lambda handle: (call(handle, *arguments),)


def text(call: Callable[[Any], str | bytes]) -> Source:
    """The text of a call, whatever its encoding."""

    def source(handle: Any) -> tuple[str | Absence]:
        try:
            found = call(handle)
        except UnicodeDecodeError as error:  # nvidia-ml-py decodes strictly; 11.495 did not at all
            found = error.object
        if isinstance(found, bytes):
            found = found.decode(errors="replace")
        return (found or Absence.NO_DATA_YET,)

    return source
