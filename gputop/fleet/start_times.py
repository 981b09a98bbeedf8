"""Start times of findings, from range queries over the few GPUs that have findings. Pure.

A start time is kept while its finding lasts and for a while after, so that a finding that comes
and goes has a single one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from gputop.fleet.findings import Known, slowdown_rule
from gputop.health import thresholds as t
from gputop.schema.clock_events import BITS, BY_WORD, SLOWDOWNS

if TYPE_CHECKING:
    from gputop.fleet.model import Fleet, Gpu
    from gputop.fleet.parse import Moments
    from gputop.health.findings import Finding

LOOK_BACK_SECONDS, STEP_SECONDS = 86_400.0, 60.0
"""Seconds that range queries go back, and their step."""
BRIDGED_SECONDS = 600.0
"""Longest gap in a finding, as readings waver and scrapes fail."""
MOST_GPUS, MOST_BATCHES = 32, 3
"""Most GPUs of a range query, and range queries of a refresh unless it is the only one."""
CLOSE = 1.1
"""Factor by which the clock of a straggler may have been higher than now."""

Mark = tuple[str, str]
"""Identity of a finding: key of the GPU, and rule."""
Condition = Mapping[str, Callable[[float], bool]]
"""Tests that past readings passed while a finding was there, by reading."""
RangeBatch = Mapping[Mark, Condition]
"""Findings whose start one range query tells, all by the same readings."""


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

    def undated(self, fleet: Fleet, gpus: Mapping[str, Gpu], known: Known) -> Iterator[RangeBatch]:
        """Yield batches of findings to ask for; `gpus` are those of the fleet by key."""
        new: dict[tuple[str, ...], dict[Mark, Condition]] = defaultdict(dict)
        for each in fleet.findings:
            if not self._start_of(each, fleet).asked:
                key = each.device_uuid
                if condition := condition_of(each, gpus[key], known):
                    new[tuple(condition)][key, each.rule] = condition
        for conditions in new.values():
            for first in range(0, len(conditions), MOST_GPUS):
                batch = dict(islice(conditions.items(), first, first + MOST_GPUS))
                for mark in batch:
                    self._found[mark].asked = True
                yield batch

    def _start_of(self, finding: Finding, fleet: Fleet) -> _Start:
        since = fleet.moment if self._watching else None
        mark = finding.device_uuid, finding.rule
        return self._found.setdefault(mark, _Start(since, fleet.moment))

    def add_answer(self, batch: RangeBatch, answer: Mapping[str, Moments], end: float) -> None:
        """Find the start times of a batch in the readings of its GPUs over the range to `end`."""
        for mark, condition in batch.items():
            start = find_start(answer.get(mark[0], {}), condition, end - LOOK_BACK_SECONDS, end)
            if start is not None:
                self._found[mark].since = start

    def dated(
        self, fleet: Fleet, gpus: Mapping[str, Gpu], known: Known, *, whole: bool = True
    ) -> Fleet:
        """Return the fleet with the start times of its findings; those long gone are forgotten.

        `whole` is false while not everything was asked yet.
        """
        findings = []
        for each in fleet.findings:
            start, key = self._start_of(each, fleet), each.device_uuid
            start.seen = fleet.moment
            since = start.since
            if each.rule == "stale":
                age = gpus[key].age_seconds
                since = None if age is None else fleet.time - age
            elif each.rule == "xid":
                since = known.xid_at.get(key, since)
            findings.append(replace(each, since=since))
        self._watching = whole
        earliest = fleet.moment - BRIDGED_SECONDS
        self._found = {mark: each for mark, each in self._found.items() if each.seen >= earliest}
        return replace(fleet, findings=tuple(findings))


def find_start(points: Moments, condition: Condition, start: float, end: float) -> float | None:
    """Return the time since which the condition holds, or None if unknown.

    It is unknown if the condition held from the start of the range on, or not at its end.
    """
    first: float | None = None
    for time in sorted(points, reverse=True):
        if (end if first is None else first) - time > BRIDGED_SECONDS:
            break
        readings = points[time]
        if all(name in readings and holds(readings[name]) for name, holds in condition.items()):
            first = time
    return None if first is None or first - start <= STEP_SECONDS else first


def condition_of(finding: Finding, gpu: Gpu, known: Known) -> Condition:
    """Return the condition that tells a finding in the past; empty if readings cannot."""
    match finding.rule:
        case "xid" if gpu.key not in known.xid_at:
            return {"xid": lambda code: code == gpu.xid}
        case "state":
            return {"state": lambda state: state > 0}
        case "ecc":
            fewer = (gpu.ecc_uncorrected or 0.0) - round(known.ecc_rise.get(gpu.key, 0.0))
            least = max(0.0, fewer) if gpu.key in known.ecc_rise else 0.0
            return {"ecc_uncorrected": lambda number: number > least}
        case "remap":
            name = "remap_failed" if gpu.remap_failed else "remap_pending"
            return {name: lambda is_so: is_so > 0}
        case "thermal" | "slowdown":
            bits = sum(
                BITS[reason]
                for reason in gpu.clock_event_reasons or ()
                if reason in SLOWDOWNS and slowdown_rule(BY_WORD[reason]) == finding.rule
            )
            return {"mask": lambda mask: bool(int(mask) & bits)} if bits else {}
        case "hot" if gpu.key not in known.margin:
            if (gpu.temperature_celsius or 0.0) >= t.HOT:
                return {"temperature_celsius": lambda degrees: degrees >= t.HOT}
            return {"memory_temperature_celsius": lambda degrees: degrees >= t.HOT_MEMORY}
        case "idle_held":
            return {"gpu_utilization_percent": lambda percent: percent <= t.IDLE.end}
        case "straggler":
            highest = CLOSE * (gpu.sm_clock_mhz or 0.0)
            return {
                "sm_clock_mhz": lambda mhz: mhz <= highest,
                "gpu_utilization_percent": lambda percent: percent >= t.STRAGGLER_LOAD.begin,
            }
    return {}
