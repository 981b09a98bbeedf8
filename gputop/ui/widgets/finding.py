"""Finding in one line, and its evidence as small charts. Pure functions."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gputop.health.findings import Severity
from gputop.schema.snapshot import HOST_CPU, PROCESS_CPU
from gputop.text import duration, moment
from gputop.ui.drawing.cells import Row, Span, cell, clip_words, fit, history, width_of
from gputop.ui.drawing.palette import CPU, DIM, FAULT, MEMORY, STRONG, TEXT, WARN, ink
from gputop.ui.widgets.timeline import CHARTS, GUTTER, Chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style

    from gputop.health.findings import Evidence, Finding
    from gputop.schema.device import Device
    from gputop.ui.model import Telemetry

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
    """Return the colour of a severity."""
    return {Severity.FAULT: FAULT, Severity.WARNING: WARN}.get(severity, DIM)


def line(finding: Finding, width: int, label: str = "") -> Row:
    """Draw a finding in one line; `label` names its device if that is not clear."""
    sign = "·" if finding.severity is Severity.INFORMATION else "▲"
    style = style_of(finding.severity)
    row = [Span(f"{sign} ", style)]
    if label:
        row.append(Span(f"GPU {label}: ", STRONG))
    text = clip_words(finding.sentence, width - width_of(row))
    return fit([*row, Span(text, TEXT if style is DIM else style)], width)


def block(
    finding: Finding, device: Device, telemetry: Telemetry, width: int, label: str
) -> list[Row]:
    """Draw a finding with its advice, its numbers and charts of them."""
    inner = max(1, width - INDENT)
    since = "" if finding.since is None else f"  since {moment(finding.since)}"
    sign, *_ = line(finding, width)
    style = style_of(finding.severity)
    style = STRONG if style is DIM else style
    text = (f"GPU {label}: " if label else "") + finding.sentence
    first, *more = textwrap.wrap(text, max(10, width - 2 - len(since))) or [""]
    rows: list[Row] = [[sign, Span(first, style), Span(since, DIM)]]
    rows += [[Span("  "), Span(part, style)] for part in more]
    rows += [[Span(" " * INDENT), Span(part)] for part in textwrap.wrap(finding.advice, inner)]
    rows += [[Span(" " * INDENT), *row] for row in _numbers(finding.evidence, inner)]
    for chart in () if label else _charts(finding):  # there is no room for those of all devices
        rows += [[Span(" " * INDENT), *row] for row in _drawn(chart, device, telemetry, inner)]
    return rows


def _numbers(evidence: Sequence[Evidence], width: int) -> list[Row]:
    """Draw label, number and time of each evidence, as many to a line as fit."""
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


def _charts(finding: Finding) -> list[Chart]:
    names = dict.fromkeys(each.reading for each in finding.evidence)
    return [EVIDENCE_CHARTS[name] for name in names if name in EVIDENCE_CHARTS][:MOST_CHARTS]


def _drawn(chart: Chart, device: Device, telemetry: Telemetry, width: int) -> list[Row]:
    room = width - GUTTER
    values = telemetry.history.series(device.uuid, chart.name)
    if room < 10 or not any(value is not None for value in values[-2 * room :]):
        return []
    top = chart.top(device, telemetry.readings(device.uuid), values)
    drawn = history(values, telemetry.history.count, room, CHART_ROWS, top, chart.style)
    labels = [cell(chart.label, GUTTER, DIM), cell("", GUTTER)]
    return [[label, *row] for label, row in zip(labels, drawn, strict=True)]
