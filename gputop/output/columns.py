"""The columns of `gputop status`: what each says of a device, and how they are named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from gputop.output.ansi import DIM, GREEN, LOUD_GREEN, LOUD_RED, LOUD_YELLOW, MAGENTA, YELLOW, Span
from gputop.schema.device import GPM_READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.schema.labels import ROWS, Row, value_of
from gputop.text import ABSENT, percentage, quantity, short_name, size, used_of, visible, watts_of

BUSY_PERCENT = 30
"""From where a number of work or memory is bold, as gpustat has it."""
WARM_CELSIUS, HOT_CELSIUS = 15, 5
"""So far below the slowdown threshold a temperature is yellow, and red."""

STATES = {
    DeviceState.OK: "",
    DeviceState.NOT_RESPONDING: "NOT RESPONDING",
    DeviceState.LOST: "LOST",
    DeviceState.NEEDS_RESET: "NEEDS RESET",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: what it is called, on the command line too, and what it shows of a device."""

    name: str
    span: Callable[[Device, DeviceSample], Span]
    sources: tuple[str, ...] = ()
    """The fields of the schema that it shows."""
    left: bool = False
    """Text, aligned to the left; numbers are to the right."""

    @property
    def needs_gpm(self) -> bool:
        """Whether it is empty unless GPM is sampled."""
        return any(name in GPM_READINGS for name in self.sources)

    def waits(self, device: Device, readings: DeviceSample) -> bool:
        """Whether it has something to show after another reading: a rate needs two."""
        answered = readings.state is DeviceState.OK and readings.age_seconds is not None
        return answered and any(
            value_of(name, device, readings) is Absence.NO_DATA_YET for name in self.sources
        )


def _absent(text: str, look: str = "") -> Span:
    return Span(text, DIM if text == ABSENT else look)


def _share(percent: float | None, look: str, loud: str) -> str:
    return loud if percent is not None and percent >= BUSY_PERCENT else look


def _busy(_: Device, readings: DeviceSample) -> Span:
    percent = readings.gpu_utilization_percent
    return _absent(percentage(percent), _share(percent, GREEN, LOUD_GREEN) if percent else "")


def _memory(device: Device, readings: DeviceSample) -> Span:
    """What is used of its own; where the host's is its memory, what processes hold of that."""
    if device.memory_is_shared:
        held = readings.memory_attributed_bytes
        return Span("the host's" if held is None else f"{size(held)} of the host's", YELLOW)
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    percent = 100 * used / total if used is not None and total else None
    return _absent(used_of(used, total), _share(percent, YELLOW, LOUD_YELLOW))


def _temperature(device: Device, readings: DeviceSample) -> Span:
    celsius = readings.temperature_celsius
    text = quantity(celsius, "°C")
    if celsius is None:
        return _absent(text)
    limit, margin = device.temperature_slowdown_celsius, readings.temperature_margin_celsius
    margin = margin if limit is None else limit - celsius
    if margin is None:  # nobody knows what is hot for it
        return Span(text)
    return Span(text, LOUD_RED if margin <= HOT_CELSIUS else YELLOW * (margin <= WARM_CELSIUS))


def _power(_: Device, readings: DeviceSample) -> Span:
    return _absent(watts_of(readings.power_watts, readings.power_limit_watts), MAGENTA)


def _state(_: Device, readings: DeviceSample) -> Span:
    if readings.state is DeviceState.OK and readings.age_seconds is None:
        return Span("no answer yet", YELLOW)
    return Span(STATES[readings.state], LOUD_RED)


PROCESSES = "processes"
"""Its cells are not a device's alone, and as long as there is room: the page makes them."""

OWN = (
    Column("GPU", lambda device, _: Span(device.label), ("index",)),
    Column("name", lambda device, _: Span(short_name(visible(device.name))), ("name",), left=True),
    Column("busy", _busy, ("gpu_utilization_percent",)),
    Column("memory", _memory, ("memory_used_bytes",)),
    Column("temp", _temperature, ("temperature_celsius",)),
    Column("power", _power, ("power_watts",)),
    Column("clock", lambda _, r: _absent(quantity(r.sm_clock_mhz, " MHz")), ("sm_clock_mhz",)),
    Column("fan", lambda _, r: _absent(percentage(r.fan_percent)), ("fan_percent",)),
    Column("state", _state, left=True),
    Column(PROCESSES, lambda *_: Span(""), left=True),
)
"""Those that are shown unless told otherwise."""


def slug(label: str) -> str:
    """A label as it is typed: `SM active` → `sm-active`."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


_TEXTS = {f.name for cls in (Device, DeviceSample) for f in fields(cls) if "str" in str(f.type)}


def _of_row(row: Row) -> Column:
    return Column(
        slug(row.label),
        lambda device, readings: _absent(row.text(device, readings)),
        row.names,
        left=row.names[0] in _TEXTS,
    )


def _known() -> dict[str, Column]:
    found = {column.name.lower(): column for column in OWN}
    by_source = {name: column for column in OWN for name in column.sources}
    for row in ROWS:
        column = by_source.get(row.names[0]) or _of_row(row)
        # A page's label and a field of the JSON name it, too.
        found.setdefault(slug(row.label), column)
        found.setdefault(row.names[0], column)
    return found


COLUMNS: Mapping[str, Column] = _known()
"""By every name that is understood."""
NAMES = tuple(dict.fromkeys(column.name for column in COLUMNS.values()))
"""One for each."""
STATE = COLUMNS["state"]


def parse_columns(text: str) -> tuple[Column, ...]:
    """Columns by their names, with commas between them; raises `ValueError` with all that are."""
    columns = []
    for name in text.split(","):
        typed = name.strip()
        column = COLUMNS.get(typed) or COLUMNS.get(slug(typed))
        if column is None:
            raise ValueError(f"{typed!r} is not a column. There are: {', '.join(NAMES)}.")
        columns.append(column)
    return tuple(dict.fromkeys(columns))
