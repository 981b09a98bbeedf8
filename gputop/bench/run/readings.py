"""Readings of a device during its run, on the run's time axis. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputop.bench.plan import peaks
from gputop.bench.results.verdict import BAD_STATES
from gputop.bench.run.series import (
    Mean,
    MergedSeries,
    Moment,
    mean_over_time,
    merge_moments,
)
from gputop.bench.worker.heat import heat_limits
from gputop.schema.catalogue import CATALOGUE
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.device import Device, DeviceSample
    from gputop.agent.snapshot import Inventory, Sample
    from gputop.bench.events import Conditions
    from gputop.bench.plan.request import Target
    from gputop.bench.worker.heat import HeatLimit

POWER_CAP = "sw_power_cap"
"""Clock event reason of a device that its power limit holds back."""
LONGEST_SECONDS = 5.0
"""Longest time that one reading represents. A longer time is a gap."""
LOAD_PERCENT = 5
"""SM utilization from which a process of others counts."""
MEMORY_ERRORS = (
    "ecc_corrected",
    "ecc_uncorrected",
    "remapped_rows",
    *BAD_STATES,
)
"""Counters and states of the device's memory that can only get worse in a run."""


@dataclass(slots=True)
class DeviceCounter:
    """A counter of the device. Times are Unix seconds."""

    first: tuple[float, float]
    last: tuple[float, float]
    fastest: float = math.inf
    """Largest plausible increase per second."""
    broken: bool = False
    """True after a reset or a leap: the increase is unknown then."""

    def add(self, at: float, value: float) -> None:
        """Add a reading."""
        most = self.fastest * max(1.0, at - self.last[0])
        self.broken = self.broken or not 0 <= value - self.last[1] <= most
        self.last = (at, value)

    @property
    def increase(self) -> float | None:
        """Increase since the first reading, or None if unknown."""
        return None if self.broken else self.last[1] - self.first[1]

    @property
    def seconds(self) -> float:
        """Time between the first and the last reading."""
        return self.last[0] - self.first[0]


class RunReadings:
    """Readings of a target, from samples in order of arrival.

    A MIG instance has no readings, so those of its GPU are used.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.began_at: float | None = None
        """Start of the timed part in Unix seconds."""
        self.origin = 0.0
        """Zero of the run's time. It moves past a CPU's checks, which are not timed."""
        self.worker_pid: int | None = None
        self.device: Device | None = None
        """Static properties of the target, or None for a CPU."""
        self.gpu: Device | None = None
        """Static properties of the whole GPU."""
        self.driver_version: str | None = None
        self.power_limit_watts: float | None = None
        self.temperature_max: float | None = None
        self.heat_limits: tuple[HeatLimit, ...] = ()
        """Heat limits of the GPU; empty before the first sample and for a CPU."""
        self.power, self.clock = Mean(), Mean()
        """Means of the watts and of the MHz."""
        self.energy: DeviceCounter | None = None
        self.knows_reasons = False
        self.memory_errors: dict[str, tuple[float, float]] = {}
        """Last value before the run and last value of all, by reading."""
        self.load_seconds: defaultdict[str, float] = defaultdict(float)
        """Seconds for which each process of others used the device."""
        self.others: tuple[str, ...] = ()
        """Processes of others that use the device now, with their SM utilization."""
        self._moments = MergedSeries(merge_moments)
        self._sampled_at: float | None = None
        self._newest = 0.0
        """Run time up to which there are moments."""
        self._counted: dict[str, DeviceCounter] = {}
        self._held: defaultdict[str, float] = defaultdict(float)
        """Seconds of each clock event reason, from the samples."""

    @property
    def moments(self) -> list[Moment]:
        """Samples of the run in order of time, joined with neighbours in a long one."""
        return self._moments.items

    def add_inventory(self, inventory: Inventory) -> None:
        """Take the static properties of the device."""
        self.driver_version = inventory.driver_version
        self.device = inventory.device(self.target.uuid or "")
        self.gpu = inventory.device(self.target.gpu_uuid or "")

    def add_sample(self, sample: Sample) -> None:
        """Add a sample of the device, or of the host of a CPU."""
        if self.target.uuid is None:
            host = sample.host
            clock, celsius = host.cpu_clock_mhz, host.cpu_temperature_celsius
            self._add(Moment(sample.time, sample.time, None, clock, celsius))
            return
        readings = sample.device(self.target.gpu_uuid or "")
        if readings is None or readings.age_seconds is None:
            return
        at = sample.time - readings.age_seconds
        if self.gpu is not None:
            self.heat_limits = (
                heat_limits(self.gpu, readings) or self.heat_limits
            )
        self.power_limit_watts = (
            readings.power_limit_watts or self.power_limit_watts
        )
        self._add_memory_errors(readings)
        self._add_counters(at, readings)
        weight = self._add(
            Moment(
                at,
                at,
                readings.power_watts,
                readings.sm_clock_mhz,
                readings.temperature_celsius,
                readings.clock_event_reasons,
                (readings.clock_event_seconds or {}).get(POWER_CAP),
            )
        )
        self._add_load(sample, weight)

    def _add(self, read: Moment) -> float:
        """Add readings of one moment. Return the seconds of the run that they represent."""
        before, at = self._sampled_at, read.seconds
        self._sampled_at = at
        if self.began_at is None or at <= self.began_at:
            return 0.0
        if before is not None and at <= before:
            return 0.0
        start = max(
            self.began_at, at - LONGEST_SECONDS, before or self.began_at
        )
        weight = at - start
        self.power.add(read.power_watts, weight)
        self.clock.add(read.sm_clock_mhz, weight)
        celsius = read.temperature_celsius
        if celsius is not None:
            self.temperature_max = max(
                celsius, self.temperature_max or celsius
            )
        for reason in read.reasons or ():
            self._held[reason] += weight
        # The origin may have moved, but run time never decreases.
        seconds = max(at - self.origin, self._newest)
        since = max(self._newest, seconds - weight)
        self._newest = seconds
        self._moments.add(replace(read, since=since, seconds=seconds))
        return seconds - since

    def _add_memory_errors(self, readings: DeviceSample) -> None:
        for name in MEMORY_ERRORS:
            value = getattr(readings, name)
            if value is None:
                continue
            count = int(value)  # a state is True or False
            before = count
            if self.began_at and name in self.memory_errors:
                before = int(self.memory_errors[name][0])
            self.memory_errors[name] = (before, count)

    def _add_counters(self, at: float, readings: DeviceSample) -> None:
        counts = readings.clock_event_seconds or {}
        reports = readings.clock_event_reasons is not None or bool(counts)
        self.knows_reasons = self.knows_reasons or reports
        running = self.began_at is not None and at >= self.began_at
        joules = readings.energy_joules
        if joules is not None and running:
            if self.energy is None:
                fastest = CATALOGUE["energy_joules"].fastest
                self.energy = DeviceCounter(
                    (at, joules), (at, joules), fastest
                )
            self.energy.add(at, joules)
        for reason, seconds in counts.items():
            if running and at != self.began_at and reason in self._counted:
                self._counted[reason].add(at, seconds)
            else:  # counted from the last reading before the run
                self._counted[reason] = DeviceCounter(
                    (at, seconds), (at, seconds)
                )

    def _add_load(self, sample: Sample, seconds: float) -> None:
        """Count processes of others that compute on the device, for so many seconds.

        In a container, pids may differ from those of the driver. Nothing is counted unless the
        worker is among the processes.
        """
        self.others = ()
        uuid, own = self.target.uuid, self.worker_pid
        there = [each for each in sample.processes if each.device_uuid == uuid]
        if all(each.pid != own for each in there):
            return
        for each in there:
            percent = each.sm_utilization_percent or 0
            if each.pid == own or percent < LOAD_PERCENT:
                continue
            name = f"{each.pid} ({each.user or '?'}: {each.command or '?'})"
            name = visible(name, 80)
            self.load_seconds[name] += seconds
            self.others += (f"{name} {percent} %",)

    def restore(self, moments: Iterable[Moment], known: Conditions) -> None:
        """Take the moments and the conditions of a run that has ended."""
        self._moments = MergedSeries(merge_moments, items=moments)
        self.power.add(known.power_watts_mean, 1.0)
        self.clock.add(known.sm_clock_mhz_mean, 1.0)
        self.power_limit_watts = known.power_limit_watts
        self.temperature_max = known.temperature_celsius_max
        self._held |= known.clock_event_seconds

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

    def clock_event_seconds(self, most: float = math.inf) -> dict[str, float]:
        """Return the seconds of each reason, by the device's counter or else by the samples.

        None is longer than `most`, the length of the run. For a power cap the longer of the two
        counts, because real cards count a power cap without reporting its reason.
        """
        held = dict(self._held)
        for reason, counter in self._counted.items():
            counted = counter.increase
            if counted is None:
                continue
            if reason == POWER_CAP:
                counted = max(counted, held.get(reason, 0.0))
            held[reason] = counted
        found = {}
        for reason, seconds in held.items():
            if seconds > 0:
                found[reason] = min(seconds, most)
        return found

    def late_power_cap_seconds(self, seconds: float) -> float | None:
        """Return the seconds with a power cap in the second half of a run, or None if unknown.

        The longer of two times counts, by the reason and by the device's counter. `seconds` is the
        length of the run.
        """
        half = seconds / 2
        found = []
        if any(moment.reasons is not None for moment in self.moments):
            late = 0.0
            for begin, end in self.intervals().get(POWER_CAP, ()):
                late += max(0.0, end - max(begin, half))
            found.append(late)
        before: float | None = None
        last: float | None = None
        for moment in self.moments:
            if moment.power_cap_seconds is None:
                continue
            if moment.seconds <= half:
                before = moment.power_cap_seconds
            else:
                last = moment.power_cap_seconds
        if before is not None and last is not None and last >= before:
            found.append(min(last - before, half))
        return max(found, default=None)

    def late_power_watts(self, seconds: float) -> float | None:
        """Return the mean power in the second half of a run of `seconds`, or None if unknown."""
        late = [
            moment for moment in self.moments if moment.seconds > seconds / 2
        ]
        return mean_over_time(late, "power_watts")

    def percent_of_peak(
        self, tflops: float | None, dtype: str
    ) -> Mapping[str, float]:
        """Return the percentages that a throughput is of the known peaks, by their names."""
        known = peaks.denominators(self.device, dtype, self.clock.value)
        return peaks.percent_of_peak(tflops, known)
