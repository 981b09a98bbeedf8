"""The device page: everything that one device says, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Container, Vertical

from gputop.health.conditions import fault_of
from gputop.schema.snapshot import MachineState
from gputop.text import age, moment, short_name, visible
from gputop.ui.device.details import DetailsView
from gputop.ui.device.events import EventsView
from gputop.ui.drawing.draw import Row, Span, rule_of, width_of
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, STRONG, TEXT, WARN
from gputop.ui.model import find_device
from gputop.ui.monitor.panel import age_text
from gputop.ui.processes.tab import DeviceTab
from gputop.ui.processes.widget import ProcessesView
from gputop.ui.widgets.live import DeviceView
from gputop.ui.widgets.timeline import TimelineView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.schema.snapshot import Device
    from gputop.ui.model import Telemetry

OLD = "SLOW to answer, or a driver call hangs"
OLD_REMEDY = "These are its last readings; `dmesg` may have an Xid"
BEHIND_REMEDY = "These are the last readings that arrived: the line is slow, or the host stalls"
WIDE, TALL = 150, 40
"""Cells from which charts and readings stand side by side, and rows from which events have room."""
DETAILS, NARROWEST_CHARTS, GAP = 60, 60, 2
"""Cells of a column of readings, of the charts beside them, and between the two."""


class DeviceTitle(DeviceView):
    """Which device this is; where something is wrong with it, that and what to do."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - as many as it has
        """Which device, and under it what is wrong."""
        device, telemetry = self.device, self._telemetry
        if device is None:
            return [[Span("No device", WARN)]]
        left = [
            Span(f"{device.label} ", ACCENT),
            Span(f"{short_name(visible(device.name))} ", STRONG),
        ]
        since = telemetry.history.since(device.uuid)
        right = [] if since is None else [Span(f" statistics since {moment(since)} ", DIM)]
        return [rule_of(left, right, width), *self._fault_rows(width)]

    def rows(self, width: int) -> int:
        """How many it has to say what is wrong."""
        return 1 + len(self._fault_rows(width))

    def _fault_rows(self, width: int) -> list[Row]:
        if self.fault is None:
            return []
        what, remedy = Span(f"{self.fault[0]}. ", FAULT), Span(self.fault[1], TEXT)
        row = [what, remedy]
        return [row] if width_of(row) <= width else [[part] for part in row]

    @property
    def fault(self) -> tuple[str, str] | None:
        """What is wrong with the device, and what to do."""
        device, telemetry = self.device, self._telemetry
        if device is None:
            return None
        if find_device(telemetry.devices, device.uuid) is None:
            return "GONE: the driver no longer lists it", "These are its last readings"
        machine = telemetry.machine_of(device)
        if machine is not None and machine.state is MachineState.AWAY and machine.problem:
            problem = machine.problem
            return f"{visible(problem.what)}: {visible(problem.why)}", visible(problem.remedy)
        behind = None if machine is None else telemetry.behind_seconds(machine)
        if machine is not None and behind is not None:
            return f"{visible(machine.name)} is {age(behind)} behind", BEHIND_REMEDY
        readings = telemetry.readings(device.uuid)
        old = telemetry.old_seconds(readings)
        return fault_of(readings) if old is None else (f"{OLD}: {age_text(old)}", OLD_REMEDY)


class DevicePage(DeviceTab):
    """Charts, readings, processes and events of one device, laid out in the space there is."""

    DEFAULT_CSS = """
    DevicePage { height: 1fr; }
    DevicePage #device-title { height: 1; }
    DevicePage #device-body, DevicePage #timeline { height: 1fr; }
    DevicePage #device-body { layout: vertical; }
    DevicePage.wide #device-body { layout: horizontal; }
    DevicePage.wide #details { margin-left: 2; }
    """

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="page")
        self.telemetry = telemetry
        self._title = DeviceTitle(telemetry, id="device-title")
        self._timeline = TimelineView(telemetry, id="timeline")
        self._events = EventsView(telemetry, id="events")
        self._details = DetailsView(telemetry, id="details")
        self._views = (self._title, self._timeline, self._details, self._events)
        self._processes = ProcessesView(telemetry)
        self._left = Vertical(self._timeline, self._processes, self._events)
        self._body = Container(self._left, self._details, id="device-body")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._body

    @property
    def selected(self) -> Device | None:
        """The device that is shown, as it was when it was last listed."""
        return self._title.device

    @property
    def actors(self) -> tuple[Widget, ...]:
        """Return the page, its charts with a cursor in time, and its readings, which scroll."""
        return (self, self._timeline, self._details)

    def show(self, uuid: str) -> None:
        """Shows that device."""
        self._show(find_device(self.telemetry.devices, uuid))

    def _show(self, device: Device | None) -> None:
        for view in self._views:
            view.device = device
        self._processes.device_uuid = device.uuid if device else None
        self.show_telemetry()

    def show_telemetry(self) -> None:
        """Draws what changed."""
        # What is known of it may have changed; one that is gone stays as it was.
        if self.selected is not None:
            current = find_device(self.telemetry.devices, self.selected.uuid) or self.selected
            for view in self._views:
                view.device = current
        self._arrange()
        for view in self._views:
            view.redraw()
        self._processes.redraw()

    def action_reset(self) -> None:
        """Begins the device's statistics anew."""
        if self.selected is not None:
            self.telemetry.history.reset(self.selected.uuid)
            self.show_telemetry()

    def on_resize(self) -> None:
        """Another size, another layout."""
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.size
        if not (width and height):
            return
        title = self._title.rows(width)
        height -= title
        events, wide = self._events.wanted_rows, width >= WIDE
        if wide:
            events = min(max(events, 2), height // 4)
            processes = self._process_rows(max(4, height // 4))
            one = width < 2 * DETAILS + GAP + NARROWEST_CHARTS
            details = DETAILS if one else 2 * DETAILS
            left, right = (width - details - GAP, height), (details, height)
        else:
            events = min(events, 4 if height >= TALL else 2)
            processes = self._process_rows(max(3, height // 6))
            charts = min(20, height * 2 // 5, self._timeline.wanted_rows)
            rows = max(6, charts) + events + processes
            left, right = (width, rows), (width, max(1, height - rows))
        _set(self._title, width, title)
        _set(self._left, *left)
        _set(self._details, *right)
        _set(self._events, left[0], events)
        _set(self._processes, left[0], processes)
        self._events.display = events > 0
        self.set_class(wide, "wide")

    def _process_rows(self, most: int) -> int:
        wanted = self._processes.wanted_rows
        return min(most, max(3, wanted)) if wanted > 1 else 2


def _set(view: Widget, width: int, height: int) -> None:
    """Its size in cells; where it has that, nothing is laid out again."""
    view.styles.width, view.styles.height = width, height
