"""Finding in one line, and its evidence as small charts. Pure functions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.health.findings import Cause, Evidence, Finding, Severity, cause_text
from gputop.schema.snapshot import HOST_CPU, PROCESS_CPU
from gputop.text import duration, moment
from gputop.ui.drawing.cells import Row, Span, cell, chart, clip_words, fit, live_window, width_of
from gputop.ui.drawing.palette import CPU, DIM, FAULT, MEMORY, STRONG, TEXT, WARN, ink
from gputop.ui.widgets.timeline import CHARTS, GUTTER, Chart

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.schema.device import Device
    from gputop.ui.model import Telemetry

SECTIONS = ("What slows the work", "Other problems", "Good to know")
"""Headings of causes, by their place."""
CHART_ROWS, MOST_CHARTS = 2, 2
INDENT = 4
EVIDENCE_CHARTS = {chart.name: chart for chart in CHARTS} | {
    chart.name: chart
    for chart in (
        Chart("DRAM active", "dram_active_percent", MEMORY),
        Chart("unattributed", "memory_unattributed_bytes", MEMORY),
        Chart("CPU, of a core", PROCESS_CPU, CPU),
        Chart("CPU of the host", HOST_CPU, CPU),
        Chart("ECC corrected", "ecc_corrected", ink(167)),
        Chart("PCIe generation", "pcie_generation", ink(140)),
    )
}
"""Charts for readings whose series is worth a picture."""


def style_of(severity: Severity) -> Style:
    return {Severity.FAULT: FAULT, Severity.WARNING: WARN}.get(severity, DIM)


def line(finding: Finding, width: int, label: str = "") -> Row:
    """Draw a finding in one line; `label` names its device if that is not clear."""
    row = [_sign(finding.severity)]
    if label:
        row.append(Span(f"GPU {label}: ", STRONG))
    text = clip_words(finding.sentence, width - width_of(row))
    return fit([*row, Span(text, TEXT if row[0].style is DIM else row[0].style)], width)


def _sign(severity: Severity) -> Span:
    return Span("· " if severity is Severity.INFORMATION else "▲ ", style_of(severity))


def block(finding: Finding, device: Device, telemetry: Telemetry, width: int) -> list[Row]:
    """Draw a finding of one device with its advice, its numbers and charts of them."""
    inner = max(1, width - INDENT)
    rows = cause_rows(finding.severity, finding.sentence, finding.since, finding.advice, width)
    body = _numbers(finding.evidence, inner)
    names = dict.fromkeys(each.reading for each in finding.evidence)
    for name in [name for name in names if name in EVIDENCE_CHARTS][:MOST_CHARTS]:
        body += _drawn(EVIDENCE_CHARTS[name], device, telemetry, inner)
    return rows + [[Span(" " * INDENT), *row] for row in body]


def cause_block(cause: Cause, devices: Mapping[str, Device], width: int) -> list[Row]:
    """Draw a cause with its advice, and the numbers of each of its devices."""
    labels = {uuid: device.label for uuid, device in devices.items()}
    first, inner = cause.findings[0], max(1, width - INDENT)
    since = min((each.since for each in cause.findings if each.since is not None), default=None)
    rows = cause_rows(cause.severity, cause_text(cause, labels), since, first.advice, width)
    longest = max(len(labels[each.device_uuid]) for each in cause.findings)
    for each in cause.findings:
        who = f"GPU {labels[each.device_uuid]:<{longest}}  " if len(cause.findings) > 1 else ""
        for n, row in enumerate(_numbers(each.evidence, inner - len(who))):
            name = who if n == 0 else " " * len(who)
            rows.append([Span(" " * INDENT), Span(name, STRONG), *row])
    return rows


def cause_rows(
    severity: Severity, text: str, since: float | None, advice: str, width: int
) -> list[Row]:
    """Draw a sentence with its sign and the time since when, and the advice under it."""
    sign, inner = _sign(severity), max(1, width - INDENT)
    style = STRONG if sign.style is DIM else sign.style
    time = "" if since is None else f"  since {moment(since)}"
    first, *more = textwrap.wrap(text, max(10, width - 2 - len(time))) or [""]
    rows: list[Row] = [[sign, Span(first, style), Span(time, DIM)]]
    rows += [[Span("  "), Span(part, style)] for part in more]
    return rows + [[Span(" " * INDENT), Span(part)] for part in textwrap.wrap(advice, inner)]


def _numbers(evidence: Sequence[Evidence], width: int) -> list[Row]:
    rows: list[Row] = [[]]
    said = ""
    for each in evidence:
        time = f" in {duration(each.seconds)}" if each.seconds and each.unit != "s" else ""
        time, said = "" if time == said else time, time or said
        part = [Span(f"{each.label} ", DIM), Span(each.text, STRONG), Span(time, DIM)]
        if rows[-1] and width_of([*rows[-1], *part]) + 3 > width:
            rows.append([])
        rows[-1] += [Span(" · ", DIM), *part] if rows[-1] else part
    return [row for row in rows if row]


def _drawn(each: Chart, device: Device, telemetry: Telemetry, width: int) -> list[Row]:
    room, history = width - GUTTER, telemetry.history
    values = history.series(device.uuid, each.name)
    if room < 10 or not any(value is not None for value in values[-2 * room :]):
        return []
    top = each.top(device, telemetry.readings(device.uuid), values)
    window = live_window(history.count, room, scroll=telemetry.scroll_charts)
    drawn = chart(values, history.count - len(values), window, CHART_ROWS, top, each.style)
    scale = f"of {each.text(top)}, {window.span_text(telemetry.interval)}"
    labels = [cell(each.label, GUTTER, DIM), cell(scale, GUTTER, DIM)]
    return [[label, *row] for label, row in zip(labels, drawn, strict=True)]
