"""Questions to a device: what NVML says, as values by name or the reason for their absence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pynvml as nvml

from gputop.telemetry.snapshot import Absence

# Seconds between questions that cost the driver more than others. A little under the round number:
# where the interval is one second, a tick that comes a moment early must not wait for the next.
SECOND = 0.95
SLOW = 4.95
AGAIN = 59.95
"""Until what a device did not support is asked for again: a link comes up, MIG is switched off."""

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


class Answers:
    """The values by name, and the reasons for those that are missing."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.absent: dict[str, Absence] = {}

    def add(self, name: str, raw: Any) -> None:
        """Takes in what NVML says, or an `Absence`."""
        value = value_of(name, raw)
        if isinstance(value, Absence):
            self.absent[name] = value
        else:
            self.values[name] = value

    def get(self, name: str) -> Any:
        """The value, or why it is missing."""
        return self.absent[name] if name in self.absent else self.values[name]


def sort(questions: Iterable[Question], answers: Iterable[Any]) -> Answers:
    """Answers by name: each is a row of values, or a return code for all of them."""
    sorted_ = Answers()
    for question, answer in zip(questions, answers, strict=True):
        row = [absence_of(answer)] * len(question.names) if isinstance(answer, int) else answer
        for name, raw in zip(question.names, row, strict=True):
            sorted_.add(name, raw)
    return sorted_


def value_of(name: str, raw: Any) -> Any:
    """NVML's value, a number in the unit that the name ends in; or why it is none."""
    if isinstance(raw, str):  # words, or an absence
        return raw
    if isinstance(raw, (bool, tuple, Mapping)):
        return raw
    # "Not available" is all bits set in 32 or 64 of them, which is -1 where they are signed.
    unavailable = raw in (None, -1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
    unavailable = unavailable and not (name == "temperature_margin_celsius" and raw == -1)
    if unavailable or (name == "performance_state" and raw > 15):  # of which 32 is "unknown"
        return Absence.NOT_SUPPORTED
    if abs(raw) >= 1 << 63 or (name.endswith("_utilization_percent") and not 0 <= raw <= 100):
        return Absence.ERROR
    # Milliwatts and millijoules.
    return raw / 1000 if name.endswith(("_watts", "_joules")) else raw


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
