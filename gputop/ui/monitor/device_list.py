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
        self._space = (0, 0)

    @property
    def device(self) -> Device | None:
        """Selected device."""
        shown = self.selected
        return None if shown is None else shown.device

    def plan(self, width: int, height: int) -> DeviceLayout:
        """List the devices. Return the layout for the space that they share with processes."""
        self._space = width, height
        self.current_layout = self._layout(self.density)
        devices = self._telemetry.devices
        longest = max((len(str(each.index)) for each in devices), default=1)
        shown = [
            ShownDevice(self._telemetry, each, longest) for each in devices
        ]
        self.state.fill(shown)
        return self.current_layout

    def _layout(self, density: str) -> DeviceLayout:
        chosen = None if density == AUTO else Density[density.upper()]
        return plan_layout(len(self._telemetry.devices), *self._space, chosen)

    def next_density(self) -> None:
        """Switch to the next density: one row, a few rows, full. The automatic choice is `auto`."""
        order = [*Density]
        following = order[
            (order.index(self.current_layout.density) + 1) % len(order)
        ]
        automatic = self._layout(AUTO).density
        self.density = (
            AUTO if following is automatic else following.name.lower()
        )

    def is_right(self, uuid: str) -> bool:
        """Return True if the device with that UUID is shown in the right half."""
        shown = self.state.window(self.room, self.across)
        for place, item in enumerate(shown):
            if item.device.uuid == uuid:
                return 2 * (place % self.across) >= self.across
        return False

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
        now = self.current_layout
        if now.panel_width > width:
            return []
        self.across = now.columns
        self.above = int(now.density is Density.ROW and height > 1)
        space = height - self.above
        lines = -(-self.state.total // now.columns)
        scrolls = lines * now.panel_height > space > now.panel_height
        room = max(1, (space - scrolls) // now.panel_height)
        self.room = room * now.columns
        rows = self._drawn(now)
        if self.above:
            heading = [self.heading(now.panel_width)]
            rows = [
                *beside([heading] * self.across, now.panel_width, GAP),
                *rows,
            ]
        if scrolls:
            rows.append(self._range(width))
        return rows

    def _drawn(self, now: DeviceLayout) -> list[Row]:
        """Draw the devices on screen."""
        shown = self.state.window(self.room, self.across)
        slots: Sequence[Slot[ShownDevice]] = ()
        if now.density is Density.ROW:
            slots = self.slots(now.panel_width)
        size = now.density, now.panel_width, now.panel_height
        focused = self.focused_list
        blocks = []
        for number, item in enumerate(shown, self.state.first):
            selected = number == self.state.at
            if slots:
                drawn = [self.line(item, slots, selected=selected)]
            else:
                drawn = panel.draw(
                    item,
                    *size,
                    selected=selected,
                    focused=focused,
                )
            blocks.append(drawn)
        rows: list[Row] = []
        for start in range(0, len(blocks), self.across):
            line = blocks[start : start + self.across]
            rows += beside(line, now.panel_width, GAP)
        return rows

    def number_at(self, x: int, y: int) -> int:
        now = self.current_layout
        column = min(x // (now.panel_width + GAP), now.columns - 1)
        return y // now.panel_height * now.columns + column
