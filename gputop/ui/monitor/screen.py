"""The monitor: every device, and the processes on them; without devices, the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on

from gputop.ui.model import find_device
from gputop.ui.monitor.devices import DevicesView
from gputop.ui.processes.tab import ListTab
from gputop.ui.processes.widget import ProcessesView
from gputop.ui.widgets.host import HostView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click
    from textual.widget import Widget

    from gputop.schema.snapshot import Device
    from gputop.ui.model import Telemetry
    from gputop.ui.processes.table import ProcessTable


class MonitorTab(ListTab):
    """Lays the devices out in the space there is, and draws what came.

    Keys are for the devices, or for the processes: Tab changes which.
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
        """The selected device, or that of the selected process where keys are for those."""
        if self.processes.focused_list and (process := self.processes.selected) is not None:
            return find_device(self.telemetry.devices, process.device_uuid)
        return self.devices.selected

    @property
    def actors(self) -> tuple[Widget, ...]:
        """Keys are for the devices or for the processes; some are for processes in any case."""
        if self.processes.focused_list:
            return (self, self.processes)
        return (self, self.devices, self.processes)

    @property
    def wants_gpm(self) -> bool:
        """Where there is room for it."""
        return self.devices.shows_gpm

    def show_telemetry(self) -> None:
        """Draws what changed."""
        self._arrange()
        for view in (self.devices, self.processes, self._host):
            view.redraw()

    def action_density(self) -> None:
        """Gives the devices more or less room."""
        self.devices.next_density()
        self.show_telemetry()

    def action_switch(self) -> None:
        """Keys are for the processes, or for the devices again."""
        self._go_to_list(to_it=not self.processes.focused_list)

    def _go_to_list(self, *, to_it: bool) -> None:
        self.processes.focused_list, self.devices.active = to_it, not to_it
        self.show_telemetry()

    def action_filter(self) -> None:
        """Who looks for processes means them with the next keys, too."""
        self._go_to_list(to_it=True)
        self.processes.action_filter()

    def action_side(self, step: int) -> None:
        """The device to the right."""
        if not self.processes.focused_list:
            self.devices.action_move(step)

    @on(ProcessesView.RowClicked)
    def _row_clicked(self) -> None:
        self._go_to_list(to_it=True)

    def on_click(self, event: Click) -> None:
        """A click on a device is for the devices, a second one opens its page."""
        if event.widget is self.devices:
            self._go_to_list(to_it=False)
            if event.chain == 2:
                self.app.call_later(self.screen.run_action, "details")

    def on_resize(self) -> None:
        """Another size, another layout."""
        self._arrange()

    def _arrange(self) -> None:
        has_devices = bool(self.telemetry.devices or self.telemetry.machines)
        self._host.display = not has_devices
        self.devices.display = self.processes.display = has_devices
        width, height = self.size
        if has_devices and width and height:
            rows = min(self.devices.plan(width, height).rows, self.devices.most_rows(height))
            spare = height - rows - self.telemetry.process_count - 1
            rows += max(0, min(self.devices.finding_rows, spare))
            self.devices.styles.height = rows
