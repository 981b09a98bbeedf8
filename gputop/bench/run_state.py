"""A stress test as the dashboard sees it: what its events have said so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from gputop.bench.conditions import Trace
from gputop.bench.session import (
    Done,
    Event,
    Failed,
    Hello,
    Planned,
    Point,
    Progress,
    Result,
    Verified,
)
from gputop.exits import FAULT

if TYPE_CHECKING:
    from gputop.bench.plan import Request
    from gputop.bench.watch import Limit
    from gputop.telemetry.snapshot import Problem


MOST_POINTS = 4000
SILENT_SECONDS, SILENT_WINDOWS = 2.0, 3.0
"""Without a word of a worker whose next window is due: of both, the longer."""
OVER_TIME = ("soak", "pairs")
"""Kinds that have a throughput over time, and no rows as they run."""


@dataclass
class RunState:
    """One run. `points` are (seconds since the start, TFLOP/s) of its windows.

    A run of days has more of them than can be drawn: beyond `MOST_POINTS`, neighbours become one.
    """

    request: Request
    points: list[tuple[float, float]] = field(default_factory=list)
    rows: list[Point] = field(default_factory=list)
    """Of a run that is a table."""
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
    limit: Limit | None = None
    """What ended it before its time."""
    wrong_at: float | None = None
    """Into the run, in seconds, when the first wrong element was found."""
    flop_seconds: float = 0.0
    timed_seconds: float = 0.0
    started_at: float = field(default_factory=time.monotonic)
    planned_at: float | None = None
    """When the preparation was over; this and the next are of the clock of `started_at`."""
    ended_at: float | None = None
    said_at: float = field(default_factory=time.monotonic)
    """When the worker said something last."""
    trace: Trace = field(init=False)
    """The device meanwhile; whoever watches it lets it take in what there is."""

    def __post_init__(self) -> None:
        self.trace = Trace(self.request.target)

    def take(self, event: Event) -> None:
        """Takes in what the worker said."""
        self.said_at = time.monotonic()
        match event:
            case Hello():
                self.hello = event
            case Planned():
                self.planned, self.planned_at = event, time.monotonic()
            case Point():
                self.rows.append(event)
            case Progress():
                self.progress = event
                self.peak = max(self.peak or 0.0, event.tflops)
                self._draw(event)
                self.flop_seconds += event.tflops * event.window_seconds
                self.timed_seconds += event.window_seconds
            case Verified():
                self.verified = event
                if event.wrong_elements and self.wrong_at is None:
                    self.wrong_at = self.elapsed_seconds
            case Done():
                self.result, self.ended_at = event.result, time.monotonic()
            case Failed():
                self.problem, self.status = event.problem, event.status
                self.ended_at = time.monotonic()

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
    def is_table(self) -> bool:
        """Whether it has rows, and no throughput over time."""
        return self.request.kind not in OVER_TIME

    @property
    def measured(self) -> bool:
        """Whether there is something to see of it."""
        return bool(self.rows if self.is_table else self.points)

    @property
    def what(self) -> str:
        """The kind, where it is no soak, and the data type: `sweep, float32 and 5 more`."""
        kind, (first, *more) = self.request.kind, self.request.dtypes
        if kind == "soak":
            return first
        if kind == "copy":
            return kind
        return f"{kind}, {first}" + (f" and {len(more)} more" if more else "")

    @property
    def wrong_elements(self) -> int:
        """So far, or in all."""
        if self.result is not None:
            return self.result.wrong_elements
        return self.verified.wrong_elements if self.verified else 0

    @property
    def faulty(self) -> bool:
        """Whether the device failed: it computed wrongly, or did not go through with it."""
        return self.wrong_elements > 0 or self.status == FAULT

    @property
    def ended(self) -> bool:
        return self.result is not None or self.problem is not None

    @property
    def elapsed_seconds(self) -> float:
        """Of the measurement, without the time that torch takes to start."""
        if self.is_table:
            since = self.planned_at
            return 0.0 if since is None else (self.ended_at or time.monotonic()) - since
        if self.result is not None:
            return self.result.seconds
        return self.progress.elapsed_seconds if self.progress else 0.0

    @property
    def preparing_seconds(self) -> float:
        """Since the start was asked for."""
        return time.monotonic() - self.started_at

    @property
    def silent_seconds(self) -> float | None:
        """Since its last word, once a run over time should have said more; None where all is well.

        A window lasts as long as its products, and one of a CPU may take many seconds.
        """
        if self.progress is None or self.ended or self.is_table:
            return None
        silent = time.monotonic() - self.said_at
        due = max(SILENT_SECONDS, SILENT_WINDOWS * self.progress.window_seconds)
        return silent if silent > due else None

    @property
    def tflops_now(self) -> float | None:
        """None before its first window, when it has ended, and while it says nothing."""
        if self.progress is None or self.ended or self.silent_seconds is not None:
            return None
        return self.progress.tflops

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
