"""The titles of several machines, each over its devices: who it is, how it is, what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.schema.snapshot import DriverState, MachineState, Source
from gputop.text import age, duration, number, percentage, that_fit, used_of, visible
from gputop.ui.drawing.cells import Row, Span, clip, rule_of, width_of
from gputop.ui.drawing.palette import ACCENT, BADGE, DIM, FAULT, TEXT, TRACK, WARN

if TYPE_CHECKING:
    from gputop.schema.snapshot import Machine

LONGEST_NAME = 40


def rows(machine: Machine, width: int) -> int:
    """How many its title takes: those after the first say what is wrong."""
    return 1 + len(_problem(machine, width))


def title(machine: Machine, width: int, behind: float | None, limit: float) -> list[Row]:
    """Return a rule with its name and state, and rows that say why it is away or has no devices.

    One that is `behind` seconds behind says so; beyond `limit` it looks like a fault.
    """
    right = _state(machine, behind, limit)
    left = [Span("─ ", TRACK), Span(clip(visible(machine.name), LONGEST_NAME), ACCENT), Span(" ")]
    if machine.source is Source.SIMULATED:
        left += [Span(" SIMULATED ", BADGE), Span(" ")]
    room = width - width_of(right) - 4 - width_of(left)
    left += [span for part in that_fit(_facts(machine), room, width_of) for span in part]
    return [rule_of(left, right, width), *_problem(machine, width)]


def _problem(machine: Machine, width: int) -> list[Row]:
    """What is wrong and what to do, in one row where that fits."""
    problem = machine.problem
    if problem is None:
        return []
    why = f"{visible(problem.why)}. "
    if machine.state is not MachineState.AWAY:
        why = f"{visible(problem.what)}: {why}"
    row = [Span("  "), Span(why, FAULT), Span(visible(problem.remedy), TEXT)]
    return [row] if width_of(row) <= width else [row[:2], [row[0], row[2]]]


def _facts(machine: Machine) -> list[Row]:
    """What belongs to no device, the most telling first."""
    host = machine.host
    parts: list[tuple[str, str]] = []
    if host.cpu_percent is not None:
        parts.append(("CPU ", percentage(host.cpu_percent).rjust(5)))
    if host.load_average:
        parts.append(("load ", number(host.load_average[0])))
    if host.memory_used_bytes is not None:
        parts.append(("mem ", used_of(host.memory_used_bytes, host.memory_total_bytes)))
    if machine.driver_version:
        parts.append(("driver ", visible(machine.driver_version, 24)))
    if machine.hostname not in (None, machine.name):
        parts.append(("is ", visible(machine.hostname or "", 32)))
    return [[Span(f" {label}", DIM), Span(f"{text} ")] for label, text in parts]


def _state(machine: Machine, behind: float | None, limit: float) -> Row:
    """At the right end; nothing where all is well."""
    if machine.state is MachineState.CONNECTING:
        return [Span(" connecting ", WARN)]
    if machine.state is MachineState.AWAY:
        since, again = duration(machine.age_seconds or 0.0), machine.retry_seconds
        next_try = f", tried again in {duration(max(1.0, again))}" if again else ", tried again now"
        return [Span(f" AWAY for {since}", FAULT), Span(f"{next_try} ", DIM)]
    if behind is not None:
        return [Span(f" {age(behind)} behind ", FAULT if behind > limit else WARN)]
    if machine.driver_state is DriverState.STARTING:
        return [Span(" waiting for its driver ", WARN)]
    return [Span(" ", TRACK)]
