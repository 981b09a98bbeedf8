"""One device in one row, like a line of gpustat, and the heading over such rows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from gputop.frozen import dataclass
from gputop.schema.device import DeviceState
from gputop.text import ABSENT, percentage, quantity, that_fit, used_of, watts_of
from gputop.ui.drawing.draw import Row, Span, bar, cell, faded, fit, share_of
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, MEMORY, SM, STRONG, TEXT, WARN
from gputop.ui.monitor.panel import activity_of, age_text, lacks, limited_by, mark, name_of, rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style

    from gputop.schema.device import Device, DeviceSample
    from gputop.ui.monitor.panel import Panel


class Machine(NamedTuple):
    """What the columns depend on: they are the same for all devices."""

    label: int
    """Cells of the longest label."""
    name: int
    """Cells of the longest name."""
    lacking: frozenset[str] = frozenset()
    """The readings that no device has."""


def machine_of(devices: Sequence[Device], samples: Sequence[DeviceSample]) -> Machine:
    """Of these devices and their readings."""
    answering = [sample for sample in samples if sample.state is DeviceState.OK]
    return Machine(
        max((len(device.label) for device in devices), default=1),
        max((cell_len(name_of(device)) for device in devices), default=0),
        frozenset(
            column.name
            for column in COLUMNS
            if answering and all(lacks(sample, column.name) for sample in answering)
        ),
    )


class Column(NamedTuple):
    """A column to the right of the bars."""

    heading: str
    name: str
    """Of the reading."""
    width: int
    room: int
    """Cells that must be left for the name and the bars."""
    text: Callable[[DeviceSample], str]
    style: Callable[[DeviceSample], Style] | None = None


def _percent(heading: str, name: str, width: int, room: int) -> Column:
    return Column(heading, name, width, room, lambda r: percentage(getattr(r, name), "%"))


RATE = 12


def _rate(heading: str, name: str, room: int) -> Column:
    return Column(heading, name, RATE, room, lambda r: rate(getattr(r, name)))


def _power(r: DeviceSample) -> str:
    return watts_of(r.power_watts, r.power_limit_watts, "")


TENSOR = _percent("TENSOR", "tensor_active_percent", 8, 44)
# fmt: off
COLUMNS = (
    Column("TEMP", "temperature_celsius", 6, 0, lambda r: quantity(r.temperature_celsius, "°C")),
    Column("POWER W", "power_watts", 10, 30, _power),
    Column("SM MHz", "sm_clock_mhz", 8, 34, lambda r: quantity(r.sm_clock_mhz, "")),
    Column("LIMIT", "clock_event_reasons", 13, 38, lambda r: limited_by(r)[0],
           lambda r: limited_by(r)[1]),
    TENSOR,
    _percent("BUS", "memory_utilization_percent", 6, 44),
    _percent("FAN", "fan_percent", 6, 44),
    Column("P", "performance_state", 4, 44, lambda r: _state(r.performance_state)),
    # What is received is not shown without what is sent: there is room for both.
    _rate("PCIE RX", "pcie_rx_bytes_per_second", 60 + RATE),
    _rate("PCIE TX", "pcie_tx_bytes_per_second", 60),
    _rate("NVLINK RX", "nvlink_rx_bytes_per_second", 70 + RATE),
    _rate("NVLINK TX", "nvlink_tx_bytes_per_second", 70),
)
# fmt: on
"""The most telling first: those that do not fit are left out from the end."""


def _state(state: int | None) -> str:
    return ABSENT if state is None else f"P{state}"


@dataclass(frozen=True, slots=True)
class Columns:
    """What a row has: widths of its label, name and bars, and its other columns."""

    label: int
    name: int
    bar: int
    others: tuple[Column, ...]


MARK, BUSY_VALUE, MEMORY_VALUE = 1, 5, 14
SHORTEST_BAR, LONGEST_BAR, LONGEST_NAME = 6, 40, 30


@lru_cache(maxsize=8)
def columns(width: int, machine: Machine) -> Columns:
    """The columns that fit: the least telling ones give way first."""
    label = max(2, machine.label) + 1
    left = width - MARK - label - BUSY_VALUE - MEMORY_VALUE
    known = (column for column in COLUMNS if column.name not in machine.lacking)
    others = that_fit(known, left, lambda column: column.width, lambda column: column.room)
    left -= sum(column.width for column in others)
    name = max(8, min(machine.name, LONGEST_NAME, left - 3 - 2 * SHORTEST_BAR))
    bars = max(0, min(LONGEST_BAR, (left - name - 3) // 2))
    return Columns(label, name, bars, tuple(others))


def shows_gpm(width: int, machine: Machine) -> bool:
    """Whether a row of that width has a reading of GPM."""
    return TENSOR in columns(width, machine).others


def heading(width: int, machine: Machine) -> Row:
    """The names over the columns."""
    c = columns(width, machine)
    parts = [
        cell("", MARK),
        cell("GPU", c.label + c.name + 1),
        cell("BUSY", c.bar + BUSY_VALUE + 1),
        cell("MEMORY", c.bar + MEMORY_VALUE + 1),
        *(cell(column.heading, column.width, right=True) for column in c.others),
    ]
    return fit([Span(part.text, DIM) for part in parts], width)


def draw_row(panel: Panel, machine: Machine, width: int) -> Row:
    """The device in `width` cells."""
    c, r = columns(width, machine), panel.readings
    row: Row = [
        mark(panel),
        cell(panel.device.label.rjust(2), c.label, ACCENT if panel.selected else STRONG),
        cell(name_of(panel.device), c.name, STRONG if panel.selected else TEXT),
        Span(" "),
    ]
    if panel.fault:
        style = WARN if panel.unanswered else FAULT
        return fit([*row, Span(panel.fault.what, style)], width)
    used, total = panel.memory
    row += [
        *_busy(r, c.bar),
        Span(" "),
        *bar(share_of(used, total), c.bar, MEMORY),
        _value(used_of(used, total), MEMORY_VALUE),
        Span(" "),
    ]
    for column in c.others:
        # An instance has so little that signs of absence would be all that one sees.
        blank = panel.device.parent_uuid is not None and lacks(r, column.name)
        style = column.style(r) if column.style else TEXT
        row.append(_value("" if blank else column.text(r), column.width, style))
    if panel.old_seconds is not None:  # where its name stands there is room for it in any case
        name = cell(age_text(panel.old_seconds), c.name, WARN)
        row = [*row[:2], name, *faded([row[3:]])[0]]
    return fit(row, width)


def _busy(readings: DeviceSample, cells: int) -> Row:
    """The bar and its value; it is named where it is not what the heading says."""
    name = activity_of(readings)
    active = getattr(readings, name)
    term, style = (" SM", SM) if name == "sm_active_percent" else ("", BUSY)
    drawn = bar(share_of(active, 100), cells - len(term), style)
    return [
        *drawn,
        cell(term, min(cells, len(term)), DIM),
        _value(percentage(active, "%"), BUSY_VALUE),
    ]


def _value(text: str, width: int, style: Style = TEXT) -> Span:
    return cell(text, width, DIM if text == ABSENT else style, right=True)
