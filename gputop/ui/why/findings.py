"""All findings with their evidence, the rules that found nothing, and those that cannot tell."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gputop.health.judge import BY_NAME, RULES, MissingReading
from gputop.schema.labels import ROWS
from gputop.schema.remedies import absence_text
from gputop.schema.snapshot import PROCESS_COUNT, PROCESS_CPU, PROCESS_IO_WAIT, SLOWDOWN_BITS
from gputop.ui.drawing.cells import Row, Span, rule_of
from gputop.ui.drawing.palette import ACCENT, GOOD, TEXT
from gputop.ui.model import find_device
from gputop.ui.widgets.finding import block
from gputop.ui.widgets.live import ScrolledView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputop.schema.device import Device

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

    of_all = False
    """True to show the findings of all devices."""

    @property
    def devices(self) -> Sequence[Device]:
        """Devices whose findings are shown."""
        if self.of_all:
            return self._telemetry.devices
        return (self.device,) if self.device else ()

    def all_rows(self, width: int) -> list[Row]:
        """Return the findings, then the rules that found nothing and those that cannot tell."""
        telemetry, shown = self._telemetry, {device.uuid for device in self.devices}
        rows: list[Row] = []
        for finding in telemetry.judgement.findings:
            device = find_device(telemetry.devices, finding.device_uuid)
            if device is None or device.uuid not in shown:
                continue
            label = device.label if self.of_all else ""
            rows += [*block(finding, device, telemetry, width, label), []]
        if not rows:
            rows = [[Span("No findings", GOOD)], []]
        return [*rows, *self._clear(width), *self._cannot_tell(width)]

    def _clear(self, width: int) -> list[Row]:
        """Return the rules that found nothing on any of the devices shown."""
        judgement = self._telemetry.judgement
        clear = [set(judgement.clear(device.uuid)) for device in self.devices]
        names = set.intersection(*clear) if clear else set()
        titles = [rule.title for rule in RULES if rule.name in names]
        text = ", ".join(titles) or "nothing yet"
        return [_heading("Looked for, not found", width), *_wrapped(text, width), []]

    def _cannot_tell(self, width: int) -> list[Row]:
        """Return the rules that lack evidence, by what they lack."""
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

    def _why(self, device: Device, missing: Iterable[MissingReading]) -> str:
        reasons: dict[str, list[str]] = {}
        for each in missing:
            if each.absence is not None:
                text = absence_text(each.reading, each.absence, device, self._telemetry.host)
                reasons.setdefault(text, []).append(LABELS.get(each.reading, each.reading))
        parts = [f"no {', '.join(names)} ({text})" for text, names in reasons.items()]
        return "; ".join(parts) or TOO_SHORT


def _heading(title: str, width: int) -> Row:
    return rule_of([Span(f"{title} ", ACCENT)], [], width)


def _wrapped(text: str, width: int) -> list[Row]:
    lines = textwrap.wrap(text, max(10, width - 2), break_on_hyphens=False)
    return [[Span(" " * (2 if n else 1)), Span(part, TEXT)] for n, part in enumerate(lines)]
