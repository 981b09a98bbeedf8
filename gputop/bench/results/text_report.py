"""Results as text: one run, several devices side by side, and outliers among many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gputop.bench.events import SCHEMA, Point, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.compare import score, score_unit
from gputop.bench.results.facts import (
    best_row_text,
    condition_facts,
    ending,
    figure_facts,
    method_facts,
    percent_of_peak,
)
from gputop.bench.results.outliers import distributions, outliers
from gputop.bench.results.tables import aligned, pair_tables, table
from gputop.bench.results.verdict import verdict_lines
from gputop.text import ABSENT, count, duration, quantity, tflops, visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target
    from gputop.bench.results.outliers import DeviceOutcome, Outlier, RateDistribution


def result_page(result: Result) -> str:
    """Return everything about a result as lines of text."""
    device = visible(result.device)
    head = f"{device}, {result.kind}"
    if kind_of(result.kind).has_dtype:
        head += f", {result.dtype}"
    if not kind_of(result.kind).has_rows:
        head += f", {result.m} x {result.n} x {result.k}"
    facts = (
        *figure_facts(result),
        *condition_facts(result.conditions),
        *method_facts(result),
    )
    rows = (f"  {name:<10} {visible(text)}" for name, text in facts)
    lines = (
        ["", *aligned(table(result.kind, result.points).lines), ""]
        if result.points
        else []
    )
    verdict = (f"  {visible(line, 400)}" for line in verdict_lines(result))
    first = []
    if result.verdict and result.verdict.summary:
        first = [visible(result.verdict.summary), ""]
    return "\n".join([*first, visible(head), *lines, *rows, *verdict])


def summary_lines(results: Sequence[tuple[Target, Result]]) -> list[str]:
    """Return the summaries of several devices, equal ones on one line."""
    places: dict[str, list[str]] = {}
    for target, result in results:
        if result.verdict and result.verdict.summary:
            places.setdefault(result.verdict.summary, []).append(target.place)
    return [
        f"{', '.join(found)}: {visible(summary)}" for summary, found in places.items()
    ]


def rows_page(device: str, kind: str, points: Sequence[Point]) -> str:
    """Return the rows of a table that ended with an error, as lines of text."""
    head = f"{visible(device)}, {kind}: {count(len(points), 'row')} before the error"
    return "\n".join([head, "", *aligned(table(kind, points).lines)])


def comparison_table(results: Sequence[tuple[Target, Result]]) -> str:
    """Return a line for each device of the same work, and how it was measured."""
    state = ("of peak", "power", "heat", "products", "wrong", "ended")
    unit = (
        "TFLOP/s"
        if any(each.tflops_peak is not None for _, each in results)
        else "best row"
    )
    lines = [["", "type", "N", unit, "peak", *state]]
    methods, verdicts = [], []
    for target, result in results:
        cells = [best_row_text(result), ABSENT]
        if result.tflops_peak is not None:
            cells = [tflops(score(result)), tflops(result.tflops_peak)]
        lines.append(
            [
                target.label,
                result.dtype,
                str(result.n or ABSENT),
                *cells,
                *_state(result),
            ]
        )
        kind = kind_of(result.kind)
        if kind.over_time or kind.several_devices:  # the others have pages of their own
            how = f"{result.method}; torch {result.torch_version}"
            said = (
                (*result.notes, how, *heat_limit_lines([result]))
                if kind.over_time
                else ()
            )
            methods += [visible(f"  {target.label}: {line}") for line in said]
            judged = verdict_lines(result)
            verdicts += [visible(f"  {target.label}: {line}", 400) for line in judged]
    first = summary_lines(results)
    if first:
        first.append("")
    between = pair_tables(point for _, result in results for point in result.points)
    matrices = (line for each in between for line in ("", *aligned(each.lines)))
    return "\n".join(
        [
            *first,
            *aligned(lines),
            *matrices,
            *([""] if methods else []),
            *methods,
            *verdicts,
        ]
    )


def _state(result: Result) -> list[str]:
    known = result.known_conditions
    return [
        percent_of_peak(result),
        quantity(known.power_watts_mean, " W"),
        quantity(known.temperature_celsius_max, "°C"),
        str(result.iterations),
        str(result.wrong_elements or "no"),
        ending(result).word,
    ]


MOST_ROWS = 32
"""Most devices listed one by one. With more only outliers are listed."""


def outliers_page(members: Sequence[DeviceOutcome]) -> str:
    """Return the distribution, the devices if they are few, and the outliers."""
    results = [member.result for member in members if member.result is not None]
    found, known = outliers(members), distributions(members)
    lines = [_head(members, results), *heat_limit_lines(results)]
    if known:
        unit, shown = score_unit(results[0])
        rows = [["", "count", unit, "p5", "p95", "min", "max"]]
        for each in known.values():
            model = visible(each.device) + (
                f", {visible(each.dtype)}" if len(known) > 1 else ""
            )
            values = map(shown, (each.p5, each.p95, each.least, each.most))
            rows.append(
                [model, str(each.count), f"median {shown(each.median)}", *values]
            )
        lines += ["", *aligned(rows, left=1)]
    if results and len(members) <= MOST_ROWS:
        odd = {id(each.member) for each in found}
        lines += ["", *_member_rows(members, known, results[0], odd)]
    return "\n".join([*lines, "", *_outliers(found, len(members))])


def outliers_document(members: Sequence[DeviceOutcome]) -> dict[str, Any]:
    """Return the same for programs, with the results as they are kept."""
    found = [
        _document(
            each.member,
            score=each.member.score,
            reasons=each.reasons,
            status=each.status,
        )
        for each in outliers(members)
    ]
    return {
        "schema": SCHEMA,
        "distributions": [asdict(each) for each in distributions(members).values()],
        "outliers": found,
        "results": [
            _document(
                each, problem=each.problem, remedy=each.remedy, status=each.status
            )
            if each.result is None
            else {**asdict(each.result), "place": each.place}
            for each in members
        ],
    }


def _document(member: DeviceOutcome, **further: object) -> dict[str, Any]:
    named = {"host": member.host, "device_uuid": member.uuid, "place": member.place}
    return {**named, "device": member.device, **further}


def _head(members: Sequence[DeviceOutcome], results: Sequence[Result]) -> str:
    hosts = len({member.host for member in members})
    where = f"{count(len(members), 'device')} on {count(hosts, 'host')}"
    if not results:
        return f"{where}: none has a result"
    first = results[0]
    kind = kind_of(first.kind)
    what = f"{first.kind} in {visible(first.dtype)}" if kind.has_dtype else first.kind
    shapes = {(result.m, result.n, result.k) for result in results}
    same = not kind.has_rows and len(shapes) == 1
    shape = f", {first.m} x {first.n} x {first.k}" if same else ""
    longest = max(result.seconds for result in results)
    return f"{what}{shape}, {duration(longest)}: {where}"


def heat_limit_lines(results: Sequence[Result]) -> list[str]:
    """Return a line with the limits that held, each once, or none."""
    limits = [result.known_conditions.heat_limit for result in results]
    named = "; ".join(visible(limit, 120) for limit in dict.fromkeys(limits) if limit)
    return [f"heat limit: {named}"] if named else []


def _member_rows(
    members: Sequence[DeviceOutcome],
    known: Mapping[tuple[str, str], RateDistribution],
    like: Result,
    odd: set[int],
) -> Iterator[str]:
    unit, shown = score_unit(like)
    lines = [["host", "", unit, "of median", ""]]
    for member in members:
        value, among = member.score, known.get(member.group)
        share = ABSENT
        if value is not None and among is not None and among.median:
            share = f"{100 * value / among.median:.1f} %"
        figure = ABSENT if value is None else shown(value)
        word = "stopped" if member.result is None else ending(member.result).word
        word = "see below" if id(member) in odd else word
        lines.append([visible(member.host), member.place, figure, share, word])
    yield from aligned(lines, left=2)


def _outliers(found: Sequence[Outlier], total: int) -> Iterator[str]:
    if not found:
        yield f"No outliers among {count(total, 'device')}."
        return
    yield f"{count(len(found), 'outlier')} of {count(total, 'device')}, gravest first:"
    for each in found:
        yield f"  {name(each.member)}"
        for reason in each.reasons:
            yield f"    {visible(reason)}"
        if each.member.remedy:
            yield f"    {visible(each.member.remedy)}"


def name(member: DeviceOutcome) -> str:
    """Return host, place and UUID of a device."""
    parts = (member.host, member.place, member.uuid)
    return ", ".join(visible(part) for part in parts if part)
