"""The processes on all devices, with the whole screen to themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.model import find_device
from gputop.ui.screens.tab import LiveTab
from gputop.ui.widgets.processes import ProcessesView

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gputop.telemetry.snapshot import Device
    from gputop.ui.model import Telemetry
    from gputop.ui.process_table import ProcessTable


class ProcessesTab(LiveTab):
    """The same table as on the monitor, sorted and filtered alike."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        super().__init__(id="processes")
        self._telemetry = telemetry
        self._view = ProcessesView(telemetry, table)

    def compose(self) -> ComposeResult:
        yield self._view

    @property
    def selected(self) -> Device | None:
        """The device that the selected process is on."""
        process = self._view.selected
        return find_device(self._telemetry.devices, process.device_uuid if process else None)

    @property
    def processes(self) -> ProcessesView:
        return self._view

    def show_telemetry(self) -> None:
        """Draws what changed."""
        self._view.redraw()

    def move(self, step: int) -> None:
        """Selects another process."""
        self._view.move(step)

    def page(self, step: int) -> None:
        """A page of processes on."""
        self._view.page(step)
