"""Device page: charts, bottleneck, readings, processes and events of one device."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical

from gputop.agent.device import Device
from gputop.ui.device.bound_map import BoundMap
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.timeline import TimelineView
from gputop.ui.device.title import DeviceTitle
from gputop.ui.drawing.live import DeviceTab
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.telemetry import Telemetry


class DevicePage(DeviceTab):
    """Page of one device. Its layout (in `gputop.tcss`) depends only on the terminal's size."""

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

    def compose(self) -> ComposeResult:
        yield self._title
        with Container(id="device-body"):
            with Vertical(id="device-left"):
                with Horizontal(id="device-charts"):
                    yield self._timeline
                    yield self._map
                yield self._processes
                yield self._events
            yield self._details

    def _show(self, device: Device | None) -> None:
        super()._show(device)
        self._processes.device_uuid = device.uuid if device else None
        self._processes.redraw()
