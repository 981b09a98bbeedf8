"""A benchmark run from the request to the result, on one device or several. Pure."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.measures import percent_below
from gputop.bench.results.verdict import DEFAULTS
from gputop.bench.run.device_run import STATES, DeviceRun

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.bench.events import Event, Result
    from gputop.bench.plan.request import Request, Target


class Run:
    """A run, with a `DeviceRun` for each of its devices."""

    def __init__(
        self, requests: Sequence[Request], now: Callable[[], float] = time.time
    ) -> None:
        self.requests, self.now = requests, now
        self.request = requests[0]
        """Kind, data types and seconds, the same for all."""
        self.kind, self.is_several = self.request.kind, len(requests) > 1
        self.is_table = not kind_of(self.kind).over_time
        """True if the runs have rows instead of a throughput over time."""
        self.devices = {each.target: DeviceRun(each, now) for each in requests}
        self.stopping = False
        self.started_at = now()
        self._farthest = 0.0
        """Largest `elapsed_seconds` so far, because progress does not go back."""

    @classmethod
    def of(cls, device: DeviceRun) -> Run:
        """Return the run of one device, which has ended."""
        run = cls([device.request], device.now)
        run.devices[device.request.target] = device
        return run

    def add_event(self, target: Target, event: Event) -> None:
        """Add an event of a device, or a record of its readings."""
        self.devices[target].add_event(event)

    def stop(self) -> None:
        """Mark all runs as stopping."""
        self.stopping = True
        for run in self.devices.values():
            run.stopping = not run.ended

    @property
    def first(self) -> DeviceRun:
        """Run of the first device, the only one of a run on one device."""
        return next(iter(self.devices.values()))

    @property
    def states(self) -> Mapping[str, int]:
        """Number of devices in each occurring state, in the order of a run."""
        counted = Counter(run.state for run in self.devices.values())
        return {state: counted[state] for state in STATES if counted[state]}

    @property
    def ended(self) -> bool:
        return all(run.ended for run in self.devices.values())

    @property
    def began_at(self) -> float | None:
        """Start of the timed part of the first device, by the clock `now`, or None before it."""
        known = [run.began_at for run in self.devices.values()]
        return min((at for at in known if at is not None), default=None)

    @property
    def begun(self) -> bool:
        """True if products are timed. All devices begin together."""
        return self.began_at is not None

    @property
    def measured(self) -> bool:
        """True if any device has something to show."""
        return any(run.measured for run in self.devices.values())

    @property
    def results(self) -> list[Result]:
        """Results of the devices that have ended with one."""
        found = []
        for run in self.devices.values():
            if run.result is not None:
                found.append(run.result)
        return found

    @property
    def problem(self) -> Problem | None:
        """Problem of all devices if it is the same, else None."""
        first, *others = (run.problem for run in self.devices.values())
        return first if all(other == first for other in others) else None

    @property
    def faulty(self) -> bool:
        """True if a device failed."""
        return any(run.faulty for run in self.devices.values())

    @property
    def elapsed_seconds(self) -> float:
        """Elapsed seconds of the most advanced device. They never decrease."""
        for run in self.devices.values():
            self._farthest = max(self._farthest, run.elapsed_seconds)
        return self._farthest

    @property
    def share(self) -> float:
        """Progress, 0 to 1. A table is complete when it is complete on each device."""
        if self.is_table:
            return min(run.share for run in self.devices.values())
        return min(1.0, self.elapsed_seconds / self.request.seconds)

    @property
    def rates(self) -> Mapping[Target, float]:
        """Mean TFLOP/s of the last windows of the devices that run one shape and did not fail."""
        rates = {}
        for target, run in self.devices.items():
            rate = run.recent_rate
            if rate is not None and not run.problem:
                rates[target] = rate
        return rates

    @property
    def rates_by_model(self) -> Mapping[str, Sequence[float]]:
        """Rates of each model, the most numerous first."""
        groups: dict[str, list[float]] = defaultdict(list)
        for target, each in self.rates.items():
            groups[target.name].append(each)
        return dict(sorted(groups.items(), key=lambda each: -len(each[1])))

    def slow_devices(self) -> Mapping[Target, float]:
        """Return the percent under the median of slow devices, worst first."""
        models = self.rates_by_model
        under = {}
        for target, rate in self.rates.items():
            percent = percent_below(
                rate, statistics.median(models[target.name])
            )
            if percent > DEFAULTS.tolerance:
                under[target] = percent
        return dict(sorted(under.items(), key=lambda each: -each[1]))
