"""One device as rows of cells, in three densities. Pure: no widget, no state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from gputop.output.faults import fault_of
from gputop.telemetry.snapshot import DeviceState
from gputop.text import (
    ABSENT,
    in_unit_of,
    quantity,
    short_name,
    size,
    used_of,
    visible,
    watts_of,
)
from gputop.ui.draw import (
    Row,
    Span,
    bar,
    cell,
    clip,
    fit,
    history,
    reading,
    share_of,
    spread,
    width_of,
)
from gputop.ui.palette import ACCENT, BUSY, DIM, FAULT, MEMORY, POWER, STRONG, TEXT, TRACK, WARN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style

    from gputop.telemetry.snapshot import Device, DeviceSample, Host


class Density(IntEnum):
    """How much room a device gets; the value is the rows that it takes at least."""

    ROW = 1
    COMPACT = 3
    FULL = 7

    @property
    def following(self) -> Density:
        """The next one, round and round."""
        order = list(Density)
        return order[(order.index(self) + 1) % len(order)]


class Widths(NamedTuple):
    """Cells of the longest label and of the longest name among all devices."""

    label: int
    name: int


def widths_of(devices: Sequence[Device]) -> Widths:
    """Of these devices."""
    return Widths(
        max((len(device.label) for device in devices), default=1),
        max((cell_len(name_of(device)) for device in devices), default=0),
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """What there is to draw of a device."""

    device: Device
    readings: DeviceSample
    busy: Sequence[float | None]
    """History of utilization, in percent, oldest first."""
    count: int
    """Samples ever, to place the history."""
    widths: Widths
    """For columns that agree."""
    selected: bool = False
    host: Host | None = None
    """Its memory is that of a device that has none of its own."""

    @property
    def memory(self) -> tuple[int | None, int | None]:
        """What is in use, and of how much."""
        r = self.readings
        if r.memory_used_bytes is None and self.device.memory_is_shared and self.host is not None:
            return self.host.memory_used_bytes, self.host.memory_total_bytes
        return r.memory_used_bytes, r.memory_total_bytes


def name_of(device: Device) -> str:
    """The device's name as it is shown; of a MIG instance, its profile."""
    name = short_name(visible(device.name))
    profile = name.rpartition(" MIG ")[2]
    return f"└ MIG {profile}" if device.parent_uuid is not None else name


def draw(panel: Panel, density: Density, width: int, height: int) -> list[Row]:
    """The panel in exactly `height` rows of `width` cells."""
    if density is Density.ROW:
        return [draw_row(panel, width)]
    rows = [_title(panel, width, rule=density is Density.FULL)]
    inner = width - 3
    fault = _fault(panel)
    if fault:
        body = [[Span(clip(text, inner), style)] for text, style in fault]
    elif density is Density.COMPACT:
        body = [_busy_bar(panel, inner), _memory_bar(panel, inner)]
    else:
        lines = _details(panel, inner, height - 6)
        body = [
            _busy_bar(panel, inner),
            _memory_bar(panel, inner),
            _power_bar(panel, inner),
            *lines,
            *history(panel.busy, panel.count, inner, height - 4 - len(lines), 100.0, BUSY),
        ]
    rows += [[_mark(panel), Span("  "), *row] for row in body]
    rows += [[_mark(panel)] for _ in range(height - len(rows))]
    return [fit(row, width) for row in rows[:height]]


def _mark(panel: Panel) -> Span:
    return Span("▌" if panel.selected else " ", ACCENT)


def _title(panel: Panel, width: int, *, rule: bool) -> Row:
    r = panel.readings
    left = [
        _mark(panel),
        Span(f"{panel.device.label} ", ACCENT if panel.selected else STRONG),
        Span(f"{name_of(panel.device)} ", STRONG),
    ]
    right = [
        Span("  "),
        reading(quantity(r.temperature_celsius, "°C")),
        *([] if rule else [Span("  "), *_power(panel), Span("  "), *_clock(panel)]),
    ]
    if r.performance_state is not None:
        right += [Span(f"  P{r.performance_state}")]
    limit, style = limited_by(r)
    if limit:
        right = [Span(f"  {limit}", style), *right]
    if r.state is not DeviceState.OK:
        right = [Span("")]
    if rule:
        right = [*right, Span(" ", TRACK)]
        return spread(fit(left, width - width_of(right), "─", TRACK), right, width)
    return spread(left, [*right, Span(" ")], width)


LIMITS = {
    "hw_thermal": ("HW heat", WARN),
    "sw_thermal": ("heat", WARN),
    "hw_power_brake": ("power brake", WARN),
    "hw_slowdown": ("HW slowdown", WARN),
    "sw_power_cap": ("power cap", DIM),
    "reliability": ("voltage", DIM),
    "board_limit": ("board limit", DIM),
    "sync_boost": ("sync boost", DIM),
    "application_clocks": ("set clocks", DIM),
    "display_clocks": ("display", DIM),
}
"""Clock event reasons in a word or two, the most telling first; idle goes without saying."""


def limited_by(readings: DeviceSample) -> tuple[str, Style]:
    """What keeps the clocks down, most of all; empty where nothing does."""
    reasons = readings.clock_event_reasons or ()
    known = next((LIMITS[name] for name in LIMITS if name in reasons), None)
    others = [name for name in reasons if name not in LIMITS and name != "idle"]
    return known or (others[0] if others else "", DIM)


def _fault(panel: Panel) -> list[tuple[str, Style]]:
    """What to say instead of readings: what is wrong, and what to do."""
    fault = fault_of(panel.readings)
    return [(fault.what, FAULT), (fault.remedy, TEXT)] if fault else []


LABEL, VALUE = 6, 18


def _labelled_bar(label: str, share: float | None, style: Style, value: Row, width: int) -> Row:
    room = width - LABEL - VALUE - 1
    return fit(
        [cell(label, LABEL, DIM), *bar(share, room, style), Span(" "), *value],
        width,
    )


def _busy_bar(panel: Panel, width: int) -> Row:
    busy = panel.readings.gpu_utilization_percent
    value = [cell(quantity(busy, " %"), 5, STRONG if busy is not None else DIM, right=True)]
    tensor = panel.readings.tensor_active_percent
    if tensor is not None:  # busy says nothing about how much of it is used
        value += [Span(" tensor ", DIM), cell(f"{tensor:.0f} %", 5, STRONG, right=True)]
    return _labelled_bar("busy", share_of(busy, 100), BUSY, value, width)


def _memory_bar(panel: Panel, width: int) -> Row:
    used, total = panel.memory
    if used is None:
        value = [Span(ABSENT.rjust(5), DIM)]
    else:
        number = Span(in_unit_of(used, total).rjust(5), STRONG)
        value = [number, Span(f" of {size(total)}", DIM)]
    label = "host" if panel.device.memory_is_shared else "mem"
    return _labelled_bar(label, share_of(used, total), MEMORY, value, width)


def _power_bar(panel: Panel, width: int) -> Row:
    r = panel.readings
    share = share_of(r.power_watts, r.power_limit_watts)
    return _labelled_bar("power", share, POWER, _power(panel, pad=5), width)


def _power(panel: Panel, pad: int = 0) -> Row:
    r = panel.readings
    if r.power_watts is None:
        return [Span(ABSENT.rjust(pad), DIM)]
    watts = Span(f"{r.power_watts:.0f}".rjust(pad), STRONG if pad else TEXT)
    limit = "" if r.power_limit_watts is None else f" of {r.power_limit_watts:.0f}"
    return [watts, Span(f"{limit} W", DIM)]


def _clock(panel: Panel) -> Row:
    return [reading(quantity(panel.readings.sm_clock_mhz, " MHz"))]


def _details(panel: Panel, width: int, most: int) -> list[Row]:
    """The rest in up to `most` lines, the most telling first; the history needs the others."""
    r, device = panel.readings, panel.device
    clocks = [
        ("SM", _with_maximum(r.sm_clock_mhz, device.sm_clock_max_mhz)),
        ("mem", _with_maximum(r.memory_clock_mhz, device.memory_clock_max_mhz)),
        ("bus", quantity(r.memory_utilization_percent, " %")),
        ("fan", quantity(r.fan_percent, " %")),
        ("reserved", size(r.memory_reserved_bytes)),
    ]
    # Here unlike elsewhere what is missing is left out: the device's page says why.
    activity = [
        ("SM active", quantity(r.sm_active_percent, " %")),
        ("DRAM", quantity(r.dram_active_percent, " %")),
        ("occupancy", quantity(r.sm_occupancy_percent, " %")),
    ]
    links = [
        ("PCIe ↓", _rate(r.pcie_rx_bytes_per_second)),
        ("↑", _rate(r.pcie_tx_bytes_per_second)),
        ("NVLink ↓", _rate(r.nvlink_rx_bytes_per_second)),
        ("↑", _rate(r.nvlink_tx_bytes_per_second)),
    ]
    media = [
        ("enc", quantity(r.encoder_utilization_percent, " %")),
        ("dec", quantity(r.decoder_utilization_percent, " %")),
    ]
    lines = [clocks, [part for part in activity if part[1] != ABSENT]]
    lines.append([part for part in links + media if part[1] not in (ABSENT, "0 %")])
    return [_in_line(parts, width) for parts in lines if parts][: max(1, most)]


def _rate(bytes_per_second: float | None) -> str:
    return ABSENT if bytes_per_second is None else f"{size(bytes_per_second)}/s"


def _in_line(parts: Sequence[tuple[str, str]], width: int) -> Row:
    """Labels and values; what does not fit is left out whole."""
    row: Row = []
    left = width
    for label, value in parts:
        needed = len(label) + 1 + len(value) + (3 if row else 0)
        if needed > left:
            break
        if row:
            row.append(Span(" · ", TRACK))
        row += [Span(f"{label} ", DIM), reading(value)]
        left -= needed
    return row


def _with_maximum(value: int | None, maximum: int | None) -> str:
    if value is None:
        return ABSENT
    return f"{value} MHz" if maximum is None else f"{value}/{maximum} MHz"


class Column(NamedTuple):
    """A column of the one-row density, to the right of the bars."""

    heading: str
    width: int
    room: int
    """Cells that must be left for the name and the bars."""
    text: Callable[[DeviceSample], str]
    style: Callable[[DeviceSample], Style] | None = None


TENSOR = Column("TENSOR", 8, 56, lambda r: quantity(r.tensor_active_percent, "%"))
COLUMNS = (
    Column("TEMP", 6, 0, lambda r: quantity(r.temperature_celsius, "°C")),
    Column("POWER W", 10, 30, lambda r: watts_of(r.power_watts, r.power_limit_watts)),
    Column("SM MHZ", 8, 34, lambda r: quantity(r.sm_clock_mhz, "")),
    Column("LIMIT", 13, 38, lambda r: limited_by(r)[0], lambda r: limited_by(r)[1]),
    Column("FAN", 6, 44, lambda r: quantity(r.fan_percent, "%")),
    Column("P", 4, 44, lambda r: _state(r.performance_state)),
    TENSOR,
    Column("BUS", 6, 56, lambda r: quantity(r.memory_utilization_percent, "%")),
    Column("PCIE RX", 12, 60, lambda r: _rate(r.pcie_rx_bytes_per_second)),
    Column("PCIE TX", 12, 60, lambda r: _rate(r.pcie_tx_bytes_per_second)),
    Column("NVLINK RX", 12, 70, lambda r: _rate(r.nvlink_rx_bytes_per_second)),
    Column("NVLINK TX", 12, 70, lambda r: _rate(r.nvlink_tx_bytes_per_second)),
)
"""The most telling first: those that do not fit are left out from the end."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a row of that density has: widths of its label, name and bars, and its other columns."""

    label: int
    name: int
    bar: int
    others: tuple[Column, ...]


MARK, BUSY_VALUE, MEMORY_VALUE = 1, 5, 14
SHORTEST_BAR, LONGEST_BAR, LONGEST_NAME = 6, 40, 30


def columns(width: int, widths: Widths) -> Columns:
    """The columns that fit: the least telling ones give way first."""
    label = max(2, widths.label) + 1
    left = width - MARK - label - BUSY_VALUE - MEMORY_VALUE
    others: list[Column] = []
    for column in COLUMNS:
        if left - column.width < column.room:
            break
        others.append(column)
        left -= column.width
    name = max(8, min(widths.name, LONGEST_NAME, left - 3 - 2 * SHORTEST_BAR))
    bars = max(0, min(LONGEST_BAR, (left - name - 3) // 2))
    return Columns(label, name, bars, tuple(others))


def _state(state: int | None) -> str:
    return ABSENT if state is None else f"P{state}"


def shows_gpm(width: int, widths: Widths) -> bool:
    """Whether a row of that width has a reading of GPM."""
    return TENSOR in columns(width, widths).others


def heading(width: int, widths: Widths) -> Row:
    """The names over the columns of the one-row density."""
    c = columns(width, widths)
    parts = [
        cell("", MARK),
        cell("GPU", c.label + c.name + 1),
        cell("BUSY", c.bar + BUSY_VALUE + 1),
        cell("MEMORY", c.bar + MEMORY_VALUE + 1),
        *(cell(column.heading, column.width, right=True) for column in c.others),
    ]
    return fit([Span(part.text, DIM) for part in parts], width)


def draw_row(panel: Panel, width: int) -> Row:
    """The device in one row, like a line of gpustat."""
    c, r = columns(width, panel.widths), panel.readings
    row: Row = [
        _mark(panel),
        cell(panel.device.label.rjust(2), c.label, ACCENT if panel.selected else STRONG),
        cell(name_of(panel.device), c.name, STRONG if panel.selected else TEXT),
        Span(" "),
    ]
    fault = _fault(panel)
    if fault:
        return fit([*row, Span(fault[0][0], fault[0][1])], width)
    busy, (used, total) = r.gpu_utilization_percent, panel.memory
    return fit(
        [
            *row,
            *bar(share_of(busy, 100), c.bar, BUSY),
            _value(quantity(busy, "%"), BUSY_VALUE),
            Span(" "),
            *bar(share_of(used, total), c.bar, MEMORY),
            _value(used_of(used, total), MEMORY_VALUE),
            Span(" "),
            *(
                _value(column.text(r), column.width, column.style(r) if column.style else TEXT)
                for column in c.others
            ),
        ],
        width,
    )


def _value(text: str, width: int, style: Style = TEXT) -> Span:
    return cell(text, width, DIM if text == ABSENT else style, right=True)
