"""The page *Why is it slow?* as text, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputop.agent.snapshot import Source
from gputop.health.findings import Severity
from gputop.health.why import BOUND_BY, CHECKED, LACKING, figures
from gputop.output import pages
from gputop.output.pages import cell
from gputop.schema.derived import gpus_text, label_of
from gputop.text import count, duration, moment, visible

if TYPE_CHECKING:
    from gputop.agent.snapshot import Inventory, Sample
    from gputop.health.findings import Evidence
    from gputop.health.why import Entry, WhyReport

WORDS = {
    Severity.INFORMATION: ("note", pages.CYAN),
    Severity.WARNING: ("warning", pages.YELLOW),
    Severity.FAULT: ("FAULT", pages.LOUD_RED),
}


def page(
    report: WhyReport,
    inventory: Inventory,
    sample: Sample,
    seconds: float,
    width: int | None,
    *,
    colour: bool,
) -> str:
    """Return the page as text, with lines of at most `width` columns if given."""
    style = ""
    if report.severity >= Severity.WARNING:
        _, style = WORDS[report.severity]
    parts: list[RenderableType] = [
        _heading(inventory, sample, seconds, width),
        Text.assemble((report.summary, style)),
    ]
    section, table = "", _entries()
    for entry in report.entries:
        if entry.section != section:
            section, table = entry.section, _entries()
            parts += ["", section]
        if table not in parts:
            parts.append(table)
        _add_entry(table, entry)
    parts += ["", BOUND_BY]
    parts += [_indented(line) for line in report.bounds]
    parts += ["", CHECKED, _indented(", ".join(report.fine) or "nothing yet")]
    if report.lacking:
        parts += ["", LACKING]
    for reason, checks in report.lacking.items():
        parts.append(_indented(f"{', '.join(checks)}: {reason}"))
    return pages.rendered(*parts, width=width, colour=colour)


def _heading(
    inventory: Inventory, sample: Sample, seconds: float, width: int | None
) -> Text:
    name = visible(inventory.hostname)
    if sample.machines:
        name = count(len(sample.machines), "host")
    until = moment(sample.time, "%Y-%m-%d %H:%M:%S")
    parts = [
        cell(name),
        pages.simulated(is_so=inventory.source is Source.SIMULATED),
        cell(gpus_text(inventory)),
        cell(f"watched for {duration(seconds)} until {until}"),
    ]
    return pages.joined(parts, width)


def _entries() -> Table:
    """Return an empty table for findings: the severity at the left, the texts at the right."""
    table = pages.table(header=False)
    table.add_column(min_width=len("warning"), no_wrap=True)
    table.add_column()
    return table


def _add_entry(table: Table, entry: Entry) -> None:
    table.add_row(
        Text.assemble(WORDS[entry.severity]), Text(visible(entry.title))
    )
    for device, evidence in zip(entry.devices, entry.evidence, strict=True):
        if evidence:
            text = _numbers(evidence)
            if len(entry.devices) > 1:
                text = f"GPU {label_of(device)}: {text}"
            table.add_row("", Text.assemble((visible(text), pages.DIM)))
    if entry.remedy:
        table.add_row("", pages.remedy(visible(entry.remedy)))


def _numbers(evidence: Iterable[Evidence]) -> str:
    parts = []
    for label, text, time in figures(evidence):
        parts.append(f"{label} {text}{time}")
    return " · ".join(parts)


def _indented(text: str) -> RenderableType:
    return Padding(Text(visible(text)), (0, 0, 0, pages.GAP))


def document(
    report: WhyReport, inventory: Inventory, sample: Sample, seconds: float
) -> dict[str, Any]:
    """Return the page as JSON values."""
    return {
        "hostname": inventory.hostname,
        "source": inventory.source,
        "time": sample.time,
        "watched_seconds": seconds,
        "severity": report.severity.word,
        "checks_done": report.done,
        "checks": report.total,
        "bound_by": {
            device.uuid: each.plain for device, each in report.bound_by
        },
        "findings": [_finding(each) for each in report.entries],
        "checked": [*report.fine],
        "not_enough_data": [
            {"checks": checks, "reason": reason}
            for reason, checks in report.lacking.items()
        ],
    }


def _finding(entry: Entry) -> dict[str, Any]:
    devices = []
    for device, evidence in zip(entry.devices, entry.evidence, strict=True):
        devices.append(
            {
                "uuid": device.uuid,
                "label": label_of(device),
                "evidence": [_evidence(each) for each in evidence],
            }
        )
    return {
        "severity": entry.severity.word,
        "section": entry.section or None,
        "title": entry.title,
        "remedy": entry.remedy or None,
        "devices": devices,
    }


def _evidence(each: Evidence) -> dict[str, Any]:
    return {
        "label": each.label,
        "reading": each.reading,
        "value": each.value,
        "unit": each.unit,
        "seconds": each.seconds,
    }
