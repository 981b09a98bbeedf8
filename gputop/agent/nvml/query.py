"""NVML, questions to a device, and the answers as values by name or reasons for their absence.

`nvml` is nvidia-ml-py. Other distributions install a `pynvml` too, and hide or overwrite its file:
importing this module raises `DriverError` if there is no usable nvidia-ml-py.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from gputop.agent.device import READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.agent.interface import DeviceReading, DriverError
from gputop.agent.nvml.diagnosis import diagnose_bindings
from gputop.agent.units import limits_of

NEWEST_FUNCTION = "nvmlDeviceGetMarginTemperature"
"""The most recently added of the functions that gputop calls: version 12.570 has it."""


def _load() -> Any:
    """Return nvidia-ml-py's module, wherever on `sys.path` it is.

    Raises `DriverError` if there is none, or none that is new enough.
    """
    for module in _modules():
        if hasattr(module, NEWEST_FUNCTION):
            return module
    raise DriverError(diagnose_bindings())


def _modules() -> Iterator[Any]:
    """Yield the module that an import finds, then every file of that name.

    pynvml before 12 is a package, which hides nvidia-ml-py's file in the same directory.
    """
    with contextlib.suppress(Exception):  # a stranger's file may raise anything
        with warnings.catch_warnings():
            # pynvml 13 warns at every import, also where nvidia-ml-py's file is the one imported.
            warnings.simplefilter("ignore", FutureWarning)
            import pynvml
        yield pynvml
    for folder in sys.path:
        file = Path(folder, "pynvml.py")
        if file.is_file():
            from importlib.util import module_from_spec, spec_from_file_location

            with contextlib.suppress(Exception):
                spec = spec_from_file_location("pynvml", file)
                assert spec is not None
                assert spec.loader is not None
                # It looks itself up under that name while it is loaded.
                module = sys.modules["pynvml"] = module_from_spec(spec)
                spec.loader.exec_module(module)
                yield module


nvml: Any = _load()


EVERY_SAMPLE = 0.0
EVERY_SECOND = 1.0
EVERY_10_SECONDS = 10.0
ONCE = math.inf
"""Intervals of questions, in seconds, according to what one costs the driver."""
EARLY = 0.2
"""Seconds before which a question is due: of ticks one second apart, one that comes late must not
make the next one come too early."""
AGAIN = 60.0 - EARLY
"""Seconds until an unsupported value is asked for again: a link comes up, MIG is switched off."""

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

Clock = Callable[[], float]
"""Function that returns monotonic seconds."""
Source = Callable[[Any], Any]
"""Function that asks a handle: returns a row of values, or raises `NVMLError`."""


class Question:
    """A question to a device for the values of `names`, asked again after `interval` seconds.

    The first source that is supported answers it. A source returns the values in order, each
    perhaps an `Absence`.
    """

    def __init__(
        self, names: str, *sources: Source, interval: float = EVERY_SAMPLE
    ) -> None:
        self.names = names.split()
        self.sources = sources
        self.interval = interval


class Answers:
    """The last answers of one device. For one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heard_at = 0.0
        """Time of the last answer, by the clock."""
        self._last: dict[Question, Any] = {}
        """The last answer to each question: a row of values, or a return code."""
        self._asked_at: dict[Question, float] = {}

    @property
    def oldest(self) -> float:
        """Time of the oldest of the last answers with a value; infinite without any."""
        times = [math.inf]
        for question, asked_at in self._asked_at.items():
            if question.interval < ONCE and not _is_unsupported(self._last[question]):
                times.append(asked_at)
        return min(times)

    def ask_due(self, handle: Any, questions: Iterable[Question]) -> list[Any]:
        """Ask the questions that are due, and return the last answers to all of them.

        Raises `NVMLError` if the device is lost.
        """
        now = self._clock()
        answers = []
        for question in questions:
            if self._is_due(question, now):
                self._last[question] = self._ask(handle, question)
                self._asked_at[question] = now
            answers.append(self._last[question])
        return answers

    def forget(self) -> None:
        """Make every question due."""
        self._last.clear()
        self._asked_at.clear()

    def _is_due(self, question: Question, now: float) -> bool:
        if question not in self._last:
            return True
        since = now - self._asked_at[question]
        if _is_unsupported(self._last[question]):
            return since >= AGAIN
        return since >= question.interval - EARLY

    def _ask(self, handle: Any, question: Question) -> Any:
        """Return the values of the first supported source, or the return code if none is."""
        code = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        for source in question.sources:
            try:
                return source(handle)
            except nvml.NVMLError as error:
                code = error.value
            finally:
                self.heard_at = self._clock()
            if absence_or_lost(code) is not Absence.NOT_SUPPORTED:
                break
        return code


def _is_unsupported(answer: Any) -> bool:
    return isinstance(answer, int) and absence_of(answer) is Absence.NOT_SUPPORTED


def absence_of(code: int) -> Absence:
    """Return the reason that a return code stands for."""
    return _ABSENCES.get(code, Absence.ERROR)


def absence_or_lost(code: int) -> Absence:
    """Return the reason that a return code stands for. Raises `NVMLError` if the device is lost."""
    if code == nvml.NVML_ERROR_GPU_IS_LOST:
        raise nvml.NVMLError(code)
    return absence_of(code)


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


def answers_by_name(
    questions: Iterable[Question], answers: Iterable[Any]
) -> dict[str, Any]:
    """Return the value of each name, perhaps an `Absence`.

    Each answer is a row of NVML's values, or a return code for all of them.
    """
    found = {}
    for question, answer in zip(questions, answers):
        if not question.names:
            continue
        row = answer
        if isinstance(answer, int):
            row = [absence_of(answer)] * len(question.names)
        for name, raw in zip(question.names, row):
            found[name] = value_of(name, raw)
    return found


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


def total(*parts: int | Absence) -> int | Absence:
    """Return the sum, or the reason of the first missing part."""
    found = 0
    for part in parts:
        if isinstance(part, Absence):
            return part
        found += part
    return found


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


def scalar(call: Callable[..., Any], *arguments: int) -> Source:
    """Return a source of the one value of a call."""
    return lambda handle: (call(handle, *arguments),)


def string(call: Callable[[Any], str | bytes]) -> Source:
    """Return a source of the text of a call, whatever its encoding."""

    def source(handle: Any) -> tuple[str | Absence]:
        try:
            found = call(handle)
        except (
            UnicodeDecodeError
        ) as error:  # nvidia-ml-py decodes strictly; 11.495 did not at all
            found = error.object
        if isinstance(found, bytes):
            found = found.decode(errors="replace")
        return (found or Absence.NO_DATA_YET,)

    return source
