"""Title and figures of a run or group: what runs, how fast, how far, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.plan import heat_limits
from gputop.bench.plan.devices import short_labels
from gputop.bench.results.facts import ending
from gputop.schema.values import value_text
from gputop.text import count, duration, percentage, quantity, short_name, tflops, visible, watts_of
from gputop.ui.benchmark import group_table, result_table
from gputop.ui.drawing.cells import Row, Span, bar, clip, reading, share_of, width_of
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, GOOD, STRONG, TEXT, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.events import Result
    from gputop.bench.plan.request import Target
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState
    from gputop.problem import Problem
    from gputop.ui.model import Telemetry


class RunView(LiveView):
    """A view of the runs that were started together."""

    group: GroupState | None = None

    @property
    def run(self) -> RunState | None:
        """The one run, or None if there are several."""
        return None if self.group is None or self.group.is_several else self.group.first


class TitleView(RunView):
    """One line: what is running, or how it ended."""

    def __init__(self) -> None:
        super().__init__(id="run-title")

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """Draw one row."""
        if self.run is not None:
            return [[Span(" "), *_of_one(self.run, width - 1)]]
        return [[Span(" "), *group_title(self.group, width - 1)]] if self.group else []


def _of_one(run: RunState, width: int) -> Row:
    what = f"{run.description} {_shape(run)}on {_device_name(run.request.target)}"
    if run.problem is not None:
        return _failing(run, run.problem, width)
    if run.result is not None:
        return _end_of_one(run, run.result, what, width)
    if run.hello is not None:
        what += f" · torch {visible(run.hello.torch_version)}"
    if run.faulty:
        return [Span(clip(f"FAULTY: {wrong_elements_text(run)}, {what}", width), FAULT)]
    if run.stopping:
        word, style = "Stopping ", WARN
    elif run.silent_seconds is not None:
        word, style = f"Silent for {duration(run.silent_seconds)}, x ends it: ", WARN
    elif run.progress is not None or (run.is_table and run.planned is not None):
        word, style = "Running ", GOOD
    else:
        step = "Starting torch" if run.hello is None else "Warming up"
        word, style = f"{step}, {duration(run.preparing_seconds)}:  ", WARN
    return [Span(word, style), Span(clip(what, width - len(word)))]


def _failing(run: RunState, problem: Problem, width: int) -> Row:
    """Return the title of a run without a result: only a fault of the device is red."""
    word, style, why = "Not run: ", WARN, visible(problem.what)
    if run.faulty:
        after = f" after {duration(run.elapsed_seconds)}" if run.measured else ""
        word, style = f"FAULTY{after}: ", FAULT
        why += f", {wrong_elements_text(run)}" if run.wrong_elements else ""
    elif run.limit is not None:
        word, why = f"{run.limit.title}: ", f"{run.limit.why}, before there was a result"
    elif run.stopping:
        word, why = "Stopped ", "before there was a result"
    elif run.measured:
        word = f"Ended after {duration(run.elapsed_seconds)}: "
    return [Span(word, style), Span(clip(why, width - len(word)), style)]


def _shape(run: RunState) -> str:
    p = run.planned
    return "" if p is None or run.is_table else f"{p.m}×{p.n}×{p.k} "


def _device_name(target: Target) -> str:
    name = short_name(visible(target.name))
    return name if target.number is None else f"GPU {target.number} {name}"


def _end_of_one(run: RunState, result: Result, what: str, width: int) -> Row:
    if result.wrong_elements:
        return [Span(clip(f"FAULTY: {wrong_elements_text(run)}, {what}", width), FAULT)]
    if run.limit is not None:
        word = f"{run.limit.title} "
        return [Span(word, WARN), Span(clip(f"{run.limit.why} · {what}", width - len(word)))]
    word = "Done " if result.stopped == "time" else "Stopped "
    verdict = f" · {count(result.checks, 'check')} passed" if result.checks else ""
    torch = f" · torch {visible(result.torch_version)}"
    return [Span(word, GOOD), Span(clip(what + verdict + torch, width - len(word)))]


def wrong_elements_text(run: RunState) -> str:
    """Return the number of wrong elements, and when the first was found."""
    many = count(run.wrong_elements, "wrong element")
    return many if run.wrong_at is None else f"{many}, first at {duration(run.wrong_at)}"


def group_title(group: GroupState, width: int) -> Row:
    """Return the title of several devices."""
    what = _several(group)
    if group.faulty:
        said = "; ".join(
            f"{short_labels([target])} {_fault(group, target)}"
            for target in group.runs
            if group.is_faulty(target)
        )
        return [Span(clip(f"FAULTY: {said}, {what}", width), FAULT)]
    if group.ended:
        word, style, rest = _end_of_several(group, what)
    elif group.stopping:
        word, style, rest = "Stopping ", WARN, what
    elif group.begun:
        word, style, rest = "Running ", GOOD, what
    else:
        step = "Warming up" if any(run.hello for run in group.runs.values()) else "Starting torch"
        word, style, rest = f"{step}, {duration(group.preparing_seconds)}: ", WARN, what
    return [Span(word, style), Span(clip(rest, width - len(word)))]


def _several(group: GroupState) -> str:
    """Return what runs: `bfloat16 8192×8192×8192 on 4 × H100 80GB HBM3 · torch 2.9.1`."""
    runs = list(group.runs.values())
    shapes = {(run.planned.m, run.planned.n, run.planned.k) for run in runs if run.planned}
    shape = ""
    if len(shapes) == 1 and not group.is_table:
        shape = "×".join(map(str, shapes.pop())) + " "
    names = {visible(target.name) for target in group.runs}
    on = short_labels([*group.runs])
    if len(names) == 1:
        on = f"{len(runs)} × {short_name(names.pop())}"
    torch = {run.hello.torch_version for run in runs if run.hello}
    version = f" · torch {visible(torch.pop())}" if len(torch) == 1 else ""
    known = [run.trace.heat_limits for run in runs if run.trace.gpu is not None]
    heat = f" · heat limit: {heat_limits.in_short(known)}" if known else ""
    return f"{group.first.description} {shape}on {on}{heat}{version}"


def _end_of_several(group: GroupState, what: str) -> tuple[str, Style, str]:
    runs = group.runs
    if group.stopping:
        return "Stopped ", GOOD, what
    done = [run for run in runs.values() if run.result and run.result.stopped == "time"]
    if len(done) == len(runs):
        checked = all(run.result and run.result.checks for run in done)
        before, dot, torch = what.partition(" · ")
        return "Done ", GOOD, before + (" · all checks passed" if checked else "") + dot + torch
    if group.problem is not None and not group.measured:
        return "Not run: ", WARN, visible(group.problem.what)
    others = "; ".join(
        f"{short_labels([target])} {_why(run)}" for target, run in runs.items() if run not in done
    )
    return f"{len(done)} of {len(runs)} done: ", WARN, f"{others} · {what}"


def _why(run: RunState) -> str:
    """Return why a run ended early."""
    if run.limit is not None:
        return f"{run.limit.title.lower()}, {run.limit.why}"
    if run.problem is not None:
        return f"failed, {visible(run.problem.what)}"
    return ending(run.result).word if run.result else "ended"


def _fault(group: GroupState, target: Target) -> str:
    many = group.wrong_elements(target)
    return count(many, "wrong element") if many else "failed"


SHORTEST_BAR = 10


class ReadoutView(RunView):
    """Two lines with the figures and the progress, or the table of several devices."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="readout")
        self._telemetry = telemetry

    def wanted(self, width: int) -> int:
        """Return the rows that it needs."""
        return 2 if self.run or not self.group else group_table.group_height(self.group, width)

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - it has what it wants
        """Draw two rows, or those of the table."""
        run = self.run
        if run is None:
            return group_table.group_rows(self.group, self._telemetry, width) if self.group else []
        if run.problem is not None:
            return self._problem(run, run.problem, width)
        figures = result_table.last_and_best(run, width) if run.is_table else _figures(run)
        if run.faulty:
            figures += [Span(f"  {wrong_elements_text(run)}", FAULT)]
        for part in _conditions(run) if run.ended else self._device(run):
            if width_of([*figures, *part]) <= width:
                figures += part
        return [figures, self._progress(run, width)]

    def _problem(self, run: RunState, problem: Problem, width: int) -> list[Row]:
        """Return why a run failed and the remedy, if the chart shows its figures."""
        if not run.measured or (run.stopping and not run.faulty):
            return []
        style = FAULT if run.faulty else TEXT
        return [
            [Span(clip(f" {visible(problem.why)}", width), style)],
            [Span(clip(f" {visible(problem.remedy)}", width), STRONG)],
        ]

    def _device(self, run: RunState) -> list[Row]:
        """Return current readings of the device, those with limits first.

        A MIG instance has none: its GPU's are labelled as such.
        """
        target = run.request.target
        watts, limit, clock, celsius = group_table.live_readings(target, self._telemetry)
        whose = "" if target.parent_uuid is None else f"of GPU {target.index}: "
        return [
            [Span(f"  {whose}temp ", DIM), reading(quantity(celsius, "°C"))],
            [Span("  power ", DIM), reading(watts_of(watts, limit))],
            [Span("  clock ", DIM), reading(quantity(clock, " MHz"))],
        ]

    def _progress(self, run: RunState, width: int) -> Row:
        planned, elapsed = run.request.seconds, run.elapsed_seconds
        left = max(0.0, planned - elapsed)
        ending = "" if run.ended else f", {duration(left)} left"
        text = f"  {duration(elapsed)} of {duration(planned)}{ending}"
        share = share_of(elapsed, planned)
        if run.is_table:
            share, text = result_table.progress(run)
        heat = _heat_limit(run, width - SHORTEST_BAR - len(text) - 1)
        room = max(SHORTEST_BAR, min(80, width - max(32, len(text) + len(heat) + 1)))
        style = BUSY if run.ended else ACCENT
        limit = [Span(heat, DIM)] if heat else []
        return [Span(" "), *bar(share, room, style), Span(text, TEXT), *limit]


def _heat_limit(run: RunState, room: int) -> str:
    """Return the heat limit, with its reason if that fits; empty for a CPU."""
    if run.trace.gpu is None:
        return ""
    found = run.trace.heat_limits
    text = f"  heat limit: {heat_limits.in_words(found)}"
    return text if len(text) <= room else f"  heat limit: {heat_limits.in_short([found])}"


def _figures(run: RunState) -> Row:
    """Return the TFLOP/s of a run of one shape."""
    row: Row = [Span(" ")]
    for name, value in (
        ("now", run.tflops_now),
        ("mean", run.tflops_mean),
        ("peak", run.tflops_peak),
    ):
        row += [Span(f"{name} ", DIM), reading(tflops(value).ljust(7), STRONG)]
    return [*row, Span("TFLOP/s", DIM)]


def _conditions(run: RunState) -> list[Row]:
    """Return percentages of the peak, efficiency and energy."""
    conditions = run.result.conditions if run.result else None
    if conditions is None:
        return []
    found: list[Row] = []
    for name, share in conditions.percent_of_peak.items():
        of = Span(f" of {visible(name, 60)}", DIM)
        found.append([Span(f"  {percentage(share)}", STRONG), of])
    if conditions.tflop_per_joule is not None:
        efficiency = [
            Span(f"  {tflops(conditions.tflop_per_joule)}", STRONG),
            Span(" TFLOP/J", DIM),
        ]
        found.append(efficiency)
    if conditions.energy_joules is not None:
        energy = value_text("energy_joules", conditions.energy_joules)
        found.append([Span("  energy ", DIM), Span(energy)])
    return found
