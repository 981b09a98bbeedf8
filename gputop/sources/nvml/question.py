"""Questions to a device: what NVML says, as values by name or the reason for their absence."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from gputop.schema.device import READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.sources.nvml.calls import nvml

# Seconds between questions that cost the driver more than others. Under the round number: of ticks
# one second apart, one that comes late must not make the next one come too early.
SECOND = 0.8
SLOW = 4.8
AGAIN = 59.8
"""Until what a device did not support is asked for again: a link comes up, MIG is switched off."""

UNAVAILABLE = (-1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
"""All bits set in 32 or 64 of them, which is -1 where they are signed: NVML's "not available"."""

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

_STATES = {
    nvml.NVML_ERROR_GPU_IS_LOST: DeviceState.LOST,
    nvml.NVML_ERROR_RESET_REQUIRED: DeviceState.NEEDS_RESET,
}

DRIVER_IS_GONE = {
    nvml.NVML_ERROR_UNINITIALIZED,
    nvml.NVML_ERROR_DRIVER_NOT_LOADED,
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
"""What is said of a device where it may be the whole driver that was unloaded or replaced."""

_WHOLE = {f.name for cls in (Device, DeviceSample) for f in fields(cls) if f.type == "int | None"}
"""What the schema has as integers: a field may come as a number of any type."""

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "_utilization_percent": (0, 100),
    "fan_percent": (0, 1_000),  # of what is loud enough: more than 100 there is
    "_watts": (0, 100_000_000),
    "_margin_celsius": (-1_000, 1_000),
    "_celsius": (-273, 1_000),
    "_mhz": (0, 100_000),
    "_generation": (0, 100),
    "_generation_max": (0, 100),
    "_width": (0, 1_000),
    "_width_max": (0, 1_000),
}
"""Far beyond all devices, in NVML's units, by what a name ends in; the first that fits counts."""

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


class Asker:
    """Asks one device, no question more often than it is due; for one thread."""

    def __init__(self, clock: Callable[[], float], share: float = 1.0) -> None:
        """That `share` of the time goes by until a slow question is asked for the second time.

        Devices with one each are not all asked at the same tick.
        """
        self._clock = clock
        self._share = share
        self.heard_at = 0.0
        """When the last question was answered, by the clock."""
        self._missing: set[Source] = set()
        """What the driver does not have: never called again."""
        self._answers: dict[Question, tuple[float, Any]] = {}

    def answer(self, handle: Any, question: Question, ahead: float = 0.0) -> Any:
        """The last answer, as from `ask`, until the next one is due within `ahead` seconds."""
        now = self._clock()
        due, answer = self._answers.get(question, (-math.inf, None))
        if now + ahead >= due:
            answer = self.ask(handle, question)
            unsupported = isinstance(answer, int) and absence_of(answer) is Absence.NOT_SUPPORTED
            seconds = AGAIN if unsupported else question.seconds
            if question not in self._answers and seconds >= SLOW:
                seconds *= self._share
            self._answers[question] = now + seconds, answer
        return answer

    def ask(self, handle: Any, question: Question) -> Any:
        """What the first source says that driver and device support, or else the return code.

        Raises `NVMLError` where the device is lost.
        """
        code = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        for source in question.sources:
            if source in self._missing:
                continue
            try:
                return source(handle)
            except nvml.NVMLError as error:
                code = error.value
                if code == nvml.NVML_ERROR_GPU_IS_LOST:
                    raise
            finally:
                self.heard_at = self._clock()
            if code == nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                self._missing.add(source)
            if absence_of(code) is not Absence.NOT_SUPPORTED:
                break
        return code

    def forget(self) -> None:
        """Every question is due."""
        self._answers.clear()


def absence_of(code: int) -> Absence:
    """The reason that a return code stands for."""
    return _ABSENCES.get(code, Absence.ERROR)


def failure_of(answers: Iterable[Any]) -> int | None:
    """The return code with which all of these failed; None where any of them has a value.

    What a device does not support, or not yet, is no failure.
    """
    code = None
    for answer in answers:
        if isinstance(answer, int):
            passing = absence_of(answer) in (Absence.NOT_SUPPORTED, Absence.NO_DATA_YET)
            code = code if passing else code or answer
        elif not isinstance(answer, Absence) and not _is_empty(answer):
            return None
    return code


def _is_empty(row: Any) -> bool:
    return bool(row) and all(isinstance(value, Absence) for value in row)


def state_of(answers: Sequence[Any]) -> DeviceState:
    """What the return codes among the answers mean for the device.

    One that needs a reset may still answer some questions; one that answers none with a value does
    not respond.
    """
    states = {_STATES.get(answer) for answer in answers if isinstance(answer, int)}
    ranked = (DeviceState.LOST, DeviceState.NEEDS_RESET)
    silent = failure_of(answers) is not None
    otherwise = DeviceState.NOT_RESPONDING if silent else DeviceState.OK
    return next((state for state in ranked if state in states), otherwise)


def unreadable(uuid: str, code: int) -> DeviceSample:
    """The readings of a device that answers everything with that code."""
    return DeviceSample(
        uuid=uuid,
        state=_STATES.get(code, DeviceState.NOT_RESPONDING),
        age_seconds=0.0,
        absent=dict.fromkeys((*READINGS, "processes"), absence_of(code)),
    )


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
    kind = type(raw)
    if kind is not int and kind is not float and raw is not None:  # words, or an absence
        return raw
    least, most, is_milli, is_whole = _numbers(name)
    if raw in UNAVAILABLE or raw is None:
        if raw != -1 or name != "temperature_margin_celsius":
            return Absence.NOT_SUPPORTED
    elif name == "performance_state" and raw > 15:  # of which 32 is "unknown"
        return Absence.NOT_SUPPORTED
    if not least <= raw <= most:
        return Absence.ERROR
    if is_milli:
        return raw / 1000
    return round(raw) if is_whole and kind is float else raw


@functools.cache
def _numbers(name: str) -> tuple[float, float, bool, bool]:
    """Between which NVML's number may be something that it has read, and not what it has not.

    And whether it is of milliwatts or millijoules, and whether it is a whole one.
    """
    least, most = next((_BOUNDS[end] for end in _BOUNDS if name.endswith(end)), (0, (1 << 63) - 1))
    return least, most, name.endswith(("_watts", "_joules")), name in _WHOLE


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
