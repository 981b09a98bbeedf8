"""Draw titles of hosts. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.agent.device import Device
from gputop.agent.snapshot import DriverState, Machine, MachineState, Source
from gputop.text import (
    age,
    duration,
    fit_columns,
    number,
    percentage,
    used_of,
    visible,
)
from gputop.ui.drawing.cells import Row, Span, clip, rule_of, width_of
from gputop.ui.drawing.palette import (
    ACCENT,
    BADGE,
    DIM,
    FAULT,
    TEXT,
    TRACK,
    WARN,
)

LONGEST_HOST = 40


def title_rows(devices: Sequence[Device]) -> int:
    """Return the rows of a host's title. Without devices, there is room for the reason."""
    return 1 if devices else 3


def host_title(
    machine: Machine,
    width: int,
    rows: int,
    behind: float | None,
    limit: float,
) -> list[Row]:
    """Draw the title of a host in exactly `rows` rows: its name, facts and state.

    A problem replaces the facts, or uses the rows below. The host is `behind` seconds late; more
    than `limit` is shown as a fault.
    """
    right = _state(machine, behind, limit)
    name = clip(visible(machine.name), LONGEST_HOST)
    left = [Span("─ ", TRACK), Span(name, ACCENT), Span(" ")]
    if machine.source is Source.SIMULATED:
        left += [Span(" SIMULATED ", BADGE), Span(" ")]
    problem = _problem(machine)
    below = problem if rows > len(problem) else []
    if problem and not below:
        for row in problem:
            left += row
    else:
        room = width - width_of(right) - 4 - width_of(left)
        for part in fit_columns(_facts(machine), room, width_of):
            left += part
    drawn = [rule_of(left, right, width)]
    for row in below:
        drawn.append([Span("  "), *row])
    return drawn + [[]] * (rows - len(drawn))


def _problem(machine: Machine) -> list[Row]:
    """Return why a host is unreachable or has no devices, and the remedy."""
    problem = machine.problem
    if problem is None:
        return []
    why = visible(problem.why)
    # For other states, name the problem as well.
    if machine.state is not MachineState.AWAY:
        why = f"{visible(problem.what)}: {why}"
    return [
        [Span(f"{why}. ", FAULT)],
        [Span(f"{visible(problem.remedy)} ", TEXT)],
    ]


def _facts(machine: Machine) -> list[Row]:
    host = machine.host
    parts: list[tuple[str, str]] = []
    if host.cpu_percent is not None:
        parts.append(("CPU ", percentage(host.cpu_percent).rjust(5)))
    if host.load_average:
        parts.append(("load ", number(host.load_average[0])))
    if host.memory_used_bytes is not None:
        parts.append(
            ("mem ", used_of(host.memory_used_bytes, host.memory_total_bytes)),
        )
    if machine.driver_version:
        parts.append(("driver ", visible(machine.driver_version, 24)))
    if machine.hostname not in (None, machine.name):
        parts.append(("is ", visible(machine.hostname or "", 32)))
    return [
        [Span(f" {label}", DIM), Span(f"{text} ")] for label, text in parts
    ]


def _state(
    machine: Machine,
    behind: float | None,
    limit: float,
) -> Row:
    if machine.state is MachineState.CONNECTING:
        return [Span(" connecting ", WARN)]
    if machine.state is MachineState.AWAY:
        since = duration(machine.age_seconds or 0.0)
        next_try = ", next try now"
        if machine.retry_seconds:
            next_try = (
                f", next try in {duration(max(1.0, machine.retry_seconds))}"
            )
        return [
            Span(f" UNREACHABLE for {since}", FAULT),
            Span(f"{next_try} ", DIM),
        ]
    if behind is not None:
        return [
            Span(f" {age(behind)} behind ", FAULT if behind > limit else WARN),
        ]
    if machine.driver_state is DriverState.STARTING:
        return [Span(" waiting for its driver ", WARN)]
    return [Span(" ", TRACK)]
