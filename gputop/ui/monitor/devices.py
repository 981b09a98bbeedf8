"""The devices of the machine, one of them selected."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from gputop.settings import AUTO
from gputop.text import that_fit
from gputop.ui.drawing.draw import Span, beside
from gputop.ui.drawing.palette import BUSY, DIM, MEMORY, POWER, SM
from gputop.ui.model import find_device
from gputop.ui.monitor import hosts, panel, row
from gputop.ui.monitor.layout import GAP, Layout, layout
from gputop.ui.monitor.panel import Density, Panel, Past
from gputop.ui.widgets import finding
from gputop.ui.widgets.live import LiveView
from gputop.ui.widgets.scrolled import Wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click

    from gputop.health.findings import Finding
    from gputop.schema.snapshot import Device, Machine
    from gputop.ui.drawing.draw import Row
    from gputop.ui.model import Telemetry


MOST_FINDINGS = 3
"""Lines with findings under devices that have no room for theirs."""
FEWEST_PROCESSES = 3
"""Rows under the heading of the processes that devices leave to them, however many there are."""


class Line(NamedTuple):
    """Panels beside each other, or the title of the machine that those after it are in."""

    rows: int
    devices: Sequence[Device] = ()
    machine: Machine | None = None


class DevicesView(Wheel, LiveView):
    """A panel per device, as dense as the space asks for."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="devices")
        self._telemetry = telemetry
        self._selected: str | None = None
        self.active = True
        """Whether keys go here."""
        self._first_line = 0
        """The first line of panels shown, where they do not all fit."""
        self.chosen: Density | None = None
        """The density chosen by hand."""
        self.layout_now: Layout | None = None
        self._space = (0, 0)
        self._shown: list[Line] = []

    @property
    def selected(self) -> Device | None:
        """The selected device, by UUID: an index may come to mean another one."""
        devices = self._telemetry.devices
        return find_device(devices, self._selected) or (devices[0] if devices else None)

    @property
    def shows_gpm(self) -> bool:
        """Whether there is room for what GPM says."""
        now = self.layout_now
        if now is None or now.density is not Density.ROW:
            return now is not None
        return row.shows_gpm(now.panel_width, self._machine())

    def plan(self, width: int, height: int) -> Layout:
        """The layout for the space of devices and processes together."""
        self._space = width, height
        self.layout_now = self._layout(self.chosen)
        return self.layout_now

    def _layout(self, chosen: Density | None) -> Layout:
        telemetry = self._telemetry
        counted = Counter(device.machine for device in telemetry.devices)
        titles = sum(hosts.rows(each, self._space[0]) for each in telemetry.machines)
        return layout([*counted.values()], telemetry.process_count, *self._space, chosen, titles)

    def most_rows(self, height: int) -> int:
        """What the devices may take of the height: a few processes are always shown."""
        return max(height // 2, height - min(self._telemetry.process_count, FEWEST_PROCESSES) - 1)

    @property
    def density(self) -> str:
        """The density that was chosen by hand, by its name; `auto` where none was."""
        return AUTO if self.chosen is None else self.chosen.name.lower()

    @density.setter
    def density(self, name: str) -> None:
        self.chosen = None if name == AUTO else Density[name.upper()]

    def next_density(self) -> None:
        """The next density by hand: one row, three rows, full; the one that suits is automatic."""
        now = self.layout_now
        if now is None:
            return
        following = now.density.following
        automatic = self._layout(None).density
        self.chosen = None if following is automatic else following

    def action_move(self, step: int) -> None:
        """Selects the device `step` further on."""
        devices, selected = self._telemetry.devices, self.selected
        if selected is not None:
            self._select(devices.index(selected) + step)

    def action_page(self, step: int) -> None:
        """Selects the device a screen further on."""
        now = self.layout_now
        if now is not None:
            self.action_move(step * max(1, self.size.height // now.panel_height - 1) * now.columns)

    def wheel(self, step: int) -> None:
        """Selects the next device, or the one before."""
        self.action_move(1 if step > 0 else -1)

    def _select(self, number: int) -> None:
        devices = self._telemetry.devices
        self._selected = devices[max(0, min(len(devices) - 1, number))].uuid
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Selects the device under the mouse."""
        now = self.layout_now
        if now is None:
            return
        top = _heading_rows(now)
        for line in self._shown:
            if top <= event.y < top + line.rows:
                column = min(now.columns - 1, event.x // (now.panel_width + GAP))
                if column < len(line.devices):
                    self._select(self._telemetry.devices.index(line.devices[column]))
            top += line.rows

    def draw(self, width: int, height: int) -> list[Row]:
        """The panels in the layout that was planned, scrolled so that the selected one shows."""
        now = self.layout_now
        if now is None or now.panel_width > width:
            return []
        devices, selected = self._telemetry.devices, self.selected
        lines = self._lines(now)
        space = height - _heading_rows(now)
        all_fit = sum(line.rows for line in lines) <= space
        at = next((n for n, line in enumerate(lines) if selected in line.devices), 0)
        # What counts the others stands under a device, or not at all.
        counted = not all_fit and bool(lines) and lines[at].rows < space
        heights = [line.rows for line in lines]
        self._first_line = first_shown(heights, at, self._first_line, space - counted)
        below = lines[self._first_line :]
        self._shown = that_fit(below, space - counted, lambda line: line.rows) or below[:1]
        machine = self._machine() if now.density is Density.ROW else None
        rows: list[Row] = []
        if machine:
            heading = [row.heading(now.panel_width, machine)]
            rows += beside([heading] * now.columns, now.panel_width, GAP)
        for line in self._shown:
            if line.machine is not None:
                telemetry = self._telemetry
                behind = telemetry.behind_seconds(line.machine)
                rows += hosts.title(line.machine, width, behind, telemetry.silence_limit)
                continue
            drawn = [self._drawn(device, device is selected, machine) for device in line.devices]
            rows += beside(drawn, now.panel_width, GAP)
        if counted:
            before = sum(len(line.devices) for line in lines[: self._first_line])
            many = sum(len(line.devices) for line in self._shown)
            shown = f"{before + 1} to {before + many} of {len(devices)} devices"
            rows = [*rows[: height - 1], [Span(f"   {shown}: ↓ ↑ for the others", DIM)]]
        if now.density is not Density.FULL:  # else they are in the panels
            rows += self._finding_lines(width)[: max(0, height - len(rows))]
        return rows

    def _lines(self, now: Layout) -> list[Line]:
        """All that there is to show, from top to bottom."""
        devices, machines = self._telemetry.devices, self._telemetry.machines
        if not machines:
            return in_lines(devices, now)
        lines = []
        for machine in machines:
            lines.append(Line(hosts.rows(machine, self._space[0]), machine=machine))
            lines += in_lines([d for d in devices if d.machine == machine.name], now)
        return lines

    def _drawn(self, device: Device, selected: bool, machine: row.Machine | None) -> list[Row]:
        now = self.layout_now
        assert now is not None
        made = self._panel(device, selected)
        if machine is not None:
            return [row.draw_row(made, machine, now.panel_width)]
        return panel.draw(made, now.density, now.panel_width, now.panel_height)

    @property
    def finding_rows(self) -> int:
        """Rows that findings could use under devices that have no room for theirs."""
        now = self.layout_now
        return 0 if now is None or now.density is Density.FULL else len(self._finding_lines(80))

    def _finding_lines(self, width: int) -> list[Row]:
        """The top finding of each of a few devices, the gravest first."""
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

    def _machine(self) -> row.Machine:
        devices = self._telemetry.devices
        return row.machine_of(
            [device.own for device in devices],  # as they are called under their machine's title
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

    def _past(self, device: Device) -> list[Past]:
        """The histories of what the bars show, as far as the device has it."""
        r = self._telemetry.readings(device.uuid)
        active = panel.activity_of(r)
        shown = (
            (active, 100.0, SM if active == "sm_active_percent" else BUSY),
            ("memory_used_bytes", r.memory_total_bytes, MEMORY),
            ("power_watts", r.power_limit_watts, POWER),
        )
        series = self._telemetry.history.series
        return [
            Past(series(device.uuid, name), top, style)
            for name, top, style in shown
            if top and not panel.lacks(r, name)
        ]


def _heading_rows(layout: Layout) -> int:
    return 1 if layout.density is Density.ROW else 0


def in_lines(devices: Sequence[Device], layout: Layout) -> list[Line]:
    """As many beside each other as the layout has columns."""
    each = layout.columns
    return [
        Line(layout.panel_height, devices[start : start + each])
        for start in range(0, len(devices), each)
    ]


def first_shown(heights: Sequence[int], at: int, first: int, room: int) -> int:
    """The first line to show so that the line `at` shows, and nothing that fits is left out."""
    last = len(heights)
    below = 0
    while last > 0 and below + heights[last - 1] <= room:
        last -= 1
        below += heights[last]
    first = max(0, min(first, at, last))
    while first < at and sum(heights[first : at + 1]) > room:
        first += 1
    return first
