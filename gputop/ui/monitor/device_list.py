"""The devices of the monitor: a list whose items have one row, a few rows, or a whole panel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputop.agent.device import Device
from gputop.settings import AUTO
from gputop.ui.drawing.cells import Row, Span, beside, fit, list_row
from gputop.ui.drawing.device_cells import sign_of
from gputop.ui.drawing.list_state import ListState
from gputop.ui.drawing.list_view import ListView, Slot
from gputop.ui.monitor import columns, panel
from gputop.ui.monitor.layout import GAP, Density, DeviceLayout, plan_layout
from gputop.ui.monitor.shown_device import ShownDevice
from gputop.ui.telemetry import Telemetry


class Devices(ListState[ShownDevice]):
    """List of devices by UUID, because an index may later mean another device."""

    def identity(self, item: ShownDevice) -> Hashable:
        return item.device.uuid


class DevicesView(ListView[ShownDevice]):
    """Grid of devices, at the density that the space allows."""

    noun = "devices"
    keys_of_range = (" · ↑↓ scroll",)
    wheel_lines = 1

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(Devices(), columns.COLUMNS, id="devices")
        self._telemetry = telemetry
        self.density = AUTO
        """Name of the density that the user chose, or `auto`."""
        self.current_layout = plan_layout(0, 0, 0)

    @property
    def device(self) -> Device | None:
        """Selected device."""
        shown = self.selected
        return None if shown is None else shown.device

    def plan(self, width: int, height: int) -> DeviceLayout:
        """List the devices. Return the layout for the space that they share with processes."""
        devices = self._telemetry.devices
        chosen = None
        if self.density != AUTO:
            chosen = Density[self.density.upper()]
        now = plan_layout(len(devices), width, height, chosen)
        self.current_layout = now
        self.across, self.tall = now.columns, now.panel_height
        self.has_heading = now.density is Density.ROW
        longest = max((len(str(each.index)) for each in devices), default=1)
        shown = [
            ShownDevice(self._telemetry, each, longest) for each in devices
        ]
        self.state.fill(shown)
        return now

    def next_density(self) -> None:
        """Switch to the next density: one row, a few rows, full."""
        order = [*Density]
        now = order.index(self.current_layout.density)
        self.density = order[(now + 1) % len(order)].name.lower()

    def is_right(self, uuid: str) -> bool:
        """Return True if the device with that UUID is shown in the right half."""
        uuids = [item.device.uuid for item in self.state.lines]
        place = uuids.index(uuid) % self.across if uuid in uuids else 0
        return 2 * place >= self.across

    def action_side(self, step: int) -> None:
        self.action_move(step)

    def slots(self, width: int) -> Sequence[Slot[ShownDevice]]:
        return columns.slots_for(self.state.lines, width)

    def cell_of(self, item: ShownDevice, slot: Slot[ShownDevice]) -> Row:
        return columns.draw_cells(item, slot)

    def line(
        self,
        item: ShownDevice,
        slots: Sequence[Slot[ShownDevice]],
        *,
        selected: bool,
    ) -> Row:
        """Return the row of a device. A fault replaces its readings."""
        fault = item.fault
        if fault is None:
            return super().line(item, slots, selected=selected)
        row = [Span(" "), *self.cell_of(item, slots[0]), Span(" ")]
        row.append(Span(fault.what, sign_of(fault.severity).style))
        row = fit(row, sum(1 + slot.cells for slot in slots))
        return list_row(row, selected=selected, focused=self.focused_list)

    def draw(self, width: int, height: int) -> list[Row]:
        if self.current_layout.panel_width > width:
            return []
        return super().draw(width, height)

    def heading(self, width: int) -> Row:  # noqa: ARG002 - that of a column
        one = super().heading(self.current_layout.panel_width)
        return self._beside([[one]] * self.across)[0]

    def draw_lines(self, width: int) -> list[Row]:  # noqa: ARG002 - that of a column
        """Draw the devices on screen."""
        now, focused = self.current_layout, self.focused_list
        slots = self.slots(now.panel_width) if self.has_heading else ()
        shown = self.state.window(self.room, self.across)
        blocks = []
        for number, item in enumerate(shown, self.state.first):
            selected = number == self.state.at
            if self.has_heading:
                drawn = [self.line(item, slots, selected=selected)]
            else:
                drawn = panel.draw(
                    item,
                    now.density,
                    now.panel_width,
                    now.panel_height,
                    selected=selected,
                    focused=focused,
                )
            blocks.append(drawn)
        rows: list[Row] = []
        for start in range(0, len(blocks), self.across):
            rows += self._beside(blocks[start : start + self.across])
        return rows

    def _beside(self, blocks: Sequence[list[Row]]) -> list[Row]:
        return beside(blocks, self.current_layout.panel_width, GAP)

    def number_at(self, x: int, y: int) -> int:
        now = self.current_layout
        column = min(x // (now.panel_width + GAP), now.columns - 1)
        return y // now.panel_height * now.columns + column
