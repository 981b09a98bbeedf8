"""Readings of a device during its run, on the run's time axis. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.plan import peaks
from gputop.bench.results.verdict import BAD_STATES
from gputop.bench.run.series import (
    Moment,
    append_joined,
    mean_over_time,
    merge_moments,
    total_by_name,
)
from gputop.bench.worker.heat import heat_limits
from gputop.schema.catalogue import CATALOGUE
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.device import Device, DeviceSample
    from gputop.agent.snapshot import Inventory, Sample
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


class Counters(NamedTuple):
    """Counters of the device at `at`, in Unix seconds."""

    at: float
    reasons: Mapping[str, float] = {}
    """Seconds of each clock event reason since the driver's start."""
    joules: float | None = None

    def rise_since(self, before: Counters) -> dict[str, float]:
        """Return the seconds of each reason in between, without those of a counter that fell."""
        risen = {}
        for reason, seconds in self.reasons.items():
            rise = seconds - before.reasons.get(reason, math.inf)
            if rise >= 0:
                risen[reason] = rise
        return risen

    def watts_since(self, before: Counters) -> float | None:
        """Return the mean power in between, or None if the counter fell or leapt."""
        if self.joules is None or before.joules is None:
            return None
        joules, seconds = self.joules - before.joules, self.at - before.at
        most = CATALOGUE["energy_joules"].fastest * max(1.0, seconds)
        if not 0 <= joules <= most:
            return None
        return joules / seconds


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
        self.knows_reasons = False
        self.memory_errors: dict[str, tuple[float, float]] = {}
        """Last value before the run and last value of all, by reading."""
        self.load_seconds: defaultdict[str, float] = defaultdict(float)
        """Seconds for which each process of others used the device."""
        self.others: tuple[str, ...] = ()
        """Processes of others that use the device now, with their SM utilization."""
        self.moments: list[Moment] = []
        """Samples of the run in order of time, joined with neighbours in a long one."""
        self._counters: Counters | None = None
        """Counters of the last sample, also of one before the run."""
        self._newest = 0.0
        """Run time up to which there are moments."""

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
            read = Moment(0.0, 0.0, None, clock, celsius)
            self._add(read, Counters(sample.time))
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
        counts = readings.clock_event_seconds or {}
        reasons = readings.clock_event_reasons
        if reasons is not None or counts:
            self.knows_reasons = True
        read = Moment(
            0.0,
            0.0,
            readings.power_watts,
            readings.sm_clock_mhz,
            readings.temperature_celsius,
            reasons,
        )
        counters = Counters(at, counts, readings.energy_joules)
        self._add_load(sample, self._add(read, counters))

    def _add(self, read: Moment, counters: Counters) -> float:
        """Add readings of one moment. Return the seconds of the run that they represent."""
        at, before = counters.at, self._counters
        self._counters = counters
        if self.began_at is None or at <= self.began_at:
            return 0.0
        start = max(self.began_at, at - LONGEST_SECONDS)
        counted: dict[str, float] = {}
        watts = None
        if before is not None:
            if at <= before.at:
                return 0.0
            start = max(start, before.at)
            counted = counters.rise_since(before)
            if before.at >= self.began_at:
                watts = counters.watts_since(before)
        celsius = read.temperature_celsius
        if celsius is not None:
            self.temperature_max = max(
                celsius, self.temperature_max or celsius
            )
        # The origin may have moved, but run time never decreases.
        seconds = max(at - self.origin, self._newest)
        since = max(self._newest, seconds - (at - start))
        self._newest = seconds
        reported = dict.fromkeys(read.reasons or (), at - start)
        moment = replace(
            read,
            since=since,
            seconds=seconds,
            reported=reported,
            counted=reported | counted,
            energy_watts=watts,
        )
        append_joined(self.moments, moment, seconds, merge_moments)
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

    def mean(self, reading: str) -> float | None:
        """Return the mean of a reading of the moments, or None if none has it."""
        return mean_over_time(self.moments, reading)

    def late(self, seconds: float) -> list[Moment]:
        """Return the moments in the second half of a run of `seconds`."""
        return [each for each in self.moments if each.seconds > seconds / 2]

    def late_power_cap_seconds(self, seconds: float) -> float | None:
        """Return the seconds with a power cap in the second half of a run, or None if unknown.

        `seconds` is the length of the run.
        """
        late = self.late(seconds)
        if not late or not self.knows_reasons:
            return None
        return min(held_seconds(late).get(POWER_CAP, 0.0), seconds / 2)

    def percent_of_peak(
        self, tflops: float | None, dtype: str
    ) -> Mapping[str, float]:
        """Return the percentages that a throughput is of the known peaks, by their names."""
        clock = self.mean("sm_clock_mhz")
        known = peaks.denominators(self.device, dtype, clock)
        return peaks.percent_of_peak(tflops, known)


def held_seconds(moments: Sequence[Moment]) -> dict[str, float]:
    """Return the seconds of each reason, by the device's counter or else by its reports.

    For a power cap the longer of the two counts, because real cards count a power cap without
    reporting its reason.
    """
    held = total_by_name(each.counted for each in moments)
    reported = total_by_name(each.reported for each in moments)
    if POWER_CAP in reported:
        held[POWER_CAP] = max(held[POWER_CAP], reported[POWER_CAP])
    return {reason: held[reason] for reason in held if held[reason] > 0}
