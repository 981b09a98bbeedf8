"""Monitor tab: all devices and their processes; without devices, the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on

from gputop.ui.model import find_device
from gputop.ui.monitor.devices import DevicesView
from gputop.ui.processes.screen import ListTab, ProcessesView
from gputop.ui.widgets.host import HostView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click
    from textual.widget import Widget

    from gputop.schema.device import Device
    from gputop.ui.model import Telemetry
    from gputop.ui.processes.table import ProcessTable


class MonitorTab(ListTab):
    """Tab with devices and processes, laid out for the available space.

    Keys are for the devices or for the processes; Tab switches between them.
    """

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        super().__init__(telemetry, table, "monitor")
        self.devices = DevicesView(telemetry)
        self._host = HostView(telemetry)

    def compose(self) -> ComposeResult:
        yield self.devices
        yield self.processes
        yield self._host

    @property
    def selected(self) -> Device | None:
        """Selected device, or the device of the selected process if keys are for processes."""
        if self.processes.focused_list and (process := self.processes.selected) is not None:
            return find_device(self.telemetry.devices, process.device_uuid)
        return self.devices.selected

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        """Widgets that handle keys; some keys are for the processes in any case."""
        if self.processes.focused_list:
            return (self, self.processes)
        return (self, self.devices, self.processes)

    @property
    def wants_gpm(self) -> bool:
        return self.devices.shows_gpm

    def show_telemetry(self) -> None:
        self._arrange()
        for view in (self.devices, self.processes, self._host):
            view.redraw()

    def action_density(self) -> None:
        """Switch to the next density."""
        self.devices.next_density()
        self.show_telemetry()

    def action_switch(self) -> None:
        """Switch keys between devices and processes."""
        self._go_to_list(to_it=not self.processes.focused_list)

    def _go_to_list(self, *, to_it: bool) -> None:
        self.processes.focused_list, self.devices.active = to_it, not to_it
        self.show_telemetry()

    def action_filter(self) -> None:
        """Filter the processes; the next keys are for them too."""
        self._go_to_list(to_it=True)
        self.processes.action_filter()

    def action_side(self, step: int) -> None:
        """Select the device to the right."""
        if not self.processes.focused_list:
            self.devices.action_move(step)

    @on(ProcessesView.RowClicked)
    def _row_clicked(self) -> None:
        self._go_to_list(to_it=True)

    def on_click(self, event: Click) -> None:
        """Make keys act on the devices; a double click opens a device's page."""
        if event.widget is self.devices:
            self._go_to_list(to_it=False)
            if event.chain == 2:
                self.app.call_later(self.screen.run_action, "details")

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        has_devices = bool(self.telemetry.devices or self.telemetry.machines)
        self._host.display = not has_devices
        self.devices.display = self.processes.display = has_devices
        width, height = self.size
        if has_devices and width and height:
            rows = min(self.devices.plan(width, height).rows, self.devices.max_rows(height))
            spare = height - rows - self.telemetry.process_count - 1
            rows += max(0, min(self.devices.finding_rows, spare))
            self.devices.styles.height = rows
