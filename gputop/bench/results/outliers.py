"""Outliers among many devices: slow, throttled, wrong, or dead. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputop.bench.results.compare import NOTICED_PERCENT, percent_below, score
from gputop.bench.results.facts import ending, wrong_results
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, FINE, INTERRUPTED
from gputop.schema.clock_events import CLOCK_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputop.bench.events import Result
    from gputop.bench.run.state import RunState

MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution per median absolute deviation."""
FAR_SIGMAS = 3.0
FEWEST = 5
"""Least devices that show what is normal. With fewer only the percentage counts."""
THROTTLES = frozenset(event.word for event in CLOCK_EVENTS if event.fault)
"""Clock event reasons that are not a normal limit of power."""
THROTTLED_SHARE = 0.01
"""Least share of the run: a single short event among many devices is no finding."""
GRAVEST_FIRST = (FAULT, COULD_NOT_RUN, DEGRADED)


@dataclass(frozen=True, slots=True)
class DeviceOutcome:
    """A device of many, with the end of its run."""

    host: str
    uuid: str | None
    place: str
    """Device on its host: `GPU 3`."""
    device: str
    """Name of its model: devices of one model are compared."""
    result: Result | None = None
    problem: str | None = None
    """Reason why there is no result."""
    status: int = FINE
    """Exit status of the problem."""
    remedy: str | None = None
    """Remedy of the problem."""

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


def was_stopped(member: DeviceOutcome) -> bool:
    """True if somebody ended the run early."""
    if member.result is None:
        return member.status == INTERRUPTED
    return member.result.stopped == "user"


def distribution(
    values: Sequence[float], device: str = "", dtype: str = ""
) -> RateDistribution | None:
    """Return the distribution of values in any order, or None for none."""
    if not values:
        return None
    ordered = sorted(values)
    middle = statistics.median(ordered)
    mad = statistics.median(abs(value - middle) for value in ordered)
    return RateDistribution(
        device,
        dtype,
        len(ordered),
        middle,
        percentile(ordered, 5),
        percentile(ordered, 95),
        ordered[0],
        ordered[-1],
        MAD_TO_SIGMA * mad,
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, linear between the nearest two."""
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def distributions(members: Iterable[DeviceOutcome]) -> dict[tuple[str, str], RateDistribution]:
    """Return the distribution of each model and data type."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for member in members:
        if member.score is not None:
            groups[member.group].append(member.score)
    found = {group: distribution(values, *group) for group, values in groups.items()}
    return {group: each for group, each in found.items() if each is not None}


def slow_reason(value: float, among: RateDistribution) -> str | None:
    """Return by how much a value is too slow, or None.

    Slow is more than `NOTICED_PERCENT`, or more than three robust standard deviations, under the
    median.
    """
    under = among.median - value
    if under <= 0 or among.count < 2:
        return None
    percent = percent_below(value, among.median)
    far = among.count >= FEWEST and among.sigma > 0 and under > FAR_SIGMAS * among.sigma
    if percent <= NOTICED_PERCENT and not far:
        return None
    sigmas = f", {under / among.sigma:.1f} robust standard deviations" if far else ""
    return f"slow: {percent:.1f} % under the median{sigmas}"


def throttled_reason(result: Result) -> str | None:
    """Return the cause and duration of throttling, or None."""
    if result.stopped == "limit":
        return f"too hot: {ending(result).sentence}"
    events: Mapping[str, float] = {}
    if result.conditions is not None:
        events = result.conditions.clock_event_seconds
    held = {
        name: seconds
        for name, seconds in events.items()
        if name in THROTTLES and seconds > THROTTLED_SHARE * result.seconds
    }
    if not held:
        return None
    named = ", ".join(f"{name} for {seconds:.0f} s" for name, seconds in held.items())
    return f"throttled: {named} of {result.seconds:.0f} s"


def outliers(members: Sequence[DeviceOutcome]) -> tuple[Outlier, ...]:
    """Return the devices unlike the others, gravest first."""
    known = distributions(members)
    found = [
        outlier
        for member in members
        if (outlier := find_outlier(member, known.get(member.group))) is not None
    ]
    return tuple(sorted(found, key=lambda each: _rank(each, known)))


def _rank(outlier: Outlier, known: Mapping[tuple[str, str], RateDistribution]) -> tuple[int, float]:
    grave = GRAVEST_FIRST.index(outlier.status) if outlier.status in GRAVEST_FIRST else 1
    value, among = outlier.member.score, known.get(outlier.member.group)
    return grave, value / among.median if value is not None and among and among.median else 0.0


def find_outlier(member: DeviceOutcome, among: RateDistribution | None) -> Outlier | None:
    """Return what is wrong with a device, or None."""
    result = member.result
    if result is None:
        if member.status == INTERRUPTED:
            return None  # like all others that were stopped
        return Outlier(member, (member.problem or "it has no result",), member.status)
    if result.wrong_elements:
        return Outlier(member, (wrong_results(result.wrong_elements, result.checks),), FAULT)
    value = member.score
    reasons = [throttled_reason(result)]
    if value is not None and among is not None:
        reasons.append(slow_reason(value, among))
    if result.stopped == "silent":
        reasons.append(ending(result).sentence)
    said = tuple(reason for reason in reasons if reason is not None)
    return Outlier(member, said, DEGRADED) if said else None
