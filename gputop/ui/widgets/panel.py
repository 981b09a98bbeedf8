"""One device as rows of cells, in three densities. Pure: no widget, no state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

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
from gputop.ui.palette import ACCENT, BUSY, DIM, FAULT, MEMORY, POWER, STRONG, TEXT, TRACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style

    from gputop.telemetry.snapshot import Device, DeviceSample


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


@dataclass(frozen=True, slots=True)
class Panel:
    """What there is to draw of a device."""

    device: Device
    readings: DeviceSample
    busy: Sequence[float | None]
    """History of utilization, in percent, oldest first."""
    count: int
    """Samples ever, to place the history."""
    longest_name: int
    """Cells of the longest name among all devices, for columns that agree."""
    selected: bool = False


def name_of(device: Device) -> str:
    """The device's name as it is shown."""
    return short_name(visible(device.name))


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
        body = [
            _busy_bar(panel, inner),
            _memory_bar(panel, inner),
            _power_bar(panel, inner),
            _details(panel, inner),
            *history(panel.busy, panel.count, inner, height - 5, 100.0, BUSY),
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
        Span(f"{panel.device.index} ", ACCENT if panel.selected else STRONG),
        Span(f"{name_of(panel.device)} ", STRONG),
    ]
    right = [
        Span("  "),
        reading(quantity(r.temperature_celsius, "°C")),
        *([] if rule else [Span("  "), *_power(panel), Span("  "), *_clock(panel)]),
    ]
    if r.performance_state is not None:
        right += [Span(f"  P{r.performance_state}")]
    if r.state is not DeviceState.OK:
        right = [Span("")]
    if rule:
        right = [*right, Span(" ", TRACK)]
        return spread(fit(left, width - width_of(right), "─", TRACK), right, width)
    return spread(left, [*right, Span(" ")], width)


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
    value = cell(quantity(busy, " %"), 5, STRONG if busy is not None else DIM, right=True)
    return _labelled_bar("busy", share_of(busy, 100), BUSY, [value], width)


def _memory_bar(panel: Panel, width: int) -> Row:
    r = panel.readings
    share = share_of(r.memory_used_bytes, r.memory_total_bytes)
    return _labelled_bar("mem", share, MEMORY, _of_total(r), width)


def _of_total(r: DeviceSample) -> Row:
    if r.memory_used_bytes is None:
        return [Span(ABSENT.rjust(5), DIM)]
    used = in_unit_of(r.memory_used_bytes, r.memory_total_bytes)
    return [Span(used.rjust(5), STRONG), Span(f" of {size(r.memory_total_bytes)}", DIM)]


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


def _details(panel: Panel, width: int) -> Row:
    """The rest in one line, the most telling first; what does not fit is left out whole."""
    r, device = panel.readings, panel.device
    fan = quantity(r.fan_percent, " %")
    parts: list[tuple[str, str]] = [
        ("SM", _with_maximum(r.sm_clock_mhz, device.sm_clock_max_mhz)),
        ("mem", _with_maximum(r.memory_clock_mhz, device.memory_clock_max_mhz)),
        ("bus", quantity(r.memory_utilization_percent, " %")),
        ("fan", fan),
        ("reserved", size(r.memory_reserved_bytes)),
    ]
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


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the columns of the one-row density; 0 leaves a column out."""

    name: int
    bar: int
    power: int
    clock: int
    fan: int
    state: int


MARK, INDEX, BUSY_VALUE, MEMORY_VALUE, TEMPERATURE = 1, 3, 5, 14, 6
LONGEST_BAR, LONGEST_NAME = 40, 30


def columns(width: int, longest_name: int) -> Columns:
    """The columns that fit: the least telling ones give way first."""
    left = width - MARK - INDEX - BUSY_VALUE - MEMORY_VALUE - TEMPERATURE
    extra: dict[str, int] = {}
    for column, cells, keep in (
        ("power", 10, 34),
        ("clock", 9, 36),
        ("fan", 6, 50),
        ("state", 4, 50),
    ):
        extra[column] = cells if left - cells >= keep else 0
        left -= extra[column]
    name = max(8, min(longest_name, LONGEST_NAME, 2 * left // 5))
    bars = max(0, min(LONGEST_BAR, (left - name - 3) // 2))
    return Columns(name, bars, **extra)


def heading(width: int, longest_name: int) -> Row:
    """The names over the columns of the one-row density."""
    c = columns(width, longest_name)
    parts = [
        cell("", MARK),
        cell("GPU", INDEX + c.name + 1),
        cell("BUSY", c.bar + BUSY_VALUE + 1),
        cell("MEMORY", c.bar + MEMORY_VALUE + 1),
        cell("TEMP", TEMPERATURE, right=True),
        cell("POWER W", c.power, right=True),
        cell("SM MHZ", c.clock, right=True),
        cell("FAN", c.fan, right=True),
        cell("P", c.state, right=True),
    ]
    return fit([Span(part.text, DIM) for part in parts], width)


def draw_row(panel: Panel, width: int) -> Row:
    """The device in one row, like a line of gpustat."""
    c, r = columns(width, panel.longest_name), panel.readings
    row: Row = [
        _mark(panel),
        cell(f"{panel.device.index}", INDEX - 1, ACCENT if panel.selected else STRONG, right=True),
        Span(" "),
        cell(name_of(panel.device), c.name, STRONG if panel.selected else TEXT),
        Span(" "),
    ]
    fault = _fault(panel)
    if fault:
        return fit([*row, Span(fault[0][0], fault[0][1])], width)
    busy, used = r.gpu_utilization_percent, r.memory_used_bytes
    state = ABSENT if r.performance_state is None else f"P{r.performance_state}"
    return fit(
        [
            *row,
            *bar(share_of(busy, 100), c.bar, BUSY),
            _value(quantity(busy, "%"), BUSY_VALUE),
            Span(" "),
            *bar(share_of(used, r.memory_total_bytes), c.bar, MEMORY),
            _value(used_of(used, r.memory_total_bytes), MEMORY_VALUE),
            Span(" "),
            _value(quantity(r.temperature_celsius, "°C"), TEMPERATURE),
            _value(watts_of(r.power_watts, r.power_limit_watts), c.power),
            _value(quantity(r.sm_clock_mhz, ""), c.clock),
            _value(quantity(r.fan_percent, "%"), c.fan),
            _value(state, c.state),
        ],
        width,
    )


def _value(text: str, width: int) -> Span:
    return cell(text, width, DIM if text == ABSENT else TEXT, right=True)
