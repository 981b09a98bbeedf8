"""Outliers among many devices, and the distribution of their scores. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputop.bench.events import Result
from gputop.bench.results.compare import score
from gputop.bench.results.statistics import percentile, robust_sigma
from gputop.bench.results.verdict import status
from gputop.console import COULD_NOT_RUN, FAULT, FINE, INTERRUPTED
from gputop.console import DEGRADED as DEGRADED_STATUS

if TYPE_CHECKING:
    from gputop.bench.run.run_state import RunState

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
    found = DeviceOutcome(
        target.host or "", target.uuid, target.place, target.name, run.result
    )
    if problem is None:
        return found
    why = f"{problem.what}: {problem.why}"
    return replace(found, problem=why, status=run.status or FINE, remedy=problem.remedy)


def was_stopped(member: DeviceOutcome) -> bool:
    """True if somebody ended the run early."""
    ended = member.result
    return member.status == INTERRUPTED if ended is None else ended.stopped == "user"


def distribution(
    values: Sequence[float], device: str = "", dtype: str = ""
) -> RateDistribution:
    """Return the distribution of values in any order, one at least."""
    ordered = sorted(values)
    middle, sigma = statistics.median(ordered), robust_sigma(ordered)
    bounds = percentile(ordered, 5), percentile(ordered, 95), ordered[0], ordered[-1]
    return RateDistribution(device, dtype, len(ordered), middle, *bounds, sigma)


def distributions(
    members: Iterable[DeviceOutcome],
) -> dict[tuple[str, str], RateDistribution]:
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


def _rank(
    outlier: Outlier, known: Mapping[tuple[str, str], RateDistribution]
) -> tuple[int, float]:
    grave = (
        GRAVEST_FIRST.index(outlier.status) if outlier.status in GRAVEST_FIRST else 1
    )
    value, among = outlier.member.score, known.get(outlier.member.group)
    return (
        grave,
        value / among.median if value is not None and among and among.median else 0.0,
    )


def find_outlier(member: DeviceOutcome) -> Outlier | None:
    """Return what is wrong with a device by its verdict, or None."""
    result = member.result
    if result is None and member.status == INTERRUPTED:
        return None  # like all others that were stopped
    if result is None:
        return Outlier(member, (member.problem or "it has no result",), member.status)
    bad = result.verdict.bad if result.verdict is not None else ()
    reasons = tuple(f"{part.name}: {part.why}" for part in bad)
    return Outlier(member, reasons, status(result)) if reasons else None
