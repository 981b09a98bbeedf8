"""Table of several devices under test: a row for each, the progress, and who is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.events import Conditions
from gputop.bench.plan.devices import short_labels
from gputop.bench.results.facts import best_row, ending, percent_of_peak, rate_text
from gputop.console import INTERRUPTED
from gputop.schema.snapshot import Host
from gputop.text import (
    ABSENT,
    duration,
    fit_columns,
    percentage,
    quantity,
    short_name,
    tflops,
    visible,
)
from gputop.ui.benchmark import result_table
from gputop.ui.benchmark.plot import COLOURS, MARKS
from gputop.ui.drawing.cells import Row, Span, bar, cell, clip, fit, share_of, width_of, wrap
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, GOOD, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style

    from gputop.bench.plan.request import Target
    from gputop.bench.results.compare import DeviceSpread
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState
    from gputop.ui.model import Telemetry

WIDEST_DEVICE = 30
MOST_NOTES = 4
"""Most rows about failed devices."""
SHORTEST_BAR, LONGEST_BAR = 10, 30


class DeviceColumn(NamedTuple):
    """A column of devices. In a narrow table those of a low `rank` stay."""

    title: str
    width: int
    rank: int


DEVICE, STATE = DeviceColumn("DEVICE", 6, 0), DeviceColumn("STATE", 13, 0)
NOW, OF_PEAK = DeviceColumn("NOW", 6, 4), DeviceColumn("OF PEAK", 7, 4)
"""Columns NOW and, after the end, OF PEAK in its place."""
CONDITIONS = (
    DeviceColumn("POWER", 6, 6),
    DeviceColumn("TEMP", 5, 3),
    DeviceColumn("CLOCK", 8, 7),
    DeviceColumn("ERRORS", 6, 2),
    STATE,
)
OVER_TIME = (
    DEVICE,
    NOW,
    DeviceColumn("MEAN", 6, 1),
    DeviceColumn("PEAK", 6, 5),
    DeviceColumn("DROOP", 6, 4),
    *CONDITIONS,
)
PAIRS = (
    DEVICE,
    DeviceColumn("ALONE", 6, 1),
    DeviceColumn("TOGETHER", 8, 1),
    DeviceColumn("COST", 7, 1),
    *CONDITIONS,
)
ROWS = (DEVICE, DeviceColumn("ROWS", 8, 4), DeviceColumn("BEST", 14, 1), *CONDITIONS)


def group_height(group: GroupState, width: int) -> int:
    """Return the rows that `group_rows` needs."""
    return 2 + len(group.runs) + len(_notes(group, width))


def group_rows(group: GroupState, telemetry: Telemetry, width: int) -> list[Row]:
    """Draw a heading, a row for each device, the progress, and failures."""
    kinds = {"soak": OVER_TIME, "pairs": PAIRS}
    wanted = kinds.get(group.kind, ROWS)
    if group.ended:
        wanted = tuple(OF_PEAK if column is NOW else column for column in wanted)
    columns = _fitting(wanted, width)
    spreads = group.spreads()
    head: Row = [Span("   ")]
    for column, cells in columns:
        head += [cell(column.title, cells, DIM, right=column not in (DEVICE, STATE)), Span(" ")]
    rows = [fit(head, width)]
    for n, target in enumerate(group.runs):
        texts = _cells(group, target, telemetry, spreads)
        row: Row = [Span(f" {MARKS[n % len(MARKS)]} ", COLOURS[n % len(COLOURS)])]
        for column, cells in columns:
            text, style = texts[column.title]
            if text == ABSENT:
                style = DIM
            row += [cell(text, cells, style, right=column not in (DEVICE, STATE)), Span(" ")]
        rows.append(fit(row, width))
    return [*rows, _progress(group, spreads, width), *_notes(group, width)]


def _fitting(columns: Sequence[DeviceColumn], width: int) -> list[tuple[DeviceColumn, int]]:
    """Return the columns that fit with their cells; the device gets the rest."""
    room = width - 2
    ranked = sorted(columns, key=lambda column: column.rank)
    shown = fit_columns(ranked, room, lambda column: column.width + 1)
    left = room - 1 - sum(column.width + 1 for column in shown)
    spare = max(0, min(left, WIDEST_DEVICE - DEVICE.width))
    return [(each, each.width + spare * (each is DEVICE)) for each in columns if each in shown]


def _cells(
    group: GroupState, target: Target, telemetry: Telemetry, spreads: Sequence[DeviceSpread]
) -> dict[str, tuple[str, Style]]:
    """Return text and style by the column's title."""
    run = group.runs[target]
    alone, together, cost = group.pair(target)
    errors = group.wrong_elements(target)
    rows = f"{len(run.rows)}/{run.planned.rows}" if run.planned else ABSENT
    name = short_labels([target])
    if target.number is None or len({each.name for each in group.runs}) > 1:
        name += f" {short_name(visible(target.name))}"
    return {
        DEVICE.title: (name, TEXT),
        "NOW": (tflops(run.tflops_now), STRONG),
        "OF PEAK": (percent_of_peak(run.result) if run.result else ABSENT, TEXT),
        "MEAN": (tflops(run.tflops_mean), STRONG),
        "PEAK": (tflops(run.tflops_peak), STRONG),
        "DROOP": (percentage(run.droop_percent, digits=1), TEXT),
        "ALONE": (tflops(alone), STRONG),
        "TOGETHER": (tflops(together), STRONG),
        "COST": (percentage(cost, digits=1), STRONG),
        "ROWS": (rows, TEXT),
        "BEST": (rate_text(best_row(run.rows)), STRONG),
        **_conditions(run, target, telemetry),
        "ERRORS": (ABSENT if errors is None else str(errors), FAULT if errors else TEXT),
        STATE.title: _state(group, target, spreads),
    }


def live_readings(target: Target, telemetry: Telemetry) -> tuple[float | None, ...]:
    """Return current watts, their limit, MHz and °C; for an instance those of its GPU."""
    if target.gpu_uuid is None:
        host = telemetry.host or Host()
        return None, None, host.cpu_clock_mhz, host.cpu_temperature_celsius
    now = telemetry.readings(target.gpu_uuid)
    return now.power_watts, now.power_limit_watts, now.sm_clock_mhz, now.temperature_celsius


def _conditions(
    run: RunState, target: Target, telemetry: Telemetry
) -> dict[str, tuple[str, Style]]:
    """Return current readings, or after the end the means and the highest temperature."""
    if run.result is None:
        watts, _, clock, celsius = live_readings(target, telemetry)
    else:
        known = run.result.conditions or Conditions()
        watts, clock = known.power_watts_mean, known.sm_clock_mhz_mean
        celsius = known.temperature_celsius_max
    return {
        "POWER": (quantity(watts, " W"), TEXT),
        "TEMP": (quantity(celsius, "°C"), TEXT),
        "CLOCK": (quantity(clock, " MHz"), TEXT),
    }


def _state(group: GroupState, target: Target, spreads: Sequence[DeviceSpread]) -> tuple[str, Style]:
    """Return the gravest of fault, early end, lag and progress."""
    run = group.runs[target]
    behind = {label: by for spread in spreads for label, by in spread.behind.items()}
    percent = behind.get(target.label)
    if group.is_faulty(target):
        return "FAULTY", FAULT
    if run.limit is not None:
        return run.limit.title.lower(), WARN
    if run.problem is not None:
        stopped = run.stopping or run.status == INTERRUPTED
        return ("stopped", TEXT) if stopped else ("failed", WARN)
    if run.result is not None and run.result.stopped != "time":
        return ending(run.result).word, TEXT
    if percent is not None:
        return f"{percentage(percent, digits=1)} behind", WARN
    if run.result is not None:
        unpaired = group.kind == "pairs" and group.pair(target)[2] is None
        return ("only alone", WARN) if unpaired else ("ok", GOOD)
    return _going(group, target, run), TEXT


def _going(group: GroupState, target: Target, run: RunState) -> str:
    if group.stopping:
        return "stopping"
    if run.hello is None:
        return "waits" if group.begun else "starting"
    if run.planned is None:
        return "warming up"
    if not run.measured:
        return "ready"
    if run.silent_seconds is not None:
        return f"silent {duration(run.silent_seconds)}"
    return "running" if group.kind != "pairs" else group.pair_phase(target)


def _progress(group: GroupState, spreads: Sequence[DeviceSpread], width: int) -> Row:
    """Return how far the group is, how far devices are apart, and who is behind."""
    seconds, elapsed = group.request.seconds, group.elapsed_seconds
    share, text = share_of(elapsed, seconds), f"  {duration(elapsed)} of {duration(seconds)}"
    if group.is_table:
        share = min(result_table.progress(run)[0] for run in group.runs.values())
        text = f"  {duration(elapsed)} of at most {duration(seconds)}"
    if group.ended:
        text = f"  {duration(elapsed)}"
    elif not group.is_table:
        text += f", {duration(max(0.0, seconds - elapsed))} left"
    said = "; ".join(map(_in_words, spreads))
    behind = any(spread.behind for spread in spreads)
    room = width - len(text) - len(said) - 4
    cells, style = max(SHORTEST_BAR, min(LONGEST_BAR, room)), BUSY if group.ended else ACCENT
    row: Row = [Span(" "), *bar(share, cells, style), Span(text, TEXT)]
    if said:
        row.append(Span(clip(f"  {said}", width - width_of(row)), WARN if behind else DIM))
    return row


def _in_words(spread: DeviceSpread) -> str:
    """Return a spread in words: `7.2 % apart: GPU 3 7.2 % behind GPU 0`."""
    apart = f"{percentage(spread.percent, digits=1)} apart"
    if not spread.behind:
        return f"{apart}, none is behind"
    named = ", ".join(
        f"{_short(label)} {percentage(by, digits=1)}" for label, by in spread.behind.items()
    )
    return f"{apart}: {named} behind {_short(spread.best)}"


def _short(label: str) -> str:
    """Return a GPU's label without its name."""
    number, _, _ = label.partition(",")
    return number if number.startswith("GPU ") else visible(label, 24)


def _notes(group: GroupState, width: int) -> list[Row]:
    """Return why devices failed, each problem once with its devices."""
    if group.problem is not None and not group.measured:
        return []  # the chart's space has it
    failed: dict[str, list[Target]] = {}
    for target, run in group.runs.items():
        if run.problem is not None and (run.faulty or not run.stopping) and run.limit is None:
            failed.setdefault(visible(str(run.problem)), []).append(target)
    lines = [
        line
        for problem, targets in failed.items()
        for line in wrap(f"{short_labels(targets)}: {problem}", width - 2)
    ]
    return [[Span(f" {line}", WARN)] for line in lines[:MOST_NOTES]]
