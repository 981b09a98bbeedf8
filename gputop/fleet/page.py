"""A fleet as a page of text: `gputop status --prometheus`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from gputop import __version__
from gputop.agent.lines import to_plain
from gputop.fleet.model import BUSY, Fleet, Gpu, median_of, totals
from gputop.health.findings import Finding, Severity
from gputop.output import pages
from gputop.text import (
    ABSENT,
    count,
    cut,
    moment,
    number,
    short_name,
    used_of,
    visible,
)

SCHEMA = 1
"""Version of the JSON document. It rises when a field is renamed, removed or redefined."""
MOST_ROWS = 40
"""Most findings on the page. JSON has all of them."""
LEAST_TITLE = 30
"""Columns of a finding's title and of the facts about its GPU on a narrow terminal."""
SEVERITIES = {
    Severity.FAULT: ("fault", pages.LOUD_RED),
    Severity.STALE: ("stale", pages.MAGENTA),
    Severity.WARNING: ("warning", pages.YELLOW),
    Severity.INFORMATION: ("note", ""),
}
"""Words and styles of a fleet's severities, the gravest first."""
_LABELS = ("cluster", "rack", "namespace", "pod", "hpc_job")
"""Labels that are shown for a GPU besides its model."""


def document(fleet: Fleet) -> dict[str, Any]:
    """Return a fleet as JSON values: totals, findings with their places, and every GPU."""
    gpus = {gpu.key: gpu for gpu in fleet.gpus}
    sums = totals(fleet.gpus, fleet.findings)
    wrong = []
    for finding in fleet.findings:
        gpu = gpus[finding.device_uuid]
        wrong.append(
            {
                "host": gpu.host,
                "index": gpu.index,
                "key": gpu.key,
                "kind": finding.rule,
                "severity": finding.severity.word,
                "text": finding.title,
                "rank": finding.rank,
            }
        )
    plain = to_plain(replace(fleet, findings=()))
    del plain["findings"]
    by_severity = {level.word: many for level, many in sums.findings.items()}
    return {
        "schema": SCHEMA,
        "gputop_version": __version__,
        **plain,
        "totals": to_plain(sums) | {"findings": by_severity},
        "wrong": wrong,
    }


def page(
    fleet: Fleet, where: str, match: str, width: int | None, *, colour: bool
) -> str:
    """Return totals and findings, worst first."""
    parts: list[RenderableType] = [
        _heading(fleet, where, match, width),
        _counts(fleet),
    ]
    for problem in fleet.problems:
        parts.append(pages.cell(visible(str(problem)), pages.YELLOW))
    if fleet.gpus:
        parts += _findings(fleet, width)
    return pages.rendered(*parts, width=width, colour=colour)


def _heading(
    fleet: Fleet,
    where: str,
    match: str,
    width: int | None,
) -> Text:
    parts = [
        pages.cell(visible(where), pages.BOLD),
        pages.cell(visible(match)),
        pages.simulated(is_so=fleet.simulated),
        pages.cell(moment(fleet.time, "%Y-%m-%d %H:%M:%S")),
    ]
    if not fleet.fresh:
        parts.append(pages.cell("OLD", pages.LOUD_YELLOW))
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
    if fleet.gpus:
        median = BUSY.text(median_of(fleet.gpus, BUSY))
        memory = used_of(found.memory_used_bytes, found.memory_total_bytes)
        parts += [f"median busy {median}", f"memory {memory}"]
        parts.append(f"power {total_watts(found.power_watts)}")
    return pages.cell(" · ".join(parts))


def counted(number: int, severity: Severity) -> str:
    """Return a number of findings: `1 fault`, `3 warnings`, `2 stale`, `1 note`."""
    word, _ = SEVERITIES[severity]
    return (
        f"{number:,} {word}"
        if severity is Severity.STALE
        else count(number, word)
    )


def total_watts(watts: float | None) -> str:
    """Return a text such as `6.12 kW`."""
    return ABSENT if watts is None else f"{number(watts / 1000)} kW"


def _findings(fleet: Fleet, width: int | None) -> Iterator[RenderableType]:
    if not fleet.findings:
        yield pages.cell("No problems found", pages.DIM)
        return
    rows = _rows(fleet)
    words, places, titles, about = [], [], [], []
    for finding, gpu, many in rows[:MOST_ROWS]:
        word, style = SEVERITIES[finding.severity]
        words.append(pages.cell(word.upper(), style))
        places.append(pages.cell(_where(gpu, many)))
        titles.append(pages.cell(visible(finding.title), style))
        about.append(pages.cell(_about(gpu), pages.DIM))
    columns = (
        pages.Column("", words, left=True),
        pages.Column("where", places, left=True),
        pages.Column(
            "title",
            titles,
            left=True,
            least=LEAST_TITLE,
        ),
        pages.Column(
            "about",
            about,
            left=True,
            least=LEAST_TITLE,
        ),
    )
    kept = pages.fitting(columns, ("title", "where", "about"), width)
    yield pages.table_of(kept, header=False)
    if len(rows) > MOST_ROWS:
        rest = sum(many for *_, many in rows[MOST_ROWS:])
        yield pages.cell(f"{ABSENT} {rest:,} more: --json has all", pages.DIM)


def _rows(fleet: Fleet) -> list[tuple[Finding, Gpu, int]]:
    """Return findings with a GPU and a count. Equal findings of a host share a row."""
    gpus = {gpu.key: gpu for gpu in fleet.gpus}
    rows: dict[tuple[str, Severity, str], tuple[Finding, Gpu, int]] = {}
    for finding in fleet.findings:
        gpu = gpus[finding.device_uuid]
        place = gpu.host, finding.severity, finding.title
        first, first_gpu, many = rows.get(place, (finding, gpu, 0))
        rows[place] = first, first_gpu, many + 1
    return [*rows.values()]


def _where(gpu: Gpu, many: int) -> str:
    several = f"{visible(gpu.host)} ({many} GPUs)"
    return cut(several if many > 1 else gpu.place, 40)


def _about(gpu: Gpu) -> str:
    """Return the model and the labels for its place and its work."""
    parts = (short_name(gpu.name), *map(gpu.labels.get, _LABELS))
    return visible(" ".join(filter(None, parts)))
