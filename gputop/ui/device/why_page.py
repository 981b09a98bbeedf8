"""Page *Why is it slow?*: all findings of a device, or of all devices, with their evidence."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from gputop.health.findings import Severity
from gputop.output.why_page import Look, report_parts
from gputop.schema.derived import label_of, model_of
from gputop.text import duration
from gputop.ui.drawing.live import DeviceTab
from gputop.ui.drawing.page import ScrolledPage
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, GOOD, STRONG, WARN
from gputop.ui.telemetry import Telemetry

LOOK = Look(
    {
        Severity.INFORMATION: DIM,
        Severity.WARNING: WARN,
        Severity.FAULT: FAULT,
    },
    fine=GOOD,
    heading=ACCENT,
    label=DIM,
    value=STRONG,
    is_dated=True,
)


class FindingsView(ScrolledPage):
    """The page of `gputop why`, under a title."""

    of_all = True
    """True to show the findings of all devices, by cause."""

    def title(self) -> Text:
        """Return the device, and how long it was watched."""
        devices, device = self._telemetry.devices, self.device
        about = ""
        if not self.of_all and device is not None:
            about = f"GPU {label_of(device)} {model_of(device)}"
        elif len(devices) > 1:
            about = f"all {len(devices)} devices"
        title = Text.assemble(("Why is it slow? ", ACCENT), (about, STRONG))
        history = self._telemetry.history
        seconds = history.span(len(history.times))
        return title.append(f"  watched for {duration(seconds)}", DIM)

    def page(self) -> RenderableType:
        device = None if self.of_all else self.device
        report = self._telemetry.why(device)
        return Group(*report_parts(report, LOOK))


class WhyPage(DeviceTab):
    """Findings with their evidence, rules without findings, and rules that cannot decide."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._findings = FindingsView(telemetry, id="findings")
        super().__init__(telemetry, [self._findings], id="why")

    def show(self, uuid: str, of_all: bool = False) -> None:
        """Show the findings of a device, or of all devices if `of_all` and there are several."""
        self._findings.of_all = of_all and len(self.telemetry.devices) > 1
        super().show(uuid)

    def action_why(self) -> None:
        """Switch between the findings of all devices and of one device."""
        self._findings.of_all = not self._findings.of_all
        self.show_telemetry()
