"""Several devices under stress, in one line: what is being run, or how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench import limits
from gputop.bench.columns import ENDS
from gputop.bench.devices import numbers
from gputop.text import duration, short_name, visible
from gputop.ui.draw import Row, Span, clip
from gputop.ui.palette import FAULT, GOOD, WARN

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.group_state import GroupState
    from gputop.bench.plan import Target
    from gputop.bench.run_state import RunState


def title(group: GroupState, width: int) -> Row:
    """One row: what is being run, or how it ended."""
    what = _what(group)
    if group.faulty:
        said = "; ".join(
            f"{numbers([target])} {_fault(group, target)}"
            for target in group.runs
            if group.is_faulty(target)
        )
        return [Span(clip(f"FAULTY: {said}, {what}", width), FAULT)]
    if group.ended:
        word, style, rest = _ending(group, what)
    elif group.stopping:
        word, style, rest = "Stopping ", WARN, what
    elif group.begun:
        word, style, rest = "Running ", GOOD, what
    else:
        step = "Warming up" if any(run.hello for run in group.runs.values()) else "Starting torch"
        word, style, rest = f"{step}, {duration(group.preparing_seconds)}: ", WARN, what
    return [Span(word, style), Span(clip(rest, width - len(word)))]


def _what(group: GroupState) -> str:
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


def _ending(group: GroupState, what: str) -> tuple[str, Style, str]:
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
    if not many:
        return "failed"
    return "1 wrong element" if many == 1 else f"{many} wrong elements"
