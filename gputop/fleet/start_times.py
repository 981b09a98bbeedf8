"""When findings began: from a range query over the few GPUs that something is wrong with. Pure.

What is known of a finding is kept while it stands, and for a while after, so that one that comes
and goes has one beginning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.fleet.findings import HOT, HOT_MEMORY, kind_of
from gputop.fleet.matchers import one_of
from gputop.fleet.parse import labels_of, plausible, points_of
from gputop.fleet.queries import MASKS, READING_OF, XID
from gputop.health import thresholds as t
from gputop.schema.clock_events import BITS, BY_WORD, SLOWDOWNS

if TYPE_CHECKING:
    from gputop.fleet.findings import Known
    from gputop.fleet.model import Fleet, Gpu, Wrong
    from gputop.fleet.parse import KeyOf

LOOK_BACK_SECONDS, STEP_SECONDS = 86_400.0, 60.0
"""How far a beginning is looked for, and how exactly it is found."""
BRIDGED_SECONDS = 600.0
"""A finding that is away for less has not ended: readings waver, and scrapes fail."""
MOST_GPUS, MOST_BATCHES = 32, 3
"""GPUs of one range query, and range queries of one refresh, unless there is only one refresh."""
CLOSE = 1.1
"""How much higher than now the clock of a straggler may have been."""

Readings = Mapping[str, float]
Points = Mapping[float, Readings]
"""The readings of a GPU by time."""
Finding = tuple[str, str]
"""The key of the GPU, and the kind of what is wrong with it."""


class Condition(NamedTuple):
    """Condition on readings under which a finding stands."""

    readings: tuple[str, ...]
    holds: Callable[[Readings], bool]


class Batch(NamedTuple):
    """Findings that one range query tells the beginning of."""

    readings: tuple[str, ...]
    conditions: Mapping[Finding, Condition]
    uuids: str
    """The matcher of the label."""


@dataclass(slots=True)
class _Beginning:
    since: float | None
    """None where it is not known."""
    seen: float
    """When the finding stood last."""
    asked: bool = False


class Beginnings:
    """When each finding of a fleet began, as far as it is known."""

    def __init__(self) -> None:
        self._found: dict[Finding, _Beginning] = {}
        self._watching = False
        """True once everything was asked: what is new then has begun since."""
        self._span = (0.0, 0.0, STEP_SECONDS)

    def range(self, fleet: Fleet) -> tuple[float, float, float]:
        """Return start, end and step of the range queries for that fleet."""
        self._span = (fleet.moment - LOOK_BACK_SECONDS, fleet.moment, STEP_SECONDS)
        return self._span

    def undated(self, fleet: Fleet, known: Known, *, every: bool = False) -> Iterator[Batch]:
        """Batches of findings that nobody has asked for yet; a bounded number unless `every`."""
        gpus = {gpu.key: gpu for gpu in fleet.gpus} if fleet.wrong else {}
        new: dict[tuple[str, ...], dict[Finding, Condition]] = defaultdict(dict)
        for wrong in fleet.wrong:
            if not self._of(wrong, fleet).asked:
                condition = condition_of(wrong, gpus[wrong.key], known)
                if condition is not None:
                    new[condition.readings][wrong.key, wrong.kind] = condition
        batches = (
            self._batch(readings, dict(conditions), gpus)
            for readings, all_of in new.items()
            for conditions in _pieces([*all_of.items()], MOST_GPUS)
        )
        yield from batches if every else islice(batches, MOST_BATCHES)

    def _of(self, wrong: Wrong, fleet: Fleet) -> _Beginning:
        finding = wrong.key, wrong.kind
        if finding not in self._found:
            since = fleet.moment if self._watching else None
            self._found[finding] = _Beginning(since, fleet.moment)
        return self._found[finding]

    def _batch(
        self,
        readings: tuple[str, ...],
        conditions: Mapping[Finding, Condition],
        gpus: Mapping[str, Gpu],
    ) -> Batch:
        for finding in conditions:
            self._found[finding].asked = True
        return Batch(
            readings, conditions, f"=~{one_of(sorted({gpus[key].uuid for key, _ in conditions}))}"
        )

    def take(self, batch: Batch, answer: Mapping[str, Points]) -> None:
        """Take in the readings of its GPUs over the range."""
        for finding, condition in batch.conditions.items():
            began = begin(answer.get(finding[0], {}), condition, self._span)
            if began is not None:
                self._found[finding].since = began

    def dated(self, fleet: Fleet, known: Known, *, whole: bool = True) -> Fleet:
        """Return the fleet with the beginnings of its findings; those long gone are forgotten.

        `whole` is false while not everything was asked yet.
        """
        ages = {gpu.key: gpu.age_seconds for gpu in fleet.gpus} if fleet.wrong else {}
        wrong = []
        for each in fleet.wrong:
            beginning = self._of(each, fleet)
            beginning.seen = fleet.moment
            since = beginning.since
            if each.kind == "stale":
                age = ages[each.key]
                since = None if age is None else fleet.time - age
            elif each.kind == "xid":
                since = known.xid_at.get(each.key, since)
            wrong.append(replace(each, since=since))
        self._watching = whole
        self._found = {
            finding: each
            for finding, each in self._found.items()
            if fleet.moment - each.seen <= BRIDGED_SECONDS
        }
        return replace(fleet, wrong=tuple(wrong))


def begin(points: Points, condition: Condition, span: tuple[float, float, float]) -> float | None:
    """Return since when the condition holds, or None if that is unknown.

    It is unknown where it held from the start of the range on, or not at its end.
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


def condition_of(wrong: Wrong, gpu: Gpu, known: Known) -> Condition | None:
    """Return what a finding is told by in the past; None where that takes more than readings."""
    match wrong.kind:
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
                if reason in SLOWDOWNS and kind_of(BY_WORD[reason]) == wrong.kind
            )
            return Condition(("mask",), lambda v: bool(int(v["mask"]) & bits)) if bits else None
        case "hot" if gpu.key not in known.margin:
            core = (gpu.temperature_celsius or 0.0) >= HOT
            name = "temperature_celsius" if core else "memory_temperature_celsius"
            return Condition((name,), lambda v: v[name] >= (HOT if core else HOT_MEMORY))
        case "idle_held":
            name = "gpu_utilization_percent"
            return Condition((name,), lambda v: v[name] <= t.IDLE.end)
        case "straggler":
            return Condition(("sm_clock_mhz", "gpu_utilization_percent"), _as_slow(gpu))
    return None


def _as_slow(gpu: Gpu) -> Callable[[Readings], bool]:
    highest = CLOSE * (gpu.sm_clock_mhz or 0.0)
    return lambda v: (
        v["sm_clock_mhz"] <= highest and v["gpu_utilization_percent"] >= t.STRAGGLER_LOAD.begin
    )


def moments_by(result: list[Any], key_of: KeyOf) -> dict[str, dict[float, dict[str, float]]]:
    """Return the answer to a range query as the readings of each GPU by time."""
    found: dict[str, dict[float, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for each in result:
        labels = labels_of(each)
        name = labels.get("__name__", "")
        reading, factor = READING_OF.get(name, ("", 1.0))
        if name in (XID, *MASKS):
            reading, factor = "xid" if name == XID else "mask", 1.0
        elif "reason" in labels:
            reading, factor = "mask", float(BITS.get(labels["reason"], 0))
        elif "state" in labels:
            reading, factor = "state", 1.0
        moments, is_word = found[key_of(labels)], "reason" in labels or "state" in labels
        for time, value in points_of(each):
            others = moments[time].get(reading, 0.0) if is_word else 0.0  # a series of each word
            if plausible(reading, value * factor) is not None:
                moments[time][reading] = others + value * factor
    return found


def _pieces(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
