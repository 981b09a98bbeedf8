"""A fleet as a page of text: `gputop status --prometheus`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gputop.fleet.model import Fleet, Gpu, Health, Wrong
from gputop.fleet.spread import spread
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
from gputop.text import ABSENT, cells, cut, moment, percentage, quantity, short_name, visible

if TYPE_CHECKING:
    from gputop.fleet.spread import Spread

MOST_ROWS = 40
"""Of what is wrong: a page is read by people, and JSON has them all."""
_LOOKS = {Health.FAULT: LOUD_RED, Health.STALE: MAGENTA, Health.WARNING: YELLOW}
_FIGURES: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    ("busy", " %", lambda gpu: gpu.gpu_utilization_percent),
    ("memory", " %", lambda gpu: gpu.memory_used_percent),
    ("temperature", "°C", lambda gpu: gpu.temperature_celsius),
    ("power", " W", lambda gpu: gpu.power_watts),
)
_LABELS = ("cluster", "rack", "namespace", "pod", "hpc_job")
"""What is said of a GPU besides its model."""


def page(fleet: Fleet, where: str, match: str, width: int | None, *, colour: bool) -> str:
    """Totals, how readings are spread, and what is wrong, worst first."""
    lines = [
        *_heading(fleet, where, match),
        *_spreads(fleet),
        *([Span(visible(str(each)), YELLOW)] for each in fleet.problems),
        *_wrong(fleet),
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
    hosts = {gpu.host for gpu in fleet.gpus}
    models = {gpu.name for gpu in fleet.gpus}
    wrong = {each.key for each in fleet.wrong}
    stale = {each.key for each in fleet.wrong if each.severity is Health.STALE}
    parts = [
        _counted(len(fleet.gpus), "GPU"),
        _counted(len(hosts), "host"),
        _counted(len(models), "model"),
        f"{len(wrong):,} with something wrong",
        f"{len(stale):,} stale",
    ]
    if fleet.took_seconds is not None:
        parts.append(f"asked in {fleet.took_seconds:.1f} s")
    yield [Span(" · ".join(parts))]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _spreads(fleet: Fleet) -> Iterator[Line]:
    if not fleet.gpus:
        return
    yield [Span(f"{'':<12}{'median':>9}{'p5':>9}{'p95':>9}{'GPUs':>9}", DIM)]
    for name, unit, reading in _FIGURES:
        found = spread(reading(gpu) for gpu in fleet.gpus)
        yield [Span(f"{name:<12}{_figures(found, unit)}"), *_total(name, found)]


def _figures(found: Spread | None, unit: str) -> str:
    if found is None:
        return f"{ABSENT:>9}" * 3 + f"{0:>9}"
    numbers = (found.median, found.low, found.high)
    text = percentage if unit == "%" else quantity
    return "".join(f"{text(n, unit):>9}" for n in numbers) + f"{found.count:>9,}"


def _total(name: str, found: Spread | None) -> Line:
    if name != "power" or found is None:
        return []
    watts = found.total
    total = f"{watts / 1000:,.1f} kW" if watts >= 1000 else quantity(watts, " W")
    return [Span(f"   {total} in all")]


def _wrong(fleet: Fleet) -> Iterator[Line]:
    if not fleet.gpus:
        return
    if not fleet.wrong:
        yield [Span("Nothing is wrong", DIM)]
        return
    gpus = {gpu.key: gpu for gpu in fleet.gpus}
    rows = [*_rows(fleet.wrong, gpus)]
    shown = rows[:MOST_ROWS]
    wide = max(cells(where) for _, where, _, _ in shown)
    longest = max(cells(wrong.text) for wrong, _, _, _ in shown)
    for wrong, where, gpu, _ in shown:
        look = _LOOKS.get(wrong.severity, "")
        about = " ".join([short_name(visible(gpu.name, 60)), *_said(gpu)])
        yield [
            Span(f"{wrong.severity.upper():<8}", look),
            Span(f"{where}{' ' * (wide - cells(where))}  "),
            Span(f"{wrong.text}{' ' * (longest - cells(wrong.text))}", look),
            Span(f"  {about}", DIM),
        ]
    if len(rows) > MOST_ROWS:
        rest = sum(count for *_, count in rows[MOST_ROWS:])
        yield [Span(f"{ABSENT} {rest:,} more: --json has all", DIM)]


def _rows(wrong: tuple[Wrong, ...], gpus: dict[str, Gpu]) -> Iterator[tuple[Wrong, str, Gpu, int]]:
    """Each with where it is; the same of a whole host is one row."""
    groups: dict[tuple[str, str, Health, str], list[Wrong]] = {}
    for each in wrong:
        host = gpus[each.key].host
        groups.setdefault((host, each.kind, each.severity, each.text), []).append(each)
    for (host, _, _, _), several in groups.items():
        first = gpus[several[0].key]
        if len(several) > 1:
            where = f"{visible(host, 60)} ({len(several)} GPUs)"
        else:
            where = visible(":".join(filter(None, (host, first.index))), 60)
        yield several[0], cut(where, 40), first, len(several)


def _said(gpu: Gpu) -> Iterator[str]:
    for name in _LABELS:
        if gpu.labels.get(name):
            yield visible(gpu.labels[name], 60)
