"""A stress test as the dashboard sees it: what its events have said so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from gputop.bench.session import Done, Event, Failed, Hello, Planned, Progress, Result, Verified

if TYPE_CHECKING:
    from gputop.bench.plan import Request
    from gputop.telemetry.snapshot import Problem


MOST_POINTS = 4000


@dataclass
class Run:
    """One run. `points` are (seconds since the start, TFLOP/s) of its windows.

    A run of days has more of them than can be drawn: beyond `MOST_POINTS`, neighbours become one.
    """

    request: Request
    points: list[tuple[float, float]] = field(default_factory=list)
    hello: Hello | None = None
    planned: Planned | None = None
    progress: Progress | None = None
    verified: Verified | None = None
    result: Result | None = None
    problem: Problem | None = None
    status: int | None = None
    """The exit status that a failure deserves: 1 is a fault of the device."""
    peak: float | None = None
    windows_per_point: int = 1
    windows: list[float] = field(default_factory=list)
    """TFLOP/s of those that are no point yet."""
    stopping: bool = False
    limit: str | None = None
    """Why it was ended before its time, where a limit did."""
    flop_seconds: float = 0.0
    timed_seconds: float = 0.0
    started_at: float = field(default_factory=time.monotonic)

    def take(self, event: Event) -> None:
        """Takes in what the worker said."""
        match event:
            case Hello():
                self.hello = event
            case Planned():
                self.planned = event
            case Progress():
                self.progress = event
                self.peak = max(self.peak or 0.0, event.tflops)
                self._draw(event)
                self.flop_seconds += event.tflops * event.window_seconds
                self.timed_seconds += event.window_seconds
            case Verified():
                self.verified = event
            case Done():
                self.result = event.result
            case Failed():
                self.problem, self.status = event.problem, event.status

    def _draw(self, event: Progress) -> None:
        self.windows.append(event.tflops)
        if len(self.windows) < self.windows_per_point:
            return
        self.points.append((event.elapsed_seconds, fmean(self.windows)))
        self.windows = []
        if len(self.points) >= MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [(later, (one + other) / 2) for (_, one), (later, other) in pairs]
            self.windows_per_point *= 2

    @property
    def ended(self) -> bool:
        return self.result is not None or self.problem is not None

    @property
    def elapsed_seconds(self) -> float:
        """Of the measurement, without the time that torch takes to start."""
        if self.result is not None:
            return self.result.seconds
        return self.progress.elapsed_seconds if self.progress else 0.0

    @property
    def preparing_seconds(self) -> float:
        """Since the start was asked for."""
        return time.monotonic() - self.started_at

    @property
    def tflops_now(self) -> float | None:
        return None if self.progress is None or self.ended else self.progress.tflops

    @property
    def tflops_mean(self) -> float | None:
        if self.result is not None:
            return self.result.tflops_mean
        return self.flop_seconds / self.timed_seconds if self.timed_seconds else None

    @property
    def tflops_peak(self) -> float | None:
        if self.result is not None:
            return self.result.tflops_peak
        return self.peak
