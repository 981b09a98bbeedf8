"""The state of one run, accumulated from the events of its worker. Pure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Failed, Hello, Planned, Point, Progress, Verified
from gputop.bench.run.conditions import Trace
from gputop.bench.run.series import Mean, Series
from gputop.console import FAULT

if TYPE_CHECKING:
    from gputop.bench.events import Result
    from gputop.bench.plan.request import Request
    from gputop.bench.run.watch import Limit
    from gputop.problem import Problem

SILENT_SECONDS, SILENT_WINDOWS = 2.0, 3.0
"""Without a word of a worker whose next window is due: of both, the longer."""
OVER_TIME = ("soak", "pairs")
"""Kinds that have a throughput over time, and no rows as they run."""
STATES = ("starting", "preparing", "ready", "running", "done", "failed")
RECENT_WINDOWS = 10
"""Windows that a running device is judged by: one alone is too restless."""
READINGS = ("power_watts", "sm_clock_mhz", "temperature_celsius")
"""Readings that are drawn under the throughput, in this order."""

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Course:
    """A run over time, for a report: seconds since its first timed product."""

    progress: tuple[Progress, ...] = ()
    readings: Mapping[str, Curve] = field(default_factory=dict)
    """(seconds, value) by the reading's name, such as `power_watts`."""
    reasons: Mapping[str, Curve] = field(default_factory=dict)
    """Intervals (from, to) in which each clock event reason held."""


def merged(windows: Sequence[Progress]) -> Progress:
    """Windows that follow each other as one: rates are means over time."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    rate, on_device = Mean(), Mean()
    for window in windows:
        rate.add(window.tflops, window.window_seconds)
        on_device.add(window.tflops_device, window.window_seconds)
    return Progress(
        last.elapsed_seconds,
        sum(window.window_seconds for window in windows),
        last.iterations,
        last.tflops if rate.value is None else rate.value,
        on_device.value,
    )


@dataclass
class RunState:
    """What the events of one run have said so far. Times on its clock end in `_at`."""

    request: Request
    now: Callable[[], float] = time.monotonic
    hello: Hello | None = None
    planned: Planned | None = None
    progress: Progress | None = None
    verified: Verified | None = None
    end: Done | Failed | None = None
    rows: list[Point] = field(default_factory=list)
    """Rows of a run that is a table."""
    windows: Series[Progress] = field(default_factory=lambda: Series(merged))
    recent: deque[Progress] = field(default_factory=lambda: deque(maxlen=RECENT_WINDOWS))
    mean: Mean = field(default_factory=Mean)
    peak: float | None = None
    stopping: bool = False
    limit: Limit | None = None
    """The limit that ended it before its time."""
    wrong_at: float | None = None
    """Seconds into the run when the first wrong element was found."""
    started_at: float = field(init=False)
    said_at: float = field(init=False)
    """When the worker said something last."""
    planned_at: float | None = None
    """When the preparation was over."""
    measured_at: float | None = None
    """When the first figure came."""
    ended_at: float | None = None
    trace: Trace = field(init=False)
    """The device meanwhile; whoever watches it lets it take in what there is."""

    def __post_init__(self) -> None:
        self.trace = Trace(self.request.target)
        self.started_at = self.said_at = self.now()

    def take(self, event: Event) -> None:
        """Take in what the worker said."""
        self.said_at = self.now()
        match event:
            case Hello():
                self.hello = event
            case Planned():
                self.planned, self.planned_at = event, self.said_at
            case Point():
                self.rows.append(event)
                self.measured_at = self.measured_at or self.said_at
            case Progress():
                self._measure(event)
                self.measured_at = self.measured_at or self.said_at
            case Verified():
                self.verified = event
                if event.wrong_elements and self.wrong_at is None:
                    self.wrong_at = self.elapsed_seconds
            case Done() | Failed():
                self.end, self.ended_at = event, self.said_at

    def _measure(self, window: Progress) -> None:
        self.progress = window
        self.peak = max(self.peak or 0.0, window.tflops)
        self.mean.add(window.tflops, window.window_seconds)
        self.windows.add(window)
        self.recent.append(window)

    @property
    def result(self) -> Result | None:
        """The result, once the run has ended with one."""
        return self.end.result if isinstance(self.end, Done) else None

    @property
    def problem(self) -> Problem | None:
        """Why the run ended without a result."""
        return self.end.problem if isinstance(self.end, Failed) else None

    @property
    def status(self) -> int | None:
        """The exit status that a failure deserves: 1 is a fault of the device."""
        return self.end.status if isinstance(self.end, Failed) else None

    @property
    def ended(self) -> bool:
        return self.end is not None

    @property
    def state(self) -> str:
        """How far it is, one of `STATES`."""
        if self.end is not None:
            return "failed" if self.problem else "done"
        if self.progress or self.rows:
            return "running"
        return "ready" if self.planned else "preparing" if self.hello else "starting"

    @property
    def points(self) -> list[tuple[float, float]]:
        """(seconds since the start, TFLOP/s) of its windows, or of neighbours of a long run."""
        return [(window.elapsed_seconds, window.tflops) for window in self.windows.items]

    def course(self) -> Course:
        """The run and its device over time so far."""
        readings: dict[str, list[tuple[float, float]]] = {name: [] for name in READINGS}
        for moment in self.trace.moments:
            for name, curve in readings.items():
                if (value := getattr(moment, name)) is not None:
                    curve.append((moment.seconds, value))
        known = {name: curve for name, curve in readings.items() if curve}
        return Course(tuple(self.windows.items), known, self.trace.intervals())

    @property
    def is_table(self) -> bool:
        """Whether it has rows, and no throughput over time."""
        return self.request.kind not in OVER_TIME

    @property
    def measured(self) -> bool:
        """Whether there is something to see of it."""
        return bool(self.rows) if self.is_table else self.progress is not None

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
    def elapsed_seconds(self) -> float:
        """Of the measurement, without the time that torch takes to start."""
        if self.is_table:
            since = self.planned_at
            return 0.0 if since is None else (self.ended_at or self.now()) - since
        if self.result is not None:
            return self.result.seconds
        return self.progress.elapsed_seconds if self.progress else 0.0

    @property
    def preparing_seconds(self) -> float:
        """Since the start was asked for."""
        return self.now() - self.started_at

    @property
    def silent_seconds(self) -> float | None:
        """Since its last word, once a run over time should have said more; None where all is well.

        A window lasts as long as its products, and one of a CPU may take many seconds.
        """
        if self.progress is None or self.ended or self.is_table:
            return None
        silent = self.now() - self.said_at
        due = max(SILENT_SECONDS, SILENT_WINDOWS * self.progress.window_seconds)
        return silent if silent > due else None

    @property
    def tflops_recent(self) -> float | None:
        """Mean of the last windows; None before the first, and of a run that failed."""
        if self.problem is not None:
            return None
        return merged(self.recent).tflops if self.recent else None

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
        return self.mean.value

    @property
    def tflops_peak(self) -> float | None:
        if self.result is not None:
            return self.result.tflops_peak
        return self.peak
