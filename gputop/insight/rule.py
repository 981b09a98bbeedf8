"""What a rule is: a name, what it looks for in words, the readings it needs, and a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gputop.insight.findings import Evidence
    from gputop.insight.look import Look
    from gputop.telemetry.alerts import Severity


class Said(NamedTuple):
    """What a rule has found; see `Finding`."""

    severity: Severity
    sentence: str
    evidence: Sequence[Evidence]
    advice: str
    since: float | None = None
    """None is from now on."""


Judges = Callable[["Look"], Said | None]
"""None is nothing to say. Raises `NoEvidence` where it cannot tell; never anything else."""


class Rule(NamedTuple):
    """One question about a device."""

    name: str
    title: str
    """What it looks for, in a word or two."""
    needs: tuple[str, ...]
    """The readings that it goes by: those that are missing are told where it cannot tell."""
    judge: Judges
    of_silent: bool = False
    """Whether it is asked of a device that does not answer, too."""
    needs_history: bool = True
    """Whether one snapshot is nothing to judge by; where it is, doctor asks it, too."""
