"""Questions to a device, and its last answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from gputop.agent.device import Absence
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.values import absence_of, absence_or_lost, converted

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
            found[name] = converted(name, raw)
    return found


def scalar(call: Callable[..., Any], *arguments: int) -> Source:
    """Return a source of the one value of a call."""
    return lambda handle: (call(handle, *arguments),)


def string(call: Callable[[Any], str | bytes]) -> Source:
    """Return a source of the text of a call, whatever its encoding."""

    def source(handle: Any) -> tuple[str | Absence]:
        try:
            found = call(handle)
        except UnicodeDecodeError as error:
            found = error.object
        if isinstance(found, bytes):
            found = found.decode(errors="replace")
        return (found or Absence.NO_DATA_YET,)

    return source
