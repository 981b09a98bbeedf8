"""The progress of a stress test on one line of a terminal."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, TextIO

from gputop.bench.events import Done, Event, Failed, Hello, Planned, Point, Progress
from gputop.text import duration, tflops

if TYPE_CHECKING:
    from collections.abc import Callable

DRAW_SECONDS = 0.25
LONGEST_BAR, SHORTEST_BAR = 40, 12


class Progressing:
    """Draws on `stream` where that is a terminal, and is silent otherwise."""

    def __init__(
        self, stream: TextIO, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._seconds, self._now = stream, seconds, now
        self._drawing = stream.isatty()
        self._state = "starting"
        self._began: float | None = None
        self._last: Progress | None = None
        self._peak = 0.0
        self._work = 0.0
        self._drawn = 0
        self._rows = 0
        self._points: list[Point] = []

    def take(self, event: Event) -> None:
        """Remembers what is to be drawn; draws nothing."""
        if isinstance(event, Hello):
            self._state = f"preparing {event.device_name}"
        elif isinstance(event, Planned):
            self._state = f"{event.dtype} {event.n}"
            self._rows = event.rows
            self._began = self._now()
        elif isinstance(event, Point):
            self._points.append(event)
        elif isinstance(event, Progress):
            self._last = event
            self._peak = max(self._peak, event.tflops)
            self._work += event.tflops * event.window_seconds
        elif isinstance(event, Done | Failed):
            self._drawing = False

    async def keep_drawing(self) -> None:
        """Draws four times a second, until cancelled: also while a long product says nothing."""
        while self._drawing:
            self.draw()
            await asyncio.sleep(DRAW_SECONDS)

    def draw(self) -> None:
        """Draws the line over the one before."""
        line = self.line(self._width() - 1)  # the last column would wrap on some terminals
        self._write(f"\r{line.ljust(self._drawn)}")
        self._drawn = len(line)

    def clear(self) -> None:
        """Leaves the line empty, with the cursor at its begin."""
        if self._drawn:
            self._write(f"\r{' ' * self._drawn}\r")
            self._drawn = 0

    def line(self, width: int) -> str:
        """The progress in at most `width` columns: what matters least goes first."""
        if self._began is None:
            return f"{self._state} ..."[:width]
        elapsed = min(self._now() - self._began, self._seconds)
        share = elapsed / self._seconds
        parts = [f"{duration(elapsed)}, {duration(self._seconds - elapsed)} left"]
        if self._rows:  # a table: it may be done before its time
            parts = self._so_far(elapsed)
            share = max(share, len(self._points) / self._rows)
        elif self._last is not None:
            # Of sums over windows, so that a slow window weighs as long as it took.
            mean = self._work / self._last.elapsed_seconds if self._last.elapsed_seconds else 0.0
            parts += [
                f"{tflops(self._last.tflops)} TFLOP/s",
                f"mean {tflops(mean)}",
                f"peak {tflops(self._peak)}",
                self._state,
            ]
        while len(parts) > 2 and len("  ".join(parts)) + SHORTEST_BAR + 4 > width:
            parts.pop()
        text = "  ".join(parts)
        room = min(LONGEST_BAR, width - len(text) - 4)
        if room < SHORTEST_BAR:
            return text[:width]
        full = int(room * min(1.0, share))
        return f"[{'#' * full}{'-' * (room - full)}]  {text}"

    def _so_far(self, elapsed: float) -> list[str]:
        """Rows that are there, of those that there may be, and the last one."""
        parts = [f"{len(self._points)} of at most {self._rows} rows", duration(elapsed)]
        if self._points:
            last = self._points[-1]
            rate, bandwidth = (last.values.get(name) for name in ("tflops", "bytes_per_second"))
            figure = f"{tflops(rate)} TFLOP/s"
            if rate is None and bandwidth is not None:
                figure = f"{bandwidth / 1e9:.4g} GB/s"
            parts += [figure, f"{last.series}, {last.x:.0f}"]
        return parts

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeError):
            self._drawing = False
