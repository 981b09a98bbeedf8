"""Title and figures of a run: what runs, its speed, its progress, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gputop.agent.problem import Problem
from gputop.bench.plan import peaks
from gputop.bench.plan.request import Target, short_labels
from gputop.bench.results.measures import best_row, rate_text, verified_text
from gputop.bench.results.outcome import outcome_of_run
from gputop.bench.results.page import level_of, verdict_lines
from gputop.bench.results.tables import layout_of
from gputop.bench.worker.heat import heat_in_short, heat_in_words
from gputop.text import (
    count,
    duration,
    percentage,
    quantity,
    short_name,
    tflops,
    visible,
    watts_of,
)
from gputop.ui.benchmark import group_table
from gputop.ui.benchmark.group_table import STYLES
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cells_of,
    clip,
    paragraph,
    reading,
    width_of,
)
from gputop.ui.drawing.live import LiveView, TelemetryView
from gputop.ui.drawing.palette import DIM, FAULT, GOOD, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from gputop.bench.run.check import Check
    from gputop.bench.run.device_run import DeviceRun
    from gputop.bench.run.run import Run

BESIDE = 50
"""Cells of the shortest bar, of the time, and of the text before the heat limit."""
TALL_ROOM = 20
"""Rows from which more of the verdict is shown."""
PEAKS = {
    peaks.DATASHEET: "datasheet peak (dense)",
    peaks.AT_MAXIMUM_CLOCK: "computed peak at max clock",
}
"""Texts for peaks, by name."""


class RunView(LiveView):
    """A view of a run."""

    run: Run | None = None


class TitleView(RunView):
    """One line: the current run, or how the last one ended."""

    when = ""
    """Time of an earlier run that is shown again."""
    check: Check | None = None
    """Check whose current part is shown."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        run = self.run
        if run is None:
            return []
        when = f" {self.when} " if self.when else " "
        check = self.check
        if check is not None:
            left = max(0.0, run.request.seconds - run.elapsed_seconds)
            left += check.seconds_to_come
            part = f"Part {check.number} of {len(check.parts)}"
            when = f" {part}, {duration(left)} left · "
        return [[Span(when, STRONG), *title(run, width - len(when))]]


def title(run: Run, width: int) -> Row:
    """Return the gravest state, its devices if others have another one, and what runs."""
    behind = run.slow_devices()
    outcomes = {}
    for target, device in run.devices.items():
        outcomes[target] = outcome_of_run(device, behind.get(target))
    gravest = min(outcomes.values())
    word = gravest.word[:1].upper() + gravest.word[1:]
    if gravest.word == "ok":
        word = "Done"
    if not run.begun and not run.ended:
        word += f", {duration(run.now() - run.started_at)}"
    text = _what(run)
    named = [each for each in outcomes if outcomes[each] == gravest]
    if len(named) < len(outcomes):
        text = f"{short_labels(named)} · {text}"
    elif run.problem is not None:
        text = visible(run.problem.what)
        if run.first.wrong_elements:
            text += f", {wrong_elements_text(run.first)}"
    elif run.first.limit is not None:
        text = f"{run.first.limit.why} · {text}"
    style = STYLES[gravest.level]
    shown = clip(f": {text}", width - len(word))
    return [Span(word, style), Span(shown, style if style is FAULT else TEXT)]


def _what(run: Run) -> str:
    """Return what runs: `bfloat16 8192×8192×8192 on 4 × H100 80GB HBM3 · torch 2.9.1`."""
    devices = [*run.devices.values()]
    shapes, torch = set(), set()
    known = []
    for each in devices:
        if each.planned:
            shapes.add((each.planned.m, each.planned.n, each.planned.k))
        if each.hello:
            torch.add(each.hello.torch_version)
        if each.readings.gpu is not None:
            known.append(each.readings.heat_limits)
    shape = ""
    if len(shapes) == 1 and not run.is_table:
        shape = "×".join(map(str, shapes.pop())) + " "
    parts = [f"{run.first.description} {shape}on {_devices([*run.devices])}"]
    results = run.results
    checked = len(results) == len(devices) and all(
        each.checks for each in results
    )
    if checked and not run.faulty:
        said = verified_text(results[0]).partition(" (")[0]
        said += f"{'' if 'check' in said else ' checked'}, none wrong"
        parts.append("all checks passed" if run.is_several else said)
    if known and run.is_several:
        parts.append(f"heat limit: {heat_in_short(known)}")
    if len(torch) == 1:
        parts.append(f"torch {visible(torch.pop())}")
    return " · ".join(parts)


def _devices(targets: Sequence[Target]) -> str:
    names = {short_name(visible(target.name)) for target in targets}
    if len(names) > 1:
        return short_labels(targets)
    name, number = names.pop(), targets[0].number
    if len(targets) > 1:
        return f"{len(targets)} × {name}"
    return name if number is None else f"GPU {number} {name}"


def wrong_elements_text(run: DeviceRun) -> str:
    """Return the number of wrong elements, and the time of the first."""
    many = count(run.wrong_elements, "wrong element")
    if run.wrong_at is None:
        return many
    return f"{many}, first at {duration(run.wrong_at)}"


class ReadoutView(TelemetryView, RunView):
    """Lines with figures, progress and checks, or the table of several devices."""

    def wanted(self, room: int) -> int:
        """Return the rows that the view needs, at most `room`.

        The number is the same before and after the end of a run, so that the chart keeps its
        height.
        """
        if self.run is None:
            return 0
        is_tall = room >= TALL_ROOM
        if self.run.is_several:
            rows = len(self.run.devices) + 2
            notes = 3 if is_tall else 1
            return rows + max(0, min(notes, room - rows))
        return 3 + (4 if is_tall else 2)

    def draw(self, width: int, height: int) -> list[Row]:
        if self.run is None:
            return []
        if self.run.is_several:
            return group_table.group_rows(
                self.run,
                self._telemetry,
                width,
                height,
            )
        return self._device_rows(self.run, width)

    def _device_rows(self, run: Run, width: int) -> list[Row]:
        device = run.first
        if device.problem is not None:
            return _problem_rows(device, device.problem, width)
        figures = _best_row(device) if run.is_table else _figures(device)
        if device.wrong_elements:
            figures += [Span(f"  {wrong_elements_text(device)}", FAULT)]
        if not run.ended:
            _add(figures, self._device(device), width)
        checks: Row = [Span(" ")]
        _add(
            checks,
            [*_checks(device), *_peaks(device), *_others(device)],
            width,
        )
        progress = group_table.progress_row(
            run,
            width,
            _heat_limit(device, width),
        )
        return [figures, progress, checks, *_verdict_rows(device, width)]

    def _device(self, run: DeviceRun) -> list[Row]:
        """Return current readings of the device. Readings with limits come first.

        A MIG instance has none, so its GPU's readings are shown and labelled as such.
        """
        target = run.request.target
        watts, limit, clock, celsius = group_table.live_readings(
            target,
            self._telemetry,
        )
        whose = (
            "" if target.parent_uuid is None else f"of GPU {target.index}: "
        )
        return [
            [Span(f"  {whose}temp ", DIM), reading(quantity(celsius, "°C"))],
            [Span("  power ", DIM), reading(watts_of(watts, limit))],
            [Span("  clock ", DIM), reading(quantity(clock, " MHz"))],
        ]


def _problem_rows(
    run: DeviceRun,
    problem: Problem,
    width: int,
) -> list[Row]:
    """Draw why a started run has no result. Before the start, the chart's space shows it."""
    if not run.measured or (run.stopping and not run.faulty):
        return []
    why = Span(
        clip(f" {visible(problem.why)}", width),
        FAULT if run.faulty else TEXT,
    )
    return [[why], [Span(clip(f" {visible(problem.remedy)}", width), STRONG)]]


def _heat_limit(run: DeviceRun, width: int) -> Row:
    """Return the temperature that ends the run, with its reason if there is room."""
    if run.readings.gpu is None:
        return []
    limits = run.readings.heat_limits
    said = heat_in_words(limits)
    if cells_of(said) > width - BESIDE:
        said = heat_in_short([limits])
    return [Span(f"  heat limit: {said}", DIM)]


def _verdict_rows(run: DeviceRun, width: int) -> list[Row]:
    """Draw the verdict's sentence, and below it the parts that are not ok, or their number."""
    result = run.result
    if result is None or result.verdict is None:
        return []
    verdict = result.verdict
    style = STYLES[level_of(verdict.state)]
    rows = paragraph(visible(verdict.summary), width - 1, style + STRONG, " ")
    if not verdict.summary:
        rows = []
    for line in verdict_lines(result):
        rows.append([Span(clip(f" {visible(line)}", width), style)])
    return rows


def _figures(run: DeviceRun) -> Row:
    row: Row = [Span(" ")]
    unit, factor = run.rate_scale(run.rate_peak)
    rates = {"now": run.rate_now, "mean": run.rate_mean, "peak": run.rate_peak}
    bounds = run.result and run.result.tflops_mean_interval
    for name, value in rates.items():
        shown = tflops(value and factor * value)
        if name == "mean" and bounds:
            shown += f" ± {factor * (bounds[1] - bounds[0]) / 2:.2g}"
        row += [Span(f"{name} ", DIM), reading(f"{shown} ".ljust(7), STRONG)]
    return [*row, Span(unit, DIM)]


def _best_row(run: DeviceRun) -> Row:
    """Return the number of rows in a table, and the best row so far."""
    rows = count(len(run.rows), "row")
    if run.planned and not run.ended:
        rows = f"{len(run.rows)} of at most {run.planned.rows} rows"
    row: Row = [Span(" "), Span(rows, TEXT)]
    best = best_row(run.rows)
    if best is not None:
        size = layout_of(run.request.kind).size_text(best)
        where = f" {visible(best.series, 40)}, {size}"
        row += [
            Span("  best ", DIM),
            Span(rate_text(best), STRONG),
            Span(where, DIM),
        ]
    return row


def _add(
    row: Row,
    parts: Iterable[Row],
    width: int,
) -> None:
    for part in parts:
        if width_of([*row, *part]) <= width:
            row += part


def _checks(run: DeviceRun) -> list[Row]:
    """Return what was verified, and the number of wrong elements."""
    verified, counted = run.verified, run.result or run.progress
    if verified is None or not verified.checks:
        return []
    said = count(verified.checks, "check")
    if verified.products and counted is not None and not run.is_table:
        what = run.kind.counts.removesuffix("s")
        made = count(counted.iterations, what)
        said = f"{verified.products:,} of {made} verified"
    wrong = run.wrong_elements
    verdict = Span(f"{wrong or 'none'} wrong", FAULT if wrong else GOOD)
    return [[Span(f"{said}, "), verdict]]


def _peaks(run: DeviceRun) -> list[Row]:
    """Return the share of the known peaks."""
    known = run.readings.percent_of_peak(run.rate_mean, run.request.dtype)
    if run.result is not None:
        known = run.result.known_conditions.percent_of_peak
    found: list[Row] = []
    for name, share in known.items():
        of = Span(f" of {visible(PEAKS.get(name, name), 60)}", DIM)
        gap = Span(" · " if found else "  ")
        found.append([gap, Span(percentage(share), STRONG), of])
    return found


def _others(run: DeviceRun) -> list[Row]:
    """Return the other users of the device."""
    others: Sequence[str] = run.readings.others
    if run.result is not None:
        others = run.result.known_conditions.other_load
    if not others:
        return []
    return [[Span(f"  also {visible('; '.join(others), 300)}", WARN)]]
