"""Page *Why is it slow?*: all findings of a device, or of all devices, with their evidence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.health.conditions import fault_of
from gputop.health.findings import Severity, summarize
from gputop.health.judge import BY_NAME, RULES
from gputop.schema.labels import ROWS
from gputop.schema.remedies import absence_text
from gputop.schema.snapshot import PROCESS_COUNT, PROCESS_CPU, PROCESS_IO_WAIT, SLOWDOWN_BITS
from gputop.text import duration, short_name, visible
from gputop.ui.drawing.cells import Row, Span, rule_of
from gputop.ui.drawing.palette import ACCENT, DIM, GOOD, STRONG, TEXT
from gputop.ui.widgets.finding import SECTIONS, block, cause_block, cause_rows
from gputop.ui.widgets.live import DeviceTab, DeviceView, ScrolledView

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gputop.schema.device import Absence, Device
    from gputop.ui.model import Telemetry

LABELS = {name: row.label for row in ROWS for name in row.names[:1]} | {
    "state": "device",
    PROCESS_COUNT: "processes",
    PROCESS_CPU: "CPU of processes",
    PROCESS_IO_WAIT: "I/O wait of processes",
    SLOWDOWN_BITS: "held back by",
    "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe lanes",
    "pcie_generation_max": "highest PCIe generation",
    "pcie_width_max": "most PCIe lanes",
    "sm_clock_max_mhz": "highest SM clock",
}
"""Names of readings that a rule lacks."""
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
        """Return the findings, then the rules that found nothing and those that cannot tell."""
        rows = [*self._causes(width)] if self.of_all else [*self._of_device(width)]
        if not rows:
            rows = [[Span("No findings", GOOD)], []]
        return [*rows, *self._clear(width), *self._cannot_tell(width)]

    def _of_device(self, width: int) -> Iterator[Row]:
        if self.device is not None:
            for finding in self._telemetry.judgement.for_device(self.device.uuid):
                yield from block(finding, self.device, self._telemetry, width)
                yield []

    def _causes(self, width: int) -> Iterator[Row]:
        """Yield what does not answer, then the causes: slowness first."""
        telemetry, before = self._telemetry, ""
        for what, remedy in self._broken():
            yield from cause_rows(Severity.FAULT, what, None, remedy, width)
            yield []
        devices = {device.uuid: device for device in telemetry.devices}
        for cause in telemetry.causes:
            uuids = [each.device_uuid for each in cause.findings]
            if not devices.keys() >= {*uuids} or fault_of(telemetry.readings(uuids[0])):
                continue  # gone since it was judged, or told with its fault
            section = SECTIONS[cause.place]
            if section != before:
                yield _heading(section, width)
                before = section
            yield from cause_block(cause, devices, width)
            yield []

    def _broken(self) -> Iterator[tuple[str, str]]:
        """Yield devices and machines that do not answer, in words with their remedies."""
        telemetry = self._telemetry
        for device in telemetry.devices:
            fault = fault_of(telemetry.readings(device.uuid))
            if fault is not None and device.parent_uuid is None:
                found = telemetry.problems.get(device.uuid)  # an Xid
                more = f". {found.sentence}" if found else ""
                yield f"GPU {device.label}: {fault.what}{more}", fault.remedy
        for severity, words in summarize(a for a in telemetry.alerts if not a.device_uuid):
            if severity is Severity.FAULT:
                yield words, ""

    def _clear(self, width: int) -> list[Row]:
        judgement = self._telemetry.judgement
        clear = [set(judgement.clear(device.uuid)) for device in self.devices]
        names = set.intersection(*clear) if clear else set()
        titles = [rule.title for rule in RULES if rule.name in names]
        text = ", ".join(titles) or "nothing yet"
        return [_heading("Looked for, not found", width), *_wrapped(text, width), []]

    def _cannot_tell(self, width: int) -> list[Row]:
        groups: dict[str, dict[str, None]] = {}
        for device in self.devices:
            for verdict in self._telemetry.judgement.insufficient(device.uuid):
                why = self._why(device, verdict.missing)
                groups.setdefault(why, {})[BY_NAME[verdict.rule].title] = None
        if not groups:
            return []
        rows = [_heading("Cannot tell", width)]
        for why, titles in groups.items():
            rows += _wrapped(f"{', '.join(titles)}: {why}", width)
        return rows

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
            name = short_name(visible(device.name))
            left.append(Span(f"GPU {device.label} {name} ", STRONG))
        history = self._telemetry.history
        seconds = history.span(len(history.times))
        right = [Span(f" watched for {duration(seconds)} ", DIM)] if seconds > 0 else []
        return [rule_of(left, right, width)]


def _heading(title: str, width: int) -> Row:
    return rule_of([Span(f"{title} ", ACCENT)], [], width)


def _wrapped(text: str, width: int) -> list[Row]:
    lines = textwrap.wrap(text, max(10, width - 2), break_on_hyphens=False)
    return [[Span(" " * (2 if n else 1)), Span(part, TEXT)] for n, part in enumerate(lines)]


class WhyPage(DeviceTab):
    """Findings with their evidence, the rules that found nothing, and those that cannot tell."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._findings = FindingsView(telemetry, id="findings")
        views = (WhyTitle(telemetry, self._findings), self._findings)
        super().__init__(telemetry, views, id="why")

    def compose(self) -> ComposeResult:
        yield from self._views

    def show(self, uuid: str) -> None:
        """Show the findings of a device; from a list of devices, those of all come first."""
        self._findings.of_all = False
        super().show(uuid)

    def show_all(self) -> None:
        """Show the findings of all devices, if there are several."""
        self._findings.of_all = len(self.telemetry.devices) > 1
        self.show_telemetry()

    def action_why(self) -> None:
        """Switch between the findings of all devices and of one."""
        self._findings.of_all = not self._findings.of_all
        self.show_telemetry()
