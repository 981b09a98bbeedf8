"""A problem as users read it, on the screen, on standard error and in JSON."""

from __future__ import annotations

from gputop.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, why, and what to do about it: three short phrases without a full stop."""

    what: str
    why: str
    remedy: str
    check: str | None = None
    """Which of doctor's checks finds it, if one does."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.remedy}"
