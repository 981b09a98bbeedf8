"""Table of several devices under test: a row per device, the progress, and slow devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.style import Style

from gputop.agent.snapshot import Host
from gputop.bench.plan.request import Target
from gputop.bench.results.columns import percent_of_peak
from gputop.bench.results.measures import best_row, rate_text
from gputop.bench.results.outcome import outcome_of_run
from gputop.bench.results.outliers import device_outcome, joined
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
from gputop.ui.benchmark.plot import colour_of
from gputop.ui.drawing.cells import Row, Span, bar, cell, fit, width_of, wrap
from gputop.ui.drawing.palette import (
    ACCENT,
    BUSY,
    DIM,
    FAULT,
    GOOD,
    STRONG,
    TEXT,
    WARN,
)
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.bench.run.run import Run

WIDEST_DEVICE = 30
SHORTEST_BAR, LONGEST_BAR = 10, 60

WIDTHS = {
    "DEVICE": 6,
    "STATE": 13,
    "MEAN": 6,
    "BEST": 14,
    "ERRORS": 6,
    "TEMP": 5,
    "NOW": 6,
    "OF PEAK": 7,
    "DROOP": 6,
    "ROWS": 8,
    "PEAK": 6,
    "POWER": 6,
    "CLOCK": 8,
}
"""Widths of the columns. A narrow table keeps the first ones."""
STYLES = {"fault": FAULT, "warn": WARN, "good": GOOD, "": TEXT}
"""Styles of the levels of an outcome."""
WORDS = ("DEVICE", "STATE")
"""Columns that are aligned to the left."""
CONDITIONS = ("POWER", "TEMP", "CLOCK", "ERRORS", "STATE")
OVER_TIME = ("DEVICE", "NOW", "OF PEAK", "MEAN", "PEAK", "DROOP", *CONDITIONS)
"""Columns before the end, without OF PEAK and DROOP (not known yet), and after it, without NOW."""
ROWS = ("DEVICE", "ROWS", "BEST", *CONDITIONS)


def group_rows(
    run: Run,
    telemetry: Telemetry,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a heading, a row for each device, the progress, and failures.

    A device's name has the colour of its line in the chart. If there is no room for the failures,
    they replace the progress.
    """
    columns = _columns(run, width)
    behind = run.slow_devices()
    head: Row = [Span(" ")]
    for title, cells in columns:
        head += [
            cell(
                title,
                cells,
                DIM,
                right=title not in WORDS,
            ),
            Span(" "),
        ]
    rows = [fit(head, width)]
    for n, target in enumerate(run.devices):
        texts = _cells(run, target, telemetry, behind)
        texts["DEVICE"] = (_name(run, target), colour_of(n))
        row: Row = [Span(" ")]
        for title, cells in columns:
            text, style = texts[title]
            if text == ABSENT:
                style = DIM
            row += [
                cell(
                    text,
                    cells,
                    style,
                    right=title not in WORDS,
                ),
                Span(" "),
            ]
        rows.append(fit(row, width))
    room = height - len(rows)
    notes = _notes(run, width)
    if not notes or room > 1:
        rows.append(progress_row(run, width))
        room -= 1
    if len(notes) > room > 0:
        notes = [*notes[: room - 1], [*notes[room - 1], Span(" …", WARN)]]
    return [*rows, *notes][:height]


def _columns(run: Run, width: int) -> list[tuple[str, int]]:
    """Return the columns that fit, with their widths. The device gets the remaining width."""
    wanted: tuple[str, ...] = ROWS if run.is_table else OVER_TIME
    hidden = ("NOW",) if run.ended else ("OF PEAK", "DROOP")
    ranked = [each for each in WIDTHS if each in wanted and each not in hidden]
    shown = fit_columns(ranked, width - 1, lambda title: WIDTHS[title] + 1)
    left = width - 1 - sum(WIDTHS[title] + 1 for title in shown)
    spare = max(0, min(left, WIDEST_DEVICE - WIDTHS["DEVICE"]))
    columns = []
    for title in wanted:
        if title in shown:
            columns.append(
                (title, WIDTHS[title] + spare * (title == "DEVICE")),
            )
    return columns


def _name(run: Run, target: Target) -> str:
    models = {each.name for each in run.devices}
    if target.number is None or len(models) > 1:
        return f"{target.place} {short_name(visible(target.name))}"
    return target.place


def _cells(
    run: Run,
    target: Target,
    telemetry: Telemetry,
    behind: Mapping[Target, float],
) -> dict[str, tuple[str, Style]]:
    device = run.devices[target]
    result = device.result
    errors = device.wrong_elements
    rows = ABSENT
    if device.planned:
        rows = f"{len(device.rows)}/{device.planned.rows}"
    watts, _, clock, celsius = live_readings(target, telemetry)
    # Show the means and the highest temperature.
    if result is not None:
        known = result.known_conditions
        watts, clock = known.power_watts_mean, known.sm_clock_mhz_mean
        celsius = known.temperature_celsius_max
    droop = percentage(result.droop_percent if result else None, digits=1)
    wrong = f"{errors:,}" if device.verified else ABSENT
    state = outcome_of_run(device, behind.get(target))
    return {
        "NOW": (throughput(device.rate_now, short=True), STRONG),
        "OF PEAK": (percent_of_peak(result) if result else ABSENT, TEXT),
        "MEAN": (throughput(device.rate_mean, short=True), STRONG),
        "PEAK": (throughput(device.rate_peak, short=True), STRONG),
        "DROOP": (droop, TEXT),
        "ROWS": (rows, TEXT),
        "BEST": (rate_text(best_row(device.rows)), STRONG),
        "POWER": (quantity(watts, " W"), TEXT),
        "TEMP": (quantity(celsius, "°C"), TEXT),
        "CLOCK": (quantity(clock, " MHz"), TEXT),
        "ERRORS": (wrong, FAULT if errors else TEXT),
        "STATE": (state.word, STYLES[state.level]),
    }


def live_readings(
    target: Target,
    telemetry: Telemetry,
) -> tuple[float | None, ...]:
    """Return current watts, their limit, MHz and °C. An instance has the values of its GPU."""
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


def progress_row(
    run: Run,
    width: int,
    beside: Row | None = None,
) -> Row:
    """Draw the progress of a run, followed by `beside`."""
    seconds, elapsed = run.request.seconds, run.elapsed_seconds
    text = f"  {duration(elapsed)}"
    if run.is_table and not run.ended:
        text += f" of at most {duration(seconds)}"
    elif not run.ended:
        text += f" of {duration(seconds)}, {duration(max(0.0, seconds - elapsed))} left"
    after = [Span(text, TEXT), *(beside or ())]
    cells = max(SHORTEST_BAR, min(LONGEST_BAR, width - width_of(after) - 2))
    style = BUSY if run.ended else ACCENT
    return [Span(" "), *bar(run.share, cells, style), *after]


def _notes(run: Run, width: int) -> list[Row]:
    """Draw why devices ended and the parts of verdicts that are not ok; join equal notes."""
    if run.problem is not None and not run.measured:
        # The chart's space shows it.
        return []
    found = []
    for device in run.devices.values():
        outcome = device_outcome(device)
        is_own = device.faulty or not device.stopping
        if device.problem is not None and is_own and device.limit is None:
            found.append((outcome, visible(str(device.problem))))
        verdict = device.result.verdict if device.result else None
        for part in verdict.bad if verdict else ():
            found.append((outcome, f"{part.name}: {visible(part.why)}"))
    lines = []
    for _, line in joined(found):
        lines += wrap(line, width - 4)
    return [[Span(f" {line}", WARN)] for line in lines]
