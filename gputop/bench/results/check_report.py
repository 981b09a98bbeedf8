"""Reports of checks with several parts: a summary, a line for each part, and the problems."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gputop.bench.events import NOT_JUDGED
from gputop.bench.results.measures import best_row_text, figure_text
from gputop.bench.results.outcome import Outcome
from gputop.bench.results.outliers import (
    MOST_ROWS,
    DeviceOutcome,
    joined,
    outliers,
    was_stopped,
)
from gputop.bench.results.page import (
    Block,
    Heading,
    Level,
    Sentence,
    result_page,
)
from gputop.bench.results.tables import TextTable
from gputop.text import ABSENT, count, duration, visible

if TYPE_CHECKING:
    from gputop.bench.run.check_parts import CheckResult, PartResult

LEFT_OUT = Outcome(14, "left out")
"""State of a part that no device ran."""


def check_page(check: CheckResult) -> list[Block]:
    """Return the summary, a line for each part, and the problems, the gravest first."""
    return [
        Sentence(check_summary(check), check_level(check)),
        Heading(check_title(check)),
        TextTable(check_table(check)),
        *(Sentence(line) for line in check_problems(check)),
    ]


def check_level(check: CheckResult) -> Level:
    """Return the severity of the gravest part."""
    levels = {part_outcome(part).level for part in check.parts}
    if "fault" in levels:
        return "fault"
    if "warn" in levels:
        return "warn"
    return "good" if "good" in levels and check.complete else ""


def check_details(check: CheckResult) -> Iterator[Block]:
    """Yield the pages of all devices for each part. With many devices, only outliers have pages."""
    for part in check.parts:
        many = len(part.members) > MOST_ROWS
        for member, course in zip(part.members, part.series, strict=False):
            if many and not member.reasons:
                continue
            yield Heading(f"{part.name}, {member.name}")
            if member.result is not None:
                yield from result_page(member.result, course)


def check_summary(check: CheckResult) -> str:
    """Return the verdict about all parts in plain English: the gravest one if any part is bad."""
    members = [member for part in check.parts for member in part.members]
    devices = next(
        (len(part.members) for part in check.parts if part.members), 0
    )
    found = outliers(members)
    if found:
        return _gravest(found) if devices > 1 else found[0].sentence
    if any(each.result and each.result.verdict is None for each in members):
        return "Not judged: its results have no verdict."
    if any(map(was_stopped, members)) or len(check.parts) < check.planned:
        return "Stopped before the end. No fault found until then."
    if not check.complete:
        return "Not judged: some parts could not run, see below."
    if devices > 1:
        return f"No fault found on {count(devices, 'device')}."
    # The soak's summary is about the whole device, others about a part of it.
    for part in check.parts:
        if part.name.startswith("soak") and part.members:
            return part.members[0].sentence
    return "No fault found."


def _gravest(found: Sequence[DeviceOutcome]) -> str:
    """Return a sentence about the worst device and all others with the same fault."""
    said: dict[str, tuple[DeviceOutcome, str]] = {}
    for each in found:
        if each.outcome.rank == found[0].outcome.rank:
            said.setdefault(each.name, (each, each.sentence))
    return joined([*said.values()])[0][1]


def check_table(check: CheckResult) -> list[list[str]]:
    """Return a heading, and a line per part: name, time, devices, median figure and verdict."""
    rows = [["part", "time", "devices", "result", "verdict"]]
    for part in check.parts:
        results, scores = [], []
        for each in part.members:
            if each.result is not None:
                results.append(each.result)
            if each.score is not None:
                scores.append(each.score)
        figure = seconds = ABSENT
        if scores:
            figure = figure_text(results[0], statistics.median(scores))
        if results:
            seconds = duration(max(each.seconds for each in results))
        if results and results[0].points and _has_one_result(part):
            # The best row says more than a mean over all rows.
            figure = best_row_text(results[0])
        many = str(len(part.members) or ABSENT)
        rows.append(
            [part.name, seconds, many, figure, part_outcome(part).word]
        )
    return rows


def _has_one_result(part: PartResult) -> bool:
    """Return True for one device, and for a collective, whose devices have the same rows."""
    ran = [each for each in part.members if each.result is not None]
    return len(ran) == 1 or part.name == "collective"


def check_title(check: CheckResult) -> str:
    """Return the title: the level, the devices, and how many parts ran if not all did."""
    title = f"check {check.level} on {check_devices(check)}"
    planned, ran = check.planned, 0
    for part in check.parts:
        if not (part.members or part.incomplete):  # it does not apply
            planned -= 1
        if any(each.result for each in part.members):
            ran += 1
    if ran == planned:
        return title
    return f"{title}, {ran} of {count(planned, 'part')} ran"


def check_devices(check: CheckResult) -> str:
    """Return the device of a check, or the number of devices by model and the number of hosts."""
    members = next((part.members for part in check.parts if part.members), ())
    if len(members) < 2:
        return visible(check.method.get("devices", ""), 300)
    models = Counter(visible(member.device) for member in members)
    hosts = count(len({member.host for member in members}), "host")
    named = [f"{number} × {model}" for model, number in models.items()]
    return f"{', '.join(named)}, {hosts}"


def part_outcome(part: PartResult) -> Outcome:
    """Return the outcome of a part's worst device."""
    outcomes = [member.outcome for member in part.members]
    return min(outcomes, default=LEFT_OUT)


def check_problems(check: CheckResult) -> list[str]:
    """Return a line for each problem with its devices, and for each part that was left out.

    The gravest problems come first. Devices that are not judged have a line with the first reason.
    """
    lines = []
    for part in check.parts:
        said = [
            (each, "; ".join(each.reasons)) for each in outliers(part.members)
        ]
        for member in part.members:
            if (
                member.outcome.word == NOT_JUDGED
                and member.result
                and member.result.verdict
            ):
                why = member.result.verdict.parts[0].why
                said.append((member, f"{NOT_JUDGED}, {why}"))
        for member, line in joined(said):
            rank = member.outcome.rank
            lines.append((rank, visible(f"{part.name}, {line}", 600)))
    lines.sort(key=lambda line: line[0])
    found = [line for _, line in lines]
    for part in check.parts:
        if part.left_out:
            found.append(f"{part.name}: {LEFT_OUT.word}, {part.left_out}")
    return found
