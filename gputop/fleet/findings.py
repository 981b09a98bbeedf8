"""Findings of a fleet, worst first: rules judge the newest readings of many GPUs. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from gputop.bench.results.statistics import robust_sigma
from gputop.fleet.identities import target_of
from gputop.fleet.model import Gpu
from gputop.health import conditions
from gputop.health import thresholds as t
from gputop.health.findings import Finding, Severity, capitalized
from gputop.schema.clock_events import CLOCK_EVENTS, gravest
from gputop.text import cut, duration, percentage, visible

LONGEST = 59
"""Most cells of a title."""
XID_RANKS = {
    79: 100,
    95: 95,
    48: 92,
    119: 90,
    120: 90,
    140: 90,
    46: 88,
    62: 88,
    64: 86,
    74: 80,
    **dict.fromkeys(conditions.PROGRAM_XIDS, 5),
}
OTHER_XID_RANK = 60
STATE_RANKS = {"lost": 99, "needs_reset": 98, "not_responding": 90}
FEWEST_SECONDS, MOST_SECONDS = 45.0, 360.0
"""Seconds without a reading after which a GPU is stale: first if Prometheus has no recent reading,
then if it still has one."""
POWER_CAP = "sw_power_cap"
"""Clock event reason of a GPU at its power limit. Its clock is normal."""
JOBS = (
    "hpc_job",
    "slurm_job",
    "job_id",
    "job_name",
    "ray_job",
    "training_job",
    "exported_job",
)
"""Labels that name a job. A pod's name is its job's name and a number."""
OF_DEVICE = (
    "xid",
    "state",
    "stale",
    "ecc",
    "remap",
    "thermal",
    "slowdown",
    "hot",
    "straggler",
)
"""Rules about a physical GPU. All of its MIG instances report the same, so only the first counts.
"""
_NUMBER = re.compile(r"[-_.](?:[0-9]+|[0-9a-z]{5})$")


@dataclass(frozen=True, slots=True)
class Known:
    """Evidence besides the newest readings, by key of the GPU."""

    present: Collection[str] = ()
    """Keys of GPUs with recent readings."""
    down: Collection[tuple[str, str]] = ()
    """Job and instance of targets that cannot be scraped."""
    state: Mapping[str, str] = field(default_factory=dict)
    busy_mean: Mapping[str, float] = field(default_factory=dict)
    """Mean load over some minutes, for GPUs that were present the whole time."""
    ecc_rise: Mapping[str, float] = field(default_factory=dict)
    xid_before: Mapping[str, float] = field(default_factory=dict)
    """Last Xid as of an hour ago."""
    comparable: bool = True
    """True if load, clock and clock event reasons were read for the same moment."""


def find(gpus: Iterable[Gpu], known: Known) -> tuple[Finding, ...]:
    """Return all findings, worst first. Equally bad ones are in the order of the GPUs."""
    by_key = {gpu.key: gpu for gpu in gpus}
    fresh = []
    found: list[Finding] = []
    for gpu in by_key.values():
        found += _faults(gpu, known)
        if not _is_stale(gpu, known):
            fresh.append(gpu)
            found += _slowdowns(gpu, known)
    slowed = {
        e.device_uuid
        for e in found
        if e.rule in ("thermal", "slowdown", "hot")
    }
    for finding in _stragglers(fresh, known):
        if finding.device_uuid not in slowed:
            found.append(finding)
    once: dict[object, Finding] = {}
    for finding in found:
        gpu = by_key[finding.device_uuid]
        owner = gpu.device if finding.rule in OF_DEVICE else gpu.key
        once.setdefault((owner, finding.rule), finding)
    return tuple(
        sorted(
            once.values(),
            key=lambda each: (each.severity, each.rank),
            reverse=True,
        )
    )


def _is_stale(gpu: Gpu, known: Known) -> bool:
    """Return True if at least one scrape of the GPU failed."""
    most = MOST_SECONDS if gpu.key in known.present else FEWEST_SECONDS
    return gpu.age_seconds is None or gpu.age_seconds > most


def _finding(
    gpu: Gpu, rule: str, severity: Severity, text: str, rank: float
) -> Finding:
    return Finding(
        severity,
        cut(capitalized(text), LONGEST),
        rule=rule,
        device_uuid=gpu.key,
        label=gpu.place,
        rank=rank,
    )


def _faults(gpu: Gpu, known: Known) -> Iterator[Finding]:
    """Yield faults, or a stale GPU if no fault explains it."""
    xid = gpu.xid
    # The gauge keeps an Xid forever. An Xid of a program counts for an hour.
    if xid in conditions.PROGRAM_XIDS and known.xid_before.get(gpu.key) == xid:
        xid = None
    if xid:
        yield _finding(
            gpu,
            "xid",
            conditions.xid_severity(xid),
            conditions.xid_text(xid).what,
            XID_RANKS.get(xid, OTHER_XID_RANK),
        )
    state = known.state.get(gpu.key)
    # Only `gputop exporter` reports states other than ok.
    if state:
        text = conditions.STATES.get(state) or visible(state)
        yield _finding(
            gpu, "state", Severity.FAULT, text, STATE_RANKS.get(state, 50)
        )
    if not xid and not state and _is_stale(gpu, known):
        yield _stale(gpu, known)
    yield from _memory_faults(gpu, known)


def _stale(gpu: Gpu, known: Known) -> Finding:
    down = target_of(gpu.labels) in known.down
    why = "its scrape fails" if down else "its series are gone"
    rank, lasting = 1e9, ""
    if gpu.age_seconds is not None:
        rank = round(gpu.age_seconds)
        lasting = f" for {duration(gpu.age_seconds)}"
    text = f"No readings{lasting}: {why}"
    return _finding(gpu, "stale", Severity.STALE, text, rank)


def _memory_faults(gpu: Gpu, known: Known) -> Iterator[Finding]:
    """Yield uncorrected errors and remaps. Old errors are not faults."""
    new = known.ecc_rise.get(gpu.key, 0.0)
    if new > 0:
        text = f"{conditions.ecc_text(max(1, round(new)))} in the last hour"
        rank = 85 + min(new, 100) / 100
        yield _finding(gpu, "ecc", Severity.FAULT, text, rank)
    elif gpu.ecc_uncorrected:
        text = conditions.ecc_text(int(gpu.ecc_uncorrected))
        text = f"{text} since the driver was loaded"
        yield _finding(gpu, "ecc", Severity.WARNING, text, 25)
    if gpu.remap_failed:
        yield _finding(
            gpu, "remap", Severity.FAULT, conditions.NO_SPARE_ROWS, 70
        )
    elif gpu.remap_pending:
        yield _finding(
            gpu, "remap", Severity.WARNING, conditions.ROW_PENDING, 28
        )


def _slowdowns(gpu: Gpu, known: Known) -> Iterator[Finding]:
    """Yield a GPU that is slowed down, hot, or idle while holding memory."""
    slowdown = gravest(gpu.clock_event_reasons or ())
    degrees = gpu.temperature_celsius or 0.0
    memory = gpu.memory_temperature_celsius or 0.0
    if slowdown is not None:
        text = slowdown.fault
        if slowdown.is_heat and degrees:
            text = f"{text}, {degrees:.0f}°C"
        yield _finding(
            gpu,
            "thermal" if slowdown.is_heat else "slowdown",
            Severity.WARNING,
            text,
            50 - CLOCK_EVENTS.index(slowdown),
        )
    elif degrees >= t.HOT:
        text = f"{degrees:.0f}°C: close to its slowdown"
        yield _finding(gpu, "hot", Severity.WARNING, text, 20)
    elif memory >= t.HOT_MEMORY:
        text = f"Its memory is at {memory:.0f}°C: close to its slowdown"
        yield _finding(gpu, "hot", Severity.WARNING, text, 20)
    mean = known.busy_mean.get(gpu.key, 100.0)
    held = gpu.memory_used_bytes or 0.0
    busy = gpu.gpu_utilization_percent or 0.0
    if mean < t.IDLE.begin and busy <= t.IDLE.end and held >= t.HELD.begin:
        minutes = f"{t.IDLE_SECONDS / 60:.0f} minutes"
        text = f"Idle for {minutes} with {held / t.GIB:.0f} GiB held"
        rank = 10 + held / (1 << 40)
        yield _finding(gpu, "held_idle", Severity.INFORMATION, text, rank)


def job_of(gpu: Gpu) -> str:
    """Return the job of the GPU from its labels; "" if no label names it."""
    labels = gpu.labels
    for label in JOBS:
        if label in labels:
            return f"{label}={labels[label]}"
    pod = labels.get("pod", "")
    # The suffix may also be five random letters.
    job = _NUMBER.sub("", pod)
    if job == pod:
        return ""
    return f"{labels.get('cluster', '')}/{labels.get('namespace', '')}/{job}"


def _stragglers(gpus: Iterable[Gpu], known: Known) -> Iterator[Finding]:
    """Yield GPUs that are slower than others of the same job and model."""
    jobs: dict[tuple[str, str], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if job := job_of(gpu):
            jobs[gpu.name, job].append(gpu)
    for peers in jobs.values():
        if known.comparable:
            yield from _slow(peers)
        yield from _less_busy(peers, known)


def _slow(peers: list[Gpu]) -> Iterator[Finding]:
    """Yield GPUs with a lower clock at the same load, unless a power cap explains it."""
    clocks = {}
    for gpu in peers:
        busy = gpu.gpu_utilization_percent or 0
        if gpu.sm_clock_mhz is not None and busy >= t.STRAGGLER_LOAD.begin:
            clocks[gpu] = gpu.sm_clock_mhz
    for gpu, middle in _far_below(clocks):
        capped = POWER_CAP in (gpu.clock_event_reasons or ())
        if (
            clocks[gpu] <= middle * (1 + t.STRAGGLER.begin / 100)
            and not capped
        ):
            text = f"Straggler: SM clock {clocks[gpu]:.0f} MHz, median of its job {middle:.0f}"
            rank = 31 - clocks[gpu] / middle
            yield _finding(gpu, "straggler", Severity.WARNING, text, rank)


def _less_busy(peers: list[Gpu], known: Known) -> Iterator[Finding]:
    """Yield GPUs with less load over some minutes."""
    means = {
        gpu: known.busy_mean[gpu.key]
        for gpu in peers
        if gpu.key in known.busy_mean
    }
    for gpu, middle in _far_below(means):
        mean = means[gpu]
        if (
            middle >= t.STRAGGLER_LOAD.begin
            and mean <= middle - t.LESS_BUSY.begin
        ):
            text = f"Straggler: busy {percentage(mean)}, median of its job {percentage(middle)}"
            rank = 15 + (middle - mean) / 100
            yield _finding(gpu, "less_busy", Severity.WARNING, text, rank)


def _far_below(found: Mapping[Gpu, float]) -> Iterator[tuple[Gpu, float]]:
    """Yield GPUs far below the median of enough peers, with that median."""
    if len(found) <= t.FEWEST_PEERS:
        return
    numbers = [*found.values()]
    middle = median(numbers)
    for gpu, number in found.items():
        if number < middle - t.DEVIATIONS * robust_sigma(numbers):
            yield gpu, middle
