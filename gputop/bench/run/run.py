"""A benchmark run from the request to the result, on one device or several. Pure."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.bench.plan.kinds import KINDS
from gputop.bench.results.measures import percent_below, rates_of_pair
from gputop.bench.results.outliers import RateDistribution, distribution
from gputop.bench.results.verdict import DEFAULTS
from gputop.bench.run.device_run import STATES, DeviceRun

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.bench.events import Event, Result
    from gputop.bench.plan.request import Request, Target

PREPARED = ("ready", "done", "failed")
"""States of devices that do not delay the others."""


class Run:
    """A run, with a `DeviceRun` for each of its devices.

    `pairs` runs each device alone and then all together. `devices` has the current or last runs.
    """

    def __init__(
        self, requests: Sequence[Request], now: Callable[[], float] = time.time
    ) -> None:
        self.requests, self.now = requests, now
        self.request = requests[0]
        """Kind, data types and seconds, the same for all."""
        self.kind, self.is_several = self.request.kind, len(requests) > 1
        self.is_table = not KINDS[self.kind].over_time
        """True if the runs have rows instead of a throughput over time."""
        self.part_seconds = self.request.seconds
        """Seconds of one run. `pairs` has a run for each device, and one of all devices."""
        if self.kind == "pairs":
            self.part_seconds /= len(requests) + 1
        self.devices = {each.target: DeviceRun(each, now) for each in requests}
        self.alone: dict[Target, DeviceRun] = {}
        """Runs alone of `pairs`, from the start of the run together on."""
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

    def begin_together(self, targets: Iterable[Target]) -> None:
        """Begin the second run of these devices of `pairs`."""
        for target in targets:
            self.alone[target] = self.devices[target]
            request = self.devices[target].request
            self.devices[target] = DeviceRun(request, self.now)

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
        return self.began_at is not None or bool(self.alone)

    @property
    def late(self) -> list[Target]:
        """Devices that delay the start of the others."""
        if self.begun or self.kind == "pairs":
            return []
        runs = self.devices.items()
        late = [target for target, run in runs if run.state not in PREPARED]
        if len(late) == len(runs):
            return []
        return late

    @property
    def silent(self) -> list[Target]:
        """Devices whose next event is overdue."""
        runs = self.devices.items()
        return [
            target for target, run in runs if run.silent_seconds is not None
        ]

    @property
    def measured(self) -> bool:
        """True if any device has something to show."""
        runs = (*self.devices.values(), *self.alone.values())
        return any(run.measured for run in runs)

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
        return any(map(self.is_faulty, self.devices))

    def is_faulty(self, target: Target) -> bool:
        """True if the device failed in any of its runs."""
        return any(run.faulty for _, run in self.parts(target))

    def wrong_elements(self, target: Target) -> int | None:
        """Return the wrong elements of all its runs, or None before the first check."""
        result = self.devices[target].result
        if result is not None:
            return result.wrong_elements
        checked = [run for _, run in self.parts(target) if run.verified]
        return sum(run.wrong_elements for run in checked) if checked else None

    def parts(self, target: Target) -> list[tuple[float, DeviceRun]]:
        """Return the starts and the runs of a device in order. Starts are in seconds of all."""
        run = self.devices[target]
        if self.kind != "pairs":
            return [(0.0, run)]
        alone_at = list(self.devices).index(target) * self.part_seconds
        if target not in self.alone:
            return [(alone_at, run)]
        together_at = len(self.devices) * self.part_seconds
        return [(alone_at, self.alone[target]), (together_at, run)]

    @property
    def elapsed_seconds(self) -> float:
        """Elapsed seconds of the most advanced device. They never decrease."""
        self._farthest = max(self._farthest, self._elapsed_now())
        return self._farthest

    def _elapsed_now(self) -> float:
        if self.kind != "pairs":
            return max(run.elapsed_seconds for run in self.devices.values())
        if self.ended and self.alone:
            return self.request.seconds
        reached = 0.0
        for target in self.devices:
            for at, run in self.parts(target):
                if run.measured:
                    elapsed = min(run.elapsed_seconds, self.part_seconds)
                    reached = max(reached, at + elapsed)
        return reached

    @property
    def share(self) -> float:
        """Progress, 0 to 1. A table is complete when it is complete on each device."""
        if self.is_table:
            return min(run.share for run in self.devices.values())
        return min(1.0, self.elapsed_seconds / self.request.seconds)

    def pair(
        self, target: Target
    ) -> tuple[float | None, float | None, float | None]:
        """Return TFLOP/s alone and together, and the cost in percent; for `pairs`."""
        if self.kind != "pairs":
            return None, None, None
        run, earlier = self.devices[target], self.alone.get(target)
        if run.result is not None:
            return rates_of_pair(run.result.points)
        if earlier is None:
            return run.rate_mean, None, None
        alone, together = earlier.rate_mean, run.rate_mean
        cost = percent_below(together, alone) if alone and together else None
        return alone, together, cost

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
    def distributions(self) -> Mapping[str, RateDistribution]:
        """Distribution of the rates by model, the most numerous first."""
        groups: dict[str, list[float]] = defaultdict(list)
        for target, each in self.rates.items():
            groups[target.name].append(each)
        ordered = sorted(groups.items(), key=lambda each: -len(each[1]))
        return {name: distribution(rates, name) for name, rates in ordered}

    def slow_devices(self) -> Mapping[Target, float]:
        """Return the percent under the median of slow devices, worst first."""
        models = self.distributions
        under = {}
        for target, rate in self.rates.items():
            percent = percent_below(rate, models[target.name].median)
            if percent > DEFAULTS.tolerance:
                under[target] = percent
        return dict(sorted(under.items(), key=lambda each: -each[1]))
