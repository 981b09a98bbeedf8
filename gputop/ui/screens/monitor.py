"""The monitor: every device, and the processes on them; without devices, the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.model import find_device
from gputop.ui.screens.tab import LiveTab
from gputop.ui.widgets.devices import DevicesView
from gputop.ui.widgets.host import HostView
from gputop.ui.widgets.processes import ProcessesView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click, MouseScrollDown, MouseScrollUp

    from gputop.telemetry.snapshot import Device
    from gputop.ui.model import Telemetry
    from gputop.ui.process_table import ProcessTable


class MonitorTab(LiveTab):
    """Lays the devices out in the space there is, and draws what came.

    Keys go to the devices, or to the processes: `switch` changes which.
    """

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        super().__init__(id="monitor")
        self._telemetry = telemetry
        self._devices = DevicesView(telemetry)
        self._processes = ProcessesView(telemetry, table, id="processes-below")
        self._host = HostView(telemetry)
        self.on_processes = False
        """Whether keys go to the processes."""

    def compose(self) -> ComposeResult:
        yield self._devices
        yield self._processes
        yield self._host

    @property
    def selected(self) -> Device | None:
        """The device that keys act on: that of the selected process, where they go there."""
        process = self._processes.selected if self.on_processes else None
        if process is not None:
            return find_device(self._telemetry.devices, process.device_uuid)
        return self._devices.selected

    @property
    def processes(self) -> ProcessesView:
        return self._processes

    @property
    def wants_gpm(self) -> bool:
        """Where there is room for it."""
        return self._devices.shows_gpm

    def show_telemetry(self) -> None:
        """Draws what changed."""
        self._arrange()
        for view in (self._devices, self._processes, self._host):
            view.redraw()

    def next_density(self) -> None:
        """Gives the devices more or less room."""
        self._devices.next_density()
        self.show_telemetry()

    def switch(self, *, to_processes: bool | None = None) -> None:
        """Between devices and processes."""
        self.on_processes = not self.on_processes if to_processes is None else to_processes
        self._devices.active, self._processes.active = not self.on_processes, self.on_processes
        self.show_telemetry()

    def move(self, step: int) -> None:
        """Selects another device or process."""
        if self.on_processes:
            self._processes.move(step)
        else:
            self._devices.move(step)

    def page(self, step: int) -> None:
        """A page of devices or processes on."""
        if self.on_processes:
            self._processes.page(step)
        else:
            self._devices.page(step)

    def side(self, step: int) -> None:
        """The device to the right."""
        if not self.on_processes:
            self._devices.move(step)

    def on_click(self, event: Click) -> None:
        """Keys go where the mouse was; a second click opens the device's page."""
        if event.widget in (self._devices, self._processes):
            self.switch(to_processes=event.widget is self._processes)
            if event.chain == 2:
                self.app.call_later(self.app.run_action, "details")

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves the selection of the devices; processes see to themselves."""
        if event.widget is self._devices:
            self._devices.move(1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """As down."""
        if event.widget is self._devices:
            self._devices.move(-1)

    def on_resize(self) -> None:
        """Another size, another layout."""
        self._arrange()

    def _arrange(self) -> None:
        has_devices = bool(self._telemetry.devices)
        self._host.display = not has_devices
        self._devices.display = self._processes.display = has_devices
        width, height = self.size
        if has_devices and width and height:
            rows = min(self._devices.plan(width, height).rows, self._devices.most_rows(height))
            if self._devices.styles.height is None or self._devices.styles.height.value != rows:
                self._devices.styles.height = rows
