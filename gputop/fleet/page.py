"""A fleet as a page of text: `gputop status --prometheus`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.fleet.model import OF_DEVICE, Fleet, Gpu, devices, spread, totals
from gputop.health.findings import Finding, Severity
from gputop.output.ansi import (
    BOLD,
    DIM,
    LOUD_RED,
    LOUD_YELLOW,
    MAGENTA,
    YELLOW,
    Line,
    Span,
    clipped,
    painted,
)
from gputop.schema.codec import to_json
from gputop.text import (
    ABSENT,
    cells,
    cut,
    duration,
    moment,
    percentage,
    quantity,
    short_name,
    visible,
)

if TYPE_CHECKING:
    from gputop.fleet.model import ReadingSpread

SCHEMA = 1
"""Schema version of the JSON document: raised where a field is renamed, removed or redefined."""
DAY_SECONDS = 86_400
MOST_ROWS = 40
"""Most findings on the page. JSON has all of them."""
_LOOKS = {Severity.FAULT: LOUD_RED, Severity.STALE: MAGENTA, Severity.WARNING: YELLOW}
_FIGURES: tuple[tuple[str, str, str, Callable[[Gpu], float | None]], ...] = (
    ("busy", " %", "gpu_utilization_percent", lambda gpu: gpu.gpu_utilization_percent),
    ("memory", " %", "memory_used_bytes", lambda gpu: gpu.memory_used_percent),
    ("temperature", "°C", "temperature_celsius", lambda gpu: gpu.temperature_celsius),
    ("power", " W", "power_watts", lambda gpu: gpu.power_watts),
)
_COUNTED = (
    (Severity.FAULT, "fault", "faults"),
    (Severity.STALE, "stale", "stale"),
    (Severity.WARNING, "warning", "warnings"),
)
_LABELS = ("cluster", "rack", "namespace", "pod", "hpc_job")
"""Labels shown for a GPU besides its model."""


def document(fleet: Fleet) -> dict[str, Any]:
    """Return a fleet as JSON values: totals, findings with where they are, and every GPU."""
    gpus = {gpu.key: gpu for gpu in fleet.gpus}
    rest = to_json(dataclasses.replace(fleet, gpus=(), findings=()))
    sums = totals(fleet.gpus, fleet.findings)
    return {
        "schema": SCHEMA,
        "gputop_version": __version__,
        "time": rest.pop("time"),
        "totals": to_json(sums)
        | {"findings": {severity.word: count for severity, count in sums.findings.items()}},
        "wrong": [
            {
                "host": gpus[each.device_uuid].host,
                "index": gpus[each.device_uuid].index,
                "key": each.device_uuid,
                "kind": each.rule,
                "severity": each.severity.word,
                "text": each.sentence,
                "rank": each.rank,
                "since": each.since,
            }
            for each in fleet.findings
        ],
        **{name: value for name, value in rest.items() if name not in ("findings", "gpus")},
        "gpus": [to_json(gpu) for gpu in fleet.gpus],
    }


def page(fleet: Fleet, where: str, match: str, width: int | None, *, colour: bool) -> str:
    """Return totals, the distribution of readings, and the findings, worst first."""
    lines = [
        *_heading(fleet, where, match),
        *_spreads(fleet),
        *([Span(visible(str(each)), YELLOW)] for each in fleet.problems),
        *_findings(fleet),
    ]
    if width is not None:
        lines = [clipped(line, width) for line in lines]
    return "\n".join(painted(line, colour=colour) for line in lines)


def _heading(fleet: Fleet, where: str, match: str) -> Iterator[Line]:
    first = [Span(visible(where, 200), BOLD)]
    if match:
        first += [Span(" · ", DIM), Span(visible(match, 200))]
    if fleet.simulated:
        first += [Span(" · ", DIM), Span("SIMULATED", LOUD_YELLOW)]
    first += [Span(" · ", DIM), Span(moment(fleet.time, "%Y-%m-%d %H:%M:%S"))]
    if not fleet.fresh:
        first += [Span(" · ", DIM), Span("OLD", LOUD_YELLOW)]
    yield first
    found = totals(fleet.gpus, fleet.findings)
    parts = [
        _counted(found.gpus, "GPU"),
        *([_counted(found.instances, "MIG instance")] if found.instances else []),
        _counted(found.hosts, "host"),
        _counted(found.models, "model"),
        *(
            f"{count:,} {one if count == 1 else several}"
            for severity, one, several in _COUNTED
            if (count := found.findings.get(severity, 0))
        ),
    ]
    if fleet.took_seconds is not None:
        parts.append(f"asked in {fleet.took_seconds:.1f} s")
    yield [Span(" · ".join(parts))]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _spreads(fleet: Fleet) -> Iterator[Line]:
    """Yield rows of a table; a reading of a whole GPU counts once, not for each instance."""
    if not fleet.gpus:
        return
    physical = devices(fleet.gpus)
    yield [Span(f"{'':<12}{'median':>9}{'p5':>9}{'p95':>9}{'of':>9}", DIM)]
    for name, unit, of, value in _FIGURES:
        found = spread(value(gpu) for gpu in (physical if of in OF_DEVICE else fleet.gpus))
        lag = fleet.lag_seconds(of)
        older = [Span(f"   {duration(lag)} older than the rest", YELLOW)] if lag > 0 else []
        yield [Span(f"{name:<12}{_figures(found, unit)}"), *_total(name, found), *older]


def _figures(found: ReadingSpread | None, unit: str) -> str:
    if found is None:
        return f"{ABSENT:>9}" * 3 + f"{0:>9}"
    numbers = (found.median, found.low, found.high)
    text = percentage if unit == "%" else quantity
    return "".join(f"{text(n, unit):>9}" for n in numbers) + f"{found.count:>9,}"


def _total(name: str, found: ReadingSpread | None) -> Line:
    if name != "power" or found is None:
        return []
    watts = found.total
    total = f"{watts / 1000:,.1f} kW" if watts >= 1000 else quantity(watts, " W")
    return [Span(f"   {total} in all")]


def _findings(fleet: Fleet) -> Iterator[Line]:
    if not fleet.gpus:
        return
    if not fleet.findings:
        yield [Span("Nothing is wrong", DIM)]
        return
    gpus = {gpu.key: gpu for gpu in fleet.gpus}
    rows = [*_rows(fleet.findings, gpus)]
    shown = rows[:MOST_ROWS]
    wide = max(cells(where) for _, where, _, _ in shown)
    longest = max(cells(finding.sentence) for finding, _, _, _ in shown)
    dates = [since(finding, fleet.time) for finding, _, _, _ in shown]
    dated = max(map(len, dates))
    for begun, (finding, where, gpu, _) in zip(dates, shown, strict=True):
        look = _LOOKS.get(finding.severity, "")
        about = " ".join([short_name(visible(gpu.name, 60)), *_label_texts(gpu)])
        yield [
            Span(f"{finding.severity.name:<8}", look),
            Span(f"{where}{' ' * (wide - cells(where))}  "),
            Span(f"{finding.sentence}{' ' * (longest - cells(finding.sentence))}", look),
            Span(f"  {begun:<{dated}}" if dated else "", DIM),
            Span(f"  {about}", DIM),
        ]
    if len(rows) > MOST_ROWS:
        rest = sum(count for *_, count in rows[MOST_ROWS:])
        yield [Span(f"{ABSENT} {rest:,} more: --json has all", DIM)]


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
        groups.setdefault((host, each.rule, each.severity, each.sentence), []).append(each)
    for (host, _, _, _), several in groups.items():
        first = gpus[several[0].device_uuid]
        if len(several) > 1:
            where = f"{visible(host, 60)} ({len(several)} GPUs)"
        else:
            where = visible(":".join(filter(None, (host, first.index))), 60)
        yield several[0], cut(where, 40), first, len(several)


def _label_texts(gpu: Gpu) -> Iterator[str]:
    for name in _LABELS:
        if gpu.labels.get(name):
            yield visible(gpu.labels[name], 60)
