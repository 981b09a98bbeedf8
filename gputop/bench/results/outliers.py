"""Many devices of one run: who is unlike the others, and their common page."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gputop.bench.events import FAULTY, SCHEMA, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.columns import devices_table, shape
from gputop.bench.results.measures import figure_text, score
from gputop.bench.results.page import Block, Heading, Sentence, level_of
from gputop.bench.results.statistics import percentile, robust_sigma
from gputop.bench.results.tables import TextTable, pair_tables
from gputop.bench.results.verdict import status
from gputop.console import COULD_NOT_RUN, FAULT, FINE, INTERRUPTED
from gputop.console import DEGRADED as DEGRADED_STATUS
from gputop.text import count, duration, fold_list, visible

if TYPE_CHECKING:
    from gputop.bench.run.run_state import RunState

GRAVEST_FIRST = (FAULT, INTERRUPTED, COULD_NOT_RUN, DEGRADED_STATUS, FINE)
MOST_ROWS = 32
"""Most devices listed one by one. With more only outliers are listed."""


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

    @property
    def name(self) -> str:
        """Host and place of the device."""
        return ", ".join(visible(part) for part in (self.host, self.place) if part)


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
    groups: dict[tuple[str, str], list[float]] = {}
    for member in members:
        if member.score is not None:
            groups.setdefault(member.group, []).append(member.score)
    return {group: distribution(values, *group) for group, values in groups.items()}


def outliers(members: Sequence[DeviceOutcome]) -> list[Outlier]:
    """Return the devices unlike the others, gravest first."""
    known = distributions(members)

    def rank(outlier: Outlier) -> tuple[int, float]:
        value, among = outlier.member.score, known.get(outlier.member.group)
        share = 0.0
        if value is not None and among is not None and among.median:
            share = value / among.median
        grave = 1
        if outlier.status in GRAVEST_FIRST:
            grave = GRAVEST_FIRST.index(outlier.status)
        return grave, share

    return sorted(filter(None, map(find_outlier, members)), key=rank)


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


def devices_page(members: Sequence[DeviceOutcome]) -> list[Block]:
    """Return the sentences of all devices, their distribution, a line for each, and the reasons.

    Of more than 32 devices only the outliers have a line.
    """
    results = [member.result for member in members if member.result is not None]
    found = outliers(members)
    page: list[Block] = [*_sentences(members), Heading(_title(members, results))]
    for limit in dict.fromkeys(each.known_conditions.heat_limit for each in results):
        if limit:
            page.append(Sentence(f"Heat limit: {limit}"))
    if len(results) > 1:
        page += [
            Sentence(_spread(each, results[0]))
            for each in distributions(members).values()
        ]
    listed = [member for member in members if member.result is not None]
    if len(members) > MOST_ROWS:
        listed = [each.member for each in found if each.member.result is not None]
    ran = [each.result for each in listed if each.result is not None]
    if ran:
        places = [each.name for each in listed]
        page.append(TextTable(devices_table(places, ran)))
    page += pair_tables(point for result in results for point in result.points)
    said = [(each.member, "; ".join(each.reasons)) for each in found]
    page += [Sentence(line, "warn") for line in joined(said)]
    return page


def _sentences(members: Sequence[DeviceOutcome]) -> list[Block]:
    """Return the summaries of the devices, equal ones on one line, the gravest first."""
    said: list[tuple[DeviceOutcome, str]] = []
    for member in members:
        verdict = member.result.verdict if member.result is not None else None
        if verdict is not None and verdict.summary:
            said.append((member, verdict.summary))
        elif member.problem:
            said.append((member, f"{member.problem}. {member.remedy or ''}".rstrip()))
    worst = ""
    for each in members:
        if each.result is not None and worst != FAULTY:
            worst = each.result.state if find_outlier(each) else worst
    return [Sentence(line, level_of(worst)) for line in joined(said)]


def _title(members: Sequence[DeviceOutcome], results: Sequence[Result]) -> str:
    hosts = len({member.host for member in members})
    where = f"{count(len(members), 'device')} on {count(hosts, 'host')}"
    if not results:
        return f"{where}: none has a result"
    first = results[0]
    kind = kind_of(first.kind)
    title = first.kind
    if kind.has_dtype:
        title += f" in {first.dtype}"
    if not kind.has_rows and len({(each.m, each.n, each.k) for each in results}) == 1:
        title += f", {shape(first)}"
    longest = max(result.seconds for result in results)
    return f"{title}, {duration(longest)}: {where}"


def _spread(known: RateDistribution, like: Result) -> str:
    """Return the distribution of a model: its median, and the range of most."""
    model = f"{count(known.count, 'device')} of {known.device}, {known.dtype}"
    low, high = figure_text(like, known.p5), figure_text(like, known.p95)
    middle = figure_text(like, known.median)
    return f"{model.rstrip(', ')}: median {middle}, 5 % to 95 % of them {low} to {high}"


NUMBER = r"\d[\d,]*(?:\.\d+)?"
DEVICE_NUMBER = re.compile(rf"(?:GPU |-i |--device )({NUMBER})|({NUMBER})")
MOST_NAMES = 3
"""Most devices of other hosts that are named in front of a common sentence."""


def joined(said: Sequence[tuple[DeviceOutcome, str]]) -> list[str]:
    """Return sentences about devices. Those that differ only in numbers are one, with ranges.

    `GPUs 0–7: Too hot: slowed down for 42–45 of 60 s.`
    """
    alike: dict[str, list[tuple[DeviceOutcome, str]]] = {}
    for member, text in said:
        alike.setdefault(re.sub(NUMBER, "#", text), []).append((member, text))
    lines = []
    for group in alike.values():
        members = [member for member, _ in group]
        lines.append(f"{names(members)}: {_merged([text for _, text in group])}")
    return lines


def names(members: Sequence[DeviceOutcome]) -> str:
    """Return the names of devices: `GPUs 0–7`, or `node-1, GPU 0` where there are hosts."""
    numbers = [re.fullmatch(r"GPU (\d+)", member.place) for member in members]
    if any(member.host for member in members) or not all(numbers):
        return fold_list([member.name for member in members], MOST_NAMES)
    return _numbered([int(found[1]) for found in numbers if found])


def _numbered(numbers: Sequence[int]) -> str:
    """Return `GPU 3`, `GPUs 0–7` or `GPUs 0, 2`."""
    ordered = sorted(set(numbers))
    if len(ordered) == 1:
        return f"GPU {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"GPUs {ordered[0]}–{ordered[-1]}"
    return f"GPUs {', '.join(map(str, ordered))}"


def _merged(texts: Sequence[str]) -> str:
    """Return texts that differ only in numbers as one. Numbers of devices are listed."""
    found = [list(DEVICE_NUMBER.finditer(text)) for text in texts]
    merged, at = "", 0
    for same in zip(*found, strict=True):
        first = same[0]
        begin = first.start(first.lastindex or 0)
        merged += texts[0][at:begin]
        values = list(dict.fromkeys(each[each.lastindex or 0] for each in same))
        if len(values) == 1:
            merged += values[0]
        elif first.lastindex == 1:  # as the commands take it
            merged += ",".join(values)
        else:
            values.sort(key=lambda each: float(each.replace(",", "")))
            merged += f"{values[0]}–{values[-1]}"
        at = first.end(first.lastindex or 0)
    return merged + texts[0][at:]


def outliers_document(members: Sequence[DeviceOutcome]) -> dict[str, Any]:
    """Return the devices for programs, with the results as they are kept."""
    found = []
    for each in outliers(members):
        known = {"score": each.member.score, "reasons": each.reasons}
        found.append({**_named(each.member), **known, "status": each.status})
    results = []
    for member in members:
        if member.result is not None:
            results.append({**asdict(member.result), "place": member.place})
        else:
            why = {"problem": member.problem, "remedy": member.remedy}
            results.append({**_named(member), **why, "status": member.status})
    known_rates = [asdict(each) for each in distributions(members).values()]
    return {
        "schema": SCHEMA,
        "distributions": known_rates,
        "outliers": found,
        "results": results,
    }


def _named(member: DeviceOutcome) -> Mapping[str, str | None]:
    return {
        "host": member.host,
        "device_uuid": member.uuid,
        "place": member.place,
        "device": member.device,
    }
