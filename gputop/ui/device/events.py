"""Events of a device."""

from __future__ import annotations

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Event
from gputop.health.conditions import event_text
from gputop.text import moment
from gputop.ui.drawing.cells import Row, Span, clip_advice, width_of
from gputop.ui.drawing.live import DeviceView
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, GOOD


class EventsView(DeviceView):
    """Events of the device, newest first: time, event and remedy. A single row shows the newest."""

    def draw(self, width: int, height: int) -> list[Row]:
        events = (
            self._telemetry.events(self.device.uuid) if self.device else []
        )
        title = [Span("Events ", ACCENT)]
        if not events:
            return [[*title, Span("none so far", DIM)]]
        shown = events[: max(1, height - 1)]
        rows = [self._row(event, width) for event in shown]
        if height == 1:
            return [[*title, *self._row(events[0], width - len("Events "))]]
        if len(shown) < len(events):
            title.append(
                Span(f"the newest {len(shown)} of {len(events)}", DIM),
            )
        return [title, *rows]

    def _row(self, event: Event, width: int) -> Row:
        device, where = self.device, ""
        if event.device_uuid is None:
            device, where = None, " (the driver does not say on which device)"
        readings = self._telemetry.readings(device.uuid) if device else None
        what, remedy = event_text(event, device, readings)
        style = GOOD if event.kind == DeviceState.OK.value else FAULT
        row = [
            Span(f"{moment(event.time)} ", DIM),
            Span(f"{what}{where}", style),
        ]
        left = width - width_of(row) - 2
        return [*row, Span(f"  {clip_advice(remedy, left)}", DIM)]
