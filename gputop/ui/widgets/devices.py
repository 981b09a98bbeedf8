"""The devices of the machine, one of them selected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from gputop.ui.draw import beside, fit
from gputop.ui.layout import GAP, Layout, layout
from gputop.ui.widgets import panel
from gputop.ui.widgets.live import LiveView
from gputop.ui.widgets.panel import Density, Panel

if TYPE_CHECKING:
    from textual.events import Click

    from gputop.telemetry.snapshot import Device
    from gputop.ui.draw import Row
    from gputop.ui.model import Telemetry


class DevicesView(LiveView):
    """A panel per device, as dense as the space asks for."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="devices")
        self._telemetry = telemetry
        self._selected: str | None = None
        self._first_line = 0
        """The first line of panels shown, where they do not all fit."""
        self.chosen: Density | None = None
        """The density chosen by hand."""
        self.layout_now: Layout | None = None

    @property
    def selected(self) -> Device | None:
        """The selected device, by UUID: an index may come to mean another one."""
        devices = self._telemetry.devices
        return next(
            (d for d in devices if d.uuid == self._selected), devices[0] if devices else None
        )

    def plan(self, width: int, height: int) -> Layout:
        """The layout for the space of devices and processes together."""
        telemetry = self._telemetry
        devices, processes = len(telemetry.devices), len(telemetry.processes())
        self.layout_now = layout(devices, processes, width, height, self.chosen)
        return self.layout_now

    def next_density(self) -> None:
        """Chooses the next density by hand: one row, three rows, full."""
        order = list(Density)
        now = self.layout_now.density if self.layout_now else Density.FULL
        self.chosen = order[(order.index(now) + 1) % len(order)]

    def move(self, step: int) -> None:
        """Selects the device `step` further on."""
        devices, selected = self._telemetry.devices, self.selected
        if selected is not None:
            self._select(devices.index(selected) + step)

    def _select(self, number: int) -> None:
        devices = self._telemetry.devices
        self._selected = devices[max(0, min(len(devices) - 1, number))].uuid
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Selects the device under the mouse."""
        now = self.layout_now
        if now is None:
            return
        line = (event.y - _heading_rows(now)) // now.panel_height + self._first_line
        column = min(now.columns - 1, event.x // (now.panel_width + GAP))
        number = line * now.columns + column
        if 0 <= number < len(self._telemetry.devices):
            self._select(number)

    def draw(self, width: int, height: int) -> list[Row]:
        """The panels in the layout that was planned, scrolled so that the selected one shows."""
        now = self.layout_now
        if now is None or now.panel_width > width:
            return []
        devices, selected = self._telemetry.devices, self.selected
        room = max(1, (height - _heading_rows(now)) // now.panel_height)
        line = devices.index(selected) // now.columns if selected else 0
        last = -(-len(devices) // now.columns) - 1
        self._first_line = max(0, min(self._first_line, line, last - room + 1), line - room + 1)
        first = self._first_line * now.columns
        drawn = [
            panel.draw(
                self._panel(device, device is selected),
                now.density,
                now.panel_width,
                now.panel_height,
            )
            for device in devices[first : first + room * now.columns]
        ]
        rows: list[Row] = [panel.heading(width, self._longest_name())] if _heading_rows(now) else []
        for start in range(0, len(drawn), now.columns):
            rows += beside(drawn[start : start + now.columns], now.panel_width, GAP)
        return [fit(row, width) for row in rows]

    def _longest_name(self) -> int:
        return max((cell_len(panel.name_of(d)) for d in self._telemetry.devices), default=0)

    def _panel(self, device: Device, selected: bool) -> Panel:
        telemetry = self._telemetry
        return Panel(
            device,
            telemetry.readings(device.uuid),
            telemetry.history.series(device.uuid, "gpu_utilization_percent"),
            telemetry.history.count,
            self._longest_name(),
            selected,
        )


def _heading_rows(layout: Layout) -> int:
    return 1 if layout.density is Density.ROW else 0
