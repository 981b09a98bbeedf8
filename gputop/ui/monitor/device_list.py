"""List of devices on the monitor, with selection and scrolling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.events import Click

from gputop.agent.device import Device
from gputop.agent.snapshot import Machine
from gputop.settings import AUTO
from gputop.text import fit_columns
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import Row, Span, beside
from gputop.ui.drawing.charts import Chart
from gputop.ui.drawing.live import TelemetryView, Wheel
from gputop.ui.drawing.palette import DIM
from gputop.ui.monitor import hosts, panel, row
from gputop.ui.monitor.details import lacks
from gputop.ui.monitor.layout import GAP, Density, DeviceLayout, plan_layout
from gputop.ui.monitor.panel import Panel
from gputop.ui.telemetry import Telemetry

OF_DEVICE, OF_ALL = 6, 8
"""Number of charts of one among several devices, and of a single device with its host."""


class PanelLine(NamedTuple):
    """Line of panels side by side, or the title of the machine of the following lines."""

    rows: int
    devices: Sequence[Device] = ()
    machine: Machine | None = None


class DevicesView(Wheel, TelemetryView):
    """One panel per device, at the density that the space allows."""

    wheel_lines = 1

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, id="devices")
        self._selected: str | None = None
        self.active = True
        """True while keys go to the devices."""
        self.density = AUTO
        """Name of the density that the user chose, or `auto`."""
        self.current_layout = plan_layout((), 0, 0)
        self._space = (0, 0)
        self._first = 0
        """Index of the first line on screen."""
        self._shown: list[PanelLine] = []

    @property
    def selected(self) -> Device | None:
        """Selected device. It is stored by UUID, because an index may later mean another device."""
        devices = self._telemetry.devices
        found = self._telemetry.find_device(self._selected)
        if found is None and devices:
            return devices[0]
        return found

    def plan(self, width: int, height: int) -> DeviceLayout:
        """Return the layout for the space that devices and processes share."""
        self._space = width, height
        self.current_layout = self._layout(self.density)
        return self.current_layout

    def _layout(self, density: str) -> DeviceLayout:
        chosen = None if density == AUTO else Density[density.upper()]
        sections = []
        titles = 0
        for machine, devices in self._by_machine():
            sections.append(len(devices))
            if machine is not None:
                titles += hosts.title_rows(devices)
        return plan_layout(sections, *self._space, chosen, titles)

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
        """Return True if the panel of the device with that UUID is in the right half."""
        columns = self.current_layout.columns
        for line in self._shown:
            for number, device in enumerate(line.devices):
                if device.uuid == uuid:
                    return 2 * number >= columns
        return False

    def action_move(self, step: int) -> None:
        devices, selected = self._telemetry.devices, self.selected
        if selected is not None:
            number = devices.index(selected) + step
            self._select(devices[max(0, min(len(devices) - 1, number))])

    action_side = action_move

    def action_page(self, step: int) -> None:
        now = self.current_layout
        lines = max(1, self.size.height // now.panel_height - 1)
        self.action_move(step * lines * now.columns)

    def _select(self, device: Device) -> None:
        self._selected = device.uuid
        self.redraw()

    def on_click(self, event: Click) -> None:
        now = self.current_layout
        top = now.heading_rows
        for line in self._shown:
            if top <= event.y < top + line.rows:
                column = min(
                    now.columns - 1,
                    event.x // (now.panel_width + GAP),
                )
                if column < len(line.devices):
                    self._select(line.devices[column])
            top += line.rows

    def draw(self, width: int, height: int) -> list[Row]:
        now = self.current_layout
        if now.panel_width > width:
            return []
        selected = self.selected
        lines = self._lines(now)
        space = height - now.heading_rows
        all_fit = sum(line.rows for line in lines) <= space
        at = _line_of(selected, lines)
        # The count of hidden devices needs a row below at least one device.
        counted = not all_fit and bool(lines) and lines[at].rows < space
        heights = [line.rows for line in lines]
        self._first = first_visible(heights, at, self._first, space - counted)
        below = lines[self._first :]
        self._shown = fit_columns(
            below,
            space - counted,
            lambda line: line.rows,
        )
        self._shown = self._shown or below[:1]
        rows = self._drawn(now, width)
        if counted:
            rows = [*rows[: height - 1], self._hidden_note(lines, width)]
        return rows

    def _drawn(self, now: DeviceLayout, width: int) -> list[Row]:
        """Draw the visible lines, with their heading at the one-row density."""
        telemetry, selected = self._telemetry, self.selected
        index_cells = max(
            (len(str(d.index)) for d in telemetry.devices),
            default=1,
        )
        layout = None
        rows: list[Row] = []
        if now.density is Density.ROW:
            layout = self._row_layout(now.panel_width)
            heading = [row.heading(layout)]
            rows += beside([heading] * now.columns, now.panel_width, GAP)
        for line in self._shown:
            if line.machine is not None:
                behind = telemetry.old_seconds(line.machine)
                limit = telemetry.silence_limit
                title = hosts.host_title(
                    line.machine,
                    width,
                    line.rows,
                    behind,
                    limit,
                )
                rows += title
                continue
            drawn = []
            for device in line.devices:
                shown = self._panel(device, device is selected, index_cells)
                if layout is None:
                    size = now.panel_width, now.panel_height
                    drawn.append(panel.draw(shown, now.density, *size))
                else:
                    drawn.append([row.draw_row(shown, layout)])
            rows += beside(drawn, now.panel_width, GAP)
        return rows

    def _hidden_note(self, lines: Sequence[PanelLine], width: int) -> Row:
        """Return the row with the range of the visible lines."""
        count = len(self._telemetry.devices)
        before = sum(len(line.devices) for line in lines[: self._first])
        shown = sum(len(line.devices) for line in self._shown)
        note = [f"   {before + 1} to {before + shown} of {count} devices"]
        if shown < count:
            note.append(": ↓ ↑ for the others")
        return [Span("".join(fit_columns(note, width, len)), DIM)]

    def _by_machine(self) -> list[tuple[Machine | None, Sequence[Device]]]:
        telemetry = self._telemetry
        if not telemetry.machines:
            return [(None, telemetry.devices)]
        pairs: list[tuple[Machine | None, Sequence[Device]]] = []
        for machine in telemetry.machines:
            own = [
                each
                for each in telemetry.devices
                if each.machine == machine.name
            ]
            pairs.append((machine, own))
        return pairs

    def _lines(self, now: DeviceLayout) -> list[PanelLine]:
        """Return the devices in the layout's columns, each machine's devices under its title."""
        lines = []
        for machine, devices in self._by_machine():
            if machine is not None:
                lines.append(
                    PanelLine(hosts.title_rows(devices), machine=machine),
                )
            for start in range(0, len(devices), now.columns):
                beside_each_other = devices[start : start + now.columns]
                lines.append(PanelLine(now.panel_height, beside_each_other))
        return lines

    def _row_layout(self, width: int) -> row.RowLayout:
        telemetry = self._telemetry
        # Labels are short under host titles.
        own = [device.own for device in telemetry.devices]
        samples = [
            telemetry.readings(device.uuid) for device in telemetry.devices
        ]
        return row.row_layout(own, samples, width)

    def _panel(
        self,
        device: Device,
        selected: bool,
        index_cells: int,
    ) -> Panel:
        telemetry = self._telemetry
        machine = telemetry.machine_of(device)
        readings = telemetry.readings(device.uuid)
        return Panel(
            device.own,
            readings,
            telemetry.history,
            self._charts(device),
            selected,
            self.active,
            index_cells,
            telemetry.host_of(device),
            telemetry.problems.get(device.uuid),
            telemetry.judgement.bound_by.get(device.uuid),
            telemetry.old_seconds(readings),
            machine is not None and telemetry.old_seconds(machine) is not None,
            telemetry.interval,
        )

    def _charts(self, device: Device) -> list[Chart]:
        """Return charts of the device's readings, with the host's only for a single device."""
        readings = self._telemetry.readings(device.uuid)
        many = OF_ALL if len(self._telemetry.devices) == 1 else OF_DEVICE
        wanted = list(charts.CHARTS[:many])
        if lacks(readings, charts.BUSY.name):
            wanted[0] = charts.SM_ACTIVE
        return [chart for chart in wanted if not lacks(readings, chart.name)]


def _line_of(device: Device | None, lines: Sequence[PanelLine]) -> int:
    for number, line in enumerate(lines):
        if device in line.devices:
            return number
    return 0


def first_visible(
    heights: Sequence[int],
    at: int,
    first: int,
    room: int,
) -> int:
    """Return the first line to show so that line `at` is visible and no room is left unused."""

    def fitting(end: int) -> int:
        """Return the first line from which all lines before `end` fit."""
        return next(
            (n for n in range(end) if sum(heights[n:end]) <= room),
            end,
        )

    return max(min(at, fitting(at + 1)), min(first, at, fitting(len(heights))))
