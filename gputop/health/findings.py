"""What is found of a device, with its evidence, and the rules that find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gputop.frozen import dataclass
from gputop.schema.values import span_text
from gputop.text import number, percentage, quantity, size

if TYPE_CHECKING:
    from gputop.health.alerts import Severity
    from gputop.health.device_view import Look
    from gputop.schema.snapshot import Absence

_UNITS = {
    "_percent": "%",
    "_bytes_per_second": "B/s",
    "_bytes": "B",
    "_watts": "W",
    "_mhz": "MHz",
    "_celsius": "°C",
    "_seconds": "s",
}


@cache
def unit_of(name: str) -> str:
    """The unit that the reading's name ends in; empty for a plain number."""
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number that a finding rests on."""

    label: str
    """What it is, as people read it: `SM clock, mean`."""
    reading: str
    """The field of the schema, or the series of the history, that it comes from."""
    value: float
    unit: str
    seconds: float | None = None
    """Over which time, up to now; None where it is of this moment."""

    @property
    def text(self) -> str:
        """The number with its unit: `1.45 GiB`, `37 %`, `12.0 s`."""
        match self.unit:
            case "B":
                return size(self.value)
            case "B/s":
                return f"{size(self.value)}/s"
            case "s":
                return span_text(self.value)
            case "%":
                return percentage(self.value)
            case "MHz" | "W" | "°C":
                return quantity(self.value, self.unit if self.unit == "°C" else f" {self.unit}")
        return number(self.value, whole=self.value == round(self.value))


@dataclass(frozen=True, slots=True)
class Finding:
    """Why it is slow, or what is wrong. The rule with the device says whether it is the same."""

    rule: str
    severity: Severity
    device_uuid: str | None
    """None is the host."""
    sentence: str
    """With a capital, without a full stop, and without saying which device; foreign text is inert.
    """
    evidence: tuple[Evidence, ...]
    advice: str
    since: float
    """Unix seconds: when it began, as far as is known, or when it was first found."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A reading that a rule does without."""

    reading: str
    absence: Absence | None
    """None where it is read, and was not for long enough yet."""


@dataclass(frozen=True, slots=True)
class Insufficient:
    """Not enough evidence: the rule cannot tell."""

    rule: str
    device_uuid: str | None
    lacking: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class Clear:
    """The rule has looked, and has nothing to say."""

    rule: str
    device_uuid: str | None


Verdict = Finding | Insufficient | Clear


@dataclass(frozen=True, slots=True)
class Judgement:
    """What all rules say of all devices at one moment."""

    time: float = 0.0
    verdicts: tuple[Verdict, ...] = ()
    """By device, each in the order of the rules."""
    findings: tuple[Finding, ...] = ()
    """The gravest first, then in the order of the rules."""

    def of(self, uuid: str) -> tuple[Finding, ...]:
        """The findings about that device, the gravest first."""
        return tuple(finding for finding in self.findings if finding.device_uuid == uuid)

    def insufficient(self, uuid: str) -> tuple[Insufficient, ...]:
        """What cannot be told about that device."""
        found = (v for v in self.verdicts if isinstance(v, Insufficient))
        return tuple(verdict for verdict in found if verdict.device_uuid == uuid)

    def clear(self, uuid: str) -> tuple[str, ...]:
        """The rules that have nothing to say about that device."""
        found = (v for v in self.verdicts if isinstance(v, Clear))
        return tuple(verdict.rule for verdict in found if verdict.device_uuid == uuid)


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
