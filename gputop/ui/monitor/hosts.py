"""Draw titles of hosts, and hosts in one row. Pure functions."""

from __future__ import annotations

from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Machine, MachineState, Source
from gputop.text import age, duration, fit_columns, number, percentage, used_of, visible
from gputop.ui.drawing.cells import Row, Span, clip, fit, rule_of, width_of
from gputop.ui.drawing.palette import ACCENT, BADGE, DIM, FAULT, TEXT, TRACK, WARN

LONGEST_HOST = 40


def title_rows(machine: Machine) -> int:
    """Return the number of rows of a host's title: rows after the first say what is wrong."""
    return 1 + len(_problem(machine))


def host_title(
    machine: Machine, width: int, behind: float | None, limit: float
) -> list[Row]:
    """Draw the title of a host: its name and state, and why it is away or has no devices.

    It says that the host is `behind` seconds behind; more than `limit` is shown as a fault.
    """
    right = _state(machine, behind, limit)
    left = [
        Span("─ ", TRACK),
        Span(clip(visible(machine.name), LONGEST_HOST), ACCENT),
        Span(" "),
    ]
    if machine.source is Source.SIMULATED:
        left += [Span(" SIMULATED ", BADGE), Span(" ")]
    room = width - width_of(right) - 4 - width_of(left)
    left += [
        span for part in fit_columns(_facts(machine), room, width_of) for span in part
    ]
    return [rule_of(left, right, width), *_problem(machine)]


def short_host(machine: Machine, width: int) -> Row:
    """Draw a host in one row: its name, and why it is away or has no devices."""
    title = Span(f" {clip(visible(machine.name), LONGEST_HOST)}: ", ACCENT)
    if machine.problem is not None:
        return fit([title, Span(_why(machine.problem, machine), FAULT)], width)
    if machine.state is MachineState.CONNECTING:
        return fit([title, Span("connecting", WARN)], width)
    if machine.state is MachineState.AWAY:
        return fit([title, Span("unreachable", FAULT)], width)
    return fit([title, Span("no devices", DIM)], width)


def _problem(machine: Machine) -> list[Row]:
    problem = machine.problem
    if problem is None:
        return []
    why = Span(f"{_why(problem, machine)}. ", FAULT)
    return [[Span("  "), why], [Span("  "), Span(visible(problem.remedy), TEXT)]]


def _why(problem: Problem, machine: Machine) -> str:
    """Return the problem's cause. A host that is away says already what the problem is."""
    why = visible(problem.why)
    return (
        why if machine.state is MachineState.AWAY else f"{visible(problem.what)}: {why}"
    )


def _facts(machine: Machine) -> list[Row]:
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


def _state(
    machine: Machine,
    behind: float | None,
    limit: float,
) -> Row:
    if machine.state is MachineState.CONNECTING:
        return [Span(" connecting ", WARN)]
    if machine.state is MachineState.AWAY:
        since, again = duration(machine.age_seconds or 0.0), machine.retry_seconds
        next_try = (
            f", next try in {duration(max(1.0, again))}" if again else ", next try now"
        )
        return [Span(f" UNREACHABLE for {since}", FAULT), Span(f"{next_try} ", DIM)]
    if behind is not None:
        return [Span(f" {age(behind)} behind ", FAULT if behind > limit else WARN)]
    if machine.driver_state is DriverState.STARTING:
        return [Span(" waiting for its driver ", WARN)]
    return [Span(" ", TRACK)]
