"""Finding: one thing that is wrong with a device, or that explains what it does.

Alerts, the dashboard's findings, `gputop doctor`, the fleet and the exporter show findings of this
type, with one scale of severity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cache

from gputop.frozen import dataclass
from gputop.schema.values import span_text
from gputop.text import number, percentage, quantity, size

_UNITS = {"_percent": "%", "_bytes_per_second": "B/s", "_bytes": "B", "_watts": "W"}
_UNITS |= {"_mhz": "MHz", "_celsius": "°C", "_seconds": "s"}


@cache
def unit_of(name: str) -> str:
    """Return the unit that the reading's name ends in; empty for a plain number."""
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")


class Severity(IntEnum):
    """Severity of a finding, from least to most severe."""

    OK = 0
    """Checked and fine. Only doctor reports these."""
    INFORMATION = 1
    """Explains something normal, or says why a check was not possible."""
    WARNING = 2
    STALE = 3
    """Prometheus has no recent readings of the GPU. Only the fleet reports these."""
    FAULT = 4

    @property
    def word(self) -> str:
        """Name in JSON and in metric labels."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number that supports a finding."""

    label: str
    """Text on screen, such as `SM clock, mean`."""
    reading: str
    """Field of the schema, or series of the history, that the number comes from."""
    value: float
    unit: str = ""
    seconds: float | None = None
    """Length of time that the number covers, up to now; None for a number of this moment."""

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
    """A condition of a device or of its host.

    Rules and checks fill in what they found; their caller adds `rule` and, for rules, the device.
    """

    severity: Severity
    sentence: str
    """Starts with a capital, has no full stop and does not name the device. Inert if foreign."""
    evidence: Sequence[Evidence] = ()
    advice: str = ""
    since: float | None = None
    """Unix time at which it began, as far as known. Rules leave None for "now"."""
    rule: str = ""
    """Name of the rule or check. With the device it identifies the finding over time."""
    device_uuid: str = ""
    """UUID, or in a fleet the key of the GPU. Empty for a finding about the host."""
    label: str = ""
    """Device label as on screen, or name of the host. Only alerts have one."""
    verb: str = ""
    """Verb between label and sentence, as in "GPU 0 *is* throttled by heat"."""
    rank: float = 0.0
    """Order within a severity: higher is worse."""
    cost_percent: float = 0.0
    """Share of the work that it costs, as far as known: the worst cause of slowness costs most."""
    rows: tuple[str, ...] = ()
    """Lines of a table shown under the sentence."""


NAMED = 3
"""Most devices listed by label in one alert. More are only counted."""
_PLURALS = {"is": "are", "has": "have"}


def summarize(alerts: Iterable[Finding]) -> list[tuple[Severity, str]]:
    """Return alerts as text, in order, with one line for devices that share an alert."""
    groups: dict[tuple[Severity, bool, str, str], list[str]] = {}
    for each in alerts:
        key = (each.severity, not each.device_uuid, each.verb, each.sentence)
        groups.setdefault(key, []).append(each.label)
    return [
        (severity, _summary("Host" if is_host else "GPU", verb, sentence, labels))
        for (severity, is_host, verb, sentence), labels in groups.items()
    ]


def lower_first(sentence: str) -> str:
    """Return a sentence to follow other words: `LOST` and `Xid 79` stay as they are."""
    first, _, rest = sentence.partition(" ")
    if first.isupper() or first in ("Xid", "NVLink"):
        return sentence
    return " ".join(filter(None, (first.lower(), rest)))


def _summary(noun: str, verb: str, sentence: str, labels: list[str]) -> str:
    first, _, rest = lower_first(sentence).partition(" ")
    many = len(labels) > 1
    if many and verb:
        verb = _PLURALS.get(verb, verb)
    elif many:  # the sentence begins with its verb
        first = first.removesuffix("s").removesuffix("S")
    if len(labels) > NAMED:
        who = f"{len(labels)} {noun}s"
    elif many:
        who = f"{noun}s {', '.join(labels[:-1])} and {labels[-1]}"
    else:
        who = f"{noun} {labels[0]}"
    return " ".join(filter(None, (who, verb, first, rest)))
