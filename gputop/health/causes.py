"""Causes: findings grouped for a reader in a hurry, the worst cause of slowness first.

Devices with the same finding share a cause. The memory errors of one device, their remap and the
reset that they need are one fault, and so are clocks that are held down and what follows from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputop.health.findings import Evidence, Finding, Severity
from gputop.schema.advice import REBOOT

FAULTS = ("remap", "ecc", "recovery", "xid")
"""Rules that tell of one hardware fault. Of equally grave ones, the remedy of the first counts."""
THROTTLING = ("thermal", "hardware_slowdown")
"""Rules about what holds clocks down."""
SLOWED = (*THROTTLING, "clocks_low", "straggler")
"""Rules about clocks held down, then about what follows from that."""
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
"""Findings with the same rule, title and remedy, one for each device; or one hardware fault."""


def place_of(finding: Finding) -> int:
    """Return its place on a page: 0 for slowness, 1 for other problems, 2 for normal things."""
    if finding.severity <= Severity.INFORMATION:
        return 2
    return 0 if finding.rule in SLOWING else 1


def shared_numbers(cause: Cause) -> list[str]:
    """Return numbers of the line that all findings have: one, or the lowest and the highest."""
    found = []
    for first in cause[0].evidence:
        same: list[Evidence] = []
        for each in cause:
            same += _same(each.evidence, first)
        if len(same) < len(cause):
            continue
        same.sort(key=lambda number: number.value)
        low, high = same[0].text, same[-1].text
        both = low if low == high else f"{low} to {high}"
        found.append(first.headline.format(both))
    return found


def first_time(findings: Iterable[Finding]) -> float | None:
    """Return the time at which the first of the findings began."""
    known = [each.since for each in findings if each.since is not None]
    return min(known, default=None)


def _same(evidence: Iterable[Evidence], wanted: Evidence) -> list[Evidence]:
    """Return the number of the line with the same label, if there is one."""
    same = [
        each
        for each in evidence
        if each.headline and each.label == wanted.label
    ]
    return same[:1]


def find_causes(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes: slowness, hardware that still works, then what is normal."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for each in _merged(findings):
        alone = each.device_uuid if each.rule in FAULTS else ""
        groups.setdefault(
            (each.rule, each.title, each.remedy, alone), []
        ).append(each)
    causes = [tuple(sorted(group, key=_gravity)) for group in groups.values()]
    return sorted(
        causes, key=lambda cause: (place_of(cause[0]), _gravity(cause[0]))
    )


def _gravity(finding: Finding) -> tuple[float, float, float]:
    return -finding.severity, -finding.cost_percent, -finding.rank


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Yield the findings, those about one fault of a device as one."""
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
    """Return the findings about one fault as one: the gravest, with the others named after it."""
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
    """Return True if its remedy is a reboot, because a reset does not reach the device."""
    return finding.remedy.startswith(REBOOT)


def _remedy(parts: Iterable[Finding]) -> str:
    """Return one remedy: a reboot if a part needs it, else that of the gravest part."""
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
