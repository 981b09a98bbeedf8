"""Page *Why is it slow?*: all findings of a device, or of all devices, with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputop.agent.device import Device
from gputop.health.findings import Evidence, Severity
from gputop.health.why import BOUND_BY, CHECKED, LACKING, figures
from gputop.schema import derived
from gputop.schema.derived import label_of, model_of
from gputop.text import duration, moment
from gputop.ui.drawing import cells
from gputop.ui.drawing.cells import Row, Span, heading, wrap
from gputop.ui.drawing.charts import (
    CHARTS,
    GUTTER,
    Chart,
    DrawnChart,
    newest_dots,
    samples_a_dot,
)
from gputop.ui.drawing.device_cells import sign_of
from gputop.ui.drawing.live import DeviceTab, DeviceView, ScrolledView
from gputop.ui.drawing.palette import (
    ACCENT,
    CPU,
    DIM,
    GOOD,
    MEMORY,
    STRONG,
    ink,
)
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.health.why import Entry, WhyReport

CHART_ROWS, MOST_CHARTS = 2, 2
INDENT = 4
LEAST_ROOM = 10
"""Minimum width of a chart."""
OF_EVIDENCE = (
    *CHARTS,
    Chart("DRAM active", "DRAM", "dram_active_percent", MEMORY),
    Chart("unattributed", "memory", "memory_unattributed_bytes", MEMORY),
    Chart("CPU, of a core", "CPU", derived.PROCESS_CPU, CPU),
    Chart("ECC corrected", "ECC", "ecc_corrected", ink(167)),
    Chart("PCIe generation", "PCIe", "pcie_generation", ink(140)),
)
EVIDENCE_CHARTS = {chart.name: chart for chart in OF_EVIDENCE}
"""Charts for readings whose course is useful."""


class FindingsView(ScrolledView):
    """Scrolling list of findings, the worst cause of slowness first."""

    of_all = True
    """True to show the findings of all devices, by cause."""

    @property
    def report(self) -> WhyReport:
        """The content of the page."""
        return self._telemetry.why(None if self.of_all else self.device)

    def all_rows(self, width: int) -> list[Row]:
        report = self.report
        rows: list[Row] = []
        if report.severity < Severity.WARNING:
            rows = [[Span(report.summary, GOOD)], []]
        section = ""
        for entry in report.entries:
            if entry.section != section:
                section = entry.section
                rows.append(heading(section, width))
            rows += [
                *entry_rows(entry, width),
                *self._charts(entry, width),
                [],
            ]
        if report.bounds:
            rows.append(heading(BOUND_BY, width))
            for line in report.bounds:
                rows += cells.paragraph(line, width, indent=" ")
            rows.append([])
        rows.append(heading(CHECKED, width))
        fine = ", ".join(report.fine) or "nothing yet"
        rows += [*cells.paragraph(fine, width, indent=" "), []]
        if report.lacking:
            rows.append(heading(LACKING, width))
        for reason, checks in report.lacking.items():
            line = f"{', '.join(checks)}: {reason}"
            rows += cells.paragraph(line, width, indent=" ")
        return rows

    def _charts(self, entry: Entry, width: int) -> list[Row]:
        """Draw the series behind the entry's numbers, on the page about one device."""
        if self.of_all or not entry.devices:
            return []
        names = dict.fromkeys(each.reading for each in entry.evidence[0])
        charts = [
            EVIDENCE_CHARTS[name] for name in names if name in EVIDENCE_CHARTS
        ]
        room, rows = max(1, width - INDENT), []
        for chart in charts[:MOST_CHARTS]:
            for row in _drawn(chart, entry.devices[0], self._telemetry, room):
                rows.append([Span(" " * INDENT), *row])
        return rows


class WhyTitle(DeviceView):
    """Title: the device, and how long it was watched."""

    def __init__(self, telemetry: Telemetry, findings: FindingsView) -> None:
        super().__init__(telemetry, id="why-title")
        self._findings = findings

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        device, devices = self._findings.device, self._telemetry.devices
        left = [Span("Why is it slow? ", ACCENT)]
        if self._findings.of_all:
            if len(devices) > 1:
                left.append(Span(f"all {len(devices)} devices ", STRONG))
        elif device is not None:
            left.append(
                Span(f"GPU {label_of(device)} {model_of(device)} ", STRONG),
            )
        history = self._telemetry.history
        seconds = history.span(len(history.times))
        right: list[Span] = []
        if seconds > 0:
            checks = self._findings.report.checks
            right = [
                Span(f" {checks} · watched for {duration(seconds)} ", DIM),
            ]
        return [cells.rule_of(left, right, width)]


def entry_rows(entry: Entry, width: int) -> list[Row]:
    """Draw an entry: its title, the remedy, and the numbers of each device."""
    sign = sign_of(entry.severity)
    style = STRONG if sign.style is DIM else sign.style
    time = ""
    if entry.since is not None:
        time = f"  since {moment(entry.since)}"
    first, *more = wrap(entry.title, width - 2 - len(time)) or [""]
    rows: list[Row] = [[sign, Span(first, style), Span(time, DIM)]]
    rows += [[Span("  "), Span(part, style)] for part in more]
    rows += cells.paragraph(entry.remedy, width, indent=" " * INDENT)
    labels = [label_of(device) for device in entry.devices]
    longest = max(map(len, labels), default=0)
    for label, evidence in zip(labels, entry.evidence, strict=True):
        who = ""
        if len(labels) > 1:
            who = f"GPU {label:<{longest}}  "
        for n, row in enumerate(
            _numbers(evidence, max(1, width - INDENT) - len(who)),
        ):
            name = who if n == 0 else " " * len(who)
            rows.append([Span(" " * INDENT), Span(name, STRONG), *row])
    return rows


def _numbers(evidence: Sequence[Evidence], width: int) -> list[Row]:
    rows: list[Row] = [[]]
    for label, text, time in figures(evidence):
        part = [Span(f"{label} ", DIM), Span(text, STRONG), Span(time, DIM)]
        if rows[-1] and cells.width_of([*rows[-1], *part]) + 3 > width:
            rows.append([])
        if rows[-1]:
            rows[-1].append(Span(" · ", DIM))
        rows[-1] += part
    return [row for row in rows if row]


def _drawn(
    chart: Chart,
    device: Device,
    telemetry: Telemetry,
    width: int,
) -> list[Row]:
    room, history = width - GUTTER, telemetry.history
    if room < LEAST_ROOM:
        return []
    samples = samples_a_dot(room, telemetry.interval)
    dots = newest_dots(history.count, room, samples)
    values = dots.means(history, device.uuid, chart.name)
    if not any(value is not None for value in values):
        return []
    readings, host = telemetry.readings(device.uuid), telemetry.host_of(device)
    top = chart.top(device, readings, host, values)
    scale = f"of {chart.text(top)}, {dots.span_text(telemetry.interval)}"
    drawn = DrawnChart(chart.label, "", scale, values, top, chart.style)
    return drawn.rows(CHART_ROWS)


class WhyPage(DeviceTab):
    """Findings with their evidence, rules without findings, and rules that cannot decide."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._findings = FindingsView(telemetry, id="findings")
        views = (WhyTitle(telemetry, self._findings), self._findings)
        super().__init__(telemetry, views, id="why")

    def show(self, uuid: str, of_all: bool = False) -> None:
        """Show the findings of a device, or of all devices if `of_all` and there are several."""
        self._findings.of_all = of_all and len(self.telemetry.devices) > 1
        super().show(uuid)

    def action_why(self) -> None:
        """Switch between the findings of all devices and of one device."""
        self._findings.of_all = not self._findings.of_all
        self.show_telemetry()
