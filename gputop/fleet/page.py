"""A fleet as a page of text: `gputop status --prometheus`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from gputop import __version__
from gputop.agent.lines import to_plain
from gputop.fleet.distributions import POWER, TEMPERATURE, distributions
from gputop.fleet.model import Fleet, Gpu, totals
from gputop.health.findings import Finding, Severity
from gputop.output import ansi
from gputop.output.ansi import Line, Piece
from gputop.text import (
    ABSENT,
    cells,
    count,
    cut,
    duration,
    moment,
    number,
    quantity,
    short_name,
    visible,
)

SCHEMA = 1
"""Schema version of the JSON document: raised where a field is renamed, removed or redefined."""
DAY_SECONDS = 86_400
MOST_ROWS = 40
"""Most findings on the page. JSON has all of them."""
SEVERITIES = {
    Severity.FAULT: ("fault", ansi.LOUD_RED),
    Severity.STALE: ("stale", ansi.MAGENTA),
    Severity.WARNING: ("warning", ansi.YELLOW),
    Severity.INFORMATION: ("note", ""),
}
"""Words and looks of the severities that findings of a fleet have, the gravest first."""
_LABELS = ("cluster", "rack", "namespace", "pod", "hpc_job")
"""Labels shown for a GPU besides its model."""


def document(fleet: Fleet) -> dict[str, Any]:
    """Return a fleet as JSON values: totals, findings with where they are, and every GPU."""
    gpus = {gpu.key: gpu for gpu in fleet.gpus}
    rest = to_plain(replace(fleet, gpus=(), findings=()))
    del rest["gpus"], rest["findings"]
    sums = totals(fleet.gpus, fleet.findings)
    return {
        "schema": SCHEMA,
        "gputop_version": __version__,
        "time": rest.pop("time"),
        "totals": to_plain(sums)
        | {
            "findings": {
                severity.word: many for severity, many in sums.findings.items()
            }
        },
        "wrong": [
            {
                "host": gpus[each.device_uuid].host,
                "index": gpus[each.device_uuid].index,
                "key": each.device_uuid,
                "kind": each.rule,
                "severity": each.severity.word,
                "text": each.title,
                "rank": each.rank,
                "since": each.since,
            }
            for each in fleet.findings
        ],
        **rest,
        "gpus": [to_plain(gpu) for gpu in fleet.gpus],
    }


def page(
    fleet: Fleet, where: str, match: str, width: int | None, *, colour: bool
) -> str:
    """Return totals, the distribution of readings, and the findings, worst first."""
    problems = ([Piece(visible(str(each)), ansi.YELLOW)] for each in fleet.problems)
    lines = chain(
        _heading(fleet, where, match), _spreads(fleet), problems, _findings(fleet)
    )
    return ansi.rendered(lines, width, colour=colour)


def _heading(fleet: Fleet, where: str, match: str) -> Iterator[Line]:
    spans = [Piece(visible(where, 200), ansi.BOLD)]
    if match:
        spans.append(Piece(visible(match, 200)))
    if fleet.simulated:
        spans.append(Piece("SIMULATED", ansi.LOUD_YELLOW))
    spans.append(Piece(moment(fleet.time, "%Y-%m-%d %H:%M:%S")))
    if not fleet.fresh:
        spans.append(Piece("OLD", ansi.LOUD_YELLOW))
    yield ansi.with_dots(spans)
    found = totals(fleet.gpus, fleet.findings)
    parts = [
        count(found.gpus, "GPU"),
        *([count(found.instances, "MIG instance")] if found.instances else []),
        count(found.hosts, "host"),
        count(found.models, "model"),
        *(
            counted(found.findings[each], each)
            for each in SEVERITIES
            if found.findings.get(each)
        ),
    ]
    if fleet.took_seconds is not None:
        parts.append(f"asked in {fleet.took_seconds:.1f} s")
    yield [Piece(" · ".join(parts))]


def counted(number: int, severity: Severity) -> str:
    """Return a number of findings: `1 fault`, `3 warnings`, `2 stale`, `1 note`."""
    word, _ = SEVERITIES[severity]
    return f"{number:,} {word}" if severity is Severity.STALE else count(number, word)


def _spreads(fleet: Fleet) -> Iterator[Line]:
    if not fleet.gpus:
        return
    yield [Piece(f"{'':<12}{'median':>9}{'p5':>9}{'p95':>9}{'of':>9}", ansi.DIM)]
    for metric, found in distributions(fleet.gpus):
        lag = fleet.lag_seconds(metric.reading)
        older = (
            [Piece(f"   {duration(lag)} older than the rest", ansi.YELLOW)]
            if lag > 0
            else []
        )
        total = ""
        if metric is POWER and found.known:
            total = f"   {total_watts(sum(found.known))} in all"
        unit = metric.unit if metric is TEMPERATURE else f" {metric.unit}"
        figures = found.median, found.p5, found.p95
        columns = "".join(f"{quantity(figure, unit):>9}" for figure in figures)
        yield [
            Piece(f"{metric.name:<12}{columns}{len(found.known):>9,}"),
            Piece(total),
            *older,
        ]


def total_watts(watts: float) -> str:
    """Return a text such as `6.12 kW`."""
    return f"{number(watts / 1000)} kW"


def _findings(fleet: Fleet) -> Iterator[Line]:
    if not fleet.gpus:
        return
    if not fleet.findings:
        yield [Piece("No problems found", ansi.DIM)]
        return
    gpus = {gpu.key: gpu for gpu in fleet.gpus}
    rows = [*_rows(fleet.findings, gpus)]
    shown = rows[:MOST_ROWS]
    wide = max(cells(where) for _, where, _, _ in shown)
    longest = max(cells(finding.title) for finding, _, _, _ in shown)
    dates = [since(finding, fleet.time) for finding, _, _, _ in shown]
    dated = max(map(len, dates))
    for begun, (finding, where, gpu, _) in zip(dates, shown, strict=True):
        word, look = SEVERITIES[finding.severity]
        labels = (gpu.labels[name] for name in _LABELS if gpu.labels.get(name))
        about = " ".join(
            (short_name(visible(gpu.name, 60)), *(visible(x, 60) for x in labels))
        )
        yield [
            Piece(f"{word.upper():<8}", look),
            Piece(f"{where}{' ' * (wide - cells(where))}  "),
            Piece(f"{finding.title}{' ' * (longest - cells(finding.title))}", look),
            Piece(f"  {begun:<{dated}}" if dated else "", ansi.DIM),
            Piece(f"  {about}", ansi.DIM),
        ]
    if len(rows) > MOST_ROWS:
        rest = sum(many for *_, many in rows[MOST_ROWS:])
        yield [Piece(f"{ABSENT} {rest:,} more: --json has all", ansi.DIM)]


def since(finding: Finding, now: float) -> str:
    """Return when a finding began, or "" if unknown."""
    began = finding.since
    if began is None:
        return ""
    return "since " + moment(began, "%H:%M" if now - began < DAY_SECONDS else "%d %b")


def _rows(
    findings: tuple[Finding, ...], gpus: dict[str, Gpu]
) -> Iterator[tuple[Finding, str, Gpu, int]]:
    """Yield findings with their places and counts; equal findings of a host make one row."""
    groups: dict[tuple[str, str, Severity, str], list[Finding]] = {}
    for each in findings:
        host = gpus[each.device_uuid].host
        groups.setdefault((host, each.rule, each.severity, each.title), []).append(each)
    for (host, _, _, _), several in groups.items():
        first = gpus[several[0].device_uuid]
        if len(several) > 1:
            where = f"{visible(host, 60)} ({len(several)} GPUs)"
        else:
            where = visible(":".join(filter(None, (host, first.index))), 60)
        yield several[0], cut(where, 40), first, len(several)
