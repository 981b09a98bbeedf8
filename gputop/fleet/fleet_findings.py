"""Findings of a fleet, worst first, and their start times. Pure.

Rules judge the newest readings of many GPUs. Start times come from range queries over the few GPUs
that have findings.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any

from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.bench.results.statistics import robust_sigma
from gputop.health import conditions
from gputop.health import thresholds as t
from gputop.health.findings import Finding, Severity, capitalized
from gputop.schema.clock_events import (
    BY_WORD,
    CLOCK_EVENTS,
    SLOWDOWNS,
    ClockEvent,
    gravest,
)
from gputop.text import cut, duration, percentage, visible

if TYPE_CHECKING:
    from gputop.fleet.model import Fleet, Gpu
    from gputop.fleet.parse import Moments, Values

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
}
OTHER_XID_RANK, PROGRAM_XID_RANK = 60, 5
_JOBS = (
    "hpc_job",
    "slurm_job",
    "job_id",
    "job_name",
    "ray_job",
    "training_job",
    "exported_job",
)
"""Labels that name a job. The name of a pod is that of its job and a number."""
_NUMBER = re.compile(r"[-_.](?:[0-9]+|[0-9a-z]{5})$")


@dataclass(frozen=True, slots=True)
class Known:
    """Evidence besides the newest readings, by key of the GPU."""

    now: float = 0.0
    """Unix time by the server's clock, up to which ages count."""
    stale_after: float = 60.0
    """Seconds after which a reading is stale: a few scrapes."""
    targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    down: Collection[tuple[str, str]] = ()
    """Job and instance of targets that cannot be scraped."""
    states: Mapping[str, str] = field(default_factory=dict)
    busy_mean: Values = field(default_factory=dict)
    """Mean load over some minutes, for GPUs that were there all the time."""
    ecc_rise: Values = field(default_factory=dict)
    xid_at: Values = field(default_factory=dict)
    """Unix time of the last Xid, if reported."""
    xid_before: Values = field(default_factory=dict)
    heat: Values = field(default_factory=dict)
    margin: Values = field(default_factory=dict)
    """°C until it slows down, for GPUs that are close to that."""
    comparable: bool = True
    """True if load, clock and clock event reasons were read for the same moment."""


def find(gpus: Iterable[Gpu], known: Known) -> tuple[Finding, ...]:
    """Return all findings: worst first, equally bad ones in the order of the GPUs."""
    of = {gpu.key: (place, gpu) for place, gpu in enumerate(gpus)}
    found = [each for _, gpu in of.values() for each in _judge(gpu, known)]
    if known.comparable:
        explained = {
            each.device_uuid for each in found if each.rule in ("thermal", "slowdown")
        }
        behind = _stragglers((gpu for _, gpu in of.values()), known)
        found += [each for each in behind if each.device_uuid not in explained]
    once: dict[Any, Finding] = {}
    for each in found:
        gpu = of[each.device_uuid][1]
        owner = gpu.device if each.rule in _OF_DEVICE else gpu.key
        once.setdefault((owner, each.rule, each.title), each)
    found = [*once.values()]
    found.sort(
        key=lambda each: (
            -each.severity,
            -each.rank,
            of[each.device_uuid][0],
            each.rule,
        )
    )
    return tuple(found)


_OF_DEVICE = frozenset(
    ("xid", "state", "ecc", "remap", "thermal", "slowdown", "hot", "straggler", "stale")
)
"""Rules about a physical GPU: each of its MIG instances reports the same, the first one counts."""


def _judge(gpu: Gpu, known: Known) -> Iterator[Finding]:
    xid, state = _xid(gpu, known), _state(gpu, known)
    stale = gpu.is_older_than(known.stale_after)
    if stale and xid is None and state is None:  # else that is the reason
        yield _stale(gpu, known)
    rest = (_slowed(gpu, known), _idle(gpu, known)) if not stale else ()
    for finding in (xid, state, _ecc(gpu, known), _remap(gpu), *rest):
        if finding is not None:
            yield finding


def _finding(
    gpu: Gpu,
    rule: str,
    severity: Severity,
    text: str,
    rank: float,
    since: float | None = None,
) -> Finding:
    title = cut(capitalized(text), LONGEST)
    return Finding(
        severity, title, since=since, rule=rule, device_uuid=gpu.key, rank=rank
    )


def _xid(gpu: Gpu, known: Known) -> Finding | None:
    """Find an Xid: that of a program for an hour, others until the gauge is 0."""
    code = gpu.xid
    if not code:
        return None
    program = code in conditions.PROGRAM_XIDS
    if program and known.xid_before.get(gpu.key) == code:
        return None
    severity, text = conditions.xid_severity(code), conditions.xid_text(code).what
    rank = PROGRAM_XID_RANK if program else XID_RANKS.get(code, OTHER_XID_RANK)
    return _finding(gpu, "xid", severity, text, rank, known.xid_at.get(gpu.key))


def _ecc(gpu: Gpu, known: Known) -> Finding | None:
    """Find uncorrected errors. Old ones, which a fleet can tell from new ones, are no fault."""
    new, all_of = known.ecc_rise.get(gpu.key, 0.0), gpu.ecc_uncorrected or 0.0
    if new > 0:
        number = max(1, round(new))
        text = f"{conditions.ecc_text(number)} in the last hour"
        return _finding(gpu, "ecc", Severity.FAULT, text, 85 + min(number, 100) / 100)
    if all_of > 0:
        text = f"{conditions.ecc_text(int(all_of))} since the driver was loaded"
        return _finding(gpu, "ecc", Severity.WARNING, text, 25)
    return None


def _remap(gpu: Gpu) -> Finding | None:
    if gpu.remap_failed:
        return _finding(gpu, "remap", Severity.FAULT, conditions.NO_SPARE_ROWS, 70)
    if gpu.remap_pending:
        return _finding(gpu, "remap", Severity.WARNING, conditions.ROW_PENDING, 28)
    return None


_STATE_RANKS = {"lost": 99, "needs_reset": 98, "not_responding": 90}


def _state(gpu: Gpu, known: Known) -> Finding | None:
    """Find a state other than ok, which only `gputop exporter` reports."""
    state = known.states.get(gpu.key)
    if not state:
        return None
    text, rank = (
        conditions.STATES.get(state) or visible(state, 40),
        _STATE_RANKS.get(state, 50),
    )
    return _finding(gpu, "state", Severity.FAULT, text, rank)


def _stale(gpu: Gpu, known: Known) -> Finding:
    why = "its series are gone"
    if known.targets.get(gpu.key) in known.down:
        why = "its scrape fails"
    age = gpu.age_seconds
    if age is None:
        return _finding(gpu, "stale", Severity.STALE, f"No readings: {why}", 1e9)
    text = f"No readings for {duration(age)}: {why}"
    return _finding(gpu, "stale", Severity.STALE, text, round(age), known.now - age)


def slowdown_rule(event: ClockEvent) -> str:
    """Return the rule that a clock event reason belongs to."""
    return "thermal" if event.is_heat else "slowdown"


def _slowed(gpu: Gpu, known: Known) -> Finding | None:
    slowdown = gravest(gpu.clock_event_reasons or ())
    if slowdown is not None:
        degrees = _degrees(gpu) if slowdown.is_heat else ""
        rank, text = 50 - CLOCK_EVENTS.index(slowdown), f"{slowdown.fault}{degrees}"
        return _finding(gpu, slowdown_rule(slowdown), Severity.WARNING, text, rank)
    if gpu.key in known.heat:
        text = f"Throttled by heat in the last minutes{_degrees(gpu)}"
        return _finding(gpu, "thermal", Severity.WARNING, text, 40)
    hot = _hot(gpu, known)
    return None if hot is None else _finding(gpu, "hot", Severity.WARNING, hot, 20)


def _degrees(gpu: Gpu) -> str:
    return (
        "" if gpu.temperature_celsius is None else f", {gpu.temperature_celsius:.0f}°C"
    )


def _hot(gpu: Gpu, known: Known) -> str | None:
    degrees, memory = gpu.temperature_celsius, gpu.memory_temperature_celsius
    margin = known.margin.get(gpu.key)
    if degrees is not None and margin is not None:
        return f"{degrees:.0f}°C: {max(0, margin):.0f} below where it slows down"
    if degrees is not None and degrees >= t.HOT:
        return f"{degrees:.0f}°C: close to where it slows down"
    if memory is not None and memory >= t.HOT_MEMORY:
        return f"Its memory is at {memory:.0f}°C: close to where it slows down"
    return None


def _idle(gpu: Gpu, known: Known) -> Finding | None:
    mean, held = known.busy_mean.get(gpu.key), gpu.memory_used_bytes
    if mean is None or held is None or mean >= t.IDLE.begin or held < t.HELD.begin:
        return None
    if (
        gpu.gpu_utilization_percent is not None
        and gpu.gpu_utilization_percent > t.IDLE.end
    ):
        return None
    text = (
        f"Idle for {t.IDLE_SECONDS / 60:.0f} minutes with {held / t.GIB:.0f} GiB held"
    )
    return _finding(gpu, "held_idle", Severity.INFORMATION, text, 10 + held / (1 << 40))


POWER_CAP = "sw_power_cap"
"""Clock event reason of a GPU at its power limit, whose clock is as it should be."""


def _stragglers(gpus: Iterable[Gpu], known: Known) -> Iterator[Finding]:
    jobs: dict[tuple[str, str], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if not gpu.is_older_than(known.stale_after) and (job := job_of(gpu)):
            jobs[gpu.name, job].append(gpu)
    for peers in jobs.values():
        if len(peers) > t.FEWEST_PEERS:
            yield from _slow(peers)
            yield from _less_busy(peers, known)


def job_of(gpu: Gpu) -> str:
    """Return the job of the GPU by its labels; "" if none names it."""
    labels = gpu.labels
    if not labels.keys().isdisjoint(_JOBS):
        label = next(each for each in _JOBS if each in labels)
        return f"{label}={labels[label]}"
    name = _job_of(labels.get("pod", ""))
    return (
        f"{labels.get('cluster', '')}/{labels.get('namespace', '')}/{name}"
        if name
        else ""
    )


@lru_cache(1 << 14)
def _job_of(pod: str) -> str | None:
    """Return the name of the job: that of the pod without its number or five random letters."""
    job = _NUMBER.sub("", pod)
    return job if job != pod else None


def _slow(peers: list[Gpu]) -> Iterator[Finding]:
    """Yield GPUs with a lower clock at the same load, unless a power cap explains it."""
    clocks = [
        (gpu, gpu.sm_clock_mhz)
        for gpu in peers
        if gpu.sm_clock_mhz is not None
        and (gpu.gpu_utilization_percent or 0) >= t.STRAGGLER_LOAD.begin
    ]
    for gpu, clock, middle in _far_below(clocks):
        capped = POWER_CAP in (gpu.clock_event_reasons or ())
        if clock <= middle * (1 + t.STRAGGLER.begin / 100) and not capped:
            text = f"Straggler: SM clock {clock:.0f} MHz, of its job {middle:.0f}"
            yield _finding(
                gpu, "straggler", Severity.WARNING, text, 30 + (1 - clock / middle)
            )


def _less_busy(peers: list[Gpu], known: Known) -> Iterator[Finding]:
    """Yield GPUs with less load over some minutes."""
    means = [
        (gpu, known.busy_mean[gpu.key]) for gpu in peers if gpu.key in known.busy_mean
    ]
    for gpu, mean, middle in _far_below(means):
        if middle >= t.STRAGGLER_LOAD.begin and mean <= middle - t.LESS_BUSY.begin:
            text = (
                f"Straggler: busy {percentage(mean)}, of its job {percentage(middle)}"
            )
            yield _finding(
                gpu, "less_busy", Severity.WARNING, text, 15 + (middle - mean) / 100
            )


def _far_below(found: list[tuple[Gpu, float]]) -> Iterator[tuple[Gpu, float, float]]:
    """Yield GPUs whose number is far below the median of enough peers, with both."""
    if len(found) <= t.FEWEST_PEERS:
        return
    numbers = [number for _, number in found]
    middle = median(numbers)
    limit = middle - t.DEVIATIONS * robust_sigma(numbers)
    yield from ((gpu, number, middle) for gpu, number in found if number < limit)


LOOK_BACK_SECONDS, STEP_SECONDS = 86_400.0, 60.0
"""Seconds that range queries go back, and their step."""
BRIDGED_SECONDS = 600.0
"""Longest gap in a finding, as readings waver and scrapes fail."""
MOST_DATED = 32
"""Most findings whose start is asked for in a refresh."""
CLOSE = 1.1
"""Factor by which the clock of a straggler may have been higher than now."""

Mark = tuple[str, str]
"""Identity of a finding: key of the GPU, and rule."""
Condition = Mapping[str, Callable[[float], bool]]
"""Tests that past readings passed while a finding was there, by reading."""


class StartTimes:
    """Start time of each finding of a fleet, as far as known.

    It is kept while its finding lasts and for a while after, so that a finding that comes and goes
    has a single one.
    """

    def __init__(self) -> None:
        self._found: dict[Mark, float | None] = {}
        self._seen: dict[Mark, float] = {}
        """Time at which each finding was last there."""
        self._asked: set[Mark] = set()

    def undated(self, fleet: Fleet, known: Known) -> dict[Mark, Condition]:
        """Return the worst findings to ask for, each once."""
        gpus = {gpu.key: gpu for gpu in fleet.gpus}
        found: dict[Mark, Condition] = {}
        for each in fleet.findings:
            mark = each.device_uuid, each.rule
            condition = condition_of(each.rule, gpus[each.device_uuid], known)
            if condition and each.since is None and mark not in self._asked:
                found[mark] = condition
            if len(found) == MOST_DATED:
                break
        self._asked.update(found)
        return found

    def add_answer(
        self, asked: Mapping[Mark, Condition], answer: Mapping[str, Moments], end: float
    ) -> None:
        """Find start times in the readings of the GPUs that were asked for, up to `end`."""
        for mark, condition in asked.items():
            start = find_start(
                answer.get(mark[0], {}), condition, end - LOOK_BACK_SECONDS, end
            )
            if start is not None:
                self._found[mark] = start

    def dated(self, fleet: Fleet, new_since: float | None) -> Fleet:
        """Return the fleet with the start times of its findings; those long gone are forgotten.

        A new finding began at `new_since` unless its readings tell otherwise.
        """
        findings = []
        for each in fleet.findings:
            mark = each.device_uuid, each.rule
            self._seen[mark] = fleet.moment
            since = self._found.setdefault(mark, new_since)
            told = each.since is not None or each.rule == "stale"
            findings.append(each if told else replace(each, since=since))
        for mark, seen in [*self._seen.items()]:
            if seen < fleet.moment - BRIDGED_SECONDS:
                del self._seen[mark], self._found[mark]
                self._asked.discard(mark)
        return replace(fleet, findings=tuple(findings))


def find_start(
    points: Moments, condition: Condition, start: float, end: float
) -> float | None:
    """Return the time since which the condition holds, or None if unknown.

    It is unknown if the condition held from the start of the range on, or not at its end.
    """
    first: float | None = None
    for time in sorted(points, reverse=True):
        if (end if first is None else first) - time > BRIDGED_SECONDS:
            break
        readings = points[time]
        if all(
            name in readings and holds(readings[name])
            for name, holds in condition.items()
        ):
            first = time
    return None if first is None or first - start <= STEP_SECONDS else first


def condition_of(rule: str, gpu: Gpu, known: Known) -> Condition:
    """Return the condition that tells a finding in the past; empty if readings cannot."""
    match rule:
        case "xid":
            return {"xid": lambda code: code == gpu.xid}
        case "state":
            return {"state": lambda state: state > 0}
        case "ecc":
            fewer = (gpu.ecc_uncorrected or 0.0) - round(
                known.ecc_rise.get(gpu.key, 0.0)
            )
            least = max(0.0, fewer) if gpu.key in known.ecc_rise else 0.0
            return {"ecc_uncorrected": lambda number: number > least}
        case "remap":
            name = "remap_failed" if gpu.remap_failed else "remap_pending"
            return {name: lambda is_so: is_so > 0}
        case "thermal" | "slowdown":
            bits = sum(
                CLOCK_EVENT_BITS[reason]
                for reason in gpu.clock_event_reasons or ()
                if reason in SLOWDOWNS and slowdown_rule(BY_WORD[reason]) == rule
            )
            return {"mask": lambda mask: bool(int(mask) & bits)} if bits else {}
        case "hot" if gpu.key not in known.margin:
            if (gpu.temperature_celsius or 0.0) >= t.HOT:
                return {"temperature_celsius": lambda degrees: degrees >= t.HOT}
            return {
                "memory_temperature_celsius": lambda degrees: degrees >= t.HOT_MEMORY
            }
        case "held_idle":
            return {"gpu_utilization_percent": lambda percent: percent <= t.IDLE.end}
        case "straggler":
            highest = CLOSE * (gpu.sm_clock_mhz or 0.0)
            return {
                "sm_clock_mhz": lambda mhz: mhz <= highest,
                "gpu_utilization_percent": lambda percent: (
                    percent >= t.STRAGGLER_LOAD.begin
                ),
            }
    return {}
