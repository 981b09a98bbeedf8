"""A run on one device: its request, its events, its samples, and its state. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.events import (
    FAULTY,
    Done,
    Event,
    Failed,
    Hello,
    Planned,
    Point,
    Progress,
    Result,
    RunLimit,
    Verified,
)
from gputop.bench.plan.kinds import DEFAULT_KIND, Kind, kind_of
from gputop.bench.plan.request import Request, Target
from gputop.bench.results.statistics import with_statistics
from gputop.bench.run.conditions import with_conditions
from gputop.bench.run.readings import RunReadings
from gputop.bench.run.series import (
    KEPT_ITEMS,
    MOST_ITEMS,
    READINGS,
    KeptCurves,
    Mean,
    Moment,
    RunCurves,
    append_joined,
    merge_moments,
    merge_windows,
    thinned,
)
from gputop.console import FAULT
from gputop.schema.decode import from_plain
from gputop.text import flops_unit

if TYPE_CHECKING:
    from gputop.agent.problem import Problem

SILENT_SECONDS, SILENT_WINDOWS = 2.0, 3.0
"""Silence of a worker after its next window is due; the longer of both counts."""
STATES = ("starting", "preparing", "ready", "running", "done", "failed")
RECENT_WINDOWS = 10
"""Windows by which a running device is judged: a single one is too noisy."""
RATE = "rate"
"""Name of the series of the throughput."""


@dataclass
class DeviceRun:
    """A run on one device. Attributes that end in `_at` are times on the clock `now`."""

    request: Request
    now: Callable[[], float] = time.time
    hello: Hello | None = None
    planned: Planned | None = None
    progress: Progress | None = None
    verified: Verified | None = None
    end: Done | Failed | None = None
    rows: list[Point] = field(default_factory=list)
    """Rows of a run that is a table."""
    windows: list[Progress] = field(default_factory=list)
    """Windows of a run over time, joined with neighbours in a long one."""
    mean: Mean = field(default_factory=Mean)
    peak: float | None = None
    stopping: bool = False
    limit: RunLimit | None = None
    wrong_at: float | None = None
    """Seconds into the run at the first wrong element."""
    event_at: float = field(init=False)
    """Time of the worker's last event."""
    ended_at: float | None = None
    readings: RunReadings = field(init=False)

    def __post_init__(self) -> None:
        self.readings = RunReadings(self.request.target)
        self.event_at = self.now()

    def add_event(self, event: Event) -> None:
        """Add an event of the worker, or a record of its device."""
        if isinstance(event, Inventory):
            self.readings.add_inventory(event)
        elif isinstance(event, Sample):
            self.readings.add_sample(event)
        else:
            self.event_at = self.now()
            self._add(event)

    def _add(self, event: Event) -> None:
        match event:
            case Hello():
                self.hello = event
                self.readings.worker_pid = event.pid
            case Planned():
                self.planned = event
                if not event.waits:
                    self._begin()
            case Point():
                self.rows.append(event)
                self._begin()
            case Progress():
                self._add_window(event)
            case Verified():
                self.verified = event
                if event.wrong_elements and self.wrong_at is None:
                    self.wrong_at = self.elapsed_seconds
            case RunLimit():
                self.limit = event
            case Done() | Failed():
                self._finish(event)

    def _finish(self, end: Done | Failed) -> None:
        if isinstance(end, Done):
            end = Done(self.completed(end.result))
            self.verified = _verified_in(end.result)
            if self.is_table:
                self.rows = [*end.result.points]
        self.end, self.ended_at = end, self.event_at

    def _begin(self) -> None:
        if self.readings.began_at is None:
            self.readings.began_at = self.readings.origin = self.event_at

    def _add_window(self, window: Progress) -> None:
        self.progress = window
        self.peak = max(self.peak or 0.0, window.rate)
        self.mean.add(window.rate, window.window_seconds)
        append_joined(
            self.windows, window, window.elapsed_seconds, merge_windows
        )
        read = self.readings
        read.origin = self.event_at - window.elapsed_seconds
        if read.began_at is None:
            read.began_at = read.origin

    def completed(self, result: Result) -> Result:
        """Return the result with its statistics, and with the state of the device.

        Conditions that the result already has are kept.
        """
        found = result
        if result.conditions is None:
            seconds = self._clock_seconds(result)
            found = with_conditions(result, self.readings, seconds)
        if self.is_table or "droop" in self.kind.unjudged:
            return found
        windows = [(each.window_seconds, each.tflops) for each in self.windows]
        return with_statistics(found, windows)

    def _clock_seconds(self, result: Result) -> float:
        """Return the length of the run with its checks. A CPU's seconds do not include them."""
        read, window = self.readings, self.progress
        if window is None:
            return result.seconds
        began_at = read.origin if read.began_at is None else read.began_at
        last_at = read.origin + window.elapsed_seconds
        rest = max(0.0, result.seconds - window.elapsed_seconds)
        # The clock may have been set back
        return max(0.0, last_at - began_at) + rest

    @property
    def result(self) -> Result | None:
        """Result of a run that has ended with one."""
        return self.end.result if isinstance(self.end, Done) else None

    @property
    def took_its_time(self) -> bool:
        """True if it ended with a result after its full time."""
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
        if self.problem is not None:
            return "failed"
        if self.ended:
            return "done"
        if self.progress or self.rows:
            return "running"
        if self.planned:
            return "ready"
        if self.hello:
            return "preparing"
        return "starting"

    @property
    def began_at(self) -> float | None:
        """Start of the timed part, or None before it."""
        return self.readings.began_at

    @property
    def kind(self) -> Kind:
        """Kind of the run. A stored result may be of a kind that is not offered any more."""
        return kind_of(self.request.kind)

    @property
    def is_table(self) -> bool:
        """True if the run has rows instead of a throughput over time."""
        return not self.kind.over_time

    @property
    def measured(self) -> bool:
        """True if there is something to show."""
        return bool(self.rows) if self.is_table else self.progress is not None

    @property
    def description(self) -> str:
        """Kind and data types, without the usual kind: `sweep, float32 and 5 more`."""
        first, *more = self.request.dtypes
        if self.kind.name == DEFAULT_KIND:
            return first
        if not self.kind.has_dtype:
            return self.kind.name
        further = f" and {len(more)} more" if more else ""
        return f"{self.kind.name}, {first}{further}"

    @property
    def wrong_elements(self) -> int:
        """Wrong elements so far."""
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
            if self.began_at is None:
                return 0.0
            return (self.ended_at or self.now()) - self.began_at
        if self.result is not None:
            return self.result.seconds
        if self.progress is not None:
            return self.progress.elapsed_seconds
        return 0.0

    @property
    def share(self) -> float:
        """Progress, 0 to 1. A table may be complete before its time."""
        if self.is_table and self.took_its_time:
            return 1.0
        share = self.elapsed_seconds / self.request.seconds
        if self.planned is not None and self.planned.rows and not self.ended:
            share = max(share, len(self.rows) / self.planned.rows)
        return min(1.0, share)

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the last event if another one is overdue, else None.

        A window lasts as long as its products, which may take many seconds on a CPU.
        """
        if self.progress is None or self.ended or self.is_table:
            return None
        silent = self.now() - self.event_at
        due = max(
            SILENT_SECONDS, SILENT_WINDOWS * self.progress.window_seconds
        )
        return silent if silent > due else None

    @property
    def rate_now(self) -> float | None:
        """Rate of the last window, or None before it, after the end and during silence."""
        if (
            self.progress is None
            or self.ended
            or self.silent_seconds is not None
        ):
            return None
        return self.progress.rate

    @property
    def rate_mean(self) -> float | None:
        """Mean rate, that of the result if it has one."""
        return (self.result and self.result.tflops_mean) or self.mean.value

    @property
    def rate_peak(self) -> float | None:
        """Rate of the best window, or of the result's best row."""
        return (self.result and self.result.tflops_peak) or self.peak

    @property
    def recent_rate(self) -> float | None:
        """Mean rate of the last windows, or None before the first one."""
        recent = self.windows[-RECENT_WINDOWS:]
        return merge_windows(recent).rate if recent else None

    def rate_scale(self, most: float | None) -> tuple[str, float]:
        """Return the unit for rates up to `most`, and the factor from `Progress.rate` to it."""
        if self.kind.moves_bytes:
            return self.kind.rate_unit, 1.0
        return flops_unit(most)

    def series(self, name: str) -> list[tuple[float, float]]:
        """Return (seconds, value) of `RATE` or of one of `READINGS`, without absent values.

        In a long run neighbouring values are joined.
        """
        if name == RATE:
            return [(each.elapsed_seconds, each.rate) for each in self.windows]
        return _curve(self.readings.moments, name)

    def history(self, most: int = MOST_ITEMS) -> RunCurves:
        """Return the run and its device over time so far, thinned to `most` points."""
        windows, moments = self._thinned(most)
        curves = {name: _curve(moments, name) for name in READINGS}
        known = {name: curve for name, curve in curves.items() if curve}
        return RunCurves(tuple(windows), known, self.readings.intervals())

    def kept_curves(self) -> str:
        """Return the curves as the document that is kept with the result."""
        windows, moments = self._thinned(KEPT_ITEMS)
        # The result has the seconds of the reasons.
        drawn = [replace(each, reported={}, counted={}) for each in moments]
        return json.dumps(asdict(KeptCurves(tuple(windows), tuple(drawn))))

    def _thinned(self, most: int) -> tuple[list[Progress], list[Moment]]:
        windows = thinned(self.windows, most, merge_windows)
        return windows, thinned(self.readings.moments, most, merge_moments)

    @classmethod
    def of_result(
        cls,
        result: Result,
        target: Target,
        curves: str | None,
    ) -> DeviceRun:
        """Return the run of a kept result, at its end; raise `ValueError` for broken curves."""
        kept = KeptCurves()
        if curves is not None:
            kept = from_plain(KeptCurves, json.loads(curves))
        dtype, *further = result.dtype.split(",")
        request = Request(
            target,
            dtype,
            result.n,
            result.seconds,
            kind=result.kind,
            further_dtypes=tuple(further),
        )
        run = cls(request, lambda: 0.0)
        run.add_event(
            Hello(result.python, result.torch_version, result.device, 0, 0)
        )
        shape = (result.m, result.n, result.k)
        run.add_event(
            Planned(*shape, result.dtype, "", "", "", 0.0, result.method)
        )
        for window in kept.windows:
            run.add_event(window)
        run.readings.moments = [*kept.moments]
        limit = result.known_conditions.power_limit_watts
        run.readings.power_limit_watts = limit
        run.end, run.rows = Done(result), [*result.points]
        run.verified = _verified_in(result)
        run.readings.began_at, run.ended_at = 0.0, result.seconds
        return run


def _verified_in(result: Result) -> Verified:
    products = result.verified_products or 0
    return Verified(result.checks, result.wrong_elements, products)


def _curve(moments: list[Moment], name: str) -> list[tuple[float, float]]:
    known = []
    for moment in moments:
        value = getattr(moment, name)
        if value is not None:
            known.append((moment.seconds, value))
    return known
