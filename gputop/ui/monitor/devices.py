"""List of devices on the monitor: its layout, selection and scrolling."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gputop.frozen import dataclass
from gputop.settings import AUTO
from gputop.text import fit_columns
from gputop.ui.drawing.cells import Span, beside
from gputop.ui.drawing.palette import BUSY, DIM, MEMORY, POWER, SM
from gputop.ui.model import find_device
from gputop.ui.monitor import panel, row
from gputop.ui.monitor.panel import Density, Panel, PanelHistory
from gputop.ui.widgets import finding
from gputop.ui.widgets.live import LiveView, Wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click

    from gputop.health.findings import Finding
    from gputop.schema.device import Device
    from gputop.schema.snapshot import Machine
    from gputop.ui.drawing.cells import Row
    from gputop.ui.model import Telemetry


NARROWEST_PANEL = 52
WIDEST_PANEL = 100
NARROWEST_ROW = 68
"""Narrowest column at one row per device: two columns avoid scrolling where there is room."""
GAP = 1
TALLEST_FULL, TALLEST = 12, 22
"""Useful heights of a full panel: with one history, and with three."""
PROCESS_ROWS = (8, 4)
"""Process rows to leave room for under the devices: wanted, and the minimum."""
MOST_FINDINGS = 3
"""Most lines of findings under panels that have no room for their own."""
FEWEST_PROCESSES = 3
"""Process rows that the devices always leave room for."""


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Density and columns of the devices, in cells."""

    density: Density
    columns: int
    panel_width: int
    panel_height: int
    rows: int
    """Rows in total, with the heading of the one-row density."""

    @property
    def heading_rows(self) -> int:
        """Rows of the heading over panels of one row."""
        return int(self.density is Density.ROW)


def plan_layout(
    devices: int | Sequence[int],
    processes: int,
    width: int,
    height: int,
    chosen: Density | None = None,
    titles: int = 0,
) -> DeviceLayout:
    """Return the fullest layout that leaves room for the processes, or one of the chosen density.

    `devices` may be counts per section: each section starts a new line. `titles` is the number of
    rows for titles of sections.
    """
    sections = [devices] if isinstance(devices, int) else devices
    # In steps, so that one more process does not move everything.
    spare = height - -(-processes // PROCESS_ROWS[0]) * PROCESS_ROWS[0] - 1
    for density in [chosen] if chosen else (Density.FULL, Density.COMPACT, Density.ROW):
        for wanted in PROCESS_ROWS:
            room = height - min(processes, wanted) - 1
            found = _layout_at(density, sections, width, room - titles, spare - titles)
            found = replace(found, rows=found.rows + titles)
            if found.rows <= room:
                return found
    return found


def _layout_at(
    density: Density, sections: Sequence[int], width: int, room: int, spare: int
) -> DeviceLayout:
    heading = density is Density.ROW
    narrowest = NARROWEST_ROW if heading else NARROWEST_PANEL
    best = None
    most = max(1, min(max(sections, default=0), (width + GAP) // (narrowest + GAP)))
    for columns in range(1, most + 1):
        lines = max(1, sum(-(-devices // columns) for devices in sections))
        panel_width = (width - (columns - 1) * GAP) // columns
        roomy = max(TALLEST_FULL, min(TALLEST, spare // lines))
        tallest = roomy if density is Density.FULL else density
        panel_height = max(density, min(tallest, room // lines))
        rows = lines * panel_height + heading
        best = DeviceLayout(density, columns, panel_width, panel_height, rows)
        if best.rows <= room and (heading or panel_width <= WIDEST_PANEL):
            return best
    assert best is not None
    return best


class PanelLine(NamedTuple):
    """Line of panels side by side, or the title of the machine that the next lines belong to."""

    rows: int
    devices: Sequence[Device] = ()
    machine: Machine | None = None


class DevicesView(Wheel, LiveView):
    """One panel per device, at the density that the space allows."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="devices")
        self._telemetry = telemetry
        self._selected: str | None = None
        self.active = True
        """True while keys are for the devices."""
        self.chosen: Density | None = None
        """Density chosen by the user."""
        self.current_layout: DeviceLayout | None = None
        self._space = (0, 0)
        self._shown: list[PanelLine] = []

    @property
    def selected(self) -> Device | None:
        """Selected device. It is kept by UUID, as an index may later mean another device."""
        devices = self._telemetry.devices
        return find_device(devices, self._selected) or (devices[0] if devices else None)

    @property
    def shows_gpm(self) -> bool:
        """True if the layout has room for GPM readings."""
        now = self.current_layout
        if now is None or now.density is not Density.ROW:
            return now is not None
        return row.shows_gpm(now.panel_width, self._row_shape())

    def plan(self, width: int, height: int) -> DeviceLayout:
        """Return the layout for a space that devices and processes share."""
        self._space = width, height
        self.current_layout = self._layout(self.chosen)
        return self.current_layout

    def _layout(self, chosen: Density | None) -> DeviceLayout:
        telemetry = self._telemetry
        counted = Counter(device.machine for device in telemetry.devices)
        titles = sum(row.title_rows(each, self._space[0]) for each in telemetry.machines)
        return plan_layout(
            [*counted.values()], telemetry.process_count, *self._space, chosen, titles
        )

    def max_rows(self, height: int) -> int:
        """Return the most rows for the devices: a few processes are always shown."""
        return max(height // 2, height - min(self._telemetry.process_count, FEWEST_PROCESSES) - 1)

    @property
    def density(self) -> str:
        """Name of the density that the user chose, or `auto`."""
        return AUTO if self.chosen is None else self.chosen.name.lower()

    @density.setter
    def density(self, name: str) -> None:
        self.chosen = None if name == AUTO else Density[name.upper()]

    def next_density(self) -> None:
        """Switch to the next density: one row, three rows, full. The one that suits is `auto`."""
        now = self.current_layout
        if now is None:
            return
        following = now.density.following
        automatic = self._layout(None).density
        self.chosen = None if following is automatic else following

    def action_move(self, step: int) -> None:
        """Select the device `step` places further on."""
        devices, selected = self._telemetry.devices, self.selected
        if selected is not None:
            self._select(devices.index(selected) + step)

    def action_page(self, step: int) -> None:
        """Select the device a screen further on."""
        now = self.current_layout
        if now is not None:
            self.action_move(step * max(1, self.size.height // now.panel_height - 1) * now.columns)

    def wheel(self, step: int) -> None:
        """Select the next device, or the previous one."""
        self.action_move(1 if step > 0 else -1)

    def _select(self, number: int) -> None:
        devices = self._telemetry.devices
        self._selected = devices[max(0, min(len(devices) - 1, number))].uuid
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Select the device under the mouse."""
        now = self.current_layout
        if now is None:
            return
        top = now.heading_rows
        for line in self._shown:
            if top <= event.y < top + line.rows:
                column = min(now.columns - 1, event.x // (now.panel_width + GAP))
                if column < len(line.devices):
                    self._select(self._telemetry.devices.index(line.devices[column]))
            top += line.rows

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw the panels in the current layout, scrolled to the selected one."""
        now = self.current_layout
        if now is None or now.panel_width > width:
            return []
        devices, selected = self._telemetry.devices, self.selected
        lines = self._lines(now)
        space = height - now.heading_rows
        all_fit = sum(line.rows for line in lines) <= space
        at = next((n for n, line in enumerate(lines) if selected in line.devices), 0)
        # The count of hidden devices needs a row under at least one device.
        counted = not all_fit and bool(lines) and lines[at].rows < space
        heights = [line.rows for line in lines]
        self._first = first_visible(heights, at, self._first, space - counted)
        below = lines[self._first :]
        self._shown = fit_columns(below, space - counted, lambda line: line.rows) or below[:1]
        shape = self._row_shape() if now.density is Density.ROW else None
        rows: list[Row] = []
        if shape:
            heading = [row.heading(now.panel_width, shape)]
            rows += beside([heading] * now.columns, now.panel_width, GAP)
        for line in self._shown:
            if line.machine is not None:
                telemetry = self._telemetry
                behind = telemetry.behind_seconds(line.machine)
                rows += row.host_title(line.machine, width, behind, telemetry.silence_limit)
                continue
            panels = [self._panel(device, device is selected) for device in line.devices]
            if shape:
                drawn = [[row.draw_row(each, shape, now.panel_width)] for each in panels]
            else:
                size = now.panel_width, now.panel_height
                drawn = [panel.draw(each, now.density, *size) for each in panels]
            rows += beside(drawn, now.panel_width, GAP)
        if counted:
            before = sum(len(line.devices) for line in lines[: self._first])
            many = sum(len(line.devices) for line in self._shown)
            shown = f"{before + 1} to {before + many} of {len(devices)} devices"
            rows = [*rows[: height - 1], [Span(f"   {shown}: ↓ ↑ for the others", DIM)]]
        if now.density is not Density.FULL:  # full panels have their own findings
            rows += self._finding_lines(width)[: max(0, height - len(rows))]
        return rows

    def _lines(self, now: DeviceLayout) -> list[PanelLine]:
        """Return all lines from top to bottom."""
        devices, machines = self._telemetry.devices, self._telemetry.machines
        if not machines:
            return panel_lines(devices, now)
        lines = []
        for machine in machines:
            lines.append(PanelLine(row.title_rows(machine, self._space[0]), machine=machine))
            lines += panel_lines([d for d in devices if d.machine == machine.name], now)
        return lines

    @property
    def finding_rows(self) -> int:
        """Rows that findings could use under panels without room for their own."""
        now = self.current_layout
        return 0 if now is None or now.density is Density.FULL else len(self._finding_lines(80))

    def _finding_lines(self, width: int) -> list[Row]:
        """Return the top findings of a few devices, the most severe first."""
        telemetry = self._telemetry
        top: dict[str | None, Finding] = {}
        for found in telemetry.judgement.findings:
            top.setdefault(found.device_uuid, found)
        lines = []
        for found in [*top.values()][:MOST_FINDINGS]:
            device = find_device(telemetry.devices, found.device_uuid)
            if device is not None:
                lines.append(finding.line(found, width, device.label))
        return lines

    def _row_shape(self) -> row.RowShape:
        devices = self._telemetry.devices
        return row.row_shape(
            [device.own for device in devices],  # labels as under the machine's title
            [self._telemetry.readings(d.uuid) for d in devices],
        )

    def _panel(self, device: Device, selected: bool) -> Panel:
        telemetry = self._telemetry
        machine = telemetry.machine_of(device)
        return Panel(
            device.own,
            telemetry.readings(device.uuid),
            self._past(device),
            telemetry.history.count,
            selected,
            max(len(str(each.index)) for each in telemetry.devices),
            telemetry.host_of(device),
            next(iter(telemetry.judgement.for_device(device.uuid)), None),
            telemetry.old_seconds(telemetry.readings(device.uuid)),
            machine is not None and telemetry.behind_seconds(machine) is not None,
        )

    def _past(self, device: Device) -> list[PanelHistory]:
        """Return the histories of the bars, where the device has those readings."""
        r = self._telemetry.readings(device.uuid)
        active = panel.activity_of(r)
        shown = (
            (active, 100.0, SM if active == "sm_active_percent" else BUSY),
            ("memory_used_bytes", r.memory_total_bytes, MEMORY),
            ("power_watts", r.power_limit_watts, POWER),
        )
        series = self._telemetry.history.series
        return [
            PanelHistory(series(device.uuid, name), top, style)
            for name, top, style in shown
            if top and not panel.lacks(r, name)
        ]


def panel_lines(devices: Sequence[Device], layout: DeviceLayout) -> list[PanelLine]:
    """Arrange devices in as many columns as the layout has."""
    each = layout.columns
    return [
        PanelLine(layout.panel_height, devices[start : start + each])
        for start in range(0, len(devices), each)
    ]


def first_visible(heights: Sequence[int], at: int, first: int, room: int) -> int:
    """Return the first line to show so that line `at` is visible and no room is wasted."""
    last = len(heights)
    below = 0
    while last > 0 and below + heights[last - 1] <= room:
        last -= 1
        below += heights[last]
    first = max(0, min(first, at, last))
    while first < at and sum(heights[first : at + 1]) > room:
        first += 1
    return first
