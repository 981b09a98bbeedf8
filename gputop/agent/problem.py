"""Problems in the words that users read: on the screen, on standard error and in JSON."""

from __future__ import annotations

from dataclasses import dataclass

COULD_NOT_RUN = 3
"""Exit status if gputop could not run: no device, no torch, not enough memory."""


@dataclass(frozen=True)
class Problem:
    """A problem, its cause and its remedy: three short phrases without a full stop."""

    what: str
    why: str
    remedy: str
    check: str | None = None
    """Name of the doctor check that finds it, if any."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.remedy}"


class ProblemError(Exception):
    """An error that carries a problem to show to the user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem
