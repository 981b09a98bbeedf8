"""Conditions of a result: the state of the device during the run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gputop.bench.events import Conditions, Point, Result
from gputop.bench.plan import peaks
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.results.measures import measured, score
from gputop.bench.results.verdict import BAD_STATES
from gputop.bench.run.readings import RunReadings, held_seconds
from gputop.bench.run.series import mean_over_time
from gputop.bench.worker.heat import heat_in_words
from gputop.schema.values import link_bytes

WITHIN = "device to device"
"""Series of copies whose bandwidth is that of the device's memory."""
LOAD_SHARE = 0.05
"""Share of the run from which the load of another process counts."""
LEAST_COVERED = 0.5
"""Least share of the run in which the counter of the energy was read."""


def with_conditions(
    result: Result,
    read: RunReadings,
    seconds: float,
) -> Result:
    """Return the result with the state of the device, and steps with their part of its peak.

    `seconds` is the length of the run by the clock of its device.
    """
    known = conditions(result, read, seconds)
    share = known.percent_of_peak.get(peaks.DATASHEET) if known else None
    points = result.points
    if share and result.kind == "step" and result.tflops_peak:
        per_tflops = share / result.tflops_peak
        points = tuple(_with_percent(each, per_tflops) for each in points)
    return replace(result, conditions=known, points=points)


def _with_percent(row: Point, per_tflops: float) -> Point:
    percent = per_tflops * row.values["tflops"]
    return replace(row, values={**row.values, "percent_of_peak": percent})


def conditions(
    result: Result,
    read: RunReadings,
    seconds: float,
) -> Conditions | None:
    """Return the state of the device during a run that ends now, or None if unknown."""
    gpu = read.gpu
    if gpu is None and not read.moments:
        return None
    joules = _joules(read, seconds)
    work = (result.tflops_mean or 0.0) * result.seconds
    held = held_seconds(read.moments)
    for reason, reason_seconds in held.items():
        held[reason] = min(reason_seconds, result.seconds)
    found = Conditions(
        driver_version=read.driver_version,
        power_watts_mean=read.mean("power_watts"),
        power_limit_watts=read.power_limit_watts,
        sm_clock_mhz_mean=read.mean("sm_clock_mhz"),
        temperature_celsius_max=read.temperature_max,
        energy_joules=joules,
        tflop_per_joule=work / joules if work and joules else None,
        clock_event_seconds=held,
        late_power_cap_seconds=read.late_power_cap_seconds(seconds),
        late_power_watts_mean=mean_over_time(
            read.late(seconds), "power_watts"
        ),
        percent_of_peak=_percent_of_peak(result, read),
        memory_errors=_memory_errors(result, read),
        other_load=tuple(
            name
            for name, used in read.load_seconds.items()
            if used > LOAD_SHARE * seconds
        ),
    )
    if gpu is None:
        return found
    generation, width = gpu.pcie_generation_max or 0, gpu.pcie_width_max or 0
    return replace(
        found,
        pci_device_id=gpu.pci_device_id,
        compute_capability=gpu.compute_capability,
        pcie_bytes_per_second=link_bytes(generation, width),
        sm_clock_max_mhz=gpu.sm_clock_max_mhz,
        heat_limit=heat_in_words(read.heat_limits),
        clock_events_known=read.knows_reasons,
    )


def _joules(read: RunReadings, seconds: float) -> float | None:
    """Return the energy of the run, extrapolated from the readings of the counter.

    A MIG instance shares its GPU's counter and has no energy of its own.
    """
    watts = read.mean("energy_watts")
    if watts is None or read.target.parent_uuid is not None:
        return None
    covered = 0.0
    for moment in read.moments:
        if moment.energy_watts is not None:
            covered += moment.window_seconds
    if covered < LEAST_COVERED * seconds:
        return None
    return watts * seconds


def _memory_errors(
    result: Result, read: RunReadings
) -> dict[str, tuple[float, ...]]:
    """Return the counters of a memory test, and otherwise those that rose or are bad."""
    found: dict[str, tuple[float, ...]] = {}
    for name, (before, after) in read.memory_errors.items():
        is_bad = after > before or (after and name in BAD_STATES)
        if result.kind == "memory" or is_bad:
            found[name] = (before, after)
    return found


def _percent_of_peak(result: Result, read: RunReadings) -> Mapping[str, float]:
    if kind_of(result.kind).measures == BANDWIDTH:
        return _percent_of_bandwidth(result, read)
    if "," not in result.dtype:
        return read.percent_of_peak(score(result), result.dtype)
    found = {}
    # A sweep: each type by itself
    for dtype, rate in measured(result).items():
        for name, percent in read.percent_of_peak(rate, dtype).items():
            found[f"{name} {dtype}"] = percent
    return found


def _percent_of_bandwidth(
    result: Result, read: RunReadings
) -> Mapping[str, float]:
    """Return the share of the memory's bandwidth that the largest copy reached.

    Smaller copies may fit into caches.
    """
    copies = []
    for point in result.points:
        rate = point.values.get(BANDWIDTH)
        if point.series == WITHIN and rate:
            copies.append((point.x, rate))
    peak = peaks.memory_bytes_per_second(read.device)
    if not copies or not peak:
        return {}
    _, rate = max(copies)
    return {peaks.BANDWIDTH: 100 * rate / peak}
