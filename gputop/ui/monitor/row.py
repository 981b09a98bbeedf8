"""Draw a device in one row, like gpustat, with headings, and titles of hosts. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.style import Style

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Machine, MachineState, Source
from gputop.schema.derived import label_of
from gputop.schema.values import rate
from gputop.text import (
    ABSENT,
    age,
    duration,
    fit_columns,
    number,
    percentage,
    quantity,
    size,
    used_of,
    visible,
    watts_of,
)
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cell,
    clip,
    faded,
    fit,
    rule_of,
    share_of,
    width_of,
)
from gputop.ui.drawing.palette import (
    ACCENT,
    BADGE,
    BUSY,
    DIM,
    FAULT,
    MEMORY,
    SM,
    TEXT,
    TRACK,
    WARN,
)
from gputop.ui.monitor import panel as panels


class DeviceColumn(NamedTuple):
    """Column to the right of the bars."""

    heading: str
    name: str
    width: int
    room: int
    """Cells that must remain for the name and the bars."""
    text: Callable[[DeviceSample], str]
    style: Callable[[Device, DeviceSample], Style] | None = None


def _column(
    heading: str, name: str, width: int, room: int, text: Callable[[Any], str]
) -> DeviceColumn:
    return DeviceColumn(heading, name, width, room, lambda r: text(getattr(r, name)))


RATE = 12
_percent = partial(percentage, unit="%")
TENSOR = _column("TENSOR", "tensor_active_percent", 8, 44, _percent)
# fmt: off
COLUMNS = (
    DeviceColumn("TEMP", "temperature_celsius", 6, 0,
                 lambda r: quantity(r.temperature_celsius, "°C"), panels.heat_style),
    DeviceColumn("POWER W", "power_watts", 10, 30,
                 lambda r: watts_of(r.power_watts, r.power_limit_watts, "")),
    _column("SM MHz", "sm_clock_mhz", 8, 34, lambda value: quantity(value, "")),
    DeviceColumn("LIMIT", "clock_event_reasons", 13, 38, lambda r: panels.limited_by(r)[0],
                 lambda _, r: panels.limited_by(r)[1]),
    TENSOR,
    _column("BUS", "memory_utilization_percent", 6, 44, _percent),
    _column("FAN", "fan_percent", 6, 44, _percent),
    _column("P", "performance_state", 4, 44, lambda p: ABSENT if p is None else f"P{p}"),
    # Received traffic is shown only with room for sent traffic.
    _column("PCIE RX", "pcie_rx_bytes_per_second", RATE, 60 + RATE, rate),
    _column("PCIE TX", "pcie_tx_bytes_per_second", RATE, 60, rate),
    _column("NVLINK RX", "nvlink_rx_bytes_per_second", RATE, 70 + RATE, rate),
    _column("NVLINK TX", "nvlink_tx_bytes_per_second", RATE, 70, rate),
)
# fmt: on
"""Columns, the most useful first: the last ones are dropped where room is short."""
SECOND_RANK = frozenset(column.name for column in COLUMNS[-4:])
"""Traffic of the links, whose columns are not drawn at each sample."""


class RowLayout(NamedTuple):
    """Cells of a row, its label, its name and each bar, and its other columns: for all devices."""

    width: int
    label: int
    name: int
    bar: int
    others: Sequence[DeviceColumn]

    @property
    def shows_gpm(self) -> bool:
        """True if there is a GPM reading."""
        return TENSOR in self.others


MARK, BUSY_VALUE, MEMORY_VALUE = 1, 5, 14
SHORTEST_BAR, LONGEST_BAR, LONGEST_NAME = 6, 40, 30


def row_layout(
    devices: Sequence[Device], samples: Sequence[DeviceSample], width: int
) -> RowLayout:
    """Return the layout for these devices: the least useful columns are dropped first.

    A column that every answering device lacks is left out.
    """
    label = 1 + max([2, *(len(label_of(device)) for device in devices)])
    left = width - MARK - label - BUSY_VALUE - MEMORY_VALUE
    answering = [sample for sample in samples if sample.state is DeviceState.OK]
    known = (
        column
        for column in COLUMNS
        if not answering
        or any(not panels.lacks(sample, column.name) for sample in answering)
    )
    others = fit_columns(
        known, left, lambda column: column.width, lambda column: column.room
    )
    left -= sum(column.width for column in others)
    longest = max((cell_len(panels.name_of(device)) for device in devices), default=0)
    name = max(8, min(longest, LONGEST_NAME, left - 3 - 2 * SHORTEST_BAR))
    bars = max(0, min(LONGEST_BAR, (left - name - 3) // 2))
    return RowLayout(width, label, name, bars, others)


def heading(c: RowLayout) -> Row:
    row = [cell("", MARK, DIM), cell("GPU", c.label + c.name + 1, DIM)]
    row.append(cell("BUSY", c.bar + BUSY_VALUE + 1, DIM))
    row.append(cell("MEMORY", c.bar + MEMORY_VALUE + 1, DIM))
    row += [cell(column.heading, column.width, DIM, right=True) for column in c.others]
    return fit(row, c.width)


def draw_row(panel: panels.Panel, c: RowLayout) -> Row:
    r = panel.readings
    label, name = panel.title_styles
    row: Row = [
        panels.selection_mark(panel),
        cell(label_of(panel.device).rjust(2), c.label, label),
        cell(panels.name_of(panel.device), c.name, name if panel.selected else TEXT),
        Span(" "),
    ]
    if panel.fault:
        style = WARN if panel.unanswered else FAULT
        return fit([*row, Span(panel.fault.what, style)], c.width)
    used, total = panel.memory
    row += [
        *_busy(panel, c.bar),
        Span(" "),
        *panel.cache.bar("memory", share_of(used, total), c.bar, MEMORY),
        _value(used_of(used, total), MEMORY_VALUE, panels.memory_style(used, total)),
        Span(" "),
    ]
    for column in c.others:
        # A MIG instance lacks so much that a row would be mostly signs of absence.
        blank = panel.device.parent_uuid is not None and panels.lacks(r, column.name)
        style = column.style(panel.device, r) if column.style else TEXT
        shown = panel.details if column.name in SECOND_RANK else r
        row.append(_value("" if blank else column.text(shown), column.width, style))
    if panel.old_seconds is not None:  # the age replaces the name, where it always fits
        late = cell(f"{age(panel.old_seconds)} old", c.name, WARN)
        row = [*row[:2], late, *faded([row[3:]])[0]]
    return fit(row, c.width)


def short_row(panel: panels.Panel, width: int) -> Row:
    """Draw what fits of a device's readings on the smallest terminals, the most useful first."""
    r, device = panel.readings, panel.device
    row = [
        panels.selection_mark(panel),
        Span(f"{label_of(device)} ", panel.title_styles[0]),
    ]
    if panel.fault:
        return fit(
            [*row, Span(panel.fault.what, WARN if panel.unanswered else FAULT)], width
        )
    used, total = panel.memory
    limit, style = panels.limited_by(r)
    parts = [
        _value(_percent(getattr(r, panels.activity_of(r))), 4),
        _value(quantity(r.temperature_celsius, "°C"), 6, panels.heat_style(device, r)),
        _value(f" {size(used)}", 10, panels.memory_style(used, total)),
        _value(quantity(r.power_watts, " W"), 7),
        Span(f" {limit}", style),
    ]
    row += fit_columns(parts, width - width_of(row), lambda part: len(part.text))
    return fit(row if panel.old_seconds is None else faded([row])[0], width)


def _busy(panel: panels.Panel, cells: int) -> Row:
    """Draw the activity bar and its value, named if it is not what the heading says."""
    name = panels.activity_of(panel.readings)
    active = getattr(panel.readings, name)
    term, style = (" SM", SM) if name == "sm_active_percent" else ("", BUSY)
    drawn = panel.cache.bar(name, share_of(active, 100), cells - len(term), style)
    return [
        *drawn,
        cell(term, min(cells, len(term)), DIM),
        _value(_percent(active), BUSY_VALUE),
    ]


def _value(text: str, width: int, style: Style = TEXT) -> Span:
    return cell(text, width, DIM if text == ABSENT else style, right=True)


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


def _state(machine: Machine, behind: float | None, limit: float) -> Row:
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
