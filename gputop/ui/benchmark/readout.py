"""Title and figures of a run: what runs, how fast, how far, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gputop.bench.events import DEGRADED, FAULTY, NOT_JUDGED, OK
from gputop.bench.plan import peaks
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import Target, short_labels
from gputop.bench.results.columns import ending
from gputop.bench.results.measures import best_row, rate_text, verified_text
from gputop.bench.results.page import verdict_lines
from gputop.bench.worker.heat import heat_in_short, heat_in_words
from gputop.schema.values import value_text
from gputop.text import (
    brief,
    count,
    duration,
    percentage,
    quantity,
    short_name,
    size,
    tflops,
    visible,
    watts_of,
)
from gputop.ui.benchmark import group_table
from gputop.ui.drawing.cells import Row, Span, bar, clip, paragraph, reading, width_of
from gputop.ui.drawing.live import LiveView, TelemetryView
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, GOOD, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.agent.problem import Problem
    from gputop.bench.events import Point
    from gputop.bench.run.device_run import DeviceRun
    from gputop.bench.run.run import Run

SHORTEST_BAR, LONGEST_BAR = 10, 80
TALL_ROOM = 20
"""Rows from which there is room for more of the verdict."""
PEAKS = {
    peaks.DATASHEET: "datasheet peak (dense)",
    peaks.AT_MAXIMUM_CLOCK: "computed peak at max clock",
}
"""Peaks in words, by their names."""
STYLES = {OK: GOOD, DEGRADED: WARN, FAULTY: FAULT}
"""Styles of states of a verdict."""


class RunView(LiveView):
    """A view of a run."""

    run: Run | None = None


class TitleView(RunView):
    """One line: what is running, or how it ended."""

    when = ""
    """Time of an earlier run that is shown again, or which part of a check runs."""
    rest: float | None = None
    """Seconds of the later parts of a check."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        run = self.run
        if run is None:
            return []
        when = f" {self.when} " if self.when else " "
        if self.rest is not None:
            left = max(0.0, run.request.seconds - run.elapsed_seconds)
            when = f" {self.when}, {duration(self.rest + left)} left "
        return [[Span(when, STRONG), *title(run, width - len(when))]]


def title(run: Run, width: int) -> Row:
    """Return what runs, how far it is, or how it ended."""
    word, style, text = _ended(run) if run.ended else _going(run)
    if style is FAULT:
        return [Span(clip(word + text, width), FAULT)]
    return [Span(word, style), Span(clip(text, width - len(word)))]


def _going(run: Run) -> tuple[str, Style, str]:
    what, devices = _what(run), run.devices.values()
    if run.faulty:
        return "FAULTY: ", FAULT, f"{_faults(run)}, {what}"
    if run.stopping or any(each.stopping for each in devices):
        return "Stopping ", WARN, what
    since = duration(run.now() - run.started_at)
    if run.late:
        return f"Waiting for {short_labels(run.late)}, {since}: ", WARN, what
    silent = run.silent
    if silent:
        seconds = duration(run.devices[silent[0]].silent_seconds or 0.0)
        who = f"{short_labels(silent)} silent" if run.is_several else "Silent"
        return f"{who} for {seconds}, x ends it: ", WARN, what
    if run.begun:
        return "Running ", GOOD, what
    step = "Warming up" if any(each.hello for each in devices) else "Starting torch"
    return f"{step}, {since}: ", WARN, what


def _ended(run: Run) -> tuple[str, Style, str]:
    first, what = run.first, _what(run)
    if not run.is_several and first.problem is not None:
        return _failed(first, first.problem)
    if run.faulty:
        return "FAULTY: ", FAULT, f"{_faults(run)}, {what}"
    if not run.is_several and first.limit is not None:
        return f"{first.limit.title} ", WARN, f"{first.limit.why} · {what}"
    early = [each for each, device in run.devices.items() if not device.took_its_time]
    if not early:
        return _done(run, what)
    if run.stopping or not run.is_several:
        return "Stopped ", GOOD, what
    if run.problem is not None and not run.measured:
        return "Not run: ", WARN, visible(run.problem.what)
    others = [f"{target.place} {_why(run.devices[target])}" for target in early]
    done = len(run.devices) - len(early)
    word = f"{done} of {len(run.devices)} done: "
    return word, WARN, f"{'; '.join(others)} · {what}"


def _done(run: Run, what: str) -> tuple[str, Style, str]:
    degraded = []
    for target, device in run.devices.items():
        if device.result is not None and device.result.state == DEGRADED:
            degraded.append(target)
    if not degraded:
        return "Done ", GOOD, what
    who = f"{short_labels(degraded)}, " if run.is_several else ""
    return "DEGRADED: ", WARN, who + what


def _failed(run: DeviceRun, problem: Problem) -> tuple[str, Style, str]:
    """Return the title of a run without a result: only a fault of the device is red."""
    after = f" after {duration(run.elapsed_seconds)}" if run.measured else ""
    if run.faulty:
        wrong = f", {wrong_elements_text(run)}" if run.wrong_elements else ""
        return f"FAULTY{after}: ", FAULT, visible(problem.what) + wrong
    if run.limit is not None:
        why = f"{run.limit.why}, before there was a result"
        return f"{run.limit.title}: ", WARN, why
    if run.stopping:
        return "Stopped ", WARN, "before there was a result"
    word = f"Ended{after}: " if after else "Not run: "
    return word, WARN, visible(problem.what)


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
    checked = len(results) == len(devices) and all(each.checks for each in results)
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


def _faults(run: Run) -> str:
    faults = []
    for target in filter(run.is_faulty, run.devices):
        who = f"{target.place} " if run.is_several else ""
        faults.append(who + _fault(run, target))
    return "; ".join(faults)


def _fault(run: Run, target: Target) -> str:
    device, wrong = run.devices[target], run.wrong_elements(target)
    if wrong and run.is_several:
        return count(wrong, "wrong element")
    if wrong:
        return wrong_elements_text(device)
    verdict = device.result.verdict if device.result else None
    return verdict.bad[0].why if verdict and verdict.bad else "failed"


def wrong_elements_text(run: DeviceRun) -> str:
    """Return the number of wrong elements, and when the first was found."""
    many = count(run.wrong_elements, "wrong element")
    if run.wrong_at is None:
        return many
    return f"{many}, first at {duration(run.wrong_at)}"


def _why(run: DeviceRun) -> str:
    if run.limit is not None:
        return f"{run.limit.title.lower()}, {run.limit.why}"
    if run.problem is not None:
        return f"failed, {visible(run.problem.what)}"
    return ending(run.result).word if run.result else "ended"


class ReadoutView(TelemetryView, RunView):
    """Lines with figures, progress and checks, or the table of several devices."""

    def wanted(self, room: int) -> int:
        """Return the rows of the view where there is room for so many.

        They are the same before and after the end of a run, so that the chart keeps its height.
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
            return group_table.group_rows(self.run, self._telemetry, width, height)
        return self._device_rows(self.run.first, width)

    def _device_rows(self, run: DeviceRun, width: int) -> list[Row]:
        if run.problem is not None:
            return _problem_rows(run, run.problem, width)
        figures = last_and_best(run, width) if run.is_table else _figures(run)
        if run.wrong_elements:
            figures += [Span(f"  {wrong_elements_text(run)}", FAULT)]
        _add(figures, _conditions(run) if run.ended else self._device(run), width)
        checks: Row = [Span(" ")]
        _add(checks, [*_checks(run), *_peaks(run), *_others(run)], width)
        return [figures, _progress(run, width), checks, *_verdict_rows(run, width)]

    def _device(self, run: DeviceRun) -> list[Row]:
        """Return current readings of the device, those with limits first.

        A MIG instance has none: its GPU's are labelled as such.
        """
        target = run.request.target
        watts, limit, clock, celsius = group_table.live_readings(
            target, self._telemetry
        )
        whose = "" if target.parent_uuid is None else f"of GPU {target.index}: "
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
    """Draw why a run that had begun has no result; before that the chart's space has it."""
    if not run.measured or (run.stopping and not run.faulty):
        return []
    why = Span(clip(f" {visible(problem.why)}", width), FAULT if run.faulty else TEXT)
    return [[why], [Span(clip(f" {visible(problem.remedy)}", width), STRONG)]]


def _progress(run: DeviceRun, width: int) -> Row:
    text = f"  {_progress_text(run)}"
    beside, style = _beside(run, width - SHORTEST_BAR - len(text) - 1)
    most = width - max(32, len(text) + len(beside) + 1)
    room = max(SHORTEST_BAR, min(LONGEST_BAR, most))
    drawn = bar(run.share, room, BUSY if run.ended else ACCENT)
    return [Span(" "), *drawn, Span(text, TEXT), Span(beside, style)]


def _progress_text(run: DeviceRun) -> str:
    elapsed, rows = run.elapsed_seconds, len(run.rows)
    seconds = run.request.seconds
    left = duration(max(0.0, seconds - elapsed))
    if not run.is_table:
        text = f"{duration(elapsed)} of {duration(seconds)}"
        return text if run.ended else f"{text}, {left} left"
    if run.ended:
        return f"{count(rows, 'row')} in {duration(elapsed)}"
    most = run.planned.rows if run.planned else 0
    of = f"{rows} of at most {most} rows" if most else count(rows, "row")
    return f"{of}, at most {left} left"


def _beside(run: DeviceRun, room: int) -> tuple[str, Style]:
    """Return a good verdict, or the heat limit while there is none, in so many cells."""
    verdict = run.result.verdict if run.result else None
    if run.result and verdict and not verdict.bad:
        said = f"  {next(verdict_lines(run.result))}"
        if len(said) > room:  # without the names of its parts
            judged = sum(part.state != NOT_JUDGED for part in verdict.parts)
            of = f"{judged} of {len(verdict.parts)} judged"
            said = f"  Verdict: {verdict.state} ({of})"
        return said, STYLES.get(verdict.state, TEXT)
    if run.readings.gpu is None:
        return "", DIM
    limits = run.readings.heat_limits
    said = f"  heat limit: {heat_in_words(limits)}"
    if len(said) > room:  # without its reason
        said = f"  heat limit: {heat_in_short([limits])}"
    return said, DIM


def _verdict_rows(run: DeviceRun, width: int) -> list[Row]:
    """Draw the verdict: its sentence, and below it the parts that are not ok."""
    result = run.result
    if result is None or result.verdict is None:
        return []
    verdict = result.verdict
    style = STYLES.get(verdict.state, TEXT)
    rows = paragraph(visible(verdict.summary), width - 1, style + STRONG, " ")
    if not verdict.summary:
        rows = []
    if verdict.bad:
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


def last_and_best(run: DeviceRun, width: int) -> Row:
    """Return the last row of a table, and the best so far if it fits."""
    row: Row = [Span(" ")]
    if not run.rows:
        word = "the first row is being measured" if run.planned else ""
        return [*row, Span(word, DIM)]
    last, best = run.rows[-1], best_row(run.rows) or run.rows[-1]
    if run.request.kind == "latency":
        # Work of several sorts: the table says what is best of each.
        said = brief(last.values.get("seconds"))
        return row if run.ended else [*row, *_row_text(run, "last", said, last)]
    text = _row_text(run, "best", rate_text(best), best)
    if not run.ended and last is not best:
        row += _row_text(run, "last", rate_text(last), last)
    if len(row) == 1 or width_of([*row, *text]) <= width:
        row += text
    return row


def _row_text(
    run: DeviceRun,
    name: str,
    said: str,
    point: Point,
) -> Row:
    where = f" {_where(run, point)}  "
    return [Span(f"{name} ", DIM), Span(said, STRONG), Span(where, DIM)]


def _where(run: DeviceRun, point: Point) -> str:
    series = visible(point.series, 40)
    if run.request.kind == "copy":
        return f"{series}, {size(point.x)}"
    if len(set(point.shape)) > 1:
        return "×".join(map(str, point.shape))
    return f"{series}, {point.x:.0f}"


def _add(
    row: Row,
    parts: Iterable[Row],
    width: int,
) -> None:
    for part in parts:
        if width_of([*row, *part]) <= width:
            row += part


def _checks(run: DeviceRun) -> list[Row]:
    """Return what was verified, and how many elements were wrong."""
    source, made = run.verified, run.progress.iterations if run.progress else 0
    checks = source.checks if source else 0
    products = source.products if source else None
    if run.result is not None:
        made, checks = run.result.iterations, run.result.checks
        products = run.result.verified_products
    if not checks:
        return []
    said = count(checks, "check")
    if products is not None and not run.is_table:
        what = KINDS[run.request.kind].counts.removesuffix("s")
        said = f"{products:,} of {count(made, what)} verified"
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
    """Return who else uses the device."""
    others: Sequence[str] = run.readings.others
    if run.result is not None:
        others = run.result.known_conditions.other_load
    if not others:
        return []
    return [[Span(f"  also {visible('; '.join(others), 300)}", WARN)]]


def _conditions(run: DeviceRun) -> list[Row]:
    if run.result is None:
        return []
    known, found = run.result.known_conditions, list[Row]()
    if known.tflop_per_joule is not None:
        efficiency = f"  {tflops(known.tflop_per_joule)}"
        found.append([Span(efficiency, STRONG), Span(" TFLOP/J", DIM)])
    if known.energy_joules is not None:
        energy = value_text("energy_joules", known.energy_joules)
        found.append([Span("  energy ", DIM), Span(energy)])
    return found
