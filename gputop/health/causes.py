"""Causes: what a hurried reader must know first, from the findings of all devices.

Devices with the same finding share a cause, and the memory errors of one device, their remap and
the reset that they need are one story.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile

from gputop.frozen import dataclass
from gputop.health.findings import Finding, Severity, lower_first

STORY = ("recovery", "remap", "ecc", "xid")
"""Rules that tell of one hardware fault, the one whose advice comes first in front."""
SLOWED = ("thermal", "hardware_slowdown", "clocks_low", "straggler")
"""Rules about clocks held down, then about what comes of that."""
SLOWING = (
    *(*SLOWED, "input_bound", "not_working", "link_degraded", "pcie_bound", "power_capped"),
    *("no_tensor_cores", "memory_bound", "imbalance"),
)
"""Rules about work that is slower than it could be."""


@dataclass(frozen=True, slots=True)
class Cause:
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
    told: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        if each.rule in STORY and (each.rule != "xid" or each.severity is Severity.FAULT):
            told.setdefault((each.device_uuid, "hardware"), []).append(each)
        elif each.rule in SLOWED:
            told.setdefault((each.device_uuid, "clocks"), []).append(each)
        else:
            yield each
    for (_, what), parts in told.items():
        yield _story(parts) if what == "hardware" else _consequence(parts)


def _consequence(parts: Sequence[Finding]) -> Finding:
    """Return what holds the clocks down, and in a few words what comes of it."""
    first, *others = sorted(parts, key=lambda each: SLOWED.index(each.rule))
    words = [first.sentence, *(lower_first(_clauses(o.sentence)[0]) for o in others)]
    return replace(first, sentence="; ".join(word.rstrip(" ,;:") for word in words))


def _story(parts: Sequence[Finding]) -> Finding:
    first, *others = sorted(parts, key=_gravity)
    if not others:
        return first
    advices = sorted(parts, key=lambda each: STORY.index(each.rule))
    begun = [each.since for each in parts if each.since is not None]
    return replace(
        first,
        sentence="; ".join([first.sentence, *(lower_first(each.sentence) for each in others)]),
        evidence=tuple(number for each in (first, *others) for number in each.evidence),
        advice=". ".join(dict.fromkeys(each.advice for each in advices if each.advice)),
        since=min(begun, default=None),
    )


def alerts_beside(alerts: Iterable[Finding], cause: Cause | None) -> list[Finding]:
    """Return the alerts, one for each hardware fault, without those that the cause tells of."""
    told: set[str] = set()
    if cause is not None and cause.findings[0].rule in ("thermal", "hardware_slowdown"):
        told = {each.device_uuid for each in cause.findings}
    found: list[Finding] = []
    for each in alerts:
        same = next((n for n, other in enumerate(found) if _tell_of_one_fault(each, other)), None)
        if same is not None:
            words = f"{found[same].sentence}; {lower_first(each.sentence)}"
            found[same] = replace(found[same], sentence=words)
        elif each.rule != "slowdown" or each.device_uuid not in told:
            found.append(each)
    return found


def _tell_of_one_fault(one: Finding, other: Finding) -> bool:
    """Return True for alerts of one device whose rules are those of its story."""
    if one.device_uuid != other.device_uuid or not one.device_uuid:
        return False
    return all(
        re.split("[_ ]", each.rule)[0] in STORY  # as `remap_pending` and `xid at 17.0`
        and (each.severity is Severity.FAULT or not each.rule.startswith("xid"))
        for each in (one, other)
    )


def name_devices(labels: Sequence[str]) -> str:
    """Return devices by their labels, in order: `GPU 3`, `GPUs 0–2, 5 and 7`.

    Labels that are no plain numbers, such as those of several machines, are listed up to four.
    """
    noun = "GPU" if len(labels) == 1 else "GPUs"
    if not all(label.isdecimal() for label in labels):
        return f"{noun} {_listed(labels)}" if len(labels) <= MOST_LISTED else f"{len(labels)} GPUs"
    parts: list[str] = []
    for _, run in groupby(enumerate(sorted(map(int, labels))), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        if len(numbers) > 2:
            parts.append(f"{numbers[0]}–{numbers[-1]}")
        else:
            parts += map(str, numbers)
    return f"{noun} {_listed(parts)}"


MOST_LISTED = 4


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
