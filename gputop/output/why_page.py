"""The page *Why is it slow?* as text, and as a JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gputop.agent.snapshot import Source
from gputop.health.findings import Severity
from gputop.health.why import CHECKED, LACKING, figures
from gputop.output.ansi import CYAN, DIM, LOUD_RED, YELLOW, Line, Piece, with_dots
from gputop.schema.derived import gpus_text, label_of
from gputop.text import duration, moment, visible

if TYPE_CHECKING:
    from gputop.agent.snapshot import Inventory, Sample
    from gputop.health.why import Entry, WhyReport

WORDS = {
    Severity.INFORMATION: ("note", CYAN),
    Severity.WARNING: ("warning", YELLOW),
    Severity.FAULT: ("FAULT", LOUD_RED),
}
MARK = "         "
"""Indentation of lines under a title."""


def page(
    report: WhyReport,
    inventory: Inventory,
    sample: Sample,
    seconds: float,
    width: int | None,
) -> Iterator[Line]:
    """Yield the lines of the page."""
    yield _heading(inventory, sample, seconds)
    worst = WORDS.get(report.severity, ("", ""))
    look = worst[1] if report.severity >= Severity.WARNING else ""
    yield [Piece(report.summary, look)]
    section = ""
    for entry in report.entries:
        if entry.section != section:
            section = entry.section
            yield []
            yield [Piece(section)]
        yield from _entry_lines(entry, width)
    yield []
    yield [Piece(CHECKED)]
    yield from _wrapped(", ".join(report.fine) or "nothing yet", width, "  ")
    if report.lacking:
        yield []
        yield [Piece(LACKING)]
    for lack in report.lacking:
        yield from _wrapped(f"{', '.join(lack.checks)}: {lack.reason}", width, "  ")


def _heading(inventory: Inventory, sample: Sample, seconds: float) -> Line:
    name = visible(inventory.hostname)
    if sample.machines:
        name = f"{len(sample.machines)} hosts"
    parts = [Piece(name)]
    if inventory.source is Source.SIMULATED:
        parts.append(Piece("SIMULATED", YELLOW))
    parts.append(Piece(gpus_text(inventory)))
    until = moment(sample.time, "%Y-%m-%d %H:%M:%S")
    parts.append(Piece(f"watched for {duration(seconds)} until {until}"))
    return with_dots(parts)


def _entry_lines(entry: Entry, width: int | None) -> Iterator[Line]:
    word, look = WORDS[entry.severity]
    first, *rest = _wrapped(entry.title, width, MARK)
    first[0] = Piece(f"{word:<{len(MARK)}}", look)
    yield first
    yield from rest
    for device, evidence in zip(entry.devices, entry.evidence, strict=True):
        numbers = " · ".join(
            f"{label} {text}{time}" for label, text, time in figures(evidence)
        )
        if len(entry.devices) > 1:
            numbers = f"GPU {label_of(device)}: {numbers}"
        if evidence:
            yield from _wrapped(numbers, width, MARK, DIM)
    if entry.remedy:
        yield from _wrapped(f"> {entry.remedy}", width, MARK)


def _wrapped(
    text: str, width: int | None, indent: str, look: str = ""
) -> Iterator[Line]:
    room = max(20, (width or len(text) + 99) - len(indent))
    for line in textwrap.wrap(visible(text), room, break_on_hyphens=False):
        yield [Piece(indent), Piece(line, look)]


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
        "findings": [_finding(each) for each in report.entries],
        "checked": [*report.fine],
        "not_enough_data": [
            {"checks": [*each.checks], "reason": each.reason} for each in report.lacking
        ],
    }


def _finding(entry: Entry) -> dict[str, Any]:
    devices = []
    for device, evidence in zip(entry.devices, entry.evidence, strict=True):
        numbers = []
        for each in evidence:
            number = {
                name: getattr(each, name)
                for name in ("label", "reading", "value", "unit")
            }
            numbers.append({**number, "seconds": each.seconds})
        devices.append(
            {"uuid": device.uuid, "label": label_of(device), "evidence": numbers}
        )
    return {
        "severity": entry.severity.word,
        "section": entry.section or None,
        "title": entry.title,
        "remedy": entry.remedy or None,
        "devices": devices,
    }
