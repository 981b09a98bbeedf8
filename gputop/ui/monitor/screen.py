"""Monitor tab: all devices and their processes; without devices, the host."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.events import Click
from textual.widget import Widget

from gputop.agent.device import Device
from gputop.ui.drawing.cells import Row, Span, paragraph
from gputop.ui.drawing.device_cells import sign_of
from gputop.ui.drawing.live import TelemetryView, space_of
from gputop.ui.drawing.palette import DIM
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.layout import process_rows
from gputop.ui.processes.screen import ListTab, ProcessesView
from gputop.ui.processes.table_state import ProcessTable
from gputop.ui.telemetry import Telemetry
from gputop.ui.trouble import stream_trouble

HINTS = "Press b to stress-test the CPU. gputop --demo simulates devices."


class HostView(TelemetryView):
    """View with the reason why there are no devices. The header shows the host."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - few rows
        inner = width - 4
        trouble = stream_trouble(self._telemetry)
        rows: list[Row] = [[]]
        if trouble is not None:
            style = sign_of(trouble.severity).style
            rows += paragraph(f"{trouble.what}.", inner, style)
            if trouble.remedy:
                rows += paragraph(f"{trouble.remedy}.", inner)
        # A stress test runs on this machine only.
        if not self._telemetry.starting and not self._telemetry.machines:
            rows += paragraph(HINTS, inner, DIM)
        return [[Span("  "), *row] for row in rows]


class MonitorTab(ListTab):
    """Tab with devices and processes, laid out for the available space.

    Keys go to the devices or to the processes. Tab switches between them.
    """

    wants_gpm = True
    """True, because the bottleneck of each device needs GPM."""

    processes: ProcessesView

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        view = ProcessesView(telemetry, table)
        super().__init__(telemetry, view, "monitor")
        self.devices = DevicesView(telemetry)
        self._host = HostView(telemetry, id="host")

    def compose(self) -> ComposeResult:
        yield self.devices
        yield self.processes
        yield self._host

    @property
    def selected(self) -> Device | None:
        """Selected device, or the selected process's device if the processes have the focus."""
        if self.processes.focused_list and self.process is not None:
            return super().selected
        return self.devices.device

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        """Widgets that handle keys. Some keys always go to the processes."""
        if self.processes.focused_list:
            return (self, self.processes)
        return (self, self.devices, self.processes)

    def show_telemetry(self) -> None:
        self._arrange()
        for view in (self.devices, self.processes, self._host):
            view.redraw()

    def is_right(self, uuid: str) -> bool:
        return self.devices.is_right(uuid)

    def action_density(self) -> None:
        self.devices.next_density()
        self.show_telemetry()

    def action_switch(self) -> None:
        self._go_to_list(to_it=not self.processes.focused_list)

    def _go_to_list(self, *, to_it: bool) -> None:
        self.processes.focused_list = to_it
        self.devices.focused_list = not to_it
        self.show_telemetry()

    def action_filter(self) -> None:
        """Filter the processes, and move the focus to them."""
        self._go_to_list(to_it=True)
        self.processes.action_filter()

    def on_click(self, event: Click) -> None:
        on_processes = event.widget is self.processes
        if on_processes or event.widget is self.devices:
            self._go_to_list(to_it=on_processes)
        if event.widget is self.devices and event.chain == 2:
            self.app.call_later(self.screen.run_action, "act('details')")

    def on_resize(self) -> None:
        self.show_telemetry()

    def _arrange(self) -> None:
        """Divide the space. This depends only on the terminal and the number of devices."""
        has_devices = bool(self.telemetry.devices)
        screen = self.screen
        alone = screen.has_class("-tiny") or screen.has_class("-flat")
        self._host.display = not has_devices
        self.devices.display = has_devices
        self.processes.display = has_devices and not alone
        width, height = space_of(self)
        if has_devices and width and height:
            rows = self.devices.plan(width, height).rows
            most = height - process_rows(height)
            self.devices.styles.height = height if alone else min(rows, most)
