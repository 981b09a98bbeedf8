"""Title and figures of a run or group: what runs, how fast, how far, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gputop.bench.events import DEGRADED, FAULTY, NOT_JUDGED, OK
from gputop.bench.plan import peaks
from gputop.bench.plan.request import Target, short_labels
from gputop.bench.results.columns import ending
from gputop.bench.results.measures import verified_text
from gputop.bench.results.page import verdict_lines
from gputop.bench.worker.heat import heat_in_short, heat_in_words
from gputop.schema.values import value_text
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
from gputop.ui.benchmark import group_table, results
from gputop.ui.drawing.cells import Row, Span, bar, clip, paragraph, reading, width_of
from gputop.ui.drawing.live import LiveView, TelemetryView
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, GOOD, STRONG, TEXT, WARN

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.agent.problem import Problem
    from gputop.bench.run.group import GroupState
    from gputop.bench.run.run_state import RunState


class RunView(LiveView):
    """A view of the runs that were started together."""

    group: GroupState | None = None

    @property
    def run(self) -> RunState | None:
        """The one run, or None if there are several."""
        return None if self.group is None or self.group.is_several else self.group.first


class TitleView(RunView):
    """One line: what is running, or how it ended."""

    when = ""
    """Time of an earlier run that is shown again, or which part of a suite runs."""
    rest: float | None = None
    """Seconds of the later parts of a suite."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        if self.group is None:
            return []
        when = f" {self.when} " if self.when else " "
        if self.rest is not None:
            left = max(0.0, self.group.request.seconds - self.group.elapsed_seconds)
            when = f" {self.when}, {duration(self.rest + left)} left "
        return [[Span(when, STRONG), *title(self.group, width - len(when))]]


def title(group: GroupState, width: int) -> Row:
    """Return what runs, how far it is, or how it ended."""
    word, style, text = _ended(group) if group.ended else _going(group)
    if style is FAULT:
        return [Span(clip(word + text, width), FAULT)]
    return [Span(word, style), Span(clip(text, width - len(word)))]


def _going(group: GroupState) -> tuple[str, Style, str]:
    what, runs = _what(group), group.runs.values()
    if group.faulty:
        return "FAULTY: ", FAULT, f"{_faults(group)}, {what}"
    if any(run.stopping for run in runs) or group.stopping:
        return "Stopping ", WARN, what
    silent = None if group.is_several else group.first.silent_seconds
    if silent is not None:
        return f"Silent for {duration(silent)}, x ends it: ", WARN, what
    if group.begun or (group.is_table and all(run.planned for run in runs)):
        return "Running ", GOOD, what
    step = "Warming up" if any(run.hello for run in runs) else "Starting torch"
    return f"{step}, {duration(group.now() - group.started_at)}: ", WARN, what


def _ended(group: GroupState) -> tuple[str, Style, str]:
    run, what = group.first, _what(group)
    if not group.is_several and run.problem is not None:
        return _failed(run, run.problem)
    if group.faulty:
        return "FAULTY: ", FAULT, f"{_faults(group)}, {what}"
    if not group.is_several and run.limit is not None:
        return f"{run.limit.title} ", WARN, f"{run.limit.why} · {what}"
    done = [target for target, each in group.runs.items() if each.took_its_time]
    if len(done) == len(group.runs):
        ends = [(target, group.runs[target].result) for target in done]
        if bad := [
            target for target, result in ends if result and result.state == DEGRADED
        ]:
            return (
                "DEGRADED: ",
                WARN,
                (f"{short_labels(bad)}, " if group.is_several else "") + what,
            )
        return "Done ", GOOD, what
    if group.stopping or not group.is_several:
        return "Stopped ", GOOD, what
    if group.problem is not None and not group.measured:
        return "Not run: ", WARN, visible(group.problem.what)
    others = "; ".join(
        f"{target.place} {_why(each)}"
        for target, each in group.runs.items()
        if target not in done
    )
    return f"{len(done)} of {len(group.runs)} done: ", WARN, f"{others} · {what}"


def _failed(run: RunState, problem: Problem) -> tuple[str, Style, str]:
    """Return the title of a run without a result: only a fault of the device is red."""
    if run.faulty:
        after = f" after {duration(run.elapsed_seconds)}" if run.measured else ""
        wrong = f", {wrong_elements_text(run)}" if run.wrong_elements else ""
        return f"FAULTY{after}: ", FAULT, visible(problem.what) + wrong
    if run.limit is not None:
        return (
            f"{run.limit.title}: ",
            WARN,
            f"{run.limit.why}, before there was a result",
        )
    if run.stopping:
        return "Stopped ", WARN, "before there was a result"
    word = (
        f"Ended after {duration(run.elapsed_seconds)}: "
        if run.measured
        else "Not run: "
    )
    return word, WARN, visible(problem.what)


def _what(group: GroupState) -> str:
    """Return what runs: `bfloat16 8192×8192×8192 on 4 × H100 80GB HBM3 · torch 2.9.1`."""
    runs = list(group.runs.values())
    shapes = {
        (run.planned.m, run.planned.n, run.planned.k) for run in runs if run.planned
    }
    shape = ""
    if len(shapes) == 1 and not group.is_table:
        shape = "×".join(map(str, shapes.pop())) + " "
    parts = [f"{group.first.description} {shape}on {_devices(list(group.runs))}"]
    results = [run.result for run in runs if run.result]
    if (
        len(results) == len(runs)
        and all(each.checks for each in results)
        and not group.faulty
    ):
        said = verified_text(results[0]).partition(" (")[0]
        said += f"{'' if 'check' in said else ' checked'}, none wrong"
        parts.append("all checks passed" if group.is_several else said)
    known = [run.trace.heat_limits for run in runs if run.trace.gpu is not None]
    if known and group.is_several:
        parts.append(f"heat limit: {heat_in_short(known)}")
    torch = {run.hello.torch_version for run in runs if run.hello}
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


def _faults(group: GroupState) -> str:
    return "; ".join(
        (f"{target.place} " if group.is_several else "") + _fault(group, target)
        for target in filter(group.is_faulty, group.runs)
    )


def _fault(group: GroupState, target: Target) -> str:
    run = group.runs[target]
    if wrong := group.wrong_elements(target):
        return (
            count(wrong, "wrong element")
            if group.is_several
            else wrong_elements_text(run)
        )
    bad = run.result.verdict.bad if run.result and run.result.verdict else ()
    return bad[0].why if bad else "failed"


def wrong_elements_text(run: RunState) -> str:
    """Return the number of wrong elements, and when the first was found."""
    many = count(run.wrong_elements, "wrong element")
    return (
        many if run.wrong_at is None else f"{many}, first at {duration(run.wrong_at)}"
    )


def _why(run: RunState) -> str:
    if run.limit is not None:
        return f"{run.limit.title.lower()}, {run.limit.why}"
    if run.problem is not None:
        return f"failed, {visible(run.problem.what)}"
    return ending(run.result).word if run.result else "ended"


SHORTEST_BAR = 10
PEAKS = {
    peaks.DATASHEET: "datasheet peak (dense)",
    peaks.AT_MAXIMUM_CLOCK: "computed peak at max clock",
}
"""Peaks in words, by their names."""


class ReadoutView(TelemetryView, RunView):
    """Lines with figures, progress and checks, or the table of several devices."""

    def wanted(self, width: int) -> int:
        if not self.group:
            return 0
        if self.run is None:
            return len(self.draw(width, 0))
        return 3 + len(_summary(self.run, width)) + len(_bad(self.run))

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - it has what it wants
        run = self.run
        if run is None:
            return (
                group_table.group_rows(self.group, self._telemetry, width)
                if self.group
                else []
            )
        if run.problem is not None:
            if not run.measured or (run.stopping and not run.faulty):
                return []
            why, remedy = visible(run.problem.why), visible(run.problem.remedy)
            style = FAULT if run.faulty else TEXT
            return [
                [Span(clip(f" {why}", width), style)],
                [Span(clip(f" {remedy}", width), STRONG)],
            ]
        figures = results.last_and_best(run, width) if run.is_table else _figures(run)
        if run.wrong_elements:
            figures += [Span(f"  {wrong_elements_text(run)}", FAULT)]
        _add(figures, _conditions(run) if run.ended else self._device(run), width)
        checks: Row = [Span(" ")]
        _add(checks, _checks(run), width)
        style = FAULT if run.faulty else WARN
        bad = [[Span(clip(f" {line}", width), style)] for line in _bad(run)]
        summary = _summary(run, width)
        return [figures, self._progress(run, width), checks, *summary, *bad]

    def _device(self, run: RunState) -> list[Row]:
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

    def _progress(self, run: RunState, width: int) -> Row:
        share, text = results.progress(run)
        heat, end = "", DIM
        fits = width - SHORTEST_BAR - len(text) - 1
        verdict = run.result.verdict if run.result else None
        if run.result and verdict and not verdict.bad:
            heat = f"  {next(verdict_lines(run.result))}"
            end = GOOD if verdict.state == OK else TEXT
            if len(heat) > fits:  # without their names
                judged = sum(part.state != NOT_JUDGED for part in verdict.parts)
                heat = f"  Verdict: {verdict.state} ({judged} of {len(verdict.parts)} judged)"
        elif run.trace.gpu is not None:
            limits = run.trace.heat_limits
            heat = f"  heat limit: {heat_in_words(limits)}"
            if len(heat) > fits:  # without its reason
                heat = f"  heat limit: {heat_in_short([limits])}"
        room = max(SHORTEST_BAR, min(80, width - max(32, len(text) + len(heat) + 1)))
        style = BUSY if run.ended else ACCENT
        limit = [Span(heat, end)] if heat else []
        return [Span(" "), *bar(share, room, style), Span(text, TEXT), *limit]


def _summary(run: RunState, width: int) -> list[Row]:
    """Draw the verdict in plain English."""
    verdict = run.result.verdict if run.result else None
    if verdict is None or not verdict.summary:
        return []
    style = {OK: GOOD, DEGRADED: WARN, FAULTY: FAULT}.get(verdict.state, TEXT)
    return paragraph(visible(verdict.summary), width - 1, style, " ")


def _bad(run: RunState) -> list[str]:
    result = run.result
    return (
        [*verdict_lines(result)]
        if result and result.state in (FAULTY, DEGRADED)
        else []
    )


def _figures(run: RunState) -> Row:
    row: Row = [Span(" ")]
    unit, factor = run.rate_scale(run.tflops_peak)
    rates = (run.tflops_now, run.tflops_mean, run.tflops_peak)
    for name, value in zip(("now", "mean", "peak"), rates, strict=True):
        shown = tflops(value and factor * value)
        bounds = run.result and run.result.tflops_mean_interval
        if name == "mean" and bounds:
            shown += f" ± {factor * (bounds[1] - bounds[0]) / 2:.2g}"
        row += [Span(f"{name} ", DIM), reading(f"{shown} ".ljust(7), STRONG)]
    return [*row, Span(unit, DIM)]


def _add(row: Row, parts: Iterable[Row], width: int) -> None:
    for part in parts:
        if width_of([*row, *part]) <= width:
            row += part


def _checks(run: RunState) -> list[Row]:
    """Return what was verified, the share of the known peaks, and who else uses the device."""
    result, verified, wrong = run.result, run.verified, run.wrong_elements
    checks = result.checks if result else verified.checks if verified else 0
    products = result.verified_products if result else verified and verified.products
    said = count(checks, "check")
    if products is not None and not run.is_table:
        made = (
            result.iterations
            if result
            else run.progress.iterations
            if run.progress
            else 0
        )
        said = f"{products:,} of {count(made, 'product')} verified"
    peaks = run.trace.percent_of_peak(run.tflops_mean, run.request.dtype)
    others: tuple[str, ...] = run.trace.others
    if result is not None:
        peaks, others = (
            result.known_conditions.percent_of_peak,
            result.known_conditions.other_load,
        )
    verdict = Span(f"{wrong or 'none'} wrong", FAULT if wrong else GOOD)
    found = [[Span(f"{said}, "), verdict]] if checks else []
    for n, (name, share) in enumerate(peaks.items()):
        of = Span(f" of {visible(PEAKS.get(name, name), 60)}", DIM)
        found.append([Span(" · " if n else "  "), Span(percentage(share), STRONG), of])
    if others:
        found.append([Span(f"  also {visible('; '.join(others), 300)}", WARN)])
    return found


def _conditions(run: RunState) -> list[Row]:
    if run.result is None:
        return []
    known, found = run.result.known_conditions, list[Row]()
    if known.tflop_per_joule is not None:
        found.append(
            [Span(f"  {tflops(known.tflop_per_joule)}", STRONG), Span(" TFLOP/J", DIM)]
        )
    if known.energy_joules is not None:
        energy = value_text("energy_joules", known.energy_joules)
        found.append([Span("  energy ", DIM), Span(energy)])
    return found
