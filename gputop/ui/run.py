"""A stress test as the dashboard sees it: what its events have said so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputop.bench.session import Done, Event, Failed, Hello, Planned, Progress, Result, Verified

if TYPE_CHECKING:
    from gputop.bench.plan import Request
    from gputop.telemetry.snapshot import Problem


@dataclass
class Run:
    """One run. `points` are (seconds since the start, TFLOP/s) of its windows."""

    request: Request
    points: list[tuple[float, float]] = field(default_factory=list)
    hello: Hello | None = None
    planned: Planned | None = None
    progress: Progress | None = None
    verified: Verified | None = None
    result: Result | None = None
    problem: Problem | None = None
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
                self.points.append((event.elapsed_seconds, event.tflops))
                self.flop_seconds += event.tflops * event.window_seconds
                self.timed_seconds += event.window_seconds
            case Verified():
                self.verified = event
            case Done():
                self.result = event.result
            case Failed():
                self.problem = event.problem

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
        return max((tflops for _, tflops in self.points), default=None)
