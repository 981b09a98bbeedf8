"""List of devices on the monitor: its layout, selection and scrolling."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gputop.agent.snapshot import MachineState
from gputop.schema.derived import label_of
from gputop.settings import AUTO, CHARTS
from gputop.text import fit_columns, quantity, size
from gputop.ui.drawing.cells import Row, Span, beside
from gputop.ui.drawing.live import TelemetryView, Wheel
from gputop.ui.drawing.palette import BUSY, DIM, MEMORY, POWER, SM
from gputop.ui.monitor import panel, row
from gputop.ui.monitor.panel import Density, DrawingCache, Panel, PanelHistory

if TYPE_CHECKING:
    from textual.events import Click

    from gputop.agent.device import Device
    from gputop.agent.snapshot import Machine
    from gputop.ui.telemetry import Telemetry

NARROWEST_PANEL = 52
WIDEST_PANEL = 100
NARROWEST_ROW = 68
"""Narrowest column at one row per device: two columns avoid scrolling where there is room."""
GAP = 1
TALLEST, CHART_ROWS = 32, 7
"""Useful height of a full panel, and the least with a chart and a finding."""
PROCESS_SHARE, LEAST_PROCESS_ROWS = 0.4, 3
"""Share of the rows that processes have before panels grow, and the least of them."""
CHART_COUNTS = dict(zip(CHARTS, (2, 3, 1), strict=True))
MOST_FINDINGS = 3
"""Most lines of findings under panels that have no room for their own."""
SECOND_RANK_SECONDS = 2.0
"""Seconds between drawings of what is of second rank, which changes much and matters less."""


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Density and columns of the devices, in cells."""

    density: Density
    columns: int
    panel_width: int
    panel_height: int
    rows: int
    """Rows in total, with the heading of the one-row density."""
    heading_rows: int


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
    room = height - process_rows(processes, height) - titles
    for density in [chosen] if chosen else (Density.FULL, Density.COMPACT, Density.ROW):
        found = _layout_at(density, sections, width, room)
        if found.rows <= room:
            break
    return replace(found, rows=found.rows + titles)


def process_rows(processes: int, height: int) -> int:
    """Return the rows for processes with their heading and note: what they need, up to a share."""
    if not processes:
        return 2
    return min(processes + 1, max(LEAST_PROCESS_ROWS, int(PROCESS_SHARE * height)))


def _layout_at(
    density: Density, sections: Sequence[int], width: int, room: int
) -> DeviceLayout:
    """Return the layout of fewest columns with a chart in each panel, or else of tallest panels."""
    heading = density is Density.ROW
    narrowest = NARROWEST_ROW if heading else NARROWEST_PANEL
    tallest = TALLEST if density is Density.FULL else density
    most = max(1, min(max(sections, default=0), (width + GAP) // (narrowest + GAP)))
    known = []
    for columns in range(1, most + 1):
        lines = max(1, sum(-(-devices // columns) for devices in sections))
        each = (width - (columns - 1) * GAP) // columns
        rows = max(density, min(tallest, room // lines))
        known.append(
            DeviceLayout(density, columns, each, rows, lines * rows + heading, heading)
        )
    fitting = [
        each
        for each in known
        if each.rows <= room
        and (heading or each.panel_width <= WIDEST_PANEL or each is known[-1])
    ]
    charts = (each for each in fitting if each.panel_height >= CHART_ROWS)
    return next(
        charts, max(fitting, key=lambda each: each.panel_height, default=known[-1])
    )


class PanelLine(NamedTuple):
    """Line of panels side by side, or the title of the machine that the next lines belong to."""

    rows: int
    devices: Sequence[Device] = ()
    machine: Machine | None = None


class DevicesView(Wheel, TelemetryView):
    """One panel per device, at the density that the space allows."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, id="devices")
        self._selected: str | None = None
        self.active = True
        """True while keys are for the devices."""
        self.density = AUTO
        """Name of the density that the user chose, or `auto`."""
        self.alone = False
        """True on the smallest terminals: a line for each device, and nothing else."""
        self.charts = CHARTS[0]
        """Charts in panels, as in the settings."""
        self.current_layout = self._drawn_as = plan_layout(0, 0, 0, 0)
        self._caches: defaultdict[str, DrawingCache] = defaultdict(DrawingCache)
        """Cache of each device, by UUID."""
        self._renewed = 0
        """Number of samples when the lines of second rank were drawn."""
        self._space = (0, 0)
        self._shown: list[PanelLine] = []

    @property
    def selected(self) -> Device | None:
        """Selected device. It is kept by UUID, as an index may later mean another device."""
        devices = self._telemetry.devices
        return self._telemetry.find_device(self._selected) or (
            devices[0] if devices else None
        )

    @property
    def shows_gpm(self) -> bool:
        """True if the layout has room for GPM readings."""
        now = self.current_layout
        return (
            now.density is not Density.ROW
            or self._row_layout(now.panel_width).shows_gpm
        )

    def plan(self, width: int, height: int) -> DeviceLayout:
        """Return the layout for a space that devices and processes share."""
        self._space = width, height
        self.current_layout = self._layout(self.density)
        return self.current_layout

    def _layout(self, density: str) -> DeviceLayout:
        telemetry, chosen = (
            self._telemetry,
            None if density == AUTO else Density[density.upper()],
        )
        sections = [*Counter(device.machine for device in telemetry.devices).values()]
        titles = sum(row.title_rows(each) for each in telemetry.machines)
        return plan_layout(
            sections, telemetry.process_count, *self._space, chosen, titles
        )

    def next_density(self) -> None:
        """Switch to the next density: one row, three rows, full. The one that suits is `auto`."""
        order = [*Density]
        following = order[(order.index(self.current_layout.density) + 1) % len(order)]
        automatic = self._layout(AUTO).density
        self.density = AUTO if following is automatic else following.name.lower()

    def is_right(self, uuid: str) -> bool:
        """Return True if the panel of the device with that UUID is in the right half."""
        columns = self.current_layout.columns
        places = (
            (n, each) for line in self._shown for n, each in enumerate(line.devices)
        )
        return any(d.uuid == uuid and 2 * n >= columns for n, d in places)

    def action_move(self, step: int) -> None:
        devices, selected = self._telemetry.devices, self.selected
        if selected is not None:
            number = devices.index(selected) + step
            self.select(devices[max(0, min(len(devices) - 1, number))])

    action_side = action_move

    def action_page(self, step: int) -> None:
        now = self.current_layout
        self.action_move(
            step * max(1, self.size.height // now.panel_height - 1) * now.columns
        )

    def wheel(self, step: int) -> None:
        self.action_move(1 if step > 0 else -1)

    def select(self, device: Device) -> None:
        self._selected = device.uuid
        self.redraw()

    def on_click(self, event: Click) -> None:
        now = self.current_layout
        top = now.heading_rows
        for line in self._shown:
            if top <= event.y < top + line.rows:
                column = min(now.columns - 1, event.x // (now.panel_width + GAP))
                if column < len(line.devices):
                    self.select(line.devices[column])
            top += line.rows

    def draw(self, width: int, height: int) -> list[Row]:
        if self.alone:
            return self._short_rows(width, height)
        now = self.current_layout
        if now.panel_width > width:
            return []
        self._renew(now, anew=self._drawn_size != (width, height))
        devices, selected = self._telemetry.devices, self.selected
        lines = self._lines(now)
        space = height - now.heading_rows
        all_fit = sum(line.rows for line in lines) <= space
        if not (all_fit or devices):
            return self._short_rows(width, height)
        at = next((n for n, line in enumerate(lines) if selected in line.devices), 0)
        # The count of hidden devices needs a row under at least one device.
        counted = not all_fit and bool(lines) and lines[at].rows < space
        heights = [line.rows for line in lines]
        self._first = first_visible(heights, at, self._first, space - counted)
        below = lines[self._first :]
        self._shown = (
            fit_columns(below, space - counted, lambda line: line.rows) or below[:1]
        )
        layout = (
            self._row_layout(now.panel_width) if now.density is Density.ROW else None
        )
        cells = max((len(str(device.index)) for device in devices), default=1)
        rows: list[Row] = []
        if layout:
            rows += beside([[row.heading(layout)]] * now.columns, now.panel_width, GAP)
        for line in self._shown:
            if line.machine is not None:
                telemetry = self._telemetry
                behind = telemetry.old_seconds(line.machine)
                rows += row.host_title(
                    line.machine, width, behind, telemetry.silence_limit
                )
                continue
            panels = [
                self._panel(each, each is selected, cells) for each in line.devices
            ]
            if layout:
                drawn = [[row.draw_row(each, layout)] for each in panels]
            else:
                size = now.panel_width, now.panel_height
                drawn = [panel.draw(each, now.density, *size) for each in panels]
            rows += beside(drawn, now.panel_width, GAP)
        if counted:
            rows = [*rows[: height - 1], self._hidden_note(lines, width)]
        if now.density is not Density.FULL:  # full panels have their own findings
            rows += self._finding_lines(width)[: max(0, height - len(rows))]
        return rows

    def _hidden_note(self, lines: Sequence[PanelLine], width: int) -> Row:
        """Return the row that says which part of all lines is shown."""
        count = len(self._telemetry.devices)
        before = sum(len(line.devices) for line in lines[: self._first])
        shown = sum(len(line.devices) for line in self._shown)
        note = [f"   {before + 1} to {before + shown} of {count} devices"]
        if shown < count:
            note.append(": ↓ ↑ for the others")
        else:  # what does not fit has none
            note.append(", and hosts without devices")
        return [Span("".join(fit_columns(note, width, len)), DIM)]

    def _short_rows(self, width: int, height: int) -> list[Row]:
        """Draw one line for each device, and for each host that is away or has no devices."""
        lines, selected = self._short_lines(), self.selected
        at = next((n for n, line in enumerate(lines) if selected in line.devices), 0)
        self._first = first_visible([1] * len(lines), at, self._first, height)
        self._shown = lines[self._first : self._first + height]
        rows: list[Row] = []
        for line in self._shown:
            if line.machine is not None:
                rows.append(row.short_host(line.machine, width))
            for device in line.devices:
                drawn = self._panel(device, device is selected, 1)
                rows.append(row.short_row(drawn, width))
        if (
            selected is None and len(lines) > height > 1
        ):  # without devices no key scrolls
            rows[-1] = [Span(f" and {len(lines) - height + 1} more hosts", DIM)]
        return rows

    def _short_lines(self) -> list[PanelLine]:
        telemetry = self._telemetry
        lines = []
        for machine in telemetry.machines or [None]:
            own = [
                each
                for each in telemetry.devices
                if machine in (None, telemetry.machine_of(each))
            ]
            if machine is not None and (
                machine.state is not MachineState.OK or not own
            ):
                lines.append(PanelLine(1, machine=machine))
            lines += [PanelLine(1, [device]) for device in own]
        return lines

    def _renew(self, now: DeviceLayout, *, anew: bool) -> None:
        """Decide what stays: nothing if all is drawn anew, or the picture stands still."""
        telemetry = self._telemetry
        still = (
            telemetry.paused
            or telemetry.replayed
            or telemetry.silent_seconds is not None
        )
        if anew or still or now != self._drawn_as:
            self._caches.clear()
        self._drawn_as = now
        count = telemetry.history.count
        if not 0 <= (count - self._renewed) * telemetry.interval < SECOND_RANK_SECONDS:
            self._renewed = count
            for cache in self._caches.values():
                cache.details = None

    def _lines(self, now: DeviceLayout) -> list[PanelLine]:
        """Return the devices in as many columns as the layout has, those of a machine under it."""
        lines = []
        for machine in self._telemetry.machines or [None]:
            own = self._telemetry.devices
            if machine is not None:
                lines.append(PanelLine(row.title_rows(machine), machine=machine))
                own = tuple(each for each in own if each.machine == machine.name)
            starts = range(0, len(own), now.columns)
            lines += [
                PanelLine(now.panel_height, own[n : n + now.columns]) for n in starts
            ]
        return lines

    @property
    def finding_rows(self) -> int:
        """Rows that findings could use under panels without room for their own."""
        full = self.current_layout.density is Density.FULL
        return 0 if full else len(self._finding_lines(80))

    def _finding_lines(self, width: int) -> list[Row]:
        telemetry = self._telemetry
        lines = []
        told = telemetry.slowest.findings if telemetry.slowest else ()  # by the header
        others = (each for each in telemetry.problems.values() if each not in told)
        for found in islice(others, MOST_FINDINGS):
            device = telemetry.find_device(found.device_uuid)
            if device is not None:
                lines.append(panel.finding_line(found, width, label_of(device)))
        return lines

    def _row_layout(self, width: int) -> row.RowLayout:
        devices = self._telemetry.devices
        own = [device.own for device in devices]  # labels as under the machine's title
        return row.row_layout(
            own, [self._telemetry.readings(d.uuid) for d in devices], width
        )

    def _panel(self, device: Device, selected: bool, index_cells: int) -> Panel:
        telemetry = self._telemetry
        machine = telemetry.machine_of(device)
        readings, cache = telemetry.readings(device.uuid), self._caches[device.uuid]
        if cache.details is None or cache.details.absent != readings.absent:
            cache.details = readings
        return Panel(
            device.own,
            readings,
            self._past(device),
            telemetry.history.count,
            selected,
            self.active,
            index_cells,
            telemetry.host_of(device),
            telemetry.problems.get(device.uuid),
            bool(telemetry.problems),
            telemetry.old_seconds(readings),
            machine is not None and telemetry.old_seconds(machine) is not None,
            cache,
            telemetry.interval,
            telemetry.scroll_charts,
            telemetry.bound_by(device.uuid),
        )

    def _past(self, device: Device) -> list[PanelHistory]:
        r = self._telemetry.readings(device.uuid)
        active = panel.activity_of(r)
        label, style = ("SM", SM) if active == "sm_active_percent" else ("busy", BUSY)
        memory, watts = r.memory_total_bytes, r.power_limit_watts
        shown = (
            (label, active, 100.0, "100 %", style),
            ("mem", "memory_used_bytes", memory, size(memory), MEMORY),
            ("power", "power_watts", watts, quantity(watts, " W"), POWER),
        )
        series = self._telemetry.history.series
        return [
            PanelHistory(label, series(device.uuid, name), top, text, style)
            for label, name, top, text, style in shown[: CHART_COUNTS[self.charts]]
            if top and not panel.lacks(r, name)
        ]


def first_visible(heights: Sequence[int], at: int, first: int, room: int) -> int:
    """Return the first line to show so that line `at` is visible and no room is wasted."""

    def fitting(end: int) -> int:
        """Return the first line from which on all before `end` fit."""
        return next((n for n in range(end) if sum(heights[n:end]) <= room), end)

    return max(min(at, fitting(at + 1)), min(first, at, fitting(len(heights))))
