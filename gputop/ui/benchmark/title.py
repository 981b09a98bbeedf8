"""What is being run, or how it ended, in one line; of one device or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.plan import limits
from gputop.bench.plan.devices import numbers
from gputop.bench.results.columns import ENDS
from gputop.text import count, duration, short_name, visible
from gputop.ui.drawing.cells import Row, Span, clip
from gputop.ui.drawing.palette import FAULT, GOOD, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.events import Result
    from gputop.bench.plan.request import Target
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState
    from gputop.problem import Problem


class RunView(LiveView):
    """A view of the runs that were started together."""

    group: GroupState | None = None

    @property
    def run(self) -> RunState | None:
        """The one run, or None where there are several."""
        return None if self.group is None or self.group.is_several else self.group.only


class TitleView(RunView):
    """One line: what is being run, or how it ended."""

    def __init__(self) -> None:
        super().__init__(id="run-title")

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """One row."""
        if self.run is not None:
            return [[Span(" "), *_of_one(self.run, width - 1)]]
        return [[Span(" "), *title(self.group, width - 1)]] if self.group else []


def _of_one(run: RunState, width: int) -> Row:
    what = f"{run.what} {_shape(run)}on {_device_name(run.request.target)}"
    if run.problem is not None:
        return _failing(run, run.problem, width)
    if run.result is not None:
        return _end_of_one(run, run.result, what, width)
    if run.hello is not None:
        what += f" · torch {visible(run.hello.torch_version)}"
    if run.faulty:
        return [Span(clip(f"FAULTY: {wrong(run)}, {what}", width), FAULT)]
    if run.stopping:
        word, style = "Stopping ", WARN
    elif run.silent_seconds is not None:
        word, style = f"No word for {duration(run.silent_seconds)}, x ends it: ", WARN
    elif run.progress is not None or (run.is_table and run.planned is not None):
        word, style = "Running ", GOOD
    else:
        step = "Starting torch" if run.hello is None else "Warming up"
        word, style = f"{step}, {duration(run.preparing_seconds)}:  ", WARN
    return [Span(word, style), Span(clip(what, width - len(word)))]


def _failing(run: RunState, problem: Problem, width: int) -> Row:
    """A run without a result: the fault of a device is red, and what was refused is not."""
    word, style, why = "Not run: ", WARN, visible(problem.what)
    if run.faulty:
        after = f" after {duration(run.elapsed_seconds)}" if run.measured else ""
        word, style = f"FAULTY{after}: ", FAULT
        why += f", {wrong(run)}" if run.wrong_elements else ""
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
        return [Span(clip(f"FAULTY: {wrong(run)}, {what}", width), FAULT)]
    if run.limit is not None:
        word = f"{run.limit.title} "
        return [Span(word, WARN), Span(clip(f"{run.limit.why} · {what}", width - len(word)))]
    word = "Done " if result.stopped == "time" else "Stopped "
    verdict = f" · {count(result.checks, 'check')} passed" if result.checks else ""
    torch = f" · torch {visible(result.torch_version)}"
    return [Span(word, GOOD), Span(clip(what + verdict + torch, width - len(word)))]


def wrong(run: RunState) -> str:
    """How many elements were wrong, and since when."""
    many = count(run.wrong_elements, "wrong element")
    return many if run.wrong_at is None else f"{many}, first at {duration(run.wrong_at)}"


def title(group: GroupState, width: int) -> Row:
    """One row of several devices: what is being run, or how it ended."""
    what = _several(group)
    if group.faulty:
        said = "; ".join(
            f"{numbers([target])} {_fault(group, target)}"
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
    """`bfloat16 8192×8192×8192 on 4 × H100 80GB HBM3 · heat limit: margin 3°C · torch 2.9.1`."""
    runs = list(group.runs.values())
    shapes = {(run.planned.m, run.planned.n, run.planned.k) for run in runs if run.planned}
    shape = ""
    if len(shapes) == 1 and not group.is_table:
        shape = "×".join(map(str, shapes.pop())) + " "
    names = {visible(target.name) for target in group.runs}
    on = numbers([*group.runs])
    if len(names) == 1:
        on = f"{len(runs)} × {short_name(names.pop())}"
    torch = {run.hello.torch_version for run in runs if run.hello}
    version = f" · torch {visible(torch.pop())}" if len(torch) == 1 else ""
    known = [run.trace.heat_limits for run in runs if run.trace.gpu is not None]
    heat = f" · heat limit: {limits.in_short(known)}" if known else ""
    return f"{group.only.what} {shape}on {on}{heat}{version}"


def _end_of_several(group: GroupState, what: str) -> tuple[str, Style, str]:
    runs = group.runs
    if group.stopping:
        return "Stopped ", GOOD, what
    done = [run for run in runs.values() if run.result and run.result.stopped == "time"]
    if len(done) == len(runs):
        checked = all(run.result and run.result.checks for run in done)
        before, dot, torch = what.partition(" · ")
        return "Done ", GOOD, before + (" · all checks right" if checked else "") + dot + torch
    if group.problem is not None and not group.measured:
        return "Not run: ", WARN, visible(group.problem.what)
    others = "; ".join(
        f"{numbers([target])} {_why(run)}" for target, run in runs.items() if run not in done
    )
    return f"{len(done)} of {len(runs)} done: ", WARN, f"{others} · {what}"


def _why(run: RunState) -> str:
    """Why a run did not take its time."""
    if run.limit is not None:
        return f"{run.limit.title.lower()}, {run.limit.why}"
    if run.problem is not None:
        return f"failed, {visible(run.problem.what)}"
    return ENDS.get(run.result.stopped, "ended") if run.result else "ended"


def _fault(group: GroupState, target: Target) -> str:
    many = group.wrong_elements(target)
    return count(many, "wrong element") if many else "failed"
