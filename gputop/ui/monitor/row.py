"""Draw a device in one row, like gpustat, and the headings. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.style import Style

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.schema.derived import label_of
from gputop.schema.values import rate
from gputop.text import (
    ABSENT,
    age,
    fit_columns,
    percentage,
    quantity,
    used_of,
    watts_of,
)
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import Row, Span, bar, cell, faded, fit, share_of
from gputop.ui.drawing.device_cells import (
    heat_style,
    limited_by,
    memory_style,
    name_of,
    number,
    sign_of,
)
from gputop.ui.drawing.palette import DIM, MEMORY, TEXT, WARN
from gputop.ui.monitor.details import lacks
from gputop.ui.monitor.panel import Panel, selection_mark


class DeviceColumn(NamedTuple):
    """Column to the right of the bars."""

    heading: str
    name: str
    """Its reading. If no device has this reading, the column is left out."""
    width: int
    room: int
    """Cells that must remain for the name and the bars."""
    text: Callable[[Panel], str]
    style: Callable[[Panel], Style] = lambda _: TEXT


def _column(
    heading: str,
    name: str,
    width: int,
    room: int,
    text: Callable[[Any], str],
) -> DeviceColumn:
    return DeviceColumn(
        heading,
        name,
        width,
        room,
        lambda panel: text(getattr(panel.readings, name)),
    )


def _power(panel: Panel) -> str:
    r = panel.readings
    return watts_of(r.power_watts, r.power_limit_watts, "")


def _heat_style(panel: Panel) -> Style:
    return heat_style(panel.device, panel.readings)


def _bound(panel: Panel) -> str:
    """Return the bottleneck in a word, with a mark if the device has a finding."""
    word = panel.bound_by.bound.known if panel.bound_by else ""
    if panel.finding is None:
        return word or ABSENT
    return f"{sign_of(panel.finding.severity).text}{word}".rstrip()


def _bound_style(panel: Panel) -> Style:
    if panel.finding is None:
        return TEXT
    return sign_of(panel.finding.severity).style


RATE = 12
_percent = partial(percentage, unit="%")
_quantity = partial(quantity, unit="")
BOUND = DeviceColumn("BOUND BY", "", 13, 24, _bound, _bound_style)
TENSOR = _column("TENSOR", "tensor_active_percent", 8, 44, _percent)
# fmt: off
COLUMNS = (
    DeviceColumn("TEMP", "temperature_celsius", 6, 0,
                 lambda panel: quantity(panel.readings.temperature_celsius, "°C"), _heat_style),
    BOUND,
    DeviceColumn("POWER W", "power_watts", 10, 30, _power),
    _column("SM MHz", "sm_clock_mhz", 8, 34, _quantity),
    DeviceColumn("LIMIT", "clock_event_reasons", 13, 38,
                 lambda panel: limited_by(panel.readings)[0],
                 lambda panel: limited_by(panel.readings)[1]),
    TENSOR,
    _column("BUS", "memory_utilization_percent", 6, 44, _percent),
    _column("FAN", "fan_percent", 6, 44, _percent),
    _column("P", "performance_state", 4, 44, lambda p: ABSENT if p is None else f"P{p}"),
    # Received traffic is shown only if there is room for sent traffic, too.
    _column("PCIE RX", "pcie_rx_bytes_per_second", RATE, 60 + RATE, rate),
    _column("PCIE TX", "pcie_tx_bytes_per_second", RATE, 60, rate),
    _column("NVLINK RX", "nvlink_rx_bytes_per_second", RATE, 70 + RATE, rate),
    _column("NVLINK TX", "nvlink_tx_bytes_per_second", RATE, 70, rate),
)
# fmt: on
"""Columns, the most useful first. The last ones are dropped if there is too little room."""


class RowLayout(NamedTuple):
    """Widths of a row's parts, the same for all devices: label, name, bar, and other columns."""

    width: int
    label: int
    name: int
    bar: int
    others: Sequence[DeviceColumn]


MARK, BUSY_VALUE, MEMORY_VALUE = 1, 5, 14
SHORTEST_BAR, LONGEST_BAR, LONGEST_NAME = 6, 40, 30


def row_layout(
    devices: Sequence[Device],
    samples: Sequence[DeviceSample],
    width: int,
) -> RowLayout:
    """Return the layout for these devices. The least useful columns are dropped first.

    A column that every answering device lacks is left out.
    """
    label = 1 + max([2, *(len(label_of(device)) for device in devices)])
    left = width - MARK - label - BUSY_VALUE - MEMORY_VALUE
    answering = [
        sample for sample in samples if sample.state is DeviceState.OK
    ]
    known = []
    for column in COLUMNS:
        lacking = [lacks(sample, column.name) for sample in answering]
        if not answering or not all(lacking):
            known.append(column)
    others = fit_columns(
        known,
        left,
        lambda column: column.width,
        lambda column: column.room,
    )
    left -= sum(column.width for column in others)
    longest = max((cell_len(name_of(device)) for device in devices), default=0)
    name = max(8, min(longest, LONGEST_NAME, left - 3 - 2 * SHORTEST_BAR))
    bars = max(0, min(LONGEST_BAR, (left - name - 3) // 2))
    return RowLayout(width, label, name, bars, others)


def heading(c: RowLayout) -> Row:
    row = [cell("", MARK, DIM), cell("GPU", c.label + c.name + 1, DIM)]
    row.append(cell("BUSY", c.bar + BUSY_VALUE + 1, DIM))
    row.append(cell("MEMORY", c.bar + MEMORY_VALUE + 1, DIM))
    for column in c.others:
        row.append(cell(column.heading, column.width, DIM, right=True))
    return fit(row, c.width)


def draw_row(panel: Panel, c: RowLayout) -> Row:
    label, name = panel.title_styles
    row: Row = [
        selection_mark(panel),
        cell(label_of(panel.device).rjust(2), c.label, label),
        cell(
            name_of(panel.device),
            c.name,
            name if panel.selected else TEXT,
        ),
        Span(" "),
    ]
    if panel.fault:
        return fit([*row, Span(panel.fault.what, panel.fault_style)], c.width)
    used, total = panel.memory
    row += [
        *_busy(panel, c.bar),
        Span(" "),
        *bar(share_of(used, total), c.bar, MEMORY),
        number(
            used_of(used, total),
            MEMORY_VALUE,
            memory_style(used, total),
        ),
        Span(" "),
    ]
    for column in c.others:
        # A MIG instance lacks most readings, so a row would have mostly signs
        # of absence.
        is_instance = panel.device.parent_uuid is not None
        never = not column.name or lacks(panel.readings, column.name)
        text = column.text(panel)
        if is_instance and never and text == ABSENT:
            text = ""
        row.append(number(text, column.width, column.style(panel)))
    if (
        panel.old_seconds is not None
        # The age replaces the name, because it always fits there.
    ):
        late = cell(f"{age(panel.old_seconds)} old", c.name, WARN)
        row = [*row[:2], late, *faded([row[3:]])[0]]
    return fit(row, c.width)


def _busy(panel: Panel, cells: int) -> Row:
    """Draw the activity bar and its value, with a name if it is not the heading's reading."""
    chart, active = panel.activity, panel.activity_percent
    term = "" if chart is charts.BUSY else f" {chart.short}"
    return [
        *bar(share_of(active, 100), cells - len(term), chart.style),
        cell(term, min(cells, len(term)), DIM),
        number(_percent(active), BUSY_VALUE, TEXT),
    ]
