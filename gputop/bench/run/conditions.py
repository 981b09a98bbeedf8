"""What a device was like during a run: its samples on the run's time axis, and their sums. Pure."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from gputop.bench.events import Conditions, Event, Planned, Point, Progress
from gputop.bench.plan import limits, peaks
from gputop.bench.results.compare import score
from gputop.bench.run.series import Counter, Mean, Series
from gputop.stream.history import FASTEST

if TYPE_CHECKING:
    from gputop.bench.events import Result
    from gputop.bench.plan.limits import HeatLimit
    from gputop.bench.plan.request import Target
    from gputop.schema.device import Device
    from gputop.schema.snapshot import Inventory, Sample

LONGEST_SECONDS = 5.0
"""A reading says nothing about more time before it than this: what is longer is a gap."""
WITHIN = "device to device"
"""The series of copies whose bandwidth is that of the device's memory."""
BANDWIDTH = "datasheet memory bandwidth"
LEAST_COVERED = 0.5
"""Of the run, between the first and the last reading of the energy: less would be a guess."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Readings that stand for the time from `since` to `seconds`, both on the run's time axis."""

    since: float
    seconds: float
    power_watts: float | None = None
    sm_clock_mhz: float | None = None
    """Of a CPU, the clock of its cores."""
    temperature_celsius: float | None = None
    reasons: tuple[str, ...] | None = None
    """Clock event reasons that held; None where the device does not say."""


@dataclass
class Trace:
    """Takes in a run's events and a stream's samples, in the order in which they come.

    The readings are those of the target; of a MIG instance, which has none, those of its GPU.
    """

    target: Target
    now: Callable[[], float] = time.time
    device: Device | None = None
    """What does not change about the target; None for a CPU."""
    gpu: Device | None = None
    """The same, but of a MIG instance its GPU."""
    driver_version: str | None = None
    power_limit_watts: float | None = None
    began: float | None = None
    """When the timed part began, in Unix seconds."""
    temperature_max: float | None = None
    heat_limits: tuple[HeatLimit, ...] = ()
    """Those that hold; none before the first sample, and for a CPU."""
    _origin: float = 0.0
    """Where the run's time is zero. It moves where a CPU's checks, which are not timed, go by."""
    _last_at: float = 0.0
    _last: Progress | None = None
    _sampled_at: float | None = None
    _newest: float = 0.0
    """Where the run's time is that there are moments of."""
    _moments: Series[Moment] = field(default_factory=lambda: Series(_merged))
    _power: Mean = field(default_factory=Mean)
    _clock: Mean = field(default_factory=Mean)
    _energy: Counter | None = None
    _counted: dict[str, Counter] = field(default_factory=dict)
    _seen: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by reason."""

    def take(self, event: Event) -> None:
        """Takes in what the worker said just now."""
        if isinstance(event, Planned | Point) and self.began is None:
            self.began = self._origin = self._last_at = self.now()
        elif isinstance(event, Progress):
            self._last, self._last_at = event, self.now()
            self._origin = self._last_at - event.elapsed_seconds
            self.began = self._origin if self.began is None else self.began

    def look(self, inventory: Inventory, sample: Sample) -> None:
        """Takes in a sample of the stream."""
        if self.target.uuid is None:
            host = sample.host
            self._add(sample.time, None, host.cpu_clock_mhz, host.cpu_temperature_celsius, None)
            return
        self.driver_version = inventory.driver_version
        self.device = inventory.device(self.target.uuid)
        uuid = (self.device and self.device.parent_uuid) or self.target.uuid
        self.gpu = inventory.device(uuid)
        readings = sample.device(uuid)
        if readings is None or readings.age_seconds is None:
            return
        if self.gpu is not None:
            self.heat_limits = limits.heat_limits(self.gpu, readings) or self.heat_limits
        at = sample.time - readings.age_seconds
        self.power_limit_watts = readings.power_limit_watts or self.power_limit_watts
        self._count(at, readings.energy_joules, readings.clock_event_seconds or {})
        self._add(
            at,
            readings.power_watts,
            readings.sm_clock_mhz,
            readings.temperature_celsius,
            readings.clock_event_reasons,
        )

    def _count(self, at: float, joules: float | None, causes: Mapping[str, float]) -> None:
        running = self.began is not None and at >= self.began
        if joules is not None and running:
            if self._energy is None:
                fastest = FASTEST["energy_joules"]
                self._energy = Counter((at, joules), (at, joules), fastest)
            self._energy.add(at, joules)
        for cause, seconds in causes.items():
            if running and at != self.began and cause in self._counted:
                self._counted[cause].add(at, seconds)
            else:  # counted from the last reading before the run
                self._counted[cause] = Counter((at, seconds), (at, seconds))

    def _add(
        self,
        at: float,
        power: float | None,
        clock: float | None,
        celsius: float | None,
        reasons: tuple[str, ...] | None,
    ) -> None:
        before, self._sampled_at = self._sampled_at, at
        if self.began is None or at <= self.began or (before is not None and at <= before):
            return
        start = max(self.began, at - LONGEST_SECONDS, before or self.began)
        weight = at - start
        self._power.add(power, weight)
        self._clock.add(clock, weight)
        if celsius is not None:
            self.temperature_max = max(celsius, self.temperature_max or celsius)
        for reason in reasons or ():
            self._seen[reason] += weight
        seconds = max(at - self._origin, self._newest)  # which moved: time does not go back
        since = max(self._newest, seconds - weight)
        self._newest = seconds
        self._moments.add(Moment(since, seconds, power, clock, celsius, reasons))

    @property
    def moments(self) -> Sequence[Moment]:
        """The samples of the run in order of time; of a long one, means of neighbours."""
        return self._moments.items

    def intervals(self) -> dict[str, list[tuple[float, float]]]:
        """From when to when each clock event reason held, in seconds of the run's time axis."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for moment in self.moments:
            for reason in moment.reasons or ():
                spans = found[reason]
                if spans and spans[-1][1] >= moment.since:
                    spans[-1] = (spans[-1][0], moment.seconds)
                else:
                    spans.append((moment.since, moment.seconds))
        return dict(found)

    @property
    def power_mean(self) -> float | None:
        """Of the run so far, in watts, weighted by time; so is the clock's."""
        return self._power.value

    @property
    def clock_mean(self) -> float | None:
        return self._clock.value

    def clock_event_seconds(self) -> dict[str, float]:
        """How long each reason held so far: as the device counts, or else by the samples."""
        counted = {cause: count.increase for cause, count in self._counted.items()}
        known = {cause: seconds for cause, seconds in counted.items() if seconds is not None}
        return {cause: seconds for cause, seconds in {**self._seen, **known}.items() if seconds > 0}

    def conditions(self, result: Result) -> Conditions | None:
        """What the device was like until now, where the run ended; None where nothing is known."""
        if self.gpu is None and not self.moments:
            return None
        seconds = self._length(result)
        joules = self._joules(seconds)
        work = None if result.tflops_mean is None else result.tflops_mean * result.seconds
        return Conditions(
            driver_version=self.driver_version,
            pci_device_id=self.gpu.pci_device_id if self.gpu else None,
            power_watts_mean=self.power_mean,
            power_limit_watts=self.power_limit_watts,
            sm_clock_mhz_mean=self.clock_mean,
            sm_clock_max_mhz=self.gpu.sm_clock_max_mhz if self.gpu else None,
            temperature_celsius_max=self.temperature_max,
            heat_limit=limits.in_words(self.heat_limits) if self.gpu else None,
            energy_joules=joules,
            tflop_per_joule=work / joules if work and joules else None,
            clock_event_seconds={
                reason: min(held, seconds) for reason, held in self.clock_event_seconds().items()
            },
            percent_of_peak=self._percent_of_peak(result),
        )

    def _percent_of_peak(self, result: Result) -> Mapping[str, float]:
        """Of what a result is compared by; of copies what the device's memory reached."""
        if result.kind == "copy":
            return _percent_of_bandwidth(result, peaks.memory_bytes_per_second(self.device))
        known = peaks.denominators(self.device, result.dtype, self.clock_mean)
        return peaks.percent_of_peak(score(result), known)

    def _length(self, result: Result) -> float:
        """Seconds from the begin of the timed part to its end."""
        if self._last is None:
            return result.seconds
        rest = max(0.0, result.seconds - self._last.elapsed_seconds)  # since the last window
        # The clock of the wall may have been set back meanwhile.
        return max(0.0, self._last_at - (self.began or self._origin)) + rest

    def _joules(self, seconds: float) -> float | None:
        """Energy of the whole run: as much a second as between the counter's readings in it.

        An instance shares the counter of its GPU with others, and has no energy of its own.
        """
        count = self._energy
        if count is None or count.increase is None or self._shared:
            return None
        if count.seconds < LEAST_COVERED * seconds or not count.seconds:
            return None
        return count.increase * seconds / count.seconds

    @property
    def _shared(self) -> bool:
        return self.device is not None and self.device.parent_uuid is not None


def _percent_of_bandwidth(result: Result, peak: float | None) -> Mapping[str, float]:
    """Of the largest copy within the device: smaller ones may fit into its caches."""
    copies = [
        (point.x, rate)
        for point in result.points
        if point.series == WITHIN and (rate := point.values.get("bytes_per_second"))
    ]
    if not copies or not peak:
        return {}
    return {BANDWIDTH: 100 * max(copies)[1] / peak}


def _merged(moments: Sequence[Moment]) -> Moment:
    """Neighbours as one: the mean of what they read, and every reason that held."""
    if len(moments) == 1:
        return moments[0]
    told = [moment.reasons for moment in moments if moment.reasons is not None]
    reasons = tuple(dict.fromkeys(reason for each in told for reason in each))
    return Moment(
        moments[0].since,
        moments[-1].seconds,
        _mean(moment.power_watts for moment in moments),
        _mean(moment.sm_clock_mhz for moment in moments),
        _mean(moment.temperature_celsius for moment in moments),
        reasons if told else None,
    )


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
