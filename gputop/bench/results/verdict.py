"""Verdict about a device in parts, and the outliers among many devices. Pure.

A part without enough evidence is not judged and says why. Only the check of the results says
anything about a device that others used meanwhile.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputop.bench.events import (
    DEGRADED,
    FAULTY,
    NOT_JUDGED,
    OK,
    UNWATCHED,
    Result,
    Verdict,
    VerdictPart,
)
from gputop.bench.plan.gpu_limits import BANDWIDTH, DATASHEET
from gputop.bench.plan.kinds import kind_of
from gputop.bench.plan.request import DEFAULT_MIN_PERCENT_OF_PEAK, DEFAULT_TOLERANCE_PERCENT
from gputop.bench.results import facts
from gputop.bench.results.compare import FEWEST_RUNS, judged_rows, measured, percent_below, score
from gputop.bench.results.statistics import percentile, robust_sigma
from gputop.console import COULD_NOT_RUN, FAULT, FINE, INTERRUPTED
from gputop.console import DEGRADED as DEGRADED_STATUS
from gputop.schema.clock_events import BY_WORD
from gputop.text import count, percentage, visible

if TYPE_CHECKING:
    from gputop.bench.run.state import RunState

STATUSES = {FAULTY: FAULT, DEGRADED: DEGRADED_STATUS}
"""Exit statuses by the state of a verdict; others are fine."""
FAULTS, HARMLESS = {"ecc_uncorrected", "remap_failed"}, {"ecc_corrected"}
"""Counters of memory errors whose rise is a fault, or none: a few bits flip and are corrected."""
LEAST_SIDE = 2048
"""Least m, n and k of a product that can be near the peak."""
HELD_SHARE = 0.05
"""Share of the timed seconds from which a clock event reason counts."""
LARGE_DROOP = 10.0
"""Percent that the droop is more than, with confidence, to need a reason."""


@dataclass(frozen=True, slots=True)
class VerdictLimits:
    """Limits that a user can set, in percent."""

    min_percent_of_peak: float = DEFAULT_MIN_PERCENT_OF_PEAK
    tolerance: float = DEFAULT_TOLERANCE_PERCENT
    """Most that a device may be under the median of its like devices."""


DEFAULTS = VerdictLimits()


def with_verdicts(results: Sequence[Result], limits: VerdictLimits = DEFAULTS) -> list[Result]:
    """Return results of one run, each with its verdict; it takes their comparisons with history."""
    return [
        replace(each, verdict=judge(each, [one for one in results if one is not each], limits))
        for each in results
    ]


def status(result: Result) -> int:
    """Return the exit status of a result; without a verdict only wrong results count."""
    if result.verdict is None:
        return FAULT if result.wrong_elements else FINE
    unknown = COULD_NOT_RUN if result.stopped == UNWATCHED else FINE
    return STATUSES.get(result.verdict.state, unknown)


def judge(result: Result, others: Iterable[Result], limits: VerdictLimits = DEFAULTS) -> Verdict:
    """Return the verdict about the device of a result; `others` are of the same run."""
    judged = {
        "datasheet": _datasheet(result, limits.min_percent_of_peak),
        "like devices": _like_devices(result, others, limits.tolerance),
        "earlier runs": _earlier_runs(result),
        "throttling": _throttling(result),
        "droop": _droop(result),
    }
    unjudged = kind_of(result.kind).unjudged
    judged |= {name: (NOT_JUDGED, why) for name, why in unjudged.items()}
    load = "; ".join(visible(each, 80) for each in result.known_conditions.other_load)
    if load:
        judged = dict.fromkeys(judged, (NOT_JUDGED, f"others used the device meanwhile: {load}"))
    if result.known_conditions.memory_errors:
        judged = {"memory": _memory(result), **judged}
    judged = {"results": _results(result), **judged}
    if result.stopped == UNWATCHED:
        unknown = NOT_JUDGED, facts.ending(result).sentence
        judged = {name: part if part[0] == FAULTY else unknown for name, part in judged.items()}
    return Verdict(tuple(VerdictPart(name, state, why) for name, (state, why) in judged.items()))


Judged = tuple[str, str]
"""State of a part and why."""


def _results(result: Result) -> Judged:
    if result.wrong_elements:
        wrong = facts.wrong_results(result.wrong_elements, result.checks)
        # The first note of a memory test with wrong words names the first address.
        where = f"; {result.notes[0]}" if result.kind == "memory" and result.notes else ""
        return FAULTY, f"the device {wrong}{facts.mismatch_text(result)}{where}"
    if not result.checks:
        return NOT_JUDGED, "nothing was checked"
    return OK, f"no wrong element in {facts.verified_text(result)}{facts.mismatch_text(result)}"


def _memory(result: Result) -> Judged:
    known = result.known_conditions.memory_errors
    rose = {name: pair for name, pair in known.items() if pair and pair[-1] > pair[0]}
    state = FAULTY if rose.keys() & FAULTS else DEGRADED if rose.keys() - HARMLESS else OK
    return state, facts.memory_errors_text(rose) if rose else "no counter of memory errors rose"


def _datasheet(result: Result, least: float) -> Judged:
    known, kind = result.known_conditions.percent_of_peak, kind_of(result.kind)
    peak, of = (BANDWIDTH, "memory bandwidth") if kind.moves_bytes else (DATASHEET, "dense peak")
    shapes: dict[str, tuple[int, ...]] = {"": (result.m, result.n, result.k)}
    if kind.several_dtypes and DATASHEET not in known:
        shapes = {f" {name}": row.shape for name, row in judged_rows(result).items()}
    found = {each: percent for each in shapes if (percent := known.get(f"{peak}{each}"))}
    if not found:
        return NOT_JUDGED, "no datasheet value is known"
    if not kind.moves_bytes:
        found = {each: found[each] for each in found if min(shapes[each]) >= LEAST_SIDE}
    if not found:
        return NOT_JUDGED, f"matrices under {LEAST_SIDE} do not reach the peak"
    said = [f"{each} {percentage(of_it, digits=1)}".lstrip() for each, of_it in found.items()]
    said_of = f"{', '.join(said)} of the {of} in its datasheet"
    if min(found.values()) < least:
        return DEGRADED, f"{said_of}, under {least:g} %"
    return OK, said_of


def _like_devices(result: Result, others: Iterable[Result], tolerance: float) -> Judged:
    test = (result.device, result.kind, result.dtype)
    same = (each for each in others if (each.device, each.kind, each.dtype) == test)
    like = [e for e in same if not (e.wrong_elements or e.known_conditions.other_load)]
    if not like:
        return NOT_JUDGED, "no other device like it was in the run"
    slow, worst, rows = [], -math.inf, judged_rows(result)
    for name, value in measured(result).items():
        known = [each for one in like if (each := measured(one).get(name)) is not None]
        if not known:
            continue
        under = percent_below(value, statistics.median(known))
        worst = max(worst, under)
        scatter = rows[name].values.get("spread_percent", 0.0) if name in rows else 0.0
        if under > tolerance + scatter:
            slow.append(f"{name and f'{visible(name, 60)} '}{percentage(under, digits=1)}")
    if worst == -math.inf:
        return NOT_JUDGED, "the run measured nothing to compare"
    others_said = f"the median of {count(len(like), 'other')} like it"
    if slow:
        return DEGRADED, f"{'; '.join(slow)} under {others_said}, more than {tolerance:g} %"
    where = "under" if worst > 0 else "above"
    return OK, f"{percentage(abs(worst), digits=1)} {where} {others_said}"


def _earlier_runs(result: Result) -> Judged:
    known = result.known_comparison
    if known.slower is not None:
        return DEGRADED, known.slower
    runs, under = known.runs or 0, known.under_percent
    if under is None or runs < FEWEST_RUNS:
        return NOT_JUDGED, f"{count(runs, 'run')} like it before, {FEWEST_RUNS} are needed"
    where = f"{percentage(abs(under), digits=1)} {'under' if under > 0 else 'above'}"
    return OK, f"{where} the median of its last {runs} like runs"


def _knows_reasons(result: Result) -> bool:
    known = result.known_conditions
    return bool(known.clock_events_known or known.clock_event_seconds)


def _held_back(result: Result, *, by_cap: bool = False) -> str:
    """Return what slowed the device down for more than a small share of the run, or nothing."""
    said = ", ".join(
        f"{BY_WORD[word].label} for {seconds:.0f} s"
        for word, seconds in result.known_conditions.clock_event_seconds.items()
        if seconds > HELD_SHARE * result.seconds
        and word in BY_WORD
        and (BY_WORD[word].fault or (by_cap and word == "sw_power_cap"))
    )
    return said and f"{said} of {result.seconds:.0f} s"


def _throttling(result: Result) -> Judged:
    if result.stopped in ("limit", "silent"):
        return DEGRADED, facts.ending(result).sentence
    if held := _held_back(result):
        return DEGRADED, held
    if not _knows_reasons(result):
        return NOT_JUDGED, "the device does not say why its clocks are not higher"
    return OK, "no slowdown by heat or hardware"


def _droop(result: Result) -> Judged:
    if not kind_of(result.kind).over_time:
        return NOT_JUDGED, "only a run of one shape has a droop"
    percent, interval = result.droop_percent, result.droop_interval_percent
    if percent is None or interval is None:
        return NOT_JUDGED, "the run was too short"
    said = f"{percentage(percent, digits=1)} below the burst" if percent else "none beyond noise"
    if interval[0] <= LARGE_DROOP:
        return OK, said
    if held := _held_back(result, by_cap=True):
        return OK, f"{said}, by {held}"
    if not _knows_reasons(result):
        return NOT_JUDGED, f"{said}, and the device does not say why its clocks are not higher"
    return DEGRADED, f"{said}, without a power cap or heat"


def verdict_lines(result: Result) -> Iterator[str]:
    """Yield one line if all is well, or a line for each part that is not."""
    if result.verdict is None:
        return
    bad = result.verdict.bad
    if bad:
        yield from (f"Verdict: {part.state}, {part.name}: {part.why}" for part in bad)
        return
    left = [part.name for part in result.verdict.parts if part.state == NOT_JUDGED]
    judged = len(result.verdict.parts) - len(left)
    but = f"; not judged: {', '.join(left)}" if left else ""
    yield f"Verdict: {result.verdict.state} ({count(judged, 'part')}{but})"


GRAVEST_FIRST = (FAULT, INTERRUPTED, COULD_NOT_RUN, DEGRADED_STATUS, FINE)


@dataclass(frozen=True, slots=True)
class DeviceOutcome:
    """A device of many, with the end of its run."""

    host: str
    uuid: str | None
    place: str
    device: str
    """Name of its model: devices of one model are compared."""
    result: Result | None = None
    problem: str | None = None
    status: int = FINE
    remedy: str | None = None

    @property
    def group(self) -> tuple[str, str]:
        """Model and data type, within which devices are compared."""
        return self.device, self.result.dtype if self.result is not None else ""

    @property
    def score(self) -> float | None:
        """Score of its result, or None if that says nothing about the device."""
        if self.result is None or self.result.wrong_elements:
            return None
        return score(self.result)


@dataclass(frozen=True, slots=True)
class RateDistribution:
    """Distribution of the scores of comparable devices."""

    device: str
    dtype: str
    count: int
    median: float
    p5: float
    p95: float
    least: float
    most: float
    sigma: float
    """Robust standard deviation: 1.4826 times the median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A device with everything unusual about it, and the exit status for that."""

    member: DeviceOutcome
    reasons: tuple[str, ...]
    status: int


def device_outcome(run: RunState) -> DeviceOutcome:
    """Return the device of a run that has ended."""
    target, problem = run.request.target, run.problem
    found = DeviceOutcome(target.host or "", target.uuid, target.place, target.name, run.result)
    if problem is None:
        return found
    why = f"{problem.what}: {problem.why}"
    return replace(found, problem=why, status=run.status or FINE, remedy=problem.remedy)


def judged(
    members: Sequence[DeviceOutcome], limits: VerdictLimits | None = DEFAULTS
) -> list[DeviceOutcome]:
    """Return the devices with verdicts about their results, or without limits with none."""
    results = [replace(each.result, verdict=None) for each in members if each.result is not None]
    left = iter(results if limits is None else with_verdicts(results, limits))
    return [each if each.result is None else replace(each, result=next(left)) for each in members]


def was_stopped(member: DeviceOutcome) -> bool:
    """True if somebody ended the run early."""
    ended = member.result
    return member.status == INTERRUPTED if ended is None else ended.stopped == "user"


def distribution(values: Sequence[float], device: str = "", dtype: str = "") -> RateDistribution:
    """Return the distribution of values in any order, one at least."""
    ordered = sorted(values)
    middle, sigma = statistics.median(ordered), robust_sigma(ordered)
    bounds = percentile(ordered, 5), percentile(ordered, 95), ordered[0], ordered[-1]
    return RateDistribution(device, dtype, len(ordered), middle, *bounds, sigma)


def distributions(members: Iterable[DeviceOutcome]) -> dict[tuple[str, str], RateDistribution]:
    """Return the distribution of each model and data type."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for member in members:
        if member.score is not None:
            groups[member.group].append(member.score)
    return {group: distribution(values, *group) for group, values in groups.items()}


def outliers(members: Sequence[DeviceOutcome]) -> tuple[Outlier, ...]:
    """Return the devices unlike the others, gravest first."""
    known = distributions(members)
    found = filter(None, map(find_outlier, members))
    return tuple(sorted(found, key=lambda each: _rank(each, known)))


def _rank(outlier: Outlier, known: Mapping[tuple[str, str], RateDistribution]) -> tuple[int, float]:
    grave = GRAVEST_FIRST.index(outlier.status) if outlier.status in GRAVEST_FIRST else 1
    value, among = outlier.member.score, known.get(outlier.member.group)
    return grave, value / among.median if value is not None and among and among.median else 0.0


def find_outlier(member: DeviceOutcome) -> Outlier | None:
    """Return what is wrong with a device by its verdict, or None."""
    result = member.result
    if result is None and member.status == INTERRUPTED:
        return None  # like all others that were stopped
    if result is None:
        return Outlier(member, (member.problem or "it has no result",), member.status)
    if result.verdict is None:
        wrong = facts.wrong_results(result.wrong_elements, result.checks)
        return Outlier(member, (wrong,), FAULT) if result.wrong_elements else None
    reasons = tuple(f"{part.name}: {part.why}" for part in result.verdict.bad)
    return Outlier(member, reasons, status(result)) if reasons else None
