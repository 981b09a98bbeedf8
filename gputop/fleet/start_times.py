"""Start times of findings, from range queries over the few GPUs that have findings. Pure.

A start time is kept while its finding lasts and for a while after, so that a finding that comes
and goes has a single one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gputop.fleet.findings import Known, slowdown_rule
from gputop.fleet.server import one_of
from gputop.health import thresholds as t
from gputop.schema.clock_events import BITS, BY_WORD, SLOWDOWNS

if TYPE_CHECKING:
    from gputop.fleet.model import Fleet, Gpu
    from gputop.health.findings import Finding

LOOK_BACK_SECONDS, STEP_SECONDS = 86_400.0, 60.0
"""Seconds that range queries go back, and their step."""
BRIDGED_SECONDS = 600.0
"""Longest gap in a finding, as readings waver and scrapes fail."""
MOST_GPUS, MOST_BATCHES = 32, 3
"""Most GPUs of a range query, and range queries of a refresh unless it is the only one."""
CLOSE = 1.1
"""Factor by which the clock of a straggler may have been higher than now."""

Readings = Mapping[str, float]
Points = Mapping[float, Readings]
"""The readings of a GPU by time."""
Span = tuple[float, float, float]
"""Start, end and step of a range query, in seconds."""
Mark = tuple[str, str]
"""Identity of a finding: key of the GPU, and rule."""


class Condition(NamedTuple):
    """Condition on past readings under which a finding was there."""

    readings: tuple[str, ...]
    holds: Callable[[Readings], bool]


class RangeBatch(NamedTuple):
    """Findings whose start one range query tells."""

    readings: tuple[str, ...]
    conditions: Mapping[Mark, Condition]
    uuids: str


@dataclass(slots=True)
class _Start:
    since: float | None
    """None if unknown."""
    seen: float
    """Time at which the finding was last there."""
    asked: bool = False


class StartTimes:
    """Start time of each finding of a fleet, as far as known."""

    def __init__(self) -> None:
        self._found: dict[Mark, _Start] = {}
        self._watching = False
        """True once everything was asked. New findings have begun since."""

    def undated(self, fleet: Fleet, known: Known) -> Iterator[RangeBatch]:
        """Yield batches of findings to ask for."""
        gpus = {gpu.key: gpu for gpu in fleet.gpus} if fleet.findings else {}
        new: dict[tuple[str, ...], dict[Mark, Condition]] = defaultdict(dict)
        for finding in fleet.findings:
            if not self._start_of(finding, fleet).asked:
                key = finding.device_uuid
                condition = condition_of(finding, gpus[key], known)
                if condition is not None:
                    new[condition.readings][key, finding.rule] = condition
        for readings, conditions in new.items():
            for first in range(0, len(conditions), MOST_GPUS):
                batch = dict(islice(conditions.items(), first, first + MOST_GPUS))
                for mark in batch:
                    self._found[mark].asked = True
                uuids = sorted({gpus[key].uuid for key, _ in batch})
                yield RangeBatch(readings, batch, f"=~{one_of(uuids)}")

    def _start_of(self, finding: Finding, fleet: Fleet) -> _Start:
        since = fleet.moment if self._watching else None
        mark = finding.device_uuid, finding.rule
        return self._found.setdefault(mark, _Start(since, fleet.moment))

    def add_answer(self, batch: RangeBatch, answer: Mapping[str, Points], span: Span) -> None:
        """Find the start times of a batch in the readings of its GPUs over the range."""
        for mark, condition in batch.conditions.items():
            start = find_start(answer.get(mark[0], {}), condition, span)
            if start is not None:
                self._found[mark].since = start

    def dated(self, fleet: Fleet, known: Known, *, whole: bool = True) -> Fleet:
        """Return the fleet with the start times of its findings; those long gone are forgotten.

        `whole` is false while not everything was asked yet.
        """
        ages = {gpu.key: gpu.age_seconds for gpu in fleet.gpus} if fleet.findings else {}
        findings = []
        for each in fleet.findings:
            start = self._start_of(each, fleet)
            start.seen = fleet.moment
            since, key = start.since, each.device_uuid
            if each.rule == "stale":
                age = ages[key]
                since = None if age is None else fleet.time - age
            elif each.rule == "xid":
                since = known.xid_at.get(key, since)
            findings.append(replace(each, since=since))
        self._watching = whole
        self._found = {
            mark: each
            for mark, each in self._found.items()
            if fleet.moment - each.seen <= BRIDGED_SECONDS
        }
        return replace(fleet, findings=tuple(findings))


def find_start(points: Points, condition: Condition, span: Span) -> float | None:
    """Return the time since which the condition holds, or None if unknown.

    It is unknown if the condition held from the start of the range on, or not at its end.
    """
    start, end, step = span
    first: float | None = None
    for time in sorted(points, reverse=True):
        if (end if first is None else first) - time > BRIDGED_SECONDS:
            break
        readings = points[time]
        if readings.keys() >= set(condition.readings) and condition.holds(readings):
            first = time
    return None if first is None or first - start <= step else first


def condition_of(finding: Finding, gpu: Gpu, known: Known) -> Condition | None:
    """Return the condition that tells a finding in the past, or None if readings cannot."""
    match finding.rule:
        case "xid" if gpu.key not in known.xid_at:
            code = gpu.xid
            return Condition(("xid",), lambda v: v["xid"] == code)
        case "state":
            return Condition(("state",), lambda v: v["state"] > 0)
        case "ecc":
            fewer = (gpu.ecc_uncorrected or 0.0) - round(known.ecc_rise.get(gpu.key, 0.0))
            least = max(0.0, fewer) if gpu.key in known.ecc_rise else 0.0
            return Condition(("ecc_uncorrected",), lambda v: v["ecc_uncorrected"] > least)
        case "remap":
            name = "remap_failed" if gpu.remap_failed else "remap_pending"
            return Condition((name,), lambda v: v[name] > 0)
        case "thermal" | "slowdown":
            bits = sum(
                BITS[reason]
                for reason in gpu.clock_event_reasons or ()
                if reason in SLOWDOWNS and slowdown_rule(BY_WORD[reason]) == finding.rule
            )
            return Condition(("mask",), lambda v: bool(int(v["mask"]) & bits)) if bits else None
        case "hot" if gpu.key not in known.margin:
            core = (gpu.temperature_celsius or 0.0) >= t.HOT
            name = "temperature_celsius" if core else "memory_temperature_celsius"
            return Condition((name,), lambda v: v[name] >= (t.HOT if core else t.HOT_MEMORY))
        case "idle_held":
            name = "gpu_utilization_percent"
            return Condition((name,), lambda v: v[name] <= t.IDLE.end)
        case "straggler":
            highest, least = CLOSE * (gpu.sm_clock_mhz or 0.0), t.STRAGGLER_LOAD.begin
            names = ("sm_clock_mhz", "gpu_utilization_percent")
            return Condition(names, lambda v: v[names[0]] <= highest and v[names[1]] >= least)
    return None
