"""Finding: one thing that is wrong with a device, or that explains what it does.

Alerts, the dashboard's findings, `gputop doctor`, the fleet and the exporter show findings of this
type, with one scale of severity. Causes are what a hurried reader must know first: devices with the
same finding share a cause, and the memory errors of one device, their remap and the reset that they
need are one story.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from itertools import groupby, takewhile
from typing import NamedTuple

from gputop.schema.advice import REBOOT
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


class Evidence(NamedTuple):
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


MOST_LISTED = 3
"""Most devices listed by label if that is no plain number, or in an alert. More are counted."""
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
    if (first.isupper() and first != "A") or first in ("Xid", "NVLink"):
        return sentence
    return " ".join(filter(None, (first.lower(), rest)))


def _summary(noun: str, verb: str, sentence: str, labels: list[str]) -> str:
    first, _, rest = lower_first(sentence).partition(" ")
    many = len(labels) > 1
    if many and verb:
        verb = _PLURALS.get(verb, verb)
    elif many:  # the sentence begins with its verb
        first = first.removesuffix("s").removesuffix("S")
    return " ".join(filter(None, (_name_all(noun, labels), verb, first, rest)))


def _name_all(noun: str, labels: Sequence[str]) -> str:
    if len(labels) > MOST_LISTED:
        return f"{len(labels)} {noun}s"
    return f"{noun}{'s' if len(labels) > 1 else ''} {_listed(labels)}"


STORY = ("remap", "ecc", "recovery", "xid")
"""Rules that tell of one hardware fault. Of equally grave ones, the advice of the first counts."""
THROTTLING = ("thermal", "hardware_slowdown")
"""Rules about what holds clocks down. The alerts about it have the same names."""
SLOWED = (*THROTTLING, "clocks_low", "straggler")
"""Rules about clocks held down, then about what comes of that."""
SLOWING = (
    *(*SLOWED, "input_bound", "not_working", "link_degraded", "pcie_bound", "power_capped"),
    *("no_tensor_cores", "memory_bound", "imbalance"),
)
"""Rules about work that is slower than it could be."""


class Cause(NamedTuple):
    """Findings of one rule on one or more devices, or the story of one device's fault."""

    findings: tuple[Finding, ...]
    """One for each device, the gravest first."""

    @property
    def severity(self) -> Severity:
        return self.findings[0].severity

    @property
    def slows(self) -> bool:
        """True if it holds back the work now, which is more than normal."""
        return self.findings[0].rule in SLOWING and self.severity > Severity.INFORMATION

    @property
    def place(self) -> int:
        """Place among the causes: 0 for slowness, 1 for other problems, 2 for what is normal."""
        return 0 if self.slows else 1 if self.severity > Severity.INFORMATION else 2


def find_causes(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes: slowness, hardware that still works, then what is normal."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for each in _with_stories(findings):
        alone = each.device_uuid if each.rule in STORY else ""
        groups.setdefault((each.rule, alone), []).append(each)
    causes = [Cause(tuple(sorted(each, key=_gravity))) for each in groups.values()]
    return sorted(causes, key=lambda cause: (cause.place, _gravity(cause.findings[0])))


def _gravity(finding: Finding) -> tuple[float, float, float]:
    return -finding.severity, -finding.cost_percent, -finding.rank


def _with_stories(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Yield the findings, those that tell of one fault of a device as one."""
    faults: dict[str, list[Finding]] = {}
    clocks: dict[str, list[Finding]] = {}
    for each in findings:
        if _is_hardware_fault(each):
            faults.setdefault(each.device_uuid, []).append(each)
        elif each.rule in SLOWED:
            clocks.setdefault(each.device_uuid, []).append(each)
        else:
            yield each
    yield from map(_story, faults.values())
    yield from map(_consequence, clocks.values())


def _is_hardware_fault(finding: Finding) -> bool:
    """Return True for a rule of the story, or such an alert: `remap_pending`, `xid at 17.0`."""
    rule = re.split("[_ ]", finding.rule)[0]
    return rule in STORY and (rule != "xid" or finding.severity is Severity.FAULT)


def _consequence(parts: Sequence[Finding]) -> Finding:
    """Return what holds the clocks down, and in a few words what comes of it."""
    first, *others = sorted(parts, key=lambda each: SLOWED.index(each.rule))
    words = [first.sentence, *(lower_first(_clauses(o.sentence)[0]) for o in others)]
    return replace(first, sentence="; ".join(word.rstrip(" ,;:") for word in words))


def _story(parts: Sequence[Finding]) -> Finding:
    first, *others = sorted(parts, key=_gravity)
    begun = [each.since for each in parts if each.since is not None]
    return replace(
        first,
        sentence="; ".join([first.sentence, *(lower_first(each.sentence) for each in others)]),
        evidence=tuple(number for each in (first, *others) for number in each.evidence),
        advice=_remedy(parts),
        since=min(begun, default=None),
    )


def _remedy(parts: Iterable[Finding]) -> str:
    """Return one remedy: a reboot if a part needs it, else that of the gravest part."""
    advised = [each for each in parts if each.advice]
    advised.sort(key=lambda each: (-each.severity, STORY.index(each.rule)))
    for each in advised:
        if each.advice.startswith(REBOOT):
            return each.advice
    return advised[0].advice if advised else ""


def alerts_beside(alerts: Iterable[Finding], cause: Cause | None) -> list[Finding]:
    """Return the alerts, one for each hardware fault, without those that the cause tells of."""
    told: set[str] = set()
    if cause is not None and cause.findings[0].rule in THROTTLING:
        told = {each.device_uuid for each in cause.findings}
    found: dict[object, Finding] = {}
    for each in alerts:
        if each.rule in THROTTLING and each.device_uuid in told:
            continue
        key = each.device_uuid if _is_hardware_fault(each) else id(each)
        first = found.setdefault(key, each)
        if first is not each:
            words = f"{first.sentence}; {lower_first(each.sentence)}"
            found[key] = replace(first, sentence=words)
    return [*found.values()]


def name_devices(labels: Sequence[str]) -> str:
    """Return devices by their labels, in order: `GPU 3`, `GPUs 0–2, 5 and 7`.

    Of labels that are no plain numbers, such as those of several machines, only a few are listed.
    """
    if not all(label.isdecimal() for label in labels):
        return _name_all("GPU", labels)
    parts: list[str] = []
    for _, run in groupby(enumerate(sorted(map(int, labels))), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        if len(numbers) > 2:
            parts.append(f"{numbers[0]}–{numbers[-1]}")
        else:
            parts += map(str, numbers)
    return f"{'GPU' if len(labels) == 1 else 'GPUs'} {_listed(parts)}"


def _listed(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def cause_text(cause: Cause, labels: Mapping[str, str]) -> str:
    """Return a cause in words: its devices, and what all of them have.

    `labels` are those of the devices by UUID. Where the numbers of several devices differ in the
    first words, they are those of the gravest, and the others are counted.
    """
    first, *others = cause.findings
    clauses = [_clauses(each.sentence) for each in cause.findings]
    same = takewhile(lambda parts: len({*parts}) == 1, zip(*clauses, strict=False))
    shared = [parts[0] for parts in same]
    if others and not shared:
        return f"GPU {labels[first.device_uuid]}: {lower_first(first.sentence)}, and others"
    who = name_devices([labels[each.device_uuid] for each in cause.findings])
    text = lower_first("".join(shared).rstrip(" ,;:"))
    text = re.sub(r"\bits\b", "their", text) if others else text
    return f"{who}: {text}"


def shorten(text: str, width: int) -> str:
    """Return as many whole clauses of a text as fit into so many cells; at least the first two."""
    parts = _clauses(text)
    while len(parts) > 2 and len("".join(parts).rstrip(" ,;:")) > width:
        parts.pop()
    return "".join(parts).rstrip(" ,;:")


def _clauses(text: str) -> list[str]:
    return re.split(r"(?<=[,:;] )", text)
