"""The monitor: every device, and the processes on them; without devices, the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical

from gputop.ui.widgets.devices import DevicesView
from gputop.ui.widgets.host import HostView
from gputop.ui.widgets.processes import ProcessesView

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gputop.telemetry.snapshot import Device
    from gputop.ui.model import Telemetry


class MonitorTab(Vertical):
    """Lays the devices out in the space there is, and draws what came."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="monitor")
        self._telemetry = telemetry
        self._devices = DevicesView(telemetry)
        self._processes = ProcessesView(telemetry)
        self._host = HostView(telemetry)

    def compose(self) -> ComposeResult:
        yield self._devices
        yield self._processes
        yield self._host

    @property
    def selected(self) -> Device | None:
        """The device that keys act on."""
        return self._devices.selected

    def show_telemetry(self) -> None:
        """Draws what changed."""
        self._arrange()
        for view in (self._devices, self._processes, self._host):
            view.redraw()

    def next_density(self) -> None:
        """Gives the devices more or less room."""
        self._devices.next_density()
        self.show_telemetry()

    def move(self, step: int) -> None:
        """Selects another device."""
        self._devices.move(step)

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
