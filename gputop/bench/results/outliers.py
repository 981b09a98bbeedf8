"""Which of many devices are not like the others: slow, throttled, wrong, or dead. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputop.bench.results.compare import NOTICED_PERCENT, score
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, FINE, INTERRUPTED
from gputop.schema.clock_events import CLOCK_EVENTS
from gputop.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputop.bench.events import Result
    from gputop.bench.run.state import RunState

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation times this is the standard deviation of a normal distribution."""
FAR_SIGMAS = 3.0
FEWEST = 5
"""Of fewer devices it is not known what is normal, and only the percentage counts."""
THROTTLES = frozenset(event.word for event in CLOCK_EVENTS if event.fault)
"""Clock event reasons that are no normal end of a device's power."""
THROTTLED_SHARE = 0.01
"""Of the run: a single short event among many devices is no finding."""
GRAVEST_FIRST = (FAULT, COULD_NOT_RUN, DEGRADED)


@dataclass(frozen=True, slots=True)
class Member:
    """One device of many, with how its run ended."""

    host: str
    uuid: str | None
    place: str
    """Which one it is on its host: `GPU 3`."""
    device: str
    """Its name: devices of one name are compared with each other."""
    result: Result | None = None
    problem: str | None = None
    """Why there is no result."""
    status: int = FINE
    """The exit status that comes with the problem."""
    remedy: str | None = None
    """What to do about it."""

    @property
    def group(self) -> tuple[str, str]:
        """Which others it is compared with: the same model, at the same data type."""
        return self.device, self.result.dtype if self.result is not None else ""

    @property
    def score(self) -> float | None:
        """What it is compared by; None where that says nothing about the device."""
        if self.result is None or self.result.wrong_elements:
            return None
        return score(self.result)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of the devices that can be compared, what `score` says of them."""

    device: str
    dtype: str
    count: int
    median: float
    p5: float
    p95: float
    least: float
    most: float
    sigma: float
    """The robust standard deviation: 1.4826 times the median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A device with all that is not as it is with the others, and the exit status for that."""

    member: Member
    reasons: tuple[str, ...]
    status: int


def member_of(run: RunState) -> Member:
    """A device with how its run ended."""
    target, problem = run.request.target, run.problem
    found = Member(target.host or "", target.uuid, target.place, target.name, run.result)
    if problem is None:
        return found
    why = f"{problem.what}: {problem.why}"
    return replace(found, problem=why, status=run.status or FINE, remedy=problem.remedy)


def was_stopped(member: Member) -> bool:
    """Whether somebody ended its run before its time."""
    if member.result is None:
        return member.status == INTERRUPTED
    return member.result.stopped == "user"


def distribution(values: Sequence[float], device: str = "", dtype: str = "") -> Distribution | None:
    """Of any values in any order; None of none. Percentiles lie between the two nearest values."""
    if not values:
        return None
    ordered = sorted(values)
    middle = statistics.median(ordered)
    mad = statistics.median(abs(value - middle) for value in ordered)
    return Distribution(
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
    """Of sorted values, linear between the nearest two."""
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def distributions(members: Iterable[Member]) -> dict[tuple[str, str], Distribution]:
    """One for each model and data type."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for member in members:
        if member.score is not None:
            groups[member.group].append(member.score)
    found = {group: distribution(values, *group) for group, values in groups.items()}
    return {group: each for group, each in found.items() if each is not None}


def slow(value: float, among: Distribution) -> str | None:
    """By how much it is too slow, in words; None where it is not.

    That is more than `NOTICED_PERCENT` under the median, or more than three robust standard
    deviations.
    """
    under = among.median - value
    if under <= 0 or among.count < 2:
        return None
    percent = 100 * under / among.median
    far = among.count >= FEWEST and among.sigma > 0 and under > FAR_SIGMAS * among.sigma
    if percent <= NOTICED_PERCENT and not far:
        return None
    sigmas = f", {under / among.sigma:.1f} robust standard deviations" if far else ""
    return f"slow: {percent:.1f} % under the median{sigmas}"


def throttled(result: Result) -> str | None:
    """By what it was throttled and for how long, in words; None where it was not."""
    if result.stopped == "limit":
        return "too hot: ended by the temperature limit"
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


def wrong_results(elements: int) -> str:
    """`computed wrong results: 3 elements`."""
    return f"computed wrong results: {count(elements, 'element')}"


def outliers(members: Sequence[Member]) -> tuple[Outlier, ...]:
    """Those that are not like the others, gravest first."""
    known = distributions(members)
    found = [
        outlier
        for member in members
        if (outlier := judged(member, known.get(member.group))) is not None
    ]
    return tuple(sorted(found, key=lambda each: _rank(each, known)))


def _rank(outlier: Outlier, known: Mapping[tuple[str, str], Distribution]) -> tuple[int, float]:
    grave = GRAVEST_FIRST.index(outlier.status) if outlier.status in GRAVEST_FIRST else 1
    value, among = outlier.member.score, known.get(outlier.member.group)
    return grave, value / among.median if value is not None and among and among.median else 0.0


def judged(member: Member, among: Distribution | None) -> Outlier | None:
    """What is wrong with one device; None where nothing is."""
    result = member.result
    if result is None:
        if member.status == INTERRUPTED:
            return None  # like all others that were stopped
        return Outlier(member, (member.problem or "it has no result",), member.status)
    if result.wrong_elements:
        wrong = wrong_results(result.wrong_elements)
        return Outlier(member, (f"{wrong} in {result.checks} checks",), FAULT)
    value = member.score
    reasons = [throttled(result)]
    if value is not None and among is not None:
        reasons.append(slow(value, among))
    if result.stopped == "silent":
        reasons.append("ended: the device could not be watched")
    said = tuple(reason for reason in reasons if reason is not None)
    return Outlier(member, said, DEGRADED) if said else None
