"""Questions to a device, and its last answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from gputop.agent.device import Absence
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.failures import DRIVER_IS_GONE, check_driver
from gputop.agent.nvml.values import absence_of, absence_or_lost, converted

EVERY_SAMPLE = 0.0
EVERY_SECOND = 1.0
EVERY_10_SECONDS = 10.0
ONCE = math.inf
"""Intervals of questions in seconds, chosen by their cost for the driver."""
EARLY = 0.2
"""Seconds that a question may be asked early. If ticks are a second apart, a late tick must not
make the next one too early."""
AGAIN = 60.0 - EARLY
"""Seconds until an unsupported value is requested again: links come up, MIG is switched off."""

Clock = Callable[[], float]
"""Function that returns monotonic seconds."""
Source = Callable[[Any], Any]
"""Function that takes a handle and returns a value or a row of values, or raises `NVMLError`."""


class Question:
    """A question to a device for the values of `names`, asked again after `interval` seconds.

    The first supported source answers it. A source returns one value, or several in order. Each may
    be an `Absence`.
    """

    def __init__(
        self, names: str, *sources: Source, interval: float = EVERY_SAMPLE
    ) -> None:
        self.names = names.split()
        self.sources = sources
        self.interval = interval


class Answer(NamedTuple):
    """The last answer to a question."""

    asked_at: float
    """Time of the request; infinite for an unsupported value, which has no age."""
    due_at: float
    """Time from which the question is asked again."""
    values: Mapping[str, Any]
    """A value or an `Absence` for each name of the question."""
    code: int = nvml.NVML_SUCCESS
    """NVML's return code."""

    @property
    def has_value(self) -> bool:
        return any(
            not isinstance(value, Absence) for value in self.values.values()
        )


class Answers:
    """The last answers of one device. For one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heard_at = 0.0
        """Time of the last answer, by the clock."""
        self._last: dict[Question, Answer] = {}

    @property
    def oldest(self) -> float:
        """Time of the oldest answer with a value; infinite if there is none."""
        oldest = math.inf
        for question, answer in self._last.items():
            if answer.asked_at < oldest and question.interval < ONCE:
                oldest = answer.asked_at
        return oldest

    @property
    def needs_reset(self) -> bool:
        """True if the device answers a question with that code. It may still answer others."""
        code = nvml.NVML_ERROR_RESET_REQUIRED
        return any(answer.code == code for answer in self._last.values())

    def ask(
        self, handle: Any, questions: Iterable[Question]
    ) -> dict[str, Any]:
        """Ask the questions that are due, and return the last value of each name.

        If two questions have the same name, the first one with a value counts. Raises `NVMLError`
        if the device is lost, `DriverError` if the driver is gone.
        """
        now = self._clock()
        found: dict[str, Any] = {}
        for question in questions:
            answer = self._last.get(question)
            if answer is None or now >= answer.due_at:
                answer = self._ask(handle, question, now)
                self._last[question] = answer
            for name, value in answer.values.items():
                if name not in found or (
                    isinstance(found[name], Absence)
                    and value is not Absence.NOT_SUPPORTED
                ):
                    found[name] = value
        return found

    def check(self, questions: Iterable[Question]) -> None:
        """Raise `NVMLError` if one of the questions failed and none has a value.

        In that case, the whole device does not respond. An unsupported value or one that has not
        arrived yet is not a failure.
        """
        failure = nvml.NVML_SUCCESS
        for question in questions:
            answer = self._last[question]
            if answer.has_value:
                return
            reason = absence_of(answer.code)
            if reason not in (Absence.NOT_SUPPORTED, Absence.NO_DATA_YET):
                failure = failure or answer.code
        if failure:
            raise nvml.NVMLError(failure)

    def forget(self) -> None:
        """Make every question due."""
        self._last.clear()

    def _ask(self, handle: Any, question: Question, now: float) -> Answer:
        """Return the values of the first supported source, or the reasons why there are none."""
        code = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        for source in question.sources:
            try:
                row = source(handle)
            except nvml.NVMLError as error:
                code = error.value
            except UnicodeDecodeError:
                code = nvml.NVML_ERROR_UNKNOWN
            else:
                return _answer(question, row, now)
            finally:
                self.heard_at = self._clock()
            if code in DRIVER_IS_GONE:
                check_driver()
            if absence_or_lost(code) is not Absence.NOT_SUPPORTED:
                break
        reason = absence_of(code)
        values = dict.fromkeys(question.names, reason)
        if reason is Absence.NOT_SUPPORTED:
            return Answer(math.inf, now + AGAIN, values, code)
        return Answer(now, now + question.interval - EARLY, values, code)


def _answer(question: Question, row: Any, now: float) -> Answer:
    """Return the answer with the values that a source returned."""
    names = question.names
    if len(names) == 1:
        values = {names[0]: converted(names[0], row)}
    else:
        values = dict(zip(names, map(converted, names, row)))
    wait = question.interval
    # A rate needs a second reading of its counter.
    if EVERY_SECOND < wait < ONCE and Absence.NO_DATA_YET in values.values():
        wait = EVERY_SECOND
    return Answer(now, now + wait - EARLY, values)


def scalar(call: Callable[..., Any], *arguments: int) -> Source:
    """Return a source for a call with one value."""
    return lambda handle: call(handle, *arguments)
