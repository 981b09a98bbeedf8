"""State of one run, accumulated from the events of its worker. Pure."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.events import (
    FAULTY,
    Done,
    Failed,
    Hello,
    Planned,
    Point,
    Progress,
    RunLimit,
    Verified,
)
from gputop.bench.plan.kinds import DEFAULT_KIND, KINDS
from gputop.bench.plan.request import Request, Target
from gputop.bench.results.statistics import (
    BURST_SECONDS,
    Window,
    percentile,
    with_statistics,
)
from gputop.bench.run.series import MOST_ITEMS, Mean, MergedSeries, mean_over_time
from gputop.bench.run.trace import READINGS, Trace, TraceMoment, merge_moments
from gputop.console import FAULT
from gputop.schema.decode import from_plain
from gputop.text import flops_unit, tflops, throughput

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.bench.events import Event, Result

SILENT_SECONDS, SILENT_WINDOWS = 2.0, 3.0
"""Silence of a worker after its next window is due; the longer of both counts."""
STATES = ("starting", "preparing", "ready", "running", "done", "failed")
RECENT_WINDOWS = 10
"""Windows by which a running device is judged: a single one is too noisy."""

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class RunCurves:
    """A run over time for a report, in seconds since its first timed product."""

    progress: tuple[Progress, ...] = ()
    readings: Mapping[str, Curve] = field(default_factory=dict)
    """(seconds, value) by the reading's name, such as `power_watts`."""
    reasons: Mapping[str, Curve] = field(default_factory=dict)
    """Intervals (from, to) in which each clock event reason held."""


KEPT_ITEMS = 256
"""Most windows, and most moments, that are kept with a result."""


@dataclass(frozen=True, slots=True)
class KeptCurves:
    """Curves from which the chart of a run is drawn."""

    windows: tuple[Progress, ...] = ()
    moments: tuple[TraceMoment, ...] = ()


def merge_windows(windows: Sequence[Progress]) -> Progress:
    """Return consecutive windows as one, with rates as means over time."""
    last = windows[-1]
    if len(windows) == 1:
        return last
    names = ("tflops", "tflops_device", "bytes_per_second")
    rate, *others = (mean_over_time(windows, name) for name in names)
    seconds = sum(each.window_seconds for each in windows)
    rate = last.tflops if rate is None else rate
    return Progress(last.elapsed_seconds, seconds, last.iterations, rate, *others)


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
    windows: MergedSeries[Progress] = field(
        default_factory=lambda: MergedSeries(merge_windows)
    )
    first: list[Window] = field(default_factory=list)
    """Windows of the burst, which are not joined with others."""
    rates: Counter[float] = field(default_factory=Counter)
    """Rates of all windows to four digits: the percentiles of joined ones are too near."""
    mean: Mean = field(default_factory=Mean)
    peak: float | None = None
    stopping: bool = False
    limit: RunLimit | None = None
    wrong_at: float | None = None
    """Seconds into the run at the first wrong element."""
    last_event_at: float = field(init=False)
    planned_at: float | None = None
    measured_at: float | None = None
    ended_at: float | None = None
    trace: Trace = field(init=False)
    """Readings of the device during the run."""

    def __post_init__(self) -> None:
        self.trace = Trace(self.request.target)
        self.last_event_at = self.now()

    def add_event(self, event: Event) -> None:
        """Add an event of the session."""
        self.trace.add_event(event)
        if isinstance(event, Inventory | Sample):
            return  # a device that answers does not mean that the worker does
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
                self._add_progress(event)
            case Verified():
                self._add_check(event)
            case RunLimit():
                self.limit = event
            case Done():
                self.end, self.ended_at = (
                    Done(self._completed(event.result)),
                    self.last_event_at,
                )
            case Failed():
                self.end, self.ended_at = event, self.last_event_at

    def _add_progress(self, event: Progress) -> None:
        self.progress = event
        self.peak = max(self.peak or 0.0, event.rate)
        self.mean.add(event.rate, event.window_seconds)
        self.windows.add(event)
        self.rates[float(f"{event.tflops:.4g}")] += 1
        if not self.first or event.elapsed_seconds < 1.01 * BURST_SECONDS:
            self.first.append((event.window_seconds, event.rate))
        self.measured_at = self.measured_at or self.last_event_at

    def _add_check(self, event: Verified) -> None:
        self.verified = event
        if event.wrong_elements and self.wrong_at is None:
            self.wrong_at = self.elapsed_seconds

    def _completed(self, result: Result) -> Result:
        result = self.trace.completed(result)
        if self.is_table:
            self.rows = [*result.points]
        if "droop" in KINDS[self.request.kind].unjudged:
            return result
        windows = [(each.window_seconds, each.tflops) for each in self.windows.items]
        found = with_statistics(result, self.first, windows)
        if found.tflops_p5 is None or self.rates.total() <= len(windows):
            return found
        rates = sorted(self.rates.elements())
        low, high = percentile(rates, 5), percentile(rates, 95)
        return replace(found, tflops_p5=low, tflops_p95=high)

    @property
    def result(self) -> Result | None:
        """Result of a run that has ended with one."""
        return self.end.result if isinstance(self.end, Done) else None

    @property
    def took_its_time(self) -> bool:
        """True if it ended with a result, and not early."""
        return self.result is not None and self.result.stopped == "time"

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
        """(seconds, rate) of the windows, joined with neighbours in a long run."""
        return [(window.elapsed_seconds, window.rate) for window in self.windows.items]

    @property
    def recent_rate(self) -> float | None:
        """Mean rate of the last windows, or None before the first one."""
        recent = self.windows.items[-RECENT_WINDOWS:]
        return merge_windows(recent).rate if recent else None

    def thinned(self, most: int) -> tuple[list[Progress], list[TraceMoment]]:
        """Return at most so many windows and moments, neighbours joined."""
        windows = MergedSeries(merge_windows, most, self.windows.items).items
        return windows, MergedSeries(merge_moments, most, self.trace.moments).items

    def history(self, most: int = 2 * MOST_ITEMS) -> RunCurves:
        """Return the run and its device over time so far, thinned to `most` points."""
        windows, moments = self.thinned(most)
        known = {}
        for name in READINGS:
            values = ((each.seconds, getattr(each, name)) for each in moments)
            if curve := [(at, value) for at, value in values if value is not None]:
                known[name] = curve
        return RunCurves(tuple(windows), known, self.trace.intervals())

    def kept_curves(self) -> str:
        """Return the curves as the document that is kept with the result."""
        windows, moments = self.thinned(KEPT_ITEMS)
        return json.dumps(asdict(KeptCurves(tuple(windows), tuple(moments))))

    @classmethod
    def of_result(cls, result: Result, target: Target, curves: str | None) -> RunState:
        """Return the run of a kept result, at its end; raise `ValueError` for broken curves."""
        kept = (
            KeptCurves()
            if curves is None
            else from_plain(KeptCurves, json.loads(curves))
        )
        dtype, *further = result.dtype.split(",")
        asked = (
            target,
            dtype,
            result.n,
            result.seconds,
            None,
            result.kind,
            tuple(further),
        )
        run = cls(Request(*asked), lambda: 0.0, rows=[*result.points], end=Done(result))
        run.hello = Hello(result.python, result.torch_version, result.device, 0, 0)
        m, n, k, what = result.m, result.n, result.k, result.method
        run.planned = Planned(m, n, k, result.dtype, "", "", "", 0.0, what)
        for window in kept.windows:
            run.add_event(window)
        run.trace.restore(kept.moments, result.known_conditions)
        run.planned_at, run.ended_at = 0.0, result.seconds
        return run

    @property
    def is_table(self) -> bool:
        """True if the run has rows instead of a throughput over time."""
        return not KINDS[self.request.kind].over_time

    @property
    def measured(self) -> bool:
        """True if there is something to show."""
        return bool(self.rows) if self.is_table else self.progress is not None

    @property
    def description(self) -> str:
        """Data type, behind the kind unless that is the usual one: `sweep, float32 and 5 more`."""
        kind, (first, *more) = self.request.kind, self.request.dtypes
        if kind == DEFAULT_KIND:
            return first
        if not KINDS[kind].has_dtype:
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
        """True if the device computed wrong results, hung, or is judged so."""
        judged = self.result is not None and self.result.state == FAULTY
        return judged or self.wrong_elements > 0 or self.status == FAULT

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
    def tflops_now(self) -> float | None:
        """Rate of the last window, or None before it, after the end and during silence."""
        if self.progress is None or self.ended or self.silent_seconds is not None:
            return None
        return self.progress.rate

    @property
    def tflops_mean(self) -> float | None:
        return (self.result and self.result.tflops_mean) or self.mean.value

    @property
    def tflops_peak(self) -> float | None:
        return (self.result and self.result.tflops_peak) or self.peak

    def rate_scale(self, most: float | None) -> tuple[str, float]:
        """Return the unit for rates up to `most`, and how many of it are one of `Progress.rate`."""
        kind = KINDS[self.request.kind]
        return (kind.rate_unit, 1.0) if kind.moves_bytes else flops_unit(most)

    def rate_text(self, rate: float | None, *, short: bool = False) -> str:
        """Return a rate with its unit, in short without."""
        if KINDS[self.request.kind].moves_bytes:
            return tflops(rate) + ("" if short else " GB/s")
        return throughput(rate, short=short)
