"""The page *Why is it slow?* as text, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import RenderableType
from rich.padding import Padding
from rich.style import StyleType
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
    Severity.INFORMATION: "note",
    Severity.WARNING: "warning",
    Severity.FAULT: "FAULT",
}


class Look(NamedTuple):
    """Look of the page."""

    severity: Mapping[Severity, StyleType]
    fine: StyleType = ""
    heading: StyleType = ""
    label: StyleType = pages.DIM
    value: StyleType = pages.DIM
    is_dated: bool = False
    """True to add the time at which each finding was first made."""


LOOK = Look(
    {
        Severity.INFORMATION: pages.CYAN,
        Severity.WARNING: pages.YELLOW,
        Severity.FAULT: pages.LOUD_RED,
    }
)


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
    heading = _heading(inventory, sample, seconds, width)
    parts = report_parts(report, LOOK)
    return pages.rendered(heading, *parts, width=width, colour=colour)


def report_parts(report: WhyReport, look: Look) -> Iterator[RenderableType]:
    """Yield the parts of the page, from the summary to the checks without data."""
    style = look.fine
    if report.severity >= Severity.WARNING:
        style = look.severity[report.severity]
    yield Text(report.summary, style)
    section, table = "", _entries()
    for entry in report.entries:
        if entry.section != section:
            yield table
            section, table = entry.section, _entries()
            yield from _title(section, look)
        _add_entry(table, entry, look)
    yield table
    if report.bounds:
        yield from _title(BOUND_BY, look)
    for line in report.bounds:
        yield _indented(line)
    yield from _title(CHECKED, look)
    yield _indented(", ".join(report.fine) or "nothing yet")
    if report.lacking:
        yield from _title(LACKING, look)
    for reason, checks in report.lacking.items():
        yield _indented(f"{', '.join(checks)}: {reason}")


def _title(title: str, look: Look) -> Iterator[RenderableType]:
    yield ""
    yield Text(title, look.heading)


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
    return table


def _add_entry(table: Table, entry: Entry, look: Look) -> None:
    style = look.severity[entry.severity]
    title = Text(visible(entry.title))
    if entry.since is not None and look.is_dated:
        title.append(f"  since {moment(entry.since)}", look.label)
    table.add_row(Text(WORDS[entry.severity], style), title)
    for device, evidence in zip(entry.devices, entry.evidence, strict=True):
        if evidence:
            text = _numbers(evidence, look)
            if len(entry.devices) > 1:
                who = Text(f"GPU {label_of(device)}: ", look.label)
                text = who + text
            table.add_row("", text)
    if entry.remedy:
        table.add_row("", pages.remedy(visible(entry.remedy)))


def _numbers(evidence: Iterable[Evidence], look: Look) -> Text:
    parts = []
    for label, text, time in figures(evidence):
        part = Text(f"{label} ", look.label)
        part.append(visible(text), look.value)
        parts.append(part.append(time, look.label))
    return Text(" · ", look.label).join(parts)


def _indented(text: str) -> RenderableType:
    return Padding.indent(Text(visible(text)), pages.GAP)


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
