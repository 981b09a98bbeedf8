"""Many devices of one run: the outliers, and a common page."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gputop.bench.events import SCHEMA, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.columns import devices_table, shape
from gputop.bench.results.measures import figure_text, score
from gputop.bench.results.outcome import Outcome, outcome_of, outcome_of_status
from gputop.bench.results.page import Block, Heading, Sentence
from gputop.bench.results.tables import TextTable, pair_tables
from gputop.console import FINE, INTERRUPTED
from gputop.text import count, duration, fold_list, visible

if TYPE_CHECKING:
    from gputop.bench.run.device_run import DeviceRun

MOST_ROWS = 32
"""Most devices that are all listed. With more devices only outliers are listed."""


@dataclass(frozen=True, slots=True)
class DeviceOutcome:
    """One of several devices, with the outcome of its run."""

    host: str
    uuid: str | None
    place: str
    device: str
    """Name of its model. Devices of the same model are compared."""
    result: Result | None = None
    problem: str | None = None
    status: int = FINE
    """Exit status of a run without a result."""
    remedy: str | None = None

    @property
    def group(self) -> tuple[str, str]:
        """Model and data type. Devices with the same group are compared."""
        return (
            self.device,
            self.result.dtype if self.result is not None else "",
        )

    @property
    def score(self) -> float | None:
        """Score of its result, or None without a valid result."""
        if self.result is None or self.result.wrong_elements:
            return None
        return score(self.result)

    @property
    def name(self) -> str:
        """Host and place of the device."""
        return ", ".join(map(visible, filter(None, (self.host, self.place))))

    @property
    def reasons(self) -> list[str]:
        """Bad parts of the device's verdict, or the reason why it has no result."""
        if self.result is None:
            stopped = self.status == INTERRUPTED  # applies to all devices
            return [] if stopped else [self.problem or "it has no result"]
        bad = (
            self.result.verdict.bad if self.result.verdict is not None else ()
        )
        return [f"{part.name}: {part.why}" for part in bad]

    @property
    def outcome(self) -> Outcome:
        """State of the device in one word, with its exit status."""
        if self.result is None:
            return outcome_of_status(self.status)
        return outcome_of(self.result)

    @property
    def sentence(self) -> str:
        """Summary of the verdict, or the reason why the device has no result."""
        if self.result is not None and self.result.verdict is not None:
            return visible(self.result.verdict.summary)
        if not self.problem:
            return ""
        return visible(f"{self.problem}. {self.remedy or ''}".rstrip())


def device_outcome(run: DeviceRun) -> DeviceOutcome:
    """Return the outcome of a run that has ended."""
    target, problem = run.request.target, run.problem
    found = DeviceOutcome(
        target.host or "", target.uuid, target.place, target.name, run.result
    )
    if problem is None:
        return found
    why = f"{problem.what}: {problem.why}"
    return replace(
        found,
        problem=why,
        status=run.status or FINE,
        remedy=problem.remedy,
    )


def was_stopped(member: DeviceOutcome) -> bool:
    """True if the user ended the run early."""
    ended = member.result
    return (
        member.status == INTERRUPTED
        if ended is None
        else ended.stopped == "user"
    )


def scores_by_group(
    members: Iterable[DeviceOutcome],
) -> dict[tuple[str, str], list[float]]:
    """Return the scores of each model and data type."""
    groups: dict[tuple[str, str], list[float]] = {}
    for member in members:
        if member.score is not None:
            groups.setdefault(member.group, []).append(member.score)
    return groups


def outliers(members: Sequence[DeviceOutcome]) -> list[DeviceOutcome]:
    """Return the outliers, ordered by severity and then by speed, slowest first."""
    known = scores_by_group(members)

    def rank(member: DeviceOutcome) -> tuple[int, float]:
        share, value = 0.0, member.score
        if value:
            share = value / statistics.median(known[member.group])
        return member.outcome.rank, share

    return sorted((each for each in members if each.reasons), key=rank)


def devices_page(members: Sequence[DeviceOutcome]) -> list[Block]:
    """Return the summaries of all devices, their distribution, a line for each, and the reasons.

    With more than 32 devices only the outliers have a line.
    """
    results = _results(members)
    found = outliers(members)
    page: list[Block] = [
        *_sentences(members, found),
        Heading(_title(members, results)),
    ]
    for limit in dict.fromkeys(
        each.known_conditions.heat_limit for each in results
    ):
        if limit:
            page.append(Sentence(f"Heat limit: {limit}"))
    for (model, dtype), scores in scores_by_group(members).items():
        if len(scores) > 1:
            what = f"{count(len(scores), 'device')} of {model}, {dtype}"
            line = f"{what.rstrip(', ')}: {_spread(scores, results[0])}"
            page.append(Sentence(line))
    listed = members
    if len(members) > MOST_ROWS:
        listed = found
    listed = [member for member in listed if member.result is not None]
    if listed:
        names_of = [member.name for member in listed]
        page.append(TextTable(devices_table(names_of, _results(listed))))
    page += pair_tables(point for result in results for point in result.points)
    said = [(each, "; ".join(each.reasons)) for each in found]
    page += [Sentence(line, "warn") for _, line in joined(said)]
    return page


def _results(members: Iterable[DeviceOutcome]) -> list[Result]:
    return [member.result for member in members if member.result is not None]


def _sentences(
    members: Sequence[DeviceOutcome], found: Sequence[DeviceOutcome]
) -> Iterator[Sentence]:
    """Yield the summaries of the devices. Devices with the same summary share a line."""
    said = [(member, member.sentence) for member in members if member.sentence]
    level = found[0].outcome.level if found else ""
    for _, line in joined(said):
        yield Sentence(line, level)


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
    if (
        not kind.has_rows
        and len({(each.m, each.n, each.k) for each in results}) == 1
    ):
        title += f", {shape(first)}"
    longest = max(result.seconds for result in results)
    return f"{title}, {duration(longest)}: {where}"


def _spread(scores: Sequence[float], like: Result) -> str:
    """Return `median 700 TFLOP/s, from 620 TFLOP/s to 702 TFLOP/s`."""
    middle = figure_text(like, statistics.median(scores))
    least, most = (
        figure_text(like, min(scores)),
        figure_text(like, max(scores)),
    )
    return f"median {middle}, from {least} to {most}"


NUMBER = r"\d[\d,]*(?:\.\d+)?"
DEVICE_NUMBER = re.compile(rf"(?:GPU |-i |--device )({NUMBER})|({NUMBER})")
MOST_NAMES = 3
"""Most device names in front of a common sentence if the devices have hosts."""


def joined(
    said: Sequence[tuple[DeviceOutcome, str]],
) -> list[tuple[DeviceOutcome, str]]:
    """Return sentences about devices, each with its first device.

    Sentences that differ only in numbers are merged into one with ranges:

    `GPUs 0–7: Too hot: slowed down for 42–45 of 60 s.`
    """
    alike: dict[str, list[tuple[DeviceOutcome, str]]] = {}
    for member, text in said:
        alike.setdefault(re.sub(NUMBER, "#", text), []).append((member, text))
    lines = []
    for group in alike.values():
        members = [member for member, _ in group]
        merged = _merged([text for _, text in group])
        lines.append((members[0], f"{names(members)}: {merged}"))
    return lines


def names(members: Sequence[DeviceOutcome]) -> str:
    """Return the names of devices: `GPUs 0–7`, or `node-1, GPU 0` if the devices have hosts."""
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
    """Merge texts that differ only in numbers. Device numbers become a list, others a range."""
    found = [list(DEVICE_NUMBER.finditer(text)) for text in texts]
    merged, at = "", 0
    for same in zip(*found, strict=True):
        first = same[0]
        begin = first.start(first.lastindex or 0)
        merged += texts[0][at:begin]
        values = list(
            dict.fromkeys(each[each.lastindex or 0] for each in same)
        )
        if len(values) == 1:
            merged += values[0]
        elif first.lastindex == 1:  # the commands accept such a list
            merged += ",".join(values)
        else:
            values.sort(key=lambda each: float(each.replace(",", "")))
            merged += f"{values[0]}–{values[-1]}"
        at = first.end(first.lastindex or 0)
    return merged + texts[0][at:]


def outliers_document(members: Sequence[DeviceOutcome]) -> dict[str, Any]:
    """Return the JSON document about the devices. Results have the same format as in the store."""
    found, results = [], []
    for each in outliers(members):
        named = {**_named(each), "score": each.score}
        found.append(
            {**named, "reasons": each.reasons, "status": each.outcome.status}
        )
    for member in members:
        named = _named(member)
        why = {
            "problem": member.problem,
            "remedy": member.remedy,
            "status": member.status,
        }
        if member.result is not None:
            named, why = asdict(member.result), {"place": member.place}
        results.append({**named, **why})
    return {
        "schema": SCHEMA,
        "outliers": found,
        "results": results,
    }


def _named(member: DeviceOutcome) -> dict[str, Any]:
    place = {"device_uuid": member.uuid, "place": member.place}
    return {"host": member.host, **place, "device": member.device}
