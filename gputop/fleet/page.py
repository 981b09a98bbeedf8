"""A fleet as a page of text: `gputop status --prometheus`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gputop import __version__
from gputop.agent.lines import to_plain
from gputop.fleet.distributions import POWER, TEMPERATURE, distributions
from gputop.fleet.model import Fleet, Gpu, totals
from gputop.health.findings import Finding, Severity
from gputop.output import pages
from gputop.text import (
    ABSENT,
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
LEAST_TITLE = 30
"""Columns of a finding's title, and of what is known of its GPU, on a narrow terminal."""
SEVERITIES = {
    Severity.FAULT: ("fault", pages.LOUD_RED),
    Severity.STALE: ("stale", pages.MAGENTA),
    Severity.WARNING: ("warning", pages.YELLOW),
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
    parts: list[RenderableType] = [_heading(fleet, where, match, width), _counts(fleet)]
    if fleet.gpus:
        parts.append(_spreads(fleet))
    for problem in fleet.problems:
        parts.append(pages.cell(visible(str(problem)), pages.YELLOW))
    if fleet.gpus:
        parts += _findings(fleet, width)
    return pages.rendered(*parts, width=width, colour=colour)


def _heading(fleet: Fleet, where: str, match: str, width: int | None) -> Text:
    old = ""
    if not fleet.fresh:
        old = "OLD"
    parts = [
        pages.cell(visible(where, 200), pages.BOLD),
        pages.cell(visible(match, 200)),
        pages.simulated(is_so=fleet.simulated),
        pages.cell(moment(fleet.time, "%Y-%m-%d %H:%M:%S")),
        pages.cell(old, pages.LOUD_YELLOW),
    ]
    return pages.joined(parts, width)


def _counts(fleet: Fleet) -> Text:
    found = totals(fleet.gpus, fleet.findings)
    parts = [count(found.gpus, "GPU")]
    if found.instances:
        parts.append(count(found.instances, "MIG instance"))
    parts += [count(found.hosts, "host"), count(found.models, "model")]
    for severity in SEVERITIES:
        if found.findings.get(severity):
            parts.append(counted(found.findings[severity], severity))
    if fleet.took_seconds is not None:
        parts.append(f"asked in {fleet.took_seconds:.1f} s")
    return pages.cell(" · ".join(parts))


def counted(number: int, severity: Severity) -> str:
    """Return a number of findings: `1 fault`, `3 warnings`, `2 stale`, `1 note`."""
    word, _ = SEVERITIES[severity]
    return f"{number:,} {word}" if severity is Severity.STALE else count(number, word)


def _spreads(fleet: Fleet) -> Table:
    table = pages.table()
    pages.add_column(table, "", left=True)
    for name in ("median", "p5", "p95", "of"):
        pages.add_column(table, name)
    pages.add_column(table, "", left=True)
    for metric, found in distributions(fleet.gpus):
        unit = f" {metric.unit}"
        if metric is TEMPERATURE:
            unit = metric.unit
        row = [pages.cell(metric.name)]
        for figure in (found.median, found.p5, found.p95):
            row.append(pages.cell(quantity(figure, unit)))
        row.append(pages.cell(f"{len(found.known):,}"))
        notes = []
        if metric is POWER and found.known:
            notes.append(pages.cell(f"{total_watts(sum(found.known))} in all"))
        lag = fleet.lag_seconds(metric.reading)
        if lag > 0:
            text = f"{duration(lag)} older than the rest"
            notes.append(pages.cell(text, pages.YELLOW))
        row.append(pages.joined(notes))
        table.add_row(*row)
    return table


def total_watts(watts: float) -> str:
    """Return a text such as `6.12 kW`."""
    return f"{number(watts / 1000)} kW"


def _findings(fleet: Fleet, width: int | None) -> Iterator[RenderableType]:
    if not fleet.findings:
        yield pages.cell("No problems found", pages.DIM)
        return
    rows = [*_rows(fleet.findings, {gpu.key: gpu for gpu in fleet.gpus})]
    shown = rows[:MOST_ROWS]
    words, places, titles, dates, about = [], [], [], [], []
    for finding, where, gpu, _ in shown:
        word, style = SEVERITIES[finding.severity]
        words.append(pages.cell(word.upper(), style))
        places.append(pages.cell(where))
        titles.append(pages.cell(visible(finding.title, 400), style))
        dates.append(pages.cell(since(finding, fleet.time), pages.DIM))
        about.append(pages.cell(_about(gpu), pages.DIM))
    columns = (
        pages.Column("", words, left=True),
        pages.Column("where", places, left=True),
        pages.Column("title", titles, left=True, least=LEAST_TITLE),
        pages.Column("since", dates, left=True),
        pages.Column("about", about, left=True, least=LEAST_TITLE),
    )
    kept = pages.fitting(columns, ("title", "where", "since", "about"), width)
    yield pages.table_of(kept, header=False)
    if len(rows) > MOST_ROWS:
        rest = sum(many for *_, many in rows[MOST_ROWS:])
        yield pages.cell(f"{ABSENT} {rest:,} more: --json has all", pages.DIM)


def _about(gpu: Gpu) -> str:
    """Return the model, and labels that say where it is and what runs on it."""
    parts = [short_name(visible(gpu.name, 60))]
    for name in _LABELS:
        if gpu.labels.get(name):
            parts.append(visible(gpu.labels[name], 60))
    return " ".join(parts)


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
