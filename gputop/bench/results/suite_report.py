"""Suites as text: what was found, a line for each part, and below what is not ok."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

from gputop.bench.events import DEGRADED, FAULTY, NOT_JUDGED, OK
from gputop.bench.results.compare import figure_text
from gputop.bench.results.facts import best_row_text
from gputop.bench.results.outliers import find_outlier, outliers, was_stopped
from gputop.bench.results.tables import aligned
from gputop.bench.results.text_report import name
from gputop.bench.results.verdict import STATUSES
from gputop.text import ABSENT, count, duration, fold_list, visible

if TYPE_CHECKING:
    from gputop.bench.results.outliers import DeviceOutcome, Outlier
    from gputop.bench.run.suite import PartResult, Suite


def suite_page(suite: Suite) -> str:
    """Return a line for each part of a suite, and below what is not ok, the gravest first."""
    rows = aligned(suite_table(suite), left=1)
    problems = [f"  {each}" for each in suite_problems(suite)]
    page = [suite_title(suite), *rows, *problems]
    summary = suite_summary(suite)
    if summary:
        page = [summary, "", *page]
    return "\n".join(page)


def suite_summary(suite: Suite) -> str:
    """Return the verdict about all parts in plain English: the gravest one, if any is bad."""
    members = [member for part in suite.parts for member in part.members]
    results = [member.result for member in members if member.result is not None]
    devices = next((len(part.members) for part in suite.parts if part.members), 0)
    found = outliers(members)
    if found:
        said = _outlier_summary(found[0])
        return f"{name(found[0].member)}: {said}" if devices > 1 else said
    if any(result.verdict is None for result in results):
        return ""
    if any(map(was_stopped, members)) or len(suite.parts) < suite.planned:
        ran, planned = parts_that_ran(suite), count(suite.planned, "part")
        return f"Only {ran} of {planned} ran. No fault found in them."
    if not suite.complete:
        return "Not judged: some parts could not run, see below."
    if devices > 1:
        return f"No fault found on {count(devices, 'device')}."
    # A soak is about the device as a whole, and the other parts are about a piece of it.
    for part in suite.parts:
        if part.name.startswith("soak") and part.members:
            return _summary(part.members[0])
    return "No fault found."


def _summary(member: DeviceOutcome) -> str:
    verdict = member.result.verdict if member.result else None
    return visible(verdict.summary) if verdict else ""


def _outlier_summary(outlier: Outlier) -> str:
    """Return what is wrong with a device, and what to do."""
    reasons = "; ".join(outlier.reasons)
    remedy = outlier.member.remedy or ""
    return _summary(outlier.member) or visible(f"{reasons}. {remedy}".rstrip())


def suite_table(suite: Suite) -> list[list[str]]:
    """Return headings, and for each part its name, time, devices, median figure and verdict."""
    rows = [[part.name, *_part_cells(part)] for part in suite.parts]
    return [["part", "time", "devices", "result", "verdict"], *rows]


def suite_title(suite: Suite) -> str:
    """Return what was tested, and the verdict in one word."""
    states = [part_state(part) for part in suite.parts]
    gravest = next((each for each in PART_STATES if each in states), NOT_JUDGED)
    if gravest in (OK, LEFT_OUT) and not suite.complete:
        gravest = NOT_JUDGED
    ran = parts_that_ran(suite)
    planned = suite.planned - sum(
        not (part.members or part.incomplete) for part in suite.parts
    )
    some = "" if ran == planned else f", {ran} of {count(planned, 'part')} ran"
    return f"check {suite.level} on {suite_devices(suite)}{some}: {gravest}"


def parts_that_ran(suite: Suite) -> int:
    """Return how many parts have a result."""
    return sum(any(each.result for each in part.members) for part in suite.parts)


def suite_devices(suite: Suite) -> str:
    """Return the device of a suite, or how many of which models on how many hosts."""
    members = next((part.members for part in suite.parts if part.members), ())
    if len(members) < 2:
        return visible(suite.method.get("devices", ""), 300)
    models = Counter(visible(member.device) for member in members)
    hosts = count(len({member.host for member in members}), "host")
    return f"{', '.join(f'{number} x {model}' for model, number in models.items())}, {hosts}"


FAILED, STOPPED, LEFT_OUT = "failed", "stopped", "left out"
PART_STATES = (FAULTY, FAILED, STOPPED, DEGRADED, OK, NOT_JUDGED, LEFT_OUT)
"""States of a part, the gravest first: that of its worst device counts."""


def part_state(part: PartResult) -> str:
    """Return the state of the worst device of a part."""
    states = {_device_state(each) for each in part.members}
    return next((each for each in PART_STATES if each in states), LEFT_OUT)


def _device_state(member: DeviceOutcome) -> str:
    found, result = find_outlier(member), member.result
    if found is not None:
        return next(
            (each for each in STATUSES if STATUSES[each] == found.status), FAILED
        )
    return STOPPED if result is None or was_stopped(member) else result.state


def _part_cells(part: PartResult) -> list[str]:
    results = [each.result for each in part.members if each.result is not None]
    scores = [value for each in part.members if (value := each.score) is not None]
    figure = figure_text(results[0], statistics.median(scores)) if scores else ABSENT
    alike = len(results) == 1 or part.name == "collective"
    if alike and results and results[0].points:  # rather than a mean over its rows
        figure = best_row_text(results[0])
    seconds = duration(max(each.seconds for each in results)) if results else ABSENT
    return [seconds, str(len(part.members) or ABSENT), figure, part_state(part)]


def suite_problems(suite: Suite) -> list[str]:
    """Return a line for each problem with the devices that have it, and for what was left out.

    The gravest come first; devices that are not judged are told with their first reason.
    """
    found = [
        (part.name, each.member, "; ".join(each.reasons))
        for part in suite.parts
        for each in outliers(part.members)
    ]
    found.sort(key=lambda each: PART_STATES.index(_device_state(each[1])))
    found += [
        (part.name, each, f"{NOT_JUDGED}, {each.result.verdict.parts[0].why}")
        for part in suite.parts
        for each in part.members
        if each.result and each.result.verdict and _device_state(each) == NOT_JUDGED
    ]
    devices: dict[tuple[str, str], list[str]] = {}
    for part_name, member, why in found:
        devices.setdefault((part_name, visible(why, 400)), []).append(name(member))
    lines = [
        f"{part}, {fold_list(names, 3)}: {why}"
        for (part, why), names in devices.items()
    ]
    left = [
        f"{part.name}: {LEFT_OUT}, {part.left_out}"
        for part in suite.parts
        if part.left_out
    ]
    return [*lines, *left]
