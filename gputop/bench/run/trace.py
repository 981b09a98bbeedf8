"""State of a device during a run: samples on the run's time axis, and their means. Pure."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.events import (
    Conditions,
    Event,
    Hello,
    Planned,
    Point,
    Progress,
    Result,
)
from gputop.bench.plan import peaks
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.results.measures import measured, score
from gputop.bench.results.verdict import BAD_STATES
from gputop.bench.run.series import DeviceCounter, Mean, MergedSeries, mean_over_time
from gputop.bench.worker.heat import heat_in_words, heat_limits
from gputop.schema.values import link_bytes
from gputop.stream.history import FASTEST
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.device import Device
    from gputop.bench.plan.request import Target
    from gputop.bench.worker.heat import HeatLimit


READINGS = ("power_watts", "sm_clock_mhz", "temperature_celsius")
"""Readings drawn under the throughput, in this order."""
POWER_CAP = "sw_power_cap"
"""Clock event reason of a device that its power limit holds back."""
LONGEST_SECONDS = 5.0
"""Longest time that a reading stands for. A longer one is a gap."""
WITHIN = "device to device"
"""Series of copies whose bandwidth is that of the device's memory."""
LOAD_PERCENT, LOAD_SHARE = 5, 0.05
"""SM utilization of a process of others, and its share of the run, from which it counts."""
MEMORY_ERRORS = ("ecc_corrected", "ecc_uncorrected", "remapped_rows", *BAD_STATES)
"""Counters and states of the device's memory that can only get worse in a run."""
LEAST_COVERED = 0.5
"""Least share of the run between the first and last reading of the energy."""


@dataclass(frozen=True, slots=True)
class TraceMoment:
    """Readings for the time from `since` to `seconds` on the run's time axis."""

    since: float
    seconds: float
    power_watts: float | None = None
    sm_clock_mhz: float | None = None
    """SM clock, or the core clock of a CPU."""
    temperature_celsius: float | None = None
    reasons: tuple[str, ...] | None = None
    """Clock event reasons that held, or None if the device does not report any."""
    power_cap_seconds: float | None = None
    """The device's counter of time with a power cap, at the end of that time."""

    @property
    def window_seconds(self) -> float:
        """Length of that time."""
        return self.seconds - self.since


@dataclass
class Trace:
    """Readings of a target during its run, from events and samples in order of arrival.

    A MIG instance has no readings: those of its GPU are taken.
    """

    target: Target
    now: Callable[[], float] = time.time
    device: Device | None = None
    """Static properties of the target, or None for a CPU."""
    gpu: Device | None = None
    """The same, for a MIG instance those of its GPU."""
    driver_version: str | None = None
    power_limit_watts: float | None = None
    began: float | None = None
    """Begin of the timed part in Unix seconds."""
    temperature_max: float | None = None
    inventory: Inventory | None = None
    """Newest inventory of the device's machine."""
    heat_limits: tuple[HeatLimit, ...] = ()
    """Heat limits of the GPU; empty before the first sample and for a CPU."""
    _origin: float = 0.0
    """Zero of the run's time. It moves past a CPU's checks, which are not timed."""
    _last_at: float = 0.0
    _last: Progress | None = None
    _sampled_at: float | None = None
    _newest: float = 0.0
    """Run time up to which there are moments."""
    _moments: MergedSeries[TraceMoment] = field(
        default_factory=lambda: MergedSeries(merge_moments)
    )
    power: Mean = field(default_factory=Mean)
    """Mean power in watts, over time; the next one is the mean clock in MHz."""
    clock: Mean = field(default_factory=Mean)
    _energy: DeviceCounter | None = None
    _counted: dict[str, DeviceCounter] = field(default_factory=dict)
    _seen: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by clock event reason."""
    _memory_errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Last value before the run and last value of all, by reading."""
    _knows_reasons: bool = False
    _worker: int | None = None
    """Pid of the worker, as itself sees it."""
    _load: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by process of others that used the device."""
    others: tuple[str, ...] = ()
    """Those that use it now, with their SM utilization."""

    def add_event(self, event: Event) -> None:
        """Add an event of the worker that came just now."""
        if isinstance(event, Hello):
            self._worker = event.pid
        elif isinstance(event, Inventory):
            self.inventory = event
        elif isinstance(event, Sample):
            self.add_sample(self.inventory, event)
        elif isinstance(event, Planned | Point) and self.began is None:
            if isinstance(event, Planned) and event.waits:
                return
            self.began = self._origin = self._last_at = self.now()
        elif isinstance(event, Progress):
            self._last, self._last_at = event, self.now()
            self._origin = self._last_at - event.elapsed_seconds
            self.began = self._origin if self.began is None else self.began

    def add_sample(self, inventory: Inventory | None, sample: Sample) -> None:
        """Add a sample. Without an inventory only that of a CPU counts."""
        if self.target.uuid is None:
            host = sample.host
            read = (None, host.cpu_clock_mhz, host.cpu_temperature_celsius)
            self._add(TraceMoment(sample.time, sample.time, *read))
            return
        if inventory is None:
            return
        self.driver_version = inventory.driver_version
        self.device = inventory.device(self.target.uuid)
        self.gpu = inventory.device(self.target.gpu_uuid or "")
        readings = sample.device(self.target.gpu_uuid or "")
        if readings is None or readings.age_seconds is None:
            return
        if self.gpu is not None:
            self.heat_limits = heat_limits(self.gpu, readings) or self.heat_limits
        for name in MEMORY_ERRORS:
            if (value := getattr(readings, name)) is not None:
                count = int(value)  # of a state, which is true or false
                known = self._memory_errors.get(name) if self.began else None
                self._memory_errors[name] = (known[0] if known else count, count)
        at = sample.time - readings.age_seconds
        self.power_limit_watts = readings.power_limit_watts or self.power_limit_watts
        self._count(at, readings.energy_joules, readings.clock_event_seconds or {})
        self._knows_reasons |= bool(
            readings.clock_event_reasons is not None or readings.clock_event_seconds
        )
        before = self._newest
        found = {name: getattr(readings, name) for name in READINGS}
        counted = (readings.clock_event_seconds or {}).get(POWER_CAP)
        reasons = readings.clock_event_reasons
        self._add(
            TraceMoment(at, at, **found, reasons=reasons, power_cap_seconds=counted)
        )
        self._add_load(sample, self._newest - before)

    def _add_load(self, sample: Sample, seconds: float) -> None:
        """Count processes of others that compute on the device, for so many seconds.

        Where the worker is not among the processes, as in a container whose pids are others, none
        can be told from it.
        """
        self.others = ()
        there = [
            each for each in sample.processes if each.device_uuid == self.target.uuid
        ]
        if self._worker not in {each.pid for each in there}:
            return
        for each in there:
            if (
                each.pid != self._worker
                and (each.sm_utilization_percent or 0) >= LOAD_PERCENT
            ):
                name = f"{each.pid} ({each.user or '?'}: {each.command or '?'})"
                self._load[visible(name, 80)] += seconds
                self.others += (f"{visible(name, 80)} {each.sm_utilization_percent} %",)

    def _count(
        self, at: float, joules: float | None, causes: Mapping[str, float]
    ) -> None:
        running = self.began is not None and at >= self.began
        if joules is not None and running:
            if self._energy is None:
                fastest = FASTEST["energy_joules"]
                self._energy = DeviceCounter((at, joules), (at, joules), fastest)
            self._energy.add(at, joules)
        for cause, seconds in causes.items():
            if running and at != self.began and cause in self._counted:
                self._counted[cause].add(at, seconds)
            else:  # counted from the last reading before the run
                self._counted[cause] = DeviceCounter((at, seconds), (at, seconds))

    def _add(self, read: TraceMoment) -> None:
        """Add readings of one moment, which count since the ones before."""
        before, at, self._sampled_at = self._sampled_at, read.seconds, read.seconds
        if (
            self.began is None
            or at <= self.began
            or (before is not None and at <= before)
        ):
            return
        start = max(self.began, at - LONGEST_SECONDS, before or self.began)
        weight = at - start
        self.power.add(read.power_watts, weight)
        self.clock.add(read.sm_clock_mhz, weight)
        if (celsius := read.temperature_celsius) is not None:
            self.temperature_max = max(celsius, self.temperature_max or celsius)
        for reason in read.reasons or ():
            self._seen[reason] += weight
        seconds = max(
            at - self._origin, self._newest
        )  # which moved: time does not go back
        since = max(self._newest, seconds - weight)
        self._newest = seconds
        self._moments.add(replace(read, since=since, seconds=seconds))

    def restore(self, moments: Iterable[TraceMoment], known: Conditions) -> None:
        """Take the moments and the conditions of a run that has ended."""
        self._moments = MergedSeries(merge_moments, items=moments)
        self.power.add(known.power_watts_mean, 1.0)
        self.clock.add(known.sm_clock_mhz_mean, 1.0)
        self.power_limit_watts = known.power_limit_watts
        self.temperature_max = known.temperature_celsius_max
        self._seen |= known.clock_event_seconds

    @property
    def moments(self) -> Sequence[TraceMoment]:
        """Samples of the run in order of time, joined with neighbours in a long one."""
        return self._moments.items

    def intervals(self) -> dict[str, list[tuple[float, float]]]:
        """Return the intervals of run time in which each clock event reason held."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for moment in self.moments:
            for reason in moment.reasons or ():
                spans = found[reason]
                if spans and spans[-1][1] >= moment.since:
                    spans[-1] = (spans[-1][0], moment.seconds)
                else:
                    spans.append((moment.since, moment.seconds))
        return dict(found)

    def clock_event_seconds(self) -> dict[str, float]:
        """Return how long each reason held: as counted by the device, or by the samples.

        Of a power cap the longer time counts. Real cards count one without reporting its reason.
        """
        held = dict(self._seen)
        for cause, counter in self._counted.items():
            if counter.increase is None:
                continue
            sampled = held.get(cause, 0.0) if cause == POWER_CAP else 0.0
            held[cause] = max(counter.increase, sampled)
        return {cause: seconds for cause, seconds in held.items() if seconds > 0}

    def completed(self, result: Result) -> Result:
        """Return the result with the state of the device, and steps with their part of its peak.

        A result that has its conditions is returned as it is.
        """
        if result.conditions is not None:
            return result
        known, points = self.conditions(result), list[Point]()
        share = known.percent_of_peak.get(peaks.DATASHEET) if known else None
        if share and result.kind == "step" and result.tflops_peak:
            for row in result.points:
                percent = share * row.values["tflops"] / result.tflops_peak
                points.append(
                    replace(row, values={**row.values, "percent_of_peak": percent})
                )
        return replace(result, conditions=known, points=tuple(points) or result.points)

    def conditions(self, result: Result) -> Conditions | None:
        """Return the state of the device up to now, the run's end, or None if unknown."""
        if self.gpu is None and not self.moments:
            return None
        seconds, gpu = self._length(result), self.gpu
        joules = self._joules(seconds)
        link = (
            link_bytes(gpu.pcie_generation_max or 0, gpu.pcie_width_max or 0)
            if gpu
            else None
        )
        work = (
            None if result.tflops_mean is None else result.tflops_mean * result.seconds
        )
        return Conditions(
            driver_version=self.driver_version,
            pci_device_id=gpu.pci_device_id if gpu else None,
            compute_capability=gpu.compute_capability if gpu else None,
            power_watts_mean=self.power.value,
            power_limit_watts=self.power_limit_watts,
            sm_clock_mhz_mean=self.clock.value,
            pcie_bytes_per_second=link,
            sm_clock_max_mhz=gpu.sm_clock_max_mhz if gpu else None,
            temperature_celsius_max=self.temperature_max,
            heat_limit=heat_in_words(self.heat_limits) if gpu else None,
            energy_joules=joules,
            tflop_per_joule=work / joules if work and joules else None,
            clock_event_seconds={
                word: min(held, result.seconds)
                for word, held in self.clock_event_seconds().items()
            },
            late_power_cap_seconds=self._late_power_cap_seconds(seconds),
            late_power_watts_mean=self._late_power_watts(seconds),
            percent_of_peak=self._percent_of_peak(result),
            clock_events_known=self._knows_reasons if gpu else None,
            memory_errors={
                name: (before, after)
                for name, (before, after) in self._memory_errors.items()
                if result.kind == "memory"
                or after > before
                or (after and name in BAD_STATES)
            },
            other_load=tuple(
                name for name, held in self._load.items() if held > LOAD_SHARE * seconds
            ),
        )

    def _late_power_cap_seconds(self, seconds: float) -> float | None:
        """Return how long a power cap held in the second half of so many seconds, or None.

        The longer of two times counts: that of the reason, and that of the device's counter.
        """
        found, moments = [], self.moments
        if any(moment.reasons is not None for moment in moments):
            spans = self.intervals().get(POWER_CAP, ())
            found.append(
                math.fsum(
                    max(0.0, end - max(begin, seconds / 2)) for begin, end in spans
                )
            )
        counted = [
            (m.seconds, m.power_cap_seconds)
            for m in moments
            if m.power_cap_seconds is not None
        ]
        before = [count for at, count in counted if at <= seconds / 2]
        after = [count for at, count in counted if at > seconds / 2]
        if before and after and after[-1] >= before[-1]:
            found.append(min(after[-1] - before[-1], seconds / 2))
        return max(found, default=None)

    def _late_power_watts(self, seconds: float) -> float | None:
        """Return the mean power in the second half of so many seconds, or None."""
        late = [moment for moment in self.moments if moment.seconds > seconds / 2]
        return mean_over_time(late, "power_watts")

    def _percent_of_peak(self, result: Result) -> Mapping[str, float]:
        if kind_of(result.kind).measures == BANDWIDTH:
            within = (point for point in result.points if point.series == WITHIN)
            copies = [
                (each.x, rate)
                for each in within
                if (rate := each.values.get(BANDWIDTH))
            ]
            peak = peaks.memory_bytes_per_second(self.device)
            # Of the largest copy: smaller ones may fit into caches.
            return (
                {peaks.BANDWIDTH: 100 * max(copies)[1] / peak}
                if copies and peak
                else {}
            )
        if "," not in result.dtype:
            return self.percent_of_peak(score(result), result.dtype)
        return {  # a sweep: each type by itself
            f"{name} {dtype}": percent
            for dtype, rate in measured(result).items()
            for name, percent in self.percent_of_peak(rate, dtype).items()
        }

    def percent_of_peak(self, tflops: float | None, dtype: str) -> Mapping[str, float]:
        """Return the percentages that a throughput is of the known peaks, by their names."""
        known = peaks.denominators(self.device, dtype, self.clock.value)
        return peaks.percent_of_peak(tflops, known)

    def _length(self, result: Result) -> float:
        if self._last is None:
            return result.seconds
        rest = max(
            0.0, result.seconds - self._last.elapsed_seconds
        )  # since the last window
        # The clock of the wall may have been set back meanwhile.
        return max(0.0, self._last_at - (self.began or self._origin)) + rest

    def _joules(self, seconds: float) -> float | None:
        """Return the energy of the run, extrapolated from the readings of the counter.

        A MIG instance shares its GPU's counter and has no energy of its own.
        """
        count = self._energy
        if (
            count is None
            or count.increase is None
            or self.target.parent_uuid is not None
        ):
            return None
        if count.seconds < LEAST_COVERED * seconds or not count.seconds:
            return None
        return count.increase * seconds / count.seconds


def merge_moments(moments: Sequence[TraceMoment]) -> TraceMoment:
    """Return neighbours as one: means over time, and every reason that held."""
    if len(moments) == 1:
        return moments[0]
    known = [moment.reasons for moment in moments if moment.reasons is not None]
    reasons = tuple(dict.fromkeys(reason for each in known for reason in each))
    since, seconds = moments[0].since, moments[-1].seconds
    means = {reading: mean_over_time(moments, reading) for reading in READINGS}
    merged = TraceMoment(since, seconds, **means, reasons=reasons if known else None)
    return replace(merged, power_cap_seconds=moments[-1].power_cap_seconds)
