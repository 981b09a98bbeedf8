"""Device page: charts, readings, processes and events of one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Container, Vertical

from gputop.health.conditions import event_text, fault_of
from gputop.schema.device import DeviceState
from gputop.schema.snapshot import Event, MachineState
from gputop.text import age, moment, short_name, visible
from gputop.ui.device.details import DetailsView
from gputop.ui.drawing.cells import Row, Span, clip_words, rule_of, width_of
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, GOOD, STRONG, TEXT, WARN
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.widgets.live import DeviceTab, DeviceView, space_of
from gputop.ui.widgets.timeline import TimelineView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.ui.model import Telemetry

OLD = "SLOW to answer, or a driver call hangs"
OLD_REMEDY = "These are its last readings; `dmesg` may show an Xid"
BEHIND_REMEDY = "These are the last readings received: the connection is slow, or the host stalls"
WIDE, TALL = 150, 40
"""Width from which charts and readings are side by side, and height with room for events."""
DETAILS, NARROWEST_CHARTS, GAP = 60, 60, 2
"""Cells of a column of readings, fewest of the charts beside it, and those between."""


class DeviceTitle(DeviceView):
    """Name of the device, and its fault with the remedy, if any."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - as many as it has
        device, telemetry = self.device, self._telemetry
        if device is None:
            return [[Span("No device", WARN)]]
        left = [
            Span(f"{device.label} ", ACCENT),
            Span(f"{short_name(visible(device.name))} ", STRONG),
        ]
        since = telemetry.history.since(device.uuid)
        right = [] if since is None else [Span(f" statistics since {moment(since)} ", DIM)]
        right = right if width_of([*left, *right]) <= width else []
        return [rule_of(left, right, width), *self._fault_rows(width)]

    def rows(self, width: int) -> int:
        return 1 + len(self._fault_rows(width))

    def _fault_rows(self, width: int) -> list[Row]:
        if self.fault is None:
            return []
        what, remedy = Span(f"{self.fault[0]}. ", FAULT), Span(self.fault[1], TEXT)
        row = [what, remedy]
        return [row] if width_of(row) <= width else [[part] for part in row]

    @property
    def fault(self) -> tuple[str, str] | None:
        """Fault of the device and its remedy."""
        device, telemetry = self.device, self._telemetry
        if device is None:
            return None
        if telemetry.find_device(device.uuid) is None:
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
        return fault_of(readings) if old is None else (f"{OLD}: {age(old)} old", OLD_REMEDY)


class EventsView(DeviceView):
    """Events of the device, the newest first: time, event and remedy."""

    @property
    def rows_needed(self) -> int:
        """Rows needed for all events and the heading; 0 without events."""
        many = len(self._telemetry.events(self.device.uuid)) if self.device else 0
        return many + 1 if many else 0

    def draw(self, width: int, height: int) -> list[Row]:
        events = self._telemetry.events(self.device.uuid) if self.device else []
        if not events:
            none = "none so far" if self._telemetry.replayed else "none since gputop started"
            return [[Span("Events", ACCENT)], [Span(none, DIM)]]
        if height < 2:
            return [_row(events[0], width)]
        shown = events[: height - 1]
        some = f", the newest {len(shown)} of {len(events)}" if len(shown) < len(events) else ""
        heading = [Span("Events", ACCENT), Span(some, DIM)]
        return [heading, *(_row(event, width) for event in shown)]


def _row(event: Event, width: int) -> Row:
    what, remedy = event_text(event)
    where = "" if event.device_uuid is not None else " (the driver does not say on which device)"
    style = GOOD if event.kind == DeviceState.OK.value else FAULT
    row = [Span(f"{moment(event.time)} ", DIM), Span(f"{what}{where}", style)]
    left = width - sum(len(span.text) for span in row) - 2
    return [*row, Span(f"  {clip_words(remedy, left)}", DIM)] if left > 0 else row


class DevicePage(DeviceTab):
    """Charts, readings, processes and events of one device, laid out for the available space."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._title = DeviceTitle(telemetry, id="device-title")
        self._timeline = TimelineView(telemetry, id="timeline")
        self._events = EventsView(telemetry, id="events")
        self._details = DetailsView(telemetry, id="details")
        views = (self._title, self._timeline, self._details, self._events)
        super().__init__(telemetry, views, id="page")
        self._processes = ProcessesView(telemetry)
        self._left = Vertical(self._timeline, self._processes, self._events)
        self._body = Container(self._left, self._details, id="device-body")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._body

    def show_telemetry(self) -> None:
        super().show_telemetry()
        self._processes.redraw()

    def action_reset(self) -> None:
        if self.selected is not None:
            self.telemetry.history.reset(self.selected.uuid)
            self.show_telemetry()

    def on_resize(self) -> None:
        self.share_space()

    def share_space(self) -> None:
        self._processes.device_uuid = self.selected.uuid if self.selected else None
        width, height = space_of(self)
        if not (width and height):
            return
        title = self._title.rows(width)
        height -= title
        events, wide = self._events.rows_needed, width >= WIDE
        if wide:
            events = min(max(events, 2), height // 4)
            processes = self._process_rows(max(4, height // 4))
            one = width < 2 * DETAILS + GAP + NARROWEST_CHARTS
            details = DETAILS if one else 2 * DETAILS
            left, right = (width - details - GAP, height), (details, height)
        else:
            events = min(events, 4 if height >= TALL else 2)
            processes = self._process_rows(max(3, height // 6))
            charts = min(20, height * 2 // 5, self._timeline.rows_needed)
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
        wanted = self._processes.rows_needed
        return min(most, max(3, wanted)) if wanted > 1 else 2


def _set(view: Widget, width: int, height: int) -> None:
    """Set the size of a view in cells; Textual lays out again only if it changed."""
    view.styles.width, view.styles.height = width, height
