"""State of one run, accumulated from the events of its worker. Pure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Failed, Hello, Planned, Point, Progress, Verified
from gputop.bench.results.compare import percent_below
from gputop.bench.run.conditions import Mean, MergedSeries, Trace, mean_over_time
from gputop.console import FAULT

if TYPE_CHECKING:
    from gputop.bench.events import Result
    from gputop.bench.plan.request import Request
    from gputop.bench.run.supervision import RunLimit
    from gputop.problem import Problem

SILENT_SECONDS, SILENT_WINDOWS = 2.0, 3.0
"""Silence of a worker after its next window is due; the longer of both counts."""
DROOP_SECONDS = 10.0
"""Shortest run with a droop, as in the worker."""
OVER_TIME = ("soak", "pairs")
"""Kinds with a throughput over time, and without rows while they run."""
STATES = ("starting", "preparing", "ready", "running", "done", "failed")
RECENT_WINDOWS = 10
"""Windows by which a running device is judged: a single one is too noisy."""
READINGS = ("power_watts", "sm_clock_mhz", "temperature_celsius")
"""Readings drawn under the throughput, in this order."""

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class RunCurves:
    """A run over time for a report, in seconds since its first timed product."""

    progress: tuple[Progress, ...] = ()
    readings: Mapping[str, Curve] = field(default_factory=dict)
    """(seconds, value) by the reading's name, such as `power_watts`."""
    reasons: Mapping[str, Curve] = field(default_factory=dict)
    """Intervals (from, to) in which each clock event reason held."""


def merge_windows(windows: Sequence[Progress]) -> Progress:
    """Return consecutive windows as one, with rates as means over time."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    mean = mean_over_time((each.tflops, each.window_seconds) for each in windows)
    return Progress(
        last.elapsed_seconds,
        sum(each.window_seconds for each in windows),
        last.iterations,
        last.tflops if mean is None else mean,
        mean_over_time((each.tflops_device, each.window_seconds) for each in windows),
    )


@dataclass
class RunState:
    """State of one run. Attributes that end in `_at` are times on the clock `now`."""

    request: Request
    now: Callable[[], float] = time.monotonic
    hello: Hello | None = None
    planned: Planned | None = None
    progress: Progress | None = None
    verified: Verified | None = None
    end: Done | Failed | None = None
    rows: list[Point] = field(default_factory=list)
    """Rows of a run that is a table."""
    windows: MergedSeries[Progress] = field(default_factory=lambda: MergedSeries(merge_windows))
    recent: deque[Progress] = field(default_factory=lambda: deque(maxlen=RECENT_WINDOWS))
    mean: Mean = field(default_factory=Mean)
    peak: float | None = None
    stopping: bool = False
    limit: RunLimit | None = None
    """Limit that ended the run early."""
    wrong_at: float | None = None
    """Seconds into the run at the first wrong element."""
    started_at: float = field(init=False)
    last_event_at: float = field(init=False)
    """Time of the worker's last event."""
    planned_at: float | None = None
    """Time at which the preparation ended."""
    measured_at: float | None = None
    """Time of the first figure."""
    ended_at: float | None = None
    trace: Trace = field(init=False)
    """Readings of the device during the run, added by whoever supervises it."""

    def __post_init__(self) -> None:
        self.trace = Trace(self.request.target)
        self.started_at = self.last_event_at = self.now()

    def add_event(self, event: Event) -> None:
        """Add an event of the worker."""
        self.last_event_at = self.now()
        match event:
            case Hello():
                self.hello = event
            case Planned():
                self.planned, self.planned_at = event, self.last_event_at
            case Point():
                self.rows.append(event)
                self.measured_at = self.measured_at or self.last_event_at
            case Progress():
                self._measure(event)
                self.measured_at = self.measured_at or self.last_event_at
            case Verified():
                self.verified = event
                if event.wrong_elements and self.wrong_at is None:
                    self.wrong_at = self.elapsed_seconds
            case Done() | Failed():
                self.end, self.ended_at = event, self.last_event_at

    def _measure(self, window: Progress) -> None:
        self.progress = window
        self.peak = max(self.peak or 0.0, window.tflops)
        self.mean.add(window.tflops, window.window_seconds)
        self.windows.add(window)
        self.recent.append(window)

    @property
    def result(self) -> Result | None:
        """Result of a run that has ended with one."""
        return self.end.result if isinstance(self.end, Done) else None

    @property
    def problem(self) -> Problem | None:
        """Reason why the run ended without a result."""
        return self.end.problem if isinstance(self.end, Failed) else None

    @property
    def status(self) -> int | None:
        """Exit status of a failed run: 1 is a fault of the device."""
        return self.end.status if isinstance(self.end, Failed) else None

    @property
    def ended(self) -> bool:
        return self.end is not None

    @property
    def state(self) -> str:
        """Progress of the run, one of `STATES`."""
        if self.end is not None:
            return "failed" if self.problem else "done"
        if self.progress or self.rows:
            return "running"
        return "ready" if self.planned else "preparing" if self.hello else "starting"

    @property
    def points(self) -> list[tuple[float, float]]:
        """(seconds, TFLOP/s) of the windows, joined with neighbours in a long run."""
        return [(window.elapsed_seconds, window.tflops) for window in self.windows.items]

    def history(self) -> RunCurves:
        """Return the run and its device over time so far."""
        readings: dict[str, list[tuple[float, float]]] = {name: [] for name in READINGS}
        for moment in self.trace.moments:
            for name, curve in readings.items():
                if (value := getattr(moment, name)) is not None:
                    curve.append((moment.seconds, value))
        known = {name: curve for name, curve in readings.items() if curve}
        return RunCurves(tuple(self.windows.items), known, self.trace.intervals())

    @property
    def is_table(self) -> bool:
        """True if the run has rows instead of a throughput over time."""
        return self.request.kind not in OVER_TIME

    @property
    def measured(self) -> bool:
        """True if there is something to show."""
        return bool(self.rows) if self.is_table else self.progress is not None

    @property
    def description(self) -> str:
        """Data type, behind the kind unless that is soak: `sweep, float32 and 5 more`."""
        kind, (first, *more) = self.request.kind, self.request.dtypes
        if kind == "soak":
            return first
        if kind == "copy":
            return kind
        return f"{kind}, {first}" + (f" and {len(more)} more" if more else "")

    @property
    def wrong_elements(self) -> int:
        """Wrong elements so far."""
        if self.result is not None:
            return self.result.wrong_elements
        return self.verified.wrong_elements if self.verified else 0

    @property
    def faulty(self) -> bool:
        """True if the device computed wrong results or hung."""
        return self.wrong_elements > 0 or self.status == FAULT

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of the measurement, without the start of torch."""
        if self.is_table:
            since = self.planned_at
            return 0.0 if since is None else (self.ended_at or self.now()) - since
        if self.result is not None:
            return self.result.seconds
        return self.progress.elapsed_seconds if self.progress else 0.0

    @property
    def preparing_seconds(self) -> float:
        """Seconds since the start was requested."""
        return self.now() - self.started_at

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the last event if another one is overdue, else None.

        A window lasts as long as its products, which may take many seconds on a CPU.
        """
        if self.progress is None or self.ended or self.is_table:
            return None
        silent = self.now() - self.last_event_at
        due = max(SILENT_SECONDS, SILENT_WINDOWS * self.progress.window_seconds)
        return silent if silent > due else None

    @property
    def tflops_recent(self) -> float | None:
        """Mean of the last windows, or None before the first and for a failed run."""
        if self.problem is not None:
            return None
        return merge_windows(self.recent).tflops if self.recent else None

    @property
    def droop_percent(self) -> float | None:
        """Droop of the last half below the peak, or None for a run that is too short."""
        if self.result is not None:
            return self.result.droop_percent
        elapsed = self.elapsed_seconds
        late = [window for window in self.windows.items if window.elapsed_seconds > elapsed / 2]
        if elapsed < DROOP_SECONDS or not late or not self.peak:
            return None
        return max(0.0, percent_below(merge_windows(late).tflops, self.peak))

    @property
    def tflops_now(self) -> float | None:
        """TFLOP/s of the last window, or None before it, after the end and during silence."""
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
