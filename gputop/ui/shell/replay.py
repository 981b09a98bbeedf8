"""The line of a replay: that it is one, which time is shown, and where in the recording it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import moment
from gputop.ui.drawing.cells import Row, Span, bar, fit, width_of
from gputop.ui.drawing.palette import ACCENT, BADGE, DIM, STRONG, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from textual.events import Click

    from gputop.recording.replay import Replay
    from gputop.ui.model import Telemetry

SHORTEST_BAR = 8
"""Cells of a bar that still says something."""


class ReplayBar(LiveView):
    """One row; a click on its bar goes there."""

    DEFAULT_CSS = "ReplayBar { height: 1; }"

    def __init__(self, telemetry: Telemetry, replay: Replay) -> None:
        super().__init__(id="replay")
        self._telemetry = telemetry
        self._replay = replay
        self._bar = range(0)
        """The cells that the bar is on."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """One row."""
        replay = self._replay
        row = [Span(" REPLAY ", BADGE), Span(f" {self._moment()}  ", STRONG)]
        row.append(Span(f"{self._pace():<7}", ACCENT))
        row.append(Span(f"{clock(replay.position)} of {clock(replay.end)} "))
        damaged = replay.recording.damaged
        lost = [Span(f" {damaged} damaged ", WARN)] if damaged else []
        lost += [Span(f" {replay.recording.unread} ", WARN)] if replay.recording.unread else []
        room = width - width_of(row) - width_of(lost) - 1
        self._bar = range(0)
        if room >= SHORTEST_BAR:
            self._bar = range(width_of(row), width_of(row) + room)
            share = replay.position / replay.end if replay.end else 1.0
            row += [*bar(share, room, DIM), Span(" ")]
        return [fit([*row, *lost], width)]

    def _pace(self) -> str:
        if self._replay.ended:
            return "end"
        return "paused" if self._replay.paused else f"×{self._replay.speed:g}"

    def _moment(self) -> str:
        """The date and time of what is shown, as they are here."""
        telemetry = self._telemetry
        if telemetry.latest is None:
            return "…"
        since = max(0.0, self._replay.position - telemetry.received_at)
        return moment(telemetry.latest.time + since, "%Y-%m-%d %H:%M:%S")

    def action_play(self) -> None:
        """Stops, or plays on."""
        self._replay.pause()
        self.redraw()

    def action_seek(self, seconds: float) -> None:
        """Goes that far on, or back."""
        self._replay.seek(seconds)
        self.redraw()

    def action_speed(self, step: int) -> None:
        """Plays faster, or slower."""
        self._replay.change_speed(step)
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Goes to where the mouse is."""
        if event.x in self._bar and self._replay.end:
            share = (event.x - self._bar.start) / max(1, len(self._bar) - 1)
            self._replay.seek(share * self._replay.end - self._replay.position)


def clock(seconds: float) -> str:
    """A time into the recording: `0:05`, `1:02:05`."""
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole:02d}" if hours else f"{minutes}:{whole:02d}"
