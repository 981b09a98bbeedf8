"""Page *Why is it slow?*: all findings of a device, or of all devices, with their evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.health.conditions import fault_of
from gputop.health.findings import Severity, cause_text, lower_first, name_devices, summarize
from gputop.health.judge import BY_NAME, NoFinding
from gputop.schema import derived
from gputop.schema.advice import REBOOT
from gputop.schema.derived import label_of, model_of
from gputop.schema.labels import ROWS
from gputop.schema.values import absence_text
from gputop.text import duration, moment
from gputop.ui.device.timeline import CHARTS, GUTTER, Chart
from gputop.ui.drawing import cells
from gputop.ui.drawing.cells import Row, Span, heading, wrap
from gputop.ui.drawing.live import DeviceTab, DeviceView, ScrolledView
from gputop.ui.drawing.palette import ACCENT, CPU, DIM, GOOD, MEMORY, STRONG, ink
from gputop.ui.monitor.panel import sign_of

if TYPE_CHECKING:
    from gputop.agent.device import Absence, Device
    from gputop.health.findings import Cause, Evidence, Finding
    from gputop.ui.telemetry import Telemetry

LABELS = {name: row.label for row in ROWS for name in row.names[:1]} | {
    "state": "device",
    derived.PROCESS_COUNT: "processes",
    derived.PROCESS_CPU: "CPU of processes",
    derived.PROCESS_IO_WAIT: "I/O wait of processes",
    derived.SLOWDOWN_BITS: "held back by",
    "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe lanes",
    "pcie_generation_max": "highest PCIe generation",
    "pcie_width_max": "most PCIe lanes",
    "sm_clock_max_mhz": "highest SM clock",
}
"""Names of readings that a rule lacks."""
SECTIONS = ("What slows the work", "Other problems", "Good to know")
"""Headings of causes, by their place."""
CHART_ROWS, MOST_CHARTS = 2, 2
INDENT = 4
EVIDENCE_CHARTS = {chart.name: chart for chart in CHARTS} | {
    chart.name: chart
    for chart in (
        Chart("DRAM active", "dram_active_percent", MEMORY),
        Chart("unattributed", "memory_unattributed_bytes", MEMORY),
        Chart("CPU, of a core", derived.PROCESS_CPU, CPU),
        Chart("CPU of the host", derived.HOST_CPU, CPU),
        Chart("ECC corrected", "ecc_corrected", ink(167)),
        Chart("PCIe generation", "pcie_generation", ink(140)),
    )
}
"""Charts for readings whose series is worth a picture."""
TOO_SHORT = "not watched for long enough yet"


class FindingsView(ScrolledView):
    """Scrolling list of findings, the gravest first."""

    of_all = True
    """True to show the findings of all devices, by cause."""

    @property
    def devices(self) -> Sequence[Device]:
        if self.of_all:
            return self._telemetry.devices
        return (self.device,) if self.device else ()

    def all_rows(self, width: int) -> list[Row]:
        rows = [*self._causes(width)] if self.of_all else [*self._of_device(width)]
        return [*(rows or self._alerts(width)), *self._without_finding(width)]

    @property
    def _own_alerts(self) -> list[Finding]:
        shown = {device.uuid for device in self.devices}
        return [alert for alert in self._telemetry.alerts if alert.device_uuid in shown]

    def _alerts(self, width: int) -> list[Row]:
        """Return the alerts of the header while no rule has had the time to explain them."""
        alerts = summarize(self._own_alerts)
        rows = [row for each in alerts for row in (*cause_rows(*each, None, "", width), [])]
        return rows or [[Span("No problems found", GOOD)], []]

    def _of_device(self, width: int) -> Iterator[Row]:
        if self.device is not None:
            yield from self._of_machines(width, self.device)
            for finding in self._telemetry.judgement.for_device(self.device.uuid):
                yield from block(finding, self.device, self._telemetry, width)
                yield []

    def _causes(self, width: int) -> Iterator[Row]:
        """Yield what does not answer, then the causes: slowness first."""
        telemetry, before = self._telemetry, ""
        for what, remedy in self._broken():
            yield from cause_rows(Severity.FAULT, what, None, remedy, width)
            yield []
        yield from self._of_machines(width)
        devices = {device.uuid: device for device in telemetry.devices}
        for cause in telemetry.causes:
            uuids = [each.device_uuid for each in cause.findings]
            if not devices.keys() >= {*uuids}:
                continue  # gone since it was judged
            if fault_of(devices[uuids[0]], telemetry.readings(uuids[0])):
                continue  # told with its fault
            section = SECTIONS[cause.place]
            if section != before:
                yield heading(section, width)
                before = section
            yield from cause_block(cause, devices, width)
            yield []

    def _of_machines(self, width: int, device: Device | None = None) -> Iterator[Row]:
        """Yield what is wrong with the machines, or with that of the device."""
        for alert in self._telemetry.alerts:
            is_fault = alert.severity is Severity.FAULT
            if alert.device_uuid or not (is_fault or alert.advice):
                continue
            if device is None or device.machine in (None, alert.label):
                ((severity, words),) = summarize([alert])
                yield from cause_rows(severity, words, None, alert.advice, width)
                yield []

    def _broken(self) -> Iterator[tuple[str, str]]:
        """Yield devices that do not answer, in words with their remedies."""
        telemetry = self._telemetry
        for device in telemetry.devices:
            fault = fault_of(device, telemetry.readings(device.uuid))
            if fault is not None and device.parent_uuid is None:
                found = telemetry.problems.get(device.uuid)  # an Xid
                more = f". {found.sentence}" if found else ""
                remedy = fault.remedy
                if found and found.advice.startswith(REBOOT):
                    remedy = found.advice
                yield f"GPU {label_of(device)}: {fault.what}{more}", remedy

    def _silent(self) -> dict[str, list[tuple[Device, NoFinding]]]:
        """Return the verdicts by rule, without rules that have a finding or an alert above."""
        judgement = self._telemetry.judgement
        told = {alert.rule for alert in self._own_alerts}
        verdicts: dict[str, list[tuple[Device, NoFinding]]] = {}
        for device in self.devices:
            told |= {finding.rule for finding in judgement.for_device(device.uuid)}
            for verdict in judgement.without_finding(device.uuid):
                verdicts.setdefault(verdict.rule, []).append((device, verdict))
        return {rule: found for rule, found in verdicts.items() if rule not in told}

    def _without_finding(self, width: int) -> list[Row]:
        """Return the rules that found nothing, then those that cannot tell, with the reasons."""
        clear: list[str] = []
        lacking: dict[str, list[str]] = {}
        for rule, verdicts in self._silent().items():
            reasons: dict[str, list[str]] = {}
            for device, verdict in verdicts:
                if verdict.missing:
                    why = self._why(device, verdict.missing)
                    reasons.setdefault(why, []).append(label_of(device))
            for why, labels in reasons.items():
                some = len(labels) < len(self.devices)
                reason = f"on {name_devices(labels)}, {why}" if some else why
                lacking.setdefault(reason, []).append(BY_NAME[rule].title)
            clear += [BY_NAME[rule].title] * (not reasons)
        rows = [heading("Checked, no problem", width)]
        rows += [*_hanging(", ".join(clear) or "nothing yet", width), []]
        rows += [heading("Not enough data", width)] * bool(lacking)
        lines = (f"{', '.join(titles)}: {reason}" for reason, titles in lacking.items())
        return [*rows, *(row for line in lines for row in _hanging(line, width))]

    def _why(self, device: Device, missing: Mapping[str, Absence | None]) -> str:
        reasons: dict[str, list[str]] = {}
        for name, absence in missing.items():
            if absence is not None:
                text = absence_text(name, absence, device, self._telemetry.host)
                reasons.setdefault(text, []).append(LABELS.get(name, name))
        parts = [f"no {', '.join(names)} ({text})" for text, names in reasons.items()]
        return "; ".join(parts) or TOO_SHORT


class WhyTitle(DeviceView):
    """Title: the device, and for how long it was watched."""

    def __init__(self, telemetry: Telemetry, findings: FindingsView) -> None:
        super().__init__(telemetry, id="why-title")
        self._findings = findings

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        device, devices = self._findings.device, self._telemetry.devices
        left = [Span("Why is it slow? ", ACCENT)]
        if self._findings.of_all:
            left.append(Span(f"all {len(devices)} devices " if len(devices) > 1 else "", STRONG))
        elif device is not None:
            left.append(Span(f"GPU {label_of(device)} {model_of(device)} ", STRONG))
        history = self._telemetry.history
        seconds = history.span(len(history.times))
        right = [Span(f" watched for {duration(seconds)} ", DIM)] if seconds > 0 else []
        return [cells.rule_of(left, right, width)]


def _hanging(text: str, width: int) -> list[Row]:
    return [[Span(" " * (1 + bool(n))), Span(each)] for n, each in enumerate(wrap(text, width - 2))]


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
    labels = {uuid: label_of(device) for uuid, device in devices.items()}
    first, inner = cause.findings[0], max(1, width - INDENT)
    since = min((each.since for each in cause.findings if each.since is not None), default=None)
    advice = first.advice
    if any(each.advice != advice for each in cause.findings):  # it has a command for its device
        advice = f"GPU {labels[first.device_uuid]}: {lower_first(advice)}"
    rows = cause_rows(cause.severity, cause_text(cause, labels), since, advice, width)
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
    sign = sign_of(severity)
    style = STRONG if sign.style is DIM else sign.style
    time = "" if since is None else f"  since {moment(since)}"
    first, *more = wrap(text, width - 2 - len(time)) or [""]
    rows: list[Row] = [[sign, Span(first, style), Span(time, DIM)]]
    rows += [[Span("  "), Span(part, style)] for part in more]
    return rows + cells.paragraph(advice, width, indent=" " * INDENT)


def _numbers(evidence: Sequence[Evidence], width: int) -> list[Row]:
    rows: list[Row] = [[]]
    said = ""
    for each in evidence:
        time = f" in {duration(each.seconds)}" if each.seconds and each.unit != "s" else ""
        time, said = "" if time == said else time, time or said
        part = [Span(f"{each.label} ", DIM), Span(each.text, STRONG), Span(time, DIM)]
        if rows[-1] and cells.width_of([*rows[-1], *part]) + 3 > width:
            rows.append([])
        rows[-1] += [Span(" · ", DIM), *part] if rows[-1] else part
    return [row for row in rows if row]


def _drawn(each: Chart, device: Device, telemetry: Telemetry, width: int) -> list[Row]:
    room, history = width - GUTTER, telemetry.history
    values = history.series(device.uuid, each.name)
    if room < 10 or not any(value is not None for value in values[-2 * room :]):
        return []
    top = each.top(device, telemetry.readings(device.uuid), values)
    window = cells.live_window(history.count, room, scroll=telemetry.scroll_charts)
    drawn = cells.chart(values, history.count - len(values), window, CHART_ROWS, top, each.style)
    scale = f"of {each.text(top)}, {window.span_text(telemetry.interval)}"
    labels = [cells.cell(each.label, GUTTER, DIM), cells.cell(scale, GUTTER, DIM)]
    return [[label, *row] for label, row in zip(labels, drawn, strict=True)]


class WhyPage(DeviceTab):
    """Findings with their evidence, the rules that found nothing, and those that cannot tell."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._findings = FindingsView(telemetry, id="findings")
        views = (WhyTitle(telemetry, self._findings), self._findings)
        super().__init__(telemetry, views, id="why")

    def show(self, uuid: str, of_all: bool = False) -> None:
        """Show the findings of a device, or those of all devices if there are several."""
        self._findings.of_all = of_all and len(self.telemetry.devices) > 1
        super().show(uuid)

    def action_why(self) -> None:
        """Switch between the findings of all devices and of one."""
        self._findings.of_all = not self._findings.of_all
        self.show_telemetry()
