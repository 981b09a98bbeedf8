"""Samples as CSV like that of `nvidia-smi --query-gpu=LIST --format=csv`, for scripts made for it.

Names and aliases are those of `nvidia-smi --help-query-gpu`; headers, units and the forms of values
are as drivers of the branches 535 to 590 print them: https://github.com/utkuozdemir/nvidia_gpu_exporter
keeps a table of both, taken from real ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gputop.schema.catalogue import CATALOGUE, Reading
from gputop.schema.clock_events import CLOCK_EVENTS, mask_of
from gputop.schema.device import Absence, Device, DeviceSample, DeviceState
from gputop.schema.snapshot import Inventory, Record, Sample
from gputop.text import csv_field, moment, visible

MISSING = {
    Absence.NO_PERMISSION: "[Insufficient Permissions]",
    Absence.LOST: "[GPU is lost]",
    Absence.TIMED_OUT: "[Unknown Error]",
    Absence.ERROR: "[Unknown Error]",
}
"""Texts in place of a missing value, by reason."""
NEEDS_RESET = "[GPU requires reset]"
DEFAULT_QUERY = (
    "timestamp,index,name,uuid,utilization.gpu,utilization.memory,memory.used,memory.total,"
    "temperature.gpu,power.draw,power.limit,clocks.sm,clocks.mem,pstate,fan.speed"
)


@dataclass(frozen=True, slots=True)
class DeviceMoment:
    """A device at one moment."""

    inventory: Inventory
    sample: Sample
    device: Device
    readings: DeviceSample


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A field that can be queried."""

    name: str
    value: Callable[[DeviceMoment], Any]
    """Returns None if the value is missing."""
    field: str = ""
    """Name in the schema, which also has the reason why the value is missing."""
    unit: str = ""
    none: str = "[N/A]"
    """Text for a value that is not supported or disabled."""

    @property
    def title(self) -> str:
        """Name and unit in the header: `utilization.gpu [%]`."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def text(self, row: DeviceMoment, *, units: bool) -> str:
        """Return the value as it is printed, or the text in its place."""
        value = self.value(row)
        if value is None:
            return self._missing(row)
        # A comma in a name starts another field: nvidia-smi quotes nothing.
        text = "".join(map(csv_field, re.split("([,;])", visible(str(value), 256))))
        return f"{text} {self.unit}" if units and self.unit else text

    def _missing(self, row: DeviceMoment) -> str:
        if row.readings.state is DeviceState.NEEDS_RESET:
            return NEEDS_RESET
        reason = row.readings.absent.get(self.field) or row.device.absent.get(self.field)
        return self.none if reason is None else MISSING.get(reason, self.none)


_UNITS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "percent": ("%", str),
    # Rounded up, as nvidia-smi does: the parts of a total can be 2 MiB more than it.
    "bytes": ("MiB", lambda value: -(-value >> 20)),
    "watts": ("W", "{:.2f}".format),
    "mhz": ("MHz", str),
}
"""Units of nvidia-smi, and the functions that write a value."""
_FORMS: Mapping[str, Callable[[Any], str]] = {
    "performance_state": "P{}".format,
    "pci_device_id": lambda digits: f"0x{digits.upper()}10DE",
    "compute_mode": str.title,
    "persistence_mode": str.capitalize,
    "mig_mode": str.capitalize,
    "ecc_enabled": lambda yes: "Enabled" if yes else "Disabled",
}


def _columns(reading: Reading) -> Iterator[QueryColumn]:
    """Yield a column for each name of a field of the readings, or else of the device."""
    unit, form = _UNITS.get(reading.unit, ("", _yes_or_value))
    form = _FORMS.get(reading.name, form)
    for name in reading.smi:
        none = "N/A" if name == "temperature.memory" else "[N/A]"
        yield _column(name, reading.name, form, unit, none)


def _column(
    name: str, field: str, form: Callable[[Any], Any], unit: str = "", none: str = "[N/A]"
) -> QueryColumn:
    def value(row: DeviceMoment) -> Any:
        has = row.readings if hasattr(row.readings, field) else row.device
        found = getattr(has, field)
        return None if found is None else form(found)

    return QueryColumn(name, value, field, unit, none)


def _yes_or_value(value: Any) -> Any:
    return ("No", "Yes")[value] if isinstance(value, bool) else value


def _stamp(row: DeviceMoment) -> str:
    """Return the local time: `2025/11/20 12:00:00.000`."""
    milliseconds = round(row.sample.time * 1000)
    whole, part = divmod(milliseconds, 1000)
    return f"{moment(whole, '%Y/%m/%d %H:%M:%S')}.{part:03d}"


def _clock_reasons(family: str) -> Iterator[QueryColumn]:
    yield _column(f"{family}.active", "clock_event_reasons", lambda x: f"0x{mask_of(x):016X}")
    for event in CLOCK_EVENTS:

        def held(reasons: tuple[str, ...], word: str = event.word) -> str:
            return "Active" if word in reasons else "Not Active"

        if event.smi:
            yield _column(f"{family}.{event.smi}", "clock_event_reasons", held)


_ALL = (
    QueryColumn("timestamp", _stamp),
    QueryColumn("driver_version", lambda row: row.inventory.driver_version),
    QueryColumn("count", lambda row: sum(d.parent_uuid is None for d in row.inventory.devices)),
    *(column for reading in CATALOGUE.values() for column in _columns(reading)),
    *_clock_reasons("clocks_event_reasons"),
    *_clock_reasons("clocks_throttle_reasons"),  # as drivers before 535 have it
)
COLUMNS = {column.name: column for column in _ALL}
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
}
"""Other names; the header has the name on the right."""


def parse_query(text: str) -> tuple[QueryColumn, ...]:
    """Parse a list of names; raises `ValueError` with the closest names."""
    known = {**COLUMNS, **{alias: COLUMNS[name] for alias, name in ALIASES.items()}}
    columns = []
    for name in (word.strip() for word in text.split(",")):
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"Closest: {', '.join(near)}." if near else "Try `gputop stream --help`."
            raise ValueError(f"{name!r} cannot be queried. {hint}")
        columns.append(known[name])
    return tuple(columns)


class CsvLines:
    """Lines of CSV for a stream: a header, then one for each GPU and sample.

    MIG instances have no line, as with nvidia-smi.
    """

    def __init__(
        self, columns: tuple[QueryColumn, ...], *, header: bool = True, units: bool = True
    ) -> None:
        self._columns = columns
        self._units = units
        self._header = header
        self._inventory: Inventory | None = None
        self.rows = 0

    def lines_of(self, record: Record) -> Iterator[str]:
        """Yield the lines of a record."""
        if isinstance(record, Inventory):
            self._inventory = record
            return
        if self._header:
            self._header = False
            yield ", ".join(column.title for column in self._columns)
        inventory = self._inventory
        for device in inventory.devices if inventory else ():
            readings = record.device(device.uuid)
            if inventory and readings and device.parent_uuid is None:
                row = DeviceMoment(inventory, record, device, readings)
                self.rows += 1
                yield ", ".join(column.text(row, units=self._units) for column in self._columns)
