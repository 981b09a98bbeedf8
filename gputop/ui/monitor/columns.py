"""Columns of devices at one row each, like gpustat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.style import Style

from gputop.schema.values import rate
from gputop.text import ABSENT, age, percentage, quantity, used_of, watts_of
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import (
    Row,
    Span,
    bar,
    cell,
    cells_of,
    faded,
    share_of,
)
from gputop.ui.drawing.device_cells import (
    heat_style,
    limited_by,
    memory_style,
    name_of,
    number,
    sign_of,
)
from gputop.ui.drawing.list_state import Column
from gputop.ui.drawing.list_view import Slot, fit_slots
from gputop.ui.drawing.palette import DIM, MEMORY, TEXT, WARN
from gputop.ui.monitor.shown_device import ShownDevice

RATE, ROOM = 11, 30
TWO_RATES = ROOM + RATE + 1
"""Width of a rate, and the cells that must remain after a column and after the first of two."""


@dataclass(frozen=True, eq=False)
class DeviceColumn(Column[ShownDevice]):
    """Column of the devices."""

    name: str = ""
    """Its reading. If no device has this reading, the column is left out."""
    room: int = ROOM
    """Cells that must remain for the name and for longer bars."""
    style: Callable[[ShownDevice], Style] = lambda _: TEXT


def _column(
    title: str,
    name: str,
    width: int,
    text: Callable[[Any], str],
    room: int = ROOM,
) -> DeviceColumn:
    def text_of(item: ShownDevice) -> str:
        return text(getattr(item.readings, name))

    return DeviceColumn(title, width, text_of, name=name, room=room)


def _name(item: ShownDevice) -> str:
    """Return the device's label and name. The age of old readings replaces the name."""
    if item.old_seconds is not None:
        return f"{item.label} {age(item.old_seconds)} old"
    return f"{item.label} {name_of(item.device)}"


def _bound(item: ShownDevice) -> str:
    """Return the bottleneck in a word, with a mark if the device has a finding."""
    word = item.bound_by.bound.known if item.bound_by else ""
    if item.finding is None:
        return word or ABSENT
    return f"{sign_of(item.finding.severity).text}{word}".rstrip()


def _bound_style(item: ShownDevice) -> Style:
    if item.finding is None:
        return TEXT
    return sign_of(item.finding.severity).style


def _power(item: ShownDevice) -> str:
    r = item.readings
    return watts_of(r.power_watts, r.power_limit_watts, "")


def _state(state: int | None) -> str:
    return ABSENT if state is None else f"P{state}"


BUSY_VALUE, MEMORY_VALUE = 5, 14
SHORTEST_BAR, LONGEST_BAR = 6, 40
SHORTEST_NAME, LONGEST_NAME = 5, 34
_percent = partial(percentage, unit="%")
_quantity = partial(quantity, unit="")


def _bar_column(title: str, value: int) -> DeviceColumn:
    return DeviceColumn(
        title,
        SHORTEST_BAR + value,
        lambda _: "",
        right=False,
        most=LONGEST_BAR + value,
        room=SHORTEST_NAME,
    )


NAME = DeviceColumn(
    "GPU",
    0,
    _name,
    right=False,
    style=lambda item: TEXT if item.old_seconds is None else WARN,
)
BUSY = _bar_column("BUSY", BUSY_VALUE)
USED = _bar_column("MEMORY", MEMORY_VALUE)
HEAT = DeviceColumn(
    "TEMP",
    5,
    lambda item: quantity(item.readings.temperature_celsius, "°C"),
    name="temperature_celsius",
    room=SHORTEST_NAME,
    style=lambda item: heat_style(item.device, item.readings),
)
BOUND = DeviceColumn("BOUND BY", 12, _bound, room=12, style=_bound_style)
POWER = DeviceColumn("POWER W", 9, _power, name="power_watts", room=18)
LIMIT = DeviceColumn(
    "LIMIT",
    12,
    lambda item: limited_by(item.readings)[0],
    name="clock_event_reasons",
    style=lambda item: limited_by(item.readings)[1],
)
# fmt: off
COLUMNS = (
    NAME, BUSY, USED, HEAT, BOUND, POWER,
    _column("SM MHz", "sm_clock_mhz", 7, _quantity),
    LIMIT,
    _column("TENSOR", "tensor_active_percent", 7, _percent),
    _column("BUS", "memory_utilization_percent", 5, _percent),
    _column("FAN", "fan_percent", 5, _percent),
    _column("P", "performance_state", 3, _state),
    # Received traffic is shown only if there is room for sent traffic, too.
    _column("PCIE RX", "pcie_rx_bytes_per_second", RATE, rate, TWO_RATES),
    _column("PCIE TX", "pcie_tx_bytes_per_second", RATE, rate),
    _column("NVLINK RX", "nvlink_rx_bytes_per_second", RATE, rate, TWO_RATES),
    _column("NVLINK TX", "nvlink_tx_bytes_per_second", RATE, rate),
)
# fmt: on
"""Columns in screen order, the most useful first. The last ones are dropped first."""


def slots_for(
    items: Sequence[ShownDevice],
    width: int,
) -> list[Slot[ShownDevice]]:
    """Return the columns for these devices that fit into `width` cells.

    A column that every answering device lacks is left out.
    """
    answering = [item for item in items if item.fault is None]
    known = []
    for column in COLUMNS[1:]:
        has = [item for item in answering if not item.lacks(column.name)]
        if has or not answering:
            known.append(column)
    longest = max((cells_of(_name(item)) for item in items), default=0)
    longest = min(longest, LONGEST_NAME)
    return fit_slots((NAME, *known), known, width, _room, longest)


def _room(column: Column[ShownDevice]) -> int:
    assert isinstance(column, DeviceColumn)
    return column.room


def draw_cells(item: ShownDevice, slot: Slot[ShownDevice]) -> Row:
    """Draw a column of a device. Old readings are faded."""
    column = slot.column
    assert isinstance(column, DeviceColumn)
    if column is BUSY:
        row = _busy(item, slot.cells - BUSY_VALUE)
    elif column is USED:
        used, total = item.memory
        style = memory_style(used, total)
        row = [
            *bar(share_of(used, total), slot.cells - MEMORY_VALUE, MEMORY),
            number(used_of(used, total), MEMORY_VALUE, style),
        ]
    else:
        row = [_cell(item, column, slot.cells)]
    if item.old_seconds is not None and column is not NAME:
        return faded([row])[0]
    return row


def _cell(item: ShownDevice, column: DeviceColumn, width: int) -> Span:
    text, style = column.text(item), column.style(item)
    if text == ABSENT:
        style = DIM
        # A MIG instance lacks most readings, so a row would have mostly
        # signs of absence.
        text = "" if item.device.parent_uuid else ABSENT
    return cell(text, width, style, right=column.right)


def _busy(item: ShownDevice, width: int) -> Row:
    """Draw the activity bar and its value, with a name if it is not *busy*."""
    chart, active = item.activity, item.activity_percent
    term = "" if chart is charts.BUSY else f" {chart.short}"
    return [
        *bar(share_of(active, 100), width - len(term), chart.style),
        cell(term, min(width, len(term)), DIM),
        number(_percent(active), BUSY_VALUE, TEXT),
    ]
