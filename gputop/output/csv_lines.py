"""Samples as CSV: a header, then a line for each GPU and sample.

Every reading of the catalogue is a column. With nvidia-smi's name (`memory.used`) a value has the
unit and the format of `nvidia-smi --query-gpu`. With gputop's name (`memory_used_bytes`) it is the
value in the JSON. Headers and formats follow the drivers 535 to 610. Real output of them is in
https://github.com/utkuozdemir/nvidia_gpu_exporter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import attrgetter
from typing import Any

from gputop.agent.device import (
    GPM_READINGS,
    Absence,
    Device,
    DeviceSample,
    DeviceState,
)
from gputop.agent.lines import rounded
from gputop.agent.snapshot import Inventory, Record, Sample
from gputop.schema.catalogue import CATALOGUE, RECOVERIES
from gputop.schema.clock_events import CLOCK_EVENTS, mask_of
from gputop.text import csv_field, moment, visible

DEFAULT_QUERY = (
    "timestamp,index,name,uuid,utilization.gpu,utilization.memory,memory.used,memory.total,"
    "temperature.gpu,power.draw,power.limit,clocks.sm,clocks.mem,pstate,fan.speed"
)
NOT_AVAILABLE = "[N/A]"
MISSING = {
    Absence.NO_PERMISSION: "[Insufficient Permissions]",
    Absence.LOST: "[GPU is lost]",
    Absence.TIMED_OUT: "[Unknown Error]",
    Absence.ERROR: "[Unknown Error]",
}
"""Texts in place of a missing value, by reason. Other reasons give `NOT_AVAILABLE`."""
NEEDS_RESET = "[GPU requires reset]"
LONGEST_TEXT = 256


@dataclass(frozen=True)
class Row:
    """A device at one moment."""

    inventory: Inventory
    sample: Sample
    device: Device
    readings: DeviceSample

    def value(self, reading: str) -> Any:
        """Return the value of a reading from the sample or the inventory."""
        if hasattr(self.readings, reading):
            return getattr(self.readings, reading)
        return getattr(self.device, reading)


@dataclass(frozen=True)
class CsvColumn:
    """A column that can be queried."""

    name: str
    reading: str = ""
    """Name in the catalogue; empty if the column is not a reading."""
    form: Callable[[Any], object] = str
    """Formats the value of the reading."""
    unit: str = ""
    """Unit after each value; empty for none."""
    of_row: Callable[[Row], Any] | None = None
    """Returns the value of a column that is not a reading; None if the value is missing."""

    @property
    def title(self) -> str:
        """Name and unit in the header: `utilization.gpu [%]`."""
        if self.unit:
            return f"{self.name} [{self.unit}]"
        return self.name

    def text(self, row: Row, *, units: bool) -> str:
        """Return the text of the cell: the value, or the text for a missing value."""
        value = self._value(row)
        if value is None:
            return self._missing(row)
        # nvidia-smi does not quote: a comma in a name starts another field. Do
        # the same.
        parts = re.split(
            "([,;])", visible(str(self.form(value)), LONGEST_TEXT)
        )
        text = "".join(map(csv_field, parts))
        if units and self.unit:
            return f"{text} {self.unit}"
        return text

    def _value(self, row: Row) -> Any:
        if self.of_row is not None:
            return self.of_row(row)
        return row.value(self.reading)

    def _missing(self, row: Row) -> str:
        if row.readings.state is DeviceState.NEEDS_RESET:
            return NEEDS_RESET
        for absent in (row.readings.absent, row.device.absent):
            reason = absent.get(self.reading)
            if reason in MISSING:
                return MISSING[reason]
        if self.name == "temperature.memory":
            # This is the only reading that nvidia-smi prints without brackets.
            return "N/A"
        return NOT_AVAILABLE


def _json_text(value: Any) -> str:
    """Return a JSON value as one field. Spaces separate the items of a list or object."""
    if value is None:
        return NOT_AVAILABLE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(rounded(value))
    if isinstance(value, Mapping):
        return " ".join(
            f"{key}={_json_text(part)}" for key, part in value.items()
        )
    if isinstance(value, tuple):
        return " ".join(map(_json_text, value))
    return str(value)


def _mebibytes(value: int) -> int:
    """Round up to MiB, as nvidia-smi does. The sum of parts can exceed their total by 2 MiB."""
    return -(-value >> 20)


_YES_NO = {True: "Yes", False: "No"}


def _yes_or_value(value: Any) -> Any:
    if isinstance(value, bool):
        return _YES_NO[value]
    return value


def _recovery(word: str) -> str:
    known = RECOVERIES.get(word)
    if known is not None and known.smi:
        return known.smi
    return word.replace("_", " ").capitalize()


_SMI_UNITS: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    "percent": ("%", str),
    "bytes": ("MiB", _mebibytes),
    "watts": ("W", "{:.2f}".format),
    "mhz": ("MHz", str),
}
"""Units and value formats of nvidia-smi, by the unit in the catalogue."""
_SMI_FORMS: Mapping[str, Callable[[Any], object]] = {
    "performance_state": "P{}".format,
    "pci_device_id": lambda digits: f"0x{digits.upper()}10DE",
    "compute_mode": str.title,
    "persistence_mode": str.capitalize,
    "mig_mode": str.capitalize,
    "ecc_enabled": {True: "Enabled", False: "Disabled"}.get,
    "recovery_action": _recovery,
}
"""Value formats of nvidia-smi by reading, where they differ from the format of the unit."""


def _clock_event_columns(family: str) -> Iterator[CsvColumn]:
    """Yield the columns of the clock event reasons: the mask, and one column for each reason."""
    reading = "clock_event_reasons"
    yield CsvColumn(
        f"{family}.active", reading, lambda words: f"0x{mask_of(words):016X}"
    )
    for event in CLOCK_EVENTS:

        def state(words: tuple[str, ...], word: str = event.word) -> str:
            if word in words:
                return "Active"
            return "Not Active"

        if event.smi:
            yield CsvColumn(f"{family}.{event.smi}", reading, state)


def _timestamp(row: Row) -> str:
    """Return the local time: `2025/11/20 12:00:00.000`."""
    seconds, milliseconds = divmod(round(row.sample.time * 1000), 1000)
    return f"{moment(seconds, '%Y/%m/%d %H:%M:%S')}.{milliseconds:03d}"


def _count(row: Row) -> int:
    """Return the number of GPUs, without MIG instances."""
    return sum(device.parent_uuid is None for device in row.inventory.devices)


def _all_columns() -> Iterator[CsvColumn]:
    """Yield all columns. If two have the same name, the last one is used: nvidia-smi's."""
    yield CsvColumn("timestamp", of_row=_timestamp)
    yield CsvColumn(
        "driver_version", of_row=attrgetter("inventory.driver_version")
    )
    yield CsvColumn("count", of_row=_count)
    for name in CATALOGUE:
        yield CsvColumn(name, name, _json_text)
    for reading in CATALOGUE.values():
        unit, form = _SMI_UNITS.get(reading.unit, ("", _yes_or_value))
        form = _SMI_FORMS.get(reading.name, form)
        for name in reading.smi:
            yield CsvColumn(name, reading.name, form, unit)
    # `clocks_throttle_reasons` is the name before driver 535. Newer drivers still accept it.
    yield from _clock_event_columns("clocks_event_reasons")
    yield from _clock_event_columns("clocks_throttle_reasons")


COLUMNS: Mapping[str, CsvColumn] = {
    column.name: column for column in _all_columns()
}
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
"""Short names of nvidia-smi. As in nvidia-smi, the header has the full name on the right."""


def parse_query(text: str) -> tuple[CsvColumn, ...]:
    """Parse the names of columns. Raises `ValueError` with a suggestion for an unknown name."""
    found = []
    for word in text.split(","):
        name = word.strip()
        name = ALIASES.get(name, name)
        if name not in COLUMNS:
            raise ValueError(_unknown(name))
        found.append(COLUMNS[name])
    return tuple(found)


def _unknown(name: str) -> str:
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        return f"{name!r} is not a column. Give names such as index,utilization.gpu,memory.used."
    said = f"There is no column {name}."
    names = [*COLUMNS, *ALIASES]
    near = [known for known in names if known.startswith(name)]
    near = near or get_close_matches(
        name,
        names,
        n=1,
        cutoff=0.8,
    )
    if near:
        said += f" Did you mean {near[0]}?"
    if "." in name or not near:
        said += f" `nvidia-smi --query-gpu={name}` may have it."
    return said


@dataclass
class CsvLines:
    """Lines of CSV for a stream: a header, then one for each GPU and sample.

    MIG instances have no line, as with nvidia-smi, because scripts count the lines.
    """

    columns: Sequence[CsvColumn]
    header: bool = True
    """True until the header is written; False from the start for no header."""
    units: bool = True
    inventory: Inventory | None = None

    @property
    def needs_gpm(self) -> bool:
        """True if a column is a profiling counter."""
        return not {each.reading for each in self.columns}.isdisjoint(
            GPM_READINGS
        )

    def lines_of(self, record: Record) -> Iterator[str]:
        """Yield the lines of a record."""
        if isinstance(record, Inventory):
            self.inventory = record
            return
        inventory = self.inventory
        if inventory is None:
            return
        if self.header and inventory.devices:
            self.header = False
            yield ", ".join(map(attrgetter("title"), self.columns))
        for device in inventory.devices:
            readings = record.device(device.uuid)
            if readings is not None and device.parent_uuid is None:
                row = Row(inventory, record, device, readings)
                yield ", ".join(
                    column.text(row, units=self.units)
                    for column in self.columns
                )
