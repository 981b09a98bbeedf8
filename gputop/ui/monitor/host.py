"""View without devices: the reason, and the remedy."""

from __future__ import annotations

from gputop.ui.drawing.cells import Row, Span, paragraph
from gputop.ui.drawing.device_cells import sign_of
from gputop.ui.drawing.live import TelemetryView
from gputop.ui.drawing.palette import DIM
from gputop.ui.trouble import stream_trouble

HINTS = "Press b to stress-test the CPU. gputop --demo simulates devices."


class HostView(TelemetryView):
    """View with the reason why there are no devices. The header shows the host."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - few rows
        inner = width - 4
        trouble = stream_trouble(self._telemetry)
        rows: list[Row] = [[]]
        if trouble is not None:
            style = sign_of(trouble.severity).style
            rows += paragraph(f"{trouble.what}.", inner, style)
            if trouble.remedy:
                rows += paragraph(f"{trouble.remedy}.", inner)
        # A stress test runs on this machine only.
        if not self._telemetry.starting and not self._telemetry.machines:
            rows += paragraph(HINTS, inner, DIM)
        return [[Span("  "), *row] for row in rows]
