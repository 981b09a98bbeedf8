"""What happened to a device: its Xid errors, and when it was lost or answered again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.health.conditions import event_text
from gputop.schema.snapshot import DeviceState
from gputop.text import moment
from gputop.ui.drawing.draw import Row, Span, clip_words
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, GOOD
from gputop.ui.widgets.live import DeviceView

if TYPE_CHECKING:
    from gputop.schema.snapshot import Event


class EventsView(DeviceView):
    """The newest events first: when, what, and what to do."""

    @property
    def wanted_rows(self) -> int:
        """For all events with their heading; none without events."""
        many = len(self._telemetry.events(self.device.uuid)) if self.device else 0
        return many + 1 if many else 0

    @property
    def _none(self) -> str:
        return "none so far" if self._telemetry.replayed else "none since gputop started"

    def draw(self, width: int, height: int) -> list[Row]:
        """A heading, then one event a row."""
        events = self._telemetry.events(self.device.uuid) if self.device else []
        if not events:
            return [[Span("Events", ACCENT)], [Span(self._none, DIM)]]
        if height < 2:
            return [_row(events[0], width)]
        shown = events[: height - 1]
        some = f", the newest {len(shown)} of {len(events)}" if len(shown) < len(events) else ""
        heading = [Span("Events", ACCENT), Span(some, DIM)]
        return [heading, *(_row(event, width) for event in shown)]


def _row(event: Event, width: int) -> Row:
    what, remedy = event_text(event)
    where = "" if event.device_uuid is not None else " (on which device is not said)"
    style = GOOD if event.kind == DeviceState.OK.value else FAULT
    row = [Span(f"{moment(event.time)} ", DIM), Span(f"{what}{where}", style)]
    left = width - sum(len(span.text) for span in row) - 2
    return [*row, Span(f"  {clip_words(remedy, left)}", DIM)] if left > 0 else row
