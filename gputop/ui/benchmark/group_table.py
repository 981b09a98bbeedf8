"""Table of several devices under test: a row for each, the progress, and who is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.agent.snapshot import Host
from gputop.bench.events import DEGRADED, NOT_JUDGED, OK
from gputop.bench.plan.request import Target, short_labels
from gputop.bench.results.columns import ending, percent_of_peak, verdict
from gputop.bench.results.measures import ALONE, TOGETHER, best_row, rate_text
from gputop.console import INTERRUPTED
from gputop.text import (
    ABSENT,
    duration,
    fit_columns,
    percentage,
    quantity,
    short_name,
    throughput,
    visible,
)
from gputop.ui.benchmark import results
from gputop.ui.benchmark.plot import mark_of
from gputop.ui.drawing.cells import Row, Span, bar, cell, clip, fit, share_of, wrap
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, GOOD, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.run.group import GroupState
    from gputop.bench.run.run_state import RunState
    from gputop.ui.telemetry import Telemetry

WIDEST_DEVICE = 30
MOST_NOTES = 4
SHORTEST_BAR, LONGEST_BAR = 10, 30

WIDTHS = {
    "DEVICE": 6,
    "STATE": 13,
    "MEAN": 6,
    "ALONE": 6,
    "TOGETHER": 8,
    "COST": 7,
    "BEST": 14,
}
WIDTHS |= {
    "ERRORS": 6,
    "TEMP": 5,
    "NOW": 6,
    "OF PEAK": 7,
    "DROOP": 6,
    "ROWS": 8,
    "PEAK": 6,
}
WIDTHS |= {"POWER": 6, "CLOCK": 8}
"""Cells of the columns. In a narrow table the first ones stay."""
WORDS = ("DEVICE", "STATE")
"""Columns that are aligned to the left."""
CONDITIONS = ("POWER", "TEMP", "CLOCK", "ERRORS", "STATE")
OVER_TIME = ("DEVICE", "NOW", "OF PEAK", "MEAN", "PEAK", "DROOP", *CONDITIONS)
"""Before the end without OF PEAK and DROOP, which are not known, and after it without NOW."""
PAIRS = ("DEVICE", "ALONE", "TOGETHER", "COST", *CONDITIONS)
ROWS = ("DEVICE", "ROWS", "BEST", *CONDITIONS)


def group_rows(group: GroupState, telemetry: Telemetry, width: int) -> list[Row]:
    """Draw a heading, a row for each device, the progress, and failures."""
    pairs = group.kind == "pairs"
    wanted: tuple[str, ...] = PAIRS if pairs else ROWS if group.is_table else OVER_TIME
    hidden = ("NOW",) if group.ended else ("OF PEAK", "DROOP")
    columns = _fitting([title for title in wanted if title not in hidden], width)
    behind = group.slow_devices()
    head: Row = [Span("   ")]
    for title, cells in columns:
        head += [cell(title, cells, DIM, right=title not in WORDS), Span(" ")]
    rows = [fit(head, width)]
    for n, target in enumerate(group.runs):
        texts = _cells(group, target, telemetry, behind)
        mark, line_style = mark_of(n)
        row: Row = [Span(f" {mark} ", line_style)]
        for title, cells in columns:
            text, style = texts[title]
            if text == ABSENT:
                style = DIM
            row += [cell(text, cells, style, right=title not in WORDS), Span(" ")]
        rows.append(fit(row, width))
    return [*rows, _progress(group, width), *_notes(group, width)]


def _fitting(titles: Sequence[str], width: int) -> list[tuple[str, int]]:
    room = width - 2
    ranked = [title for title in WIDTHS if title in titles]
    shown = fit_columns(ranked, room, lambda title: WIDTHS[title] + 1)
    left = room - 1 - sum(WIDTHS[title] + 1 for title in shown)
    spare = max(0, min(left, WIDEST_DEVICE - WIDTHS["DEVICE"]))
    return [
        (each, WIDTHS[each] + spare * (each == "DEVICE"))
        for each in titles
        if each in shown
    ]


def _cells(
    group: GroupState,
    target: Target,
    telemetry: Telemetry,
    behind: Mapping[Target, float],
) -> dict[str, tuple[str, Style]]:
    run = group.runs[target]
    alone, together, cost = group.pair(target)
    errors = group.wrong_elements(target)
    rows = f"{len(run.rows)}/{run.planned.rows}" if run.planned else ABSENT
    watts, _, clock, celsius = live_readings(target, telemetry)
    if run.result is not None:  # the means and the highest temperature
        known = run.result.known_conditions
        watts, clock = known.power_watts_mean, known.sm_clock_mhz_mean
        celsius = known.temperature_celsius_max
    name = target.place
    if target.number is None or len({each.name for each in group.runs}) > 1:
        name += f" {short_name(visible(target.name))}"
    return {
        "DEVICE": (name, TEXT),
        "NOW": (throughput(run.tflops_now, short=True), STRONG),
        "OF PEAK": (percent_of_peak(run.result) if run.result else ABSENT, TEXT),
        "MEAN": (throughput(run.tflops_mean, short=True), STRONG),
        "PEAK": (throughput(run.tflops_peak, short=True), STRONG),
        "DROOP": (
            percentage(run.result.droop_percent if run.result else None, digits=1),
            TEXT,
        ),
        "ALONE": (throughput(alone, short=True), STRONG),
        "TOGETHER": (throughput(together, short=True), STRONG),
        "COST": (percentage(cost, digits=1), STRONG),
        "ROWS": (rows, TEXT),
        "BEST": (rate_text(best_row(run.rows)), STRONG),
        "POWER": (quantity(watts, " W"), TEXT),
        "TEMP": (quantity(celsius, "°C"), TEXT),
        "CLOCK": (quantity(clock, " MHz"), TEXT),
        "ERRORS": (
            ABSENT if errors is None else str(errors),
            FAULT if errors else TEXT,
        ),
        "STATE": _state(group, target, behind.get(target)),
    }


def live_readings(target: Target, telemetry: Telemetry) -> tuple[float | None, ...]:
    """Return current watts, their limit, MHz and °C; for an instance those of its GPU."""
    if target.gpu_uuid is None:
        host = telemetry.host or Host()
        return None, None, host.cpu_clock_mhz, host.cpu_temperature_celsius
    now = telemetry.readings(target.gpu_uuid)
    return (
        now.power_watts,
        now.power_limit_watts,
        now.sm_clock_mhz,
        now.temperature_celsius,
    )


def _state(
    group: GroupState, target: Target, percent: float | None
) -> tuple[str, Style]:
    """Return the gravest of fault, early end, lag and progress."""
    run = group.runs[target]
    if group.is_faulty(target):
        return "FAULTY", FAULT
    if run.limit is not None:
        return run.limit.title.lower(), WARN
    if run.problem is not None:
        stopped = run.stopping or run.status == INTERRUPTED
        return ("stopped", TEXT) if stopped else ("failed", WARN)
    if run.result is not None and run.result.stopped != "time":
        return ending(run.result).word, TEXT
    if run.result is not None and run.result.state == DEGRADED:
        return "DEGRADED", WARN
    if percent is not None:
        return f"{percentage(percent, digits=1)} behind", WARN
    if run.result is not None:
        unpaired = group.kind == "pairs" and group.pair(target)[2] is None
        word = "only alone" if unpaired else verdict(run.result)
        return word, {OK: GOOD, NOT_JUDGED: TEXT}.get(word, WARN)
    return _going(group, target, run), TEXT


def _going(group: GroupState, target: Target, run: RunState) -> str:
    if group.stopping:
        return "stopping"
    if group.kind == "pairs" and run.measured:
        *_, latest = (each for each, other in group.runs.items() if other.hello)
        return (
            TOGETHER
            if target in group.alone
            else ALONE
            if target is latest
            else "waits"
        )
    if run.silent_seconds is not None:
        return f"silent {duration(run.silent_seconds)}"
    return "waits" if group.begun and run.hello is None else run.state


def _progress(group: GroupState, width: int) -> Row:
    seconds, elapsed = group.request.seconds, group.elapsed_seconds
    share = share_of(elapsed, seconds)
    rest = f" of {duration(seconds)}, {duration(max(0.0, seconds - elapsed))} left"
    if group.is_table:
        share = min(results.progress(run)[0] for run in group.runs.values())
        rest = f" of at most {duration(seconds)}"
    text = f"  {duration(elapsed)}{'' if group.ended else rest}"
    room = width - len(text) - 4
    cells, style = (
        max(SHORTEST_BAR, min(LONGEST_BAR, room)),
        BUSY if group.ended else ACCENT,
    )
    return [Span(" "), *bar(share, cells, style), Span(text, TEXT)]


def _notes(group: GroupState, width: int) -> list[Row]:
    if group.problem is not None and not group.measured:
        return []  # the chart's space has it
    failed: dict[str, list[Target]] = {}
    for target, run in group.runs.items():
        if (
            run.problem is not None
            and (run.faulty or not run.stopping)
            and run.limit is None
        ):
            failed.setdefault(visible(str(run.problem)), []).append(target)
    lines = [
        line
        for problem, targets in failed.items()
        for line in wrap(f"{short_labels(targets)}: {problem}", width - 2)
    ]
    lines += [
        clip(f"{target.place}: {part.name}: {part.why}", width - 2)
        for target, run in group.runs.items()
        if run.result is not None and run.result.verdict is not None
        for part in run.result.verdict.bad
    ]
    return [[Span(f" {line}", WARN)] for line in lines[:MOST_NOTES]]
