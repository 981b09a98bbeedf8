"""The processes on all devices, with the whole screen to themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.model import find_device
from gputop.ui.processes.tab import ListTab

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gputop.schema.device import Device
    from gputop.ui.model import Telemetry
    from gputop.ui.processes.table import ProcessTable


class ProcessesTab(ListTab):
    """The same table as on the monitor, sorted and filtered alike."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        super().__init__(telemetry, table, "processes")
        self.processes.focused_list = True

    def compose(self) -> ComposeResult:
        yield self.processes

    @property
    def selected(self) -> Device | None:
        """The device that the selected process is on, or else the first one."""
        process, devices = self.processes.selected, self.telemetry.devices
        found = find_device(devices, process.device_uuid if process else None)
        return found or (devices[0] if devices else None)

    def show_telemetry(self) -> None:
        """Draws what changed."""
        self.processes.redraw()
