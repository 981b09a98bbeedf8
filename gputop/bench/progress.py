"""The progress of a stress test on one line of a terminal."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TextIO

from gputop.bench.events import Done, Event, Failed, Hello, Planned, Point, Progress
from gputop.terminal import terminal_size
from gputop.text import duration, percentage, tflops, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.bench.plan import Target
    from gputop.bench.together import Gathering

DRAW_SECONDS = 0.25
LONGEST_BAR, SHORTEST_BAR = 40, 12


class Line(ABC):
    """Draws on `stream` where that is a terminal, and is silent otherwise."""

    def __init__(self, stream: TextIO, now: Callable[[], float]) -> None:
        self._stream, self._now = stream, now
        self._drawing = stream.isatty()
        self._drawn = 0

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

    @abstractmethod
    def line(self, width: int) -> str:
        """The progress in at most `width` columns."""

    def _width(self) -> int:
        try:
            return terminal_size(self._stream.fileno())[0]
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeError):
            self._drawing = False


class Progressing(Line):
    """Of one device."""

    def __init__(
        self, stream: TextIO, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream, now)
        self._seconds = seconds
        self._state = "starting"
        self._began: float | None = None
        self._last: Progress | None = None
        self._peak = 0.0
        self._work = 0.0
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
        return _with_bar(share, "  ".join(parts), width)

    def _so_far(self, elapsed: float) -> list[str]:
        """Rows that are there, of those that there may be, and the last one."""
        parts = [f"{len(self._points)} of at most {self._rows} rows", duration(elapsed)]
        if self._points:
            last = self._points[-1]
            parts += [_figure(last), f"{last.series}, {last.x:.0f}"]
        return parts


class Together(Line):
    """Of several devices: the time of the run that is under way, and a figure of each."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, now)
        self._began = 0.0
        self._seconds = 0.0
        self._says: dict[Target, str] = {}

    def take(self, target: Target, event: Event) -> None:
        """Remembers what is to be drawn; draws nothing."""
        if isinstance(event, Planned):
            self._began, self._seconds = self._now(), event.expected_seconds or 0.0
        says = {Hello: "prepares", Planned: "ready", Done: "done", Failed: "failed"}
        if isinstance(event, Progress):
            self._says[target] = tflops(event.tflops)
        elif isinstance(event, Point):
            self._says[target] = _figure(event)
        elif type(event) in says:
            self._says[target] = says[type(event)]

    def line(self, width: int) -> str:
        """The progress in at most `width` columns."""
        if not self._says:
            return "starting ..."[:width]
        text = "  ".join(f"{_short(target)} {says}" for target, says in self._says.items())
        if not self._seconds:
            return text[:width]
        elapsed = min(self._now() - self._began, self._seconds)
        left = f"{duration(elapsed)}, {duration(self._seconds - elapsed)} left"
        return _with_bar(elapsed / self._seconds, f"{left}  {text}", width)


class Gathered(Line):
    """Of a fleet: the time, how many devices are how far, and how their throughput lies."""

    def __init__(
        self, stream: TextIO, gathering: Gathering, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream, now)
        self._gathering = gathering
        self._began: float | None = None

    def take(self, target: Target, event: Event) -> None:
        """Remembers what is to be drawn; draws nothing."""
        self._gathering.take(target, event)
        if isinstance(event, Progress | Point) and self._began is None:
            self._began = self._now()

    def line(self, width: int) -> str:
        """The progress in at most `width` columns: what matters least goes first."""
        so_far = self._gathering
        counts = ", ".join(f"{count} {state}" for state, count in so_far.states.items())
        if self._began is None:
            return f"{counts} ..."[:width]
        seconds = so_far.expected_seconds
        elapsed = min(self._now() - self._began, seconds)
        parts = [f"{duration(elapsed)}, {duration(seconds - elapsed)} left", counts]
        if so_far.wrong:
            parts.append(f"{len(so_far.wrong)} wrong")
        if behind := so_far.behind():
            first, by = next(iter(behind.items()))
            more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
            parts.append(f"{visible(first.host or '')} {first.place} {percentage(by)} behind{more}")
        for among in [*so_far.distributions.values()][:1]:
            lies = f"{tflops(among.median)} ({tflops(among.p5)} to {tflops(among.p95)}) TFLOP/s"
            parts.insert(1, lies)
        while len(parts) > 2 and len("  ".join(parts)) > width:
            parts.pop()
        return _with_bar(elapsed / seconds if seconds else 0.0, "  ".join(parts), width)


def _short(target: Target) -> str:
    return visible(target.name) if target.number is None else f"GPU {target.number}"


def _with_bar(share: float, text: str, width: int) -> str:
    """The text, behind a bar where there is room for one."""
    room = min(LONGEST_BAR, width - len(text) - 4)
    if room < SHORTEST_BAR:
        return text[:width]
    full = int(room * min(1.0, share))
    return f"[{'#' * full}{'-' * (room - full)}]  {text}"


def _figure(point: Point) -> str:
    rate, bandwidth = (point.values.get(name) for name in ("tflops", "bytes_per_second"))
    if rate is None and bandwidth is not None:
        return f"{bandwidth / 1e9:.4g} GB/s"
    return f"{tflops(rate)} TFLOP/s"
