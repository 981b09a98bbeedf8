"""Device page: charts, bottleneck, readings, processes and events of one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Container, Horizontal, Vertical

from gputop.ui.device.bound_map import BoundMap
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.timeline import TimelineView
from gputop.ui.device.title import DeviceTitle
from gputop.ui.drawing.live import DeviceTab, space_of
from gputop.ui.processes.screen import ProcessesView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.ui.telemetry import Telemetry

WIDE, WIDEST, TALL = 150, 200, 30
"""Widths from which one or two columns of readings are beside the charts, and height with room for
events."""
DETAILS, GAP = 60, 2
"""Cells of a column of readings, and before it."""
TITLE_ROWS = 4
NARROWEST_WITH_MAP = 70
"""Fewest cells of charts with a map beside them."""


class DevicePage(DeviceTab):
    """Page of one device. Its layout depends on the size of the terminal alone."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._title = DeviceTitle(telemetry, id="device-title")
        self._timeline = TimelineView(telemetry, id="timeline")
        self._map = BoundMap(telemetry, id="map")
        self._events = EventsView(telemetry, id="events")
        self._details = DetailsView(telemetry, id="details")
        views = (
            self._title,
            self._timeline,
            self._map,
            self._details,
            self._events,
        )
        super().__init__(telemetry, views, id="page")
        self._processes = ProcessesView(telemetry)
        self._top = Horizontal(self._timeline, self._map)
        self._left = Vertical(self._top, self._processes, self._events)
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
        height -= TITLE_ROWS
        wide = width >= WIDE
        details = DETAILS * (1 + (width >= WIDEST)) if wide else width
        left = width - details - GAP if wide else width
        if wide:
            events, processes = height // 6, height // 5
            charts = height - events - processes
            _set(self._details, details, height)
        else:
            events = 4 if height >= TALL else 1
            processes = max(3, height // 6)
            charts = max(7, height * 2 // 5)
            rows = max(1, height - charts - events - processes)
            _set(self._details, width, rows)
        map_width = min(44, max(30, left // 3)) if left >= NARROWEST_WITH_MAP else 0
        self._map.display = map_width > 0
        _set(self._title, width, TITLE_ROWS)
        _set(self._left, left, charts + processes + events)
        _set(self._top, left, charts)
        _set(self._timeline, left - map_width, charts)
        _set(self._map, map_width, charts)
        _set(self._processes, left, processes)
        _set(self._events, left, events)
        self.set_class(wide, "wide")


def _set(
    view: Widget,
    width: int,
    height: int,
) -> None:
    """Set the size of a view in cells; Textual lays out again only if it changed."""
    view.styles.width, view.styles.height = width, height
