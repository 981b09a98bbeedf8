"""Findings of doctor as a page of text or as one JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.health.doctor import BY_NAME
from gputop.health.doctor.checks import INDEX
from gputop.health.findings import Finding, Severity
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.health.doctor.facts import DoctorFacts
    from gputop.schema.device import Device

STATUSES = {
    Severity.OK: ("ok", "32"),
    Severity.INFORMATION: ("note", "36"),
    Severity.WARNING: ("warning", "33"),
    Severity.FAULT: ("problem", "1;31"),
}
"""Words and colours of the severities, from fine to what keeps something from working."""
MARK_WIDTH = max(len(word) for word, _ in STATUSES.values())
LEAST_TEXT = 30
"""Fewest columns for the text, however narrow the terminal is."""


def document(findings: Sequence[Finding], facts: DoctorFacts) -> dict[str, Any]:
    """Return findings and versions as JSON values; a device is named by its UUID."""
    torch = facts.torch
    devices = {device.uuid: device for device in facts.gpus}
    return {
        "versions": {
            "gputop": __version__,
            "python": facts.python_version,
            "driver": facts.inventory.driver_version,
            "kernel_module": facts.system.module_version,
            "nvml_library": facts.system.library_version,
            "cuda_driver": facts.inventory.cuda_version,
            "torch": torch.version if torch else None,
            "torch_cuda": torch.cuda_version if torch else None,
            "torch_python": facts.found.chosen.path if facts.found.chosen else None,
        },
        "checks": [
            {
                "check": each.rule,
                "group": BY_NAME[each.rule].group,
                "status": STATUSES[each.severity][0],
                "finding": each.sentence,
                "remedy": remedy(each, _found_on(each, devices)) or None,
                "device": each.device_uuid or None,
                "rows": list(each.rows),
            }
            for each in findings
        ],
    }


def page(
    findings: Sequence[Finding],
    facts: DoctorFacts,
    width: int | None = None,
    *,
    colour: bool = False,
) -> str:
    """Return a line for each check with its remedy below, and a summary.

    Lines are broken at `width` columns if given. Without colours the text is the same.
    """
    devices = {device.uuid: device for device in facts.gpus}
    merged = list(_merged(findings, devices))
    titles = max(len(BY_NAME[finding.rule].title) for finding, _ in merged)
    indent = 2 + MARK_WIDTH + 2 + titles + 2
    room = None if width is None else max(LEAST_TEXT, width - indent)
    lines: list[str] = []
    group = None
    for finding, found_on in merged:
        check, severity = BY_NAME[finding.rule], finding.severity
        if check.group != group:
            group = check.group
            lines += ["", group] if lines else [group]
        word, _ = STATUSES[severity]
        mark = (word.upper() if severity is Severity.FAULT else word).ljust(MARK_WIDTH)
        mark = _painted(mark, severity if colour else None)
        first, *rest = _texts(finding, found_on, len(devices), room)
        lines.append(f"  {mark}  {check.title:<{titles}}  {first}")
        lines += [f"{'':{indent}}{line}" for line in rest]
    summary = _summary([finding.severity for finding, _ in merged], colour=colour)
    return "\n".join([*lines, "", summary])


def remedy(finding: Finding, devices: Iterable[Device]) -> str:
    """Return the remedy for the devices that have that finding."""
    return finding.advice.replace(INDEX, ",".join(str(each.index) for each in devices))


def _found_on(finding: Finding, devices: dict[str, Device]) -> list[Device]:
    device = devices.get(finding.device_uuid)
    return [] if device is None else [device]


def _painted(text: str, severity: Severity | None) -> str:
    return text if severity is None else f"\x1b[{STATUSES[severity][1]}m{text}\x1b[0m"


def _merged(
    findings: Iterable[Finding], devices: dict[str, Device]
) -> Iterator[tuple[Finding, list[Device]]]:
    """Merge what several devices have in common, at the place of the first."""
    groups: dict[Finding, list[Device]] = {}
    for finding in findings:
        same = groups.setdefault(replace(finding, device_uuid=""), [])
        same += _found_on(finding, devices)
    yield from groups.items()


def _named(devices: Sequence[Device], gpus: int) -> str:
    """Return which devices a text is about; empty if there is only one GPU."""
    if not devices or gpus == 1:
        return ""
    if len(devices) == gpus:
        return "all: "
    labels = ", ".join(device.label for device in devices)
    return f"GPU {labels}: " if len(devices) == 1 else f"GPUs {labels}: "


def _texts(
    finding: Finding, devices: Sequence[Device], gpus: int, room: int | None
) -> Iterator[str]:
    yield from _broken(f"{_named(devices, gpus)}{visible(finding.sentence, 600)}", room)
    for row in finding.rows:
        yield from _broken(row, room)
    if finding.advice and finding.severity is not Severity.OK:
        yield from _broken(f"> {visible(remedy(finding, devices), 600)}", room, "  ")


def _broken(text: str, room: int | None, indent: str = "") -> list[str]:
    if room is None:
        return [text]
    # Commands keep their hyphens.
    lines = textwrap.wrap(text, room, subsequent_indent=indent, break_on_hyphens=False)
    return lines or [""]


def _summary(severities: Sequence[Severity], *, colour: bool) -> str:
    counts = {severity: severities.count(severity) for severity in reversed(STATUSES)}
    parts = [
        f"{count} {STATUSES[severity][0]}{'s' if count != 1 else ''}"
        for severity, count in counts.items()
        if count and severity is not Severity.OK
    ]
    text = f"{', '.join(parts)}." if parts else "Nothing is wrong."
    if parts and not counts[Severity.FAULT]:
        text = f"No problem found; {text}"
    return _painted(text, max(severities, default=Severity.OK) if colour else None)
