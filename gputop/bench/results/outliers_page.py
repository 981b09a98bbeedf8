"""Many devices on a page and as JSON: their distribution, and who is not like the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gputop.bench.results.columns import ENDS
from gputop.bench.results.compare import rate_text
from gputop.bench.results.outliers import distributions, outliers
from gputop.bench.results.text_report import aligned
from gputop.text import ABSENT, count, duration, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gputop.bench.events import Result
    from gputop.bench.results.outliers import Distribution, Member, Outlier

MOST_ROWS = 32
"""Devices that are listed one by one: of more, those that are not like the others."""


def page(members: Sequence[Member]) -> str:
    """The distribution, the devices where they are few, and the outliers."""
    results = [member.result for member in members if member.result is not None]
    found, known = outliers(members), distributions(members)
    lines = [_head(members, results), *_heat_limit(results)]
    if known:
        lines += ["", *_distributions(list(known.values()), results[0])]
    if results and len(members) <= MOST_ROWS:
        lines += ["", *_rows(members, {id(each.member) for each in found})]
    lines += ["", *_outliers(found, len(members))]
    return "\n".join(lines)


def document(members: Sequence[Member]) -> dict[str, Any]:
    """The same for programs; results are as they are kept."""
    return {
        "distributions": [asdict(each) for each in distributions(members).values()],
        "outliers": [
            {
                "host": each.member.host,
                "device_uuid": each.member.uuid,
                "place": each.member.place,
                "device": each.member.device,
                "score": each.member.score,
                "reasons": list(each.reasons),
                "status": each.status,
            }
            for each in outliers(members)
        ],
        "results": [_result(member) for member in members],
    }


def _result(member: Member) -> dict[str, Any]:
    if member.result is not None:
        return {**asdict(member.result), "place": member.place}
    return {
        "host": member.host,
        "device": member.device,
        "device_uuid": member.uuid,
        "place": member.place,
        "problem": member.problem,
        "remedy": member.remedy,
        "status": member.status,
    }


def _head(members: Sequence[Member], results: Sequence[Result]) -> str:
    hosts = len({member.host for member in members})
    where = f"{count(len(members), 'device')} on {count(hosts, 'host')}"
    if not results:
        return f"{where}: none has a result"
    first = results[0]
    what = first.kind if first.kind == "copy" else f"{first.kind} in {visible(first.dtype)}"
    shapes = {(result.m, result.n, result.k) for result in results}
    same = first.kind == "soak" and len(shapes) == 1
    shape = f", {first.m} x {first.n} x {first.k}" if same else ""
    longest = max(result.seconds for result in results)
    return f"{what}{shape}, {duration(longest)}: {where}"


def _heat_limit(results: Sequence[Result]) -> list[str]:
    """A line with the limits that held, each once."""
    limits = [result.conditions.heat_limit for result in results if result.conditions]
    named = "; ".join(visible(limit, 120) for limit in dict.fromkeys(limits) if limit)
    return [f"heat limit: {named}"] if named else []


def _distributions(known: Sequence[Distribution], like: Result) -> Iterator[str]:
    unit, shown = rate_text(like)
    lines = [["", "count", unit, "p5", "p95", "min", "max"]]
    lines += [
        [
            visible(each.device) + (f", {visible(each.dtype)}" if len(known) > 1 else ""),
            str(each.count),
            f"median {shown(each.median)}",
            *(shown(value) for value in (each.p5, each.p95, each.least, each.most)),
        ]
        for each in known
    ]
    yield from aligned(lines, left=1)


def _rows(members: Sequence[Member], odd: set[int]) -> Iterator[str]:
    known = distributions(members)
    like = next((member.result for member in members if member.result is not None), None)
    assert like is not None
    unit, shown = rate_text(like)
    lines = [["host", "", unit, "of median", ""]]
    for member in members:
        value, among = member.score, known.get(member.group)
        share = ABSENT
        if value is not None and among is not None and among.median:
            share = f"{100 * value / among.median:.1f} %"
        figure = ABSENT if value is None else shown(value)
        word = "see below" if id(member) in odd else _ended(member.result)
        lines.append([visible(member.host), member.place, figure, share, word])
    yield from aligned(lines, left=2)


def _ended(result: Result | None) -> str:
    return "stopped" if result is None else ENDS.get(result.stopped, visible(result.stopped))


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


def name(member: Member) -> str:
    """Host, place and UUID of a device, in one line."""
    parts = (member.host, member.place, member.uuid)
    return ", ".join(visible(part) for part in parts if part)
