"""Causes: findings in groups, the worst cause of slowness first.

Devices with the same finding share a cause. The memory errors of one device, their remap and the
required reset are one fault. Reduced clocks and their consequences are one cause, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputop.health.conditions import STATE
from gputop.health.findings import (
    Evidence,
    Finding,
    Severity,
    capitalized,
    name_devices,
    name_hosts,
    phrase,
)
from gputop.schema.advice import REBOOT

FAULTS = (STATE, "remap", "ecc", "recovery", "xid")
"""Rules about the same kind of hardware fault. Of equally grave findings, the first gives the
remedy."""
THROTTLING = ("thermal", "hardware_slowdown")
"""Rules about the reasons for reduced clocks."""
SLOWED = (*THROTTLING, "clocks_low", "straggler", "held_up")
"""Rules about reduced clocks, then about their consequences."""
SLOWING = (
    *SLOWED,
    "input_bound",
    "not_working",
    "link_degraded",
    "pcie_bound",
    "power_capped",
    "no_tensor_cores",
    "memory_bound",
    "imbalance",
)
"""Rules about work that is slower than it could be."""


Cause = tuple[Finding, ...]
"""Findings with the same rule, title and remedy, one per device or host."""


def place_of(finding: Finding) -> int:
    """Return the section of a page: 0 for hosts and for devices that do not answer, 1 for slowness,
    2 for other problems, 3 for normal facts.
    """
    if finding.rule == STATE or not finding.device_uuid:
        return 0
    if finding.severity <= Severity.INFORMATION:
        return 3
    return 1 if finding.rule in SLOWING else 2


def title_of(cause: Cause) -> str:
    """Return a cause in words: its devices or hosts, its title, and what it explains."""
    first = cause[0]
    name_all = name_devices if first.device_uuid else name_hosts
    who = name_all([each.label for each in cause])
    return capitalized(f"{who}: {phrase(first.title, also=first.also)}")


def shared_numbers(cause: Cause) -> list[str]:
    """Return the numbers that all findings share: one value, or the lowest and the highest."""
    found = []
    for first in cause[0].evidence:
        same: list[Evidence] = []
        for each in cause:
            number = _same(each.evidence, first)
            if number is not None:
                same.append(number)
        if len(same) < len(cause):
            continue
        same.sort(key=lambda number: number.value)
        low, high = same[0].text, same[-1].text
        both = low if low == high else f"{low} to {high}"
        found.append(first.headline.format(both))
    return found


def first_time(findings: Iterable[Finding]) -> float | None:
    """Return the time at which the first finding began."""
    known = [each.since for each in findings if each.since is not None]
    return min(known, default=None)


def _same(evidence: Iterable[Evidence], wanted: Evidence) -> Evidence | None:
    """Return the number with the same label in the finding's line, if there is one."""
    for each in evidence:
        if each.headline and each.label == wanted.label:
            return each
    return None


def find_causes(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes by section, the worst of each first."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for each in _merged(findings):
        key = each.rule, each.title, each.remedy, each.also
        groups.setdefault(key, []).append(each)
    causes = [tuple(sorted(group, key=_gravity)) for group in groups.values()]
    return sorted(
        causes, key=lambda cause: (place_of(cause[0]), _gravity(cause[0]))
    )


def _gravity(finding: Finding) -> tuple[float, float, float]:
    return -finding.severity, -finding.cost_percent, -finding.rank


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Yield the findings. Those about one fault of a device are merged."""
    faults: dict[str, list[Finding]] = {}
    clocks: dict[str, list[Finding]] = {}
    for each in findings:
        is_program = each.rule == "xid" and each.severity is not Severity.FAULT
        if each.rule in FAULTS and not is_program:
            faults.setdefault(each.device_uuid, []).append(each)
        elif each.rule in SLOWED:
            clocks.setdefault(each.device_uuid, []).append(each)
        else:
            yield each
    for parts in faults.values():
        yield _merge_faults(parts)
    for parts in clocks.values():
        first, *others = sorted(
            parts, key=lambda each: SLOWED.index(each.rule)
        )
        yield replace(first, also=tuple(each.title for each in others))


def _merge_faults(parts: Sequence[Finding]) -> Finding:
    """Merge findings about one fault into the gravest, which lists the titles of the others."""
    first, *others = sorted(parts, key=_gravity)
    evidence = [*first.evidence]
    for each in others:
        evidence += [number._replace(headline="") for number in each.evidence]
    return replace(
        first,
        evidence=tuple(evidence),
        remedy=_remedy(parts),
        since=first_time(parts),
        also=tuple(each.line for each in others),
    )


def needs_reboot(finding: Finding) -> bool:
    """Return True if the remedy is a reboot, because a reset does not reach the device."""
    return finding.remedy.startswith(REBOOT)


def _remedy(parts: Iterable[Finding]) -> str:
    """Return one remedy: a reboot if any part needs it, else that of the gravest part."""
    advised = [each for each in parts if each.remedy]
    if not advised:
        return ""
    return min(
        advised,
        key=lambda each: (
            not needs_reboot(each),
            -each.severity,
            FAULTS.index(each.rule),
        ),
    ).remedy
