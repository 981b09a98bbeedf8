"""The findings of `gputop doctor` as text, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gputop import __version__
from gputop.health.doctor import BY_NAME
from gputop.health.findings import Finding, Severity, name_devices
from gputop.output import pages
from gputop.schema.advice import fill_index
from gputop.schema.derived import label_of
from gputop.text import count, visible

if TYPE_CHECKING:
    from gputop.agent.device import Device
    from gputop.health.doctor.doctor_facts import DoctorFacts

STATUSES = {
    Severity.OK: ("ok", pages.GREEN),
    Severity.INFORMATION: ("note", pages.CYAN),
    Severity.WARNING: ("warning", pages.YELLOW),
    Severity.FAULT: ("problem", pages.LOUD_RED),
}
"""Words and colours of the severities, in ascending order."""
LEAST_WIDTH = 56
"""Minimum width of the page, even on a narrower terminal. It leaves 30 columns for the text."""


def document(
    findings: Sequence[Finding], facts: DoctorFacts
) -> dict[str, Any]:
    """Return findings and versions as JSON values. Devices are identified by UUID."""
    return {
        "versions": {
            "gputop": __version__,
            "python": facts.python_version,
            "driver": facts.inventory.driver_version,
            "kernel_module": facts.system.module_version,
            "nvml_library": facts.system.library_version,
            "cuda_driver": facts.inventory.cuda_version,
            "torch": getattr(facts.torch, "version", None),
            "torch_cuda": getattr(facts.torch, "cuda_version", None),
            "torch_python": getattr(facts.found.chosen, "path", None),
        },
        "checks": [_check(finding, facts.gpus) for finding in findings],
    }


def _check(finding: Finding, gpus: Iterable[Device]) -> dict[str, Any]:
    status, _ = STATUSES[finding.severity]
    return {
        "check": finding.rule,
        "group": BY_NAME[finding.rule].group,
        "status": status,
        "finding": finding.line,
        "remedy": fill_index(finding.remedy, _found_on(finding, gpus)) or None,
        "device": finding.device_uuid or None,
    }


def page(
    findings: Sequence[Finding],
    facts: DoctorFacts,
    width: int | None = None,
    *,
    colour: bool = False,
) -> str:
    """Return a line for each check with its remedy below, and a summary.

    Lines are broken at `width` columns if given.
    """
    merged = _merged(findings, facts.gpus)
    parts: list[RenderableType] = []
    group, table = "", pages.table()
    for finding, devices in merged:
        check = BY_NAME[finding.rule]
        if check.group != group:
            if parts:
                parts.append("")
            group, table = check.group, _checks(merged)
            parts += [group, table]
        _add_finding(table, finding, devices, len(facts.gpus))
    parts += ["", _summary([finding.severity for finding, _ in merged])]
    if width is not None:
        width = max(width, LEAST_WIDTH)
    return pages.rendered(*parts, width=width, colour=colour)


def _checks(merged: Iterable[tuple[Finding, object]]) -> Table:
    """Return an empty table for the checks of a group. Columns of all groups are aligned."""
    table = pages.table(header=False)
    table.add_column(width=0)
    table.add_column(min_width=len("problem"))
    titles = [BY_NAME[finding.rule].title for finding, _ in merged]
    table.add_column(min_width=max(map(len, titles)), no_wrap=True)
    table.add_column()
    return table


def _add_finding(
    table: Table, finding: Finding, devices: Sequence[Device], gpus: int
) -> None:
    word, style = STATUSES[finding.severity]
    if finding.severity is Severity.FAULT:
        word = word.upper()
    texts: list[RenderableType] = [
        Text(f"{_named(devices, gpus)}{visible(finding.line)}")
    ]
    if finding.remedy and finding.severity is not Severity.OK:
        text = visible(fill_index(finding.remedy, devices))
        texts.append(pages.remedy(text))
    title = BY_NAME[finding.rule].title
    table.add_row("", Text.assemble((word, style)), title, Group(*texts))


def _found_on(finding: Finding, gpus: Iterable[Device]) -> list[Device]:
    return [device for device in gpus if device.uuid == finding.device_uuid]


def _merged(
    findings: Iterable[Finding], gpus: Iterable[Device]
) -> list[tuple[Finding, list[Device]]]:
    """Merge equal findings of several devices, at the position of the first."""
    groups: dict[Finding, list[Device]] = {}
    for finding in findings:
        same = groups.setdefault(replace(finding, device_uuid=""), [])
        same += _found_on(finding, gpus)
    return list(groups.items())


def _named(devices: Sequence[Device], gpus: int) -> str:
    """Return a prefix that names the devices of a finding; empty if there is only one GPU."""
    if not devices or gpus == 1:
        return ""
    if len(devices) == gpus:
        return "all: "
    return f"{name_devices(list(map(label_of, devices)))}: "


def _summary(severities: Sequence[Severity]) -> Text:
    parts = []
    for severity in reversed(STATUSES):
        if severity is not Severity.OK and severity in severities:
            word, _ = STATUSES[severity]
            parts.append(count(severities.count(severity), word))
    text = "No problems found."
    if parts:
        text = f"{', '.join(parts)}."
        if Severity.FAULT not in severities:
            text = f"No problem found; {text}"
    _, style = STATUSES[max(severities, default=Severity.OK)]
    return Text.assemble((text, style))
