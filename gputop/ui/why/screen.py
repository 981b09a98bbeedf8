"""Page *Why is it slow?*: all findings of a device, or of all devices, with their evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import duration, short_name, visible
from gputop.ui.drawing.cells import Row, Span, rule_of
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG
from gputop.ui.model import find_device
from gputop.ui.why.findings import FindingsView
from gputop.ui.widgets.live import DeviceTab, LiveView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.schema.device import Device
    from gputop.ui.model import Telemetry


class WhyTitle(LiveView):
    """Title: the device, and for how long it was watched."""

    def __init__(self, telemetry: Telemetry, findings: FindingsView) -> None:
        super().__init__(id="why-title")
        self._telemetry = telemetry
        self._findings = findings

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """Draw one row."""
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


class WhyPage(DeviceTab):
    """Findings and their evidence."""

    DEFAULT_CSS = """
    WhyPage { height: 1fr; }
    WhyPage #why-title { height: 1; }
    WhyPage #findings { height: 1fr; }
    """

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="why")
        self.telemetry = telemetry
        self._findings = FindingsView(telemetry, id="findings")
        self._title = WhyTitle(telemetry, self._findings)

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._findings

    @property
    def selected(self) -> Device | None:
        """Device whose findings are shown, also among all."""
        return self._findings.device

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        """Return the page and its findings, which scroll."""
        return (self, self._findings)

    def show(self, uuid: str) -> None:
        """Show the findings of a device."""
        self._findings.device = find_device(self.telemetry.devices, uuid)
        self._findings.of_all = False
        self.show_telemetry()

    def show_telemetry(self) -> None:
        """Redraw what changed."""
        device = self._findings.device
        if device is not None:
            self._findings.device = find_device(self.telemetry.devices, device.uuid) or device
        self._title.redraw()
        self._findings.redraw()

    def action_why(self) -> None:
        """Switch between the findings of all devices and of one."""
        self._findings.of_all = not self._findings.of_all
        self.show_telemetry()
