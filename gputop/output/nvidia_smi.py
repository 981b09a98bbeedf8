"""Samples as CSV like that of nvidia-smi's `--query-gpu` and `--query-compute-apps`.

Names, headers, units and the forms of values are as drivers of the branches 535 to 610 print them:
https://github.com/utkuozdemir/nvidia_gpu_exporter keeps output of real ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from gputop.schema.catalogue import CATALOGUE, RECOVERIES, Reading
from gputop.schema.clock_events import CLOCK_EVENTS, mask_of
from gputop.schema.device import Absence, Device, DeviceSample, DeviceState
from gputop.schema.smi_fields import MISSING, SmiField, is_missing, missing_text, smi_fields
from gputop.schema.snapshot import Inventory, Process, ProcessKind, Record, Sample
from gputop.text import csv_field, moment, visible

DEFAULT_QUERY = (
    "timestamp,index,name,uuid,utilization.gpu,utilization.memory,memory.used,memory.total,"
    "temperature.gpu,power.draw,power.limit,clocks.sm,clocks.mem,pstate,fan.speed"
)
STATES = {
    DeviceState.LOST: MISSING[Absence.LOST],
    DeviceState.NOT_RESPONDING: MISSING[Absence.TIMED_OUT],
    DeviceState.NEEDS_RESET: "[GPU requires reset]",
}
"""Texts for values that have no reason of their own, by the state of the device."""


@dataclass(frozen=True, slots=True)
class Row:
    """A device at one moment, and perhaps one of its processes."""

    inventory: Inventory
    sample: Sample
    device: Device
    readings: DeviceSample
    process: Process | None = None


class QueryColumn(NamedTuple):
    """A field that can be queried."""

    name: str
    value: Callable[[Row], Any]
    """Returns None if the value is missing."""
    field: str = ""
    """Name in the schema, which also has the reason why the value is missing."""
    unit: str = ""
    question: str = ""
    """nvidia-smi's name under which the value is asked for; empty if each sample has it."""

    @property
    def title(self) -> str:
        """Name and unit in the header: `utilization.gpu [%]`."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def text(self, row: Row, *, units: bool) -> str:
        """Return the value as it is printed, or the text in its place."""
        value = self.value(row)
        if value is None:
            return self._missing(row)
        # A comma in a name starts another field: nvidia-smi quotes nothing.
        text = "".join(map(csv_field, re.split("([,;])", visible(str(value), 256))))
        return f"{text} {self.unit}" if units and self.unit and not is_missing(text) else text

    def _missing(self, row: Row) -> str:
        state = row.readings.state
        if state is DeviceState.NEEDS_RESET or (self.question and state in STATES):
            return STATES[state]
        holders = (row.process, row.readings, row.device)
        reasons = (each.absent.get(self.field) for each in holders if each is not None)
        return missing_text(self.name, next(filter(None, reasons), None))


_UNITS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "percent": ("%", str),
    # Rounded up, as nvidia-smi does: the parts of a total can be 2 MiB more than it.
    "bytes": ("MiB", lambda value: -(-value >> 20)),
    "watts": ("W", "{:.2f}".format),
    "mhz": ("MHz", str),
}
"""Units of nvidia-smi, and the functions that write a value."""


def _recovery(word: str) -> str:
    known = RECOVERIES.get(word)
    return known.smi if known and known.smi else word.replace("_", " ").capitalize()


_FORMS: Mapping[str, Callable[[Any], str]] = {
    "performance_state": "P{}".format,
    "pci_device_id": lambda digits: f"0x{digits.upper()}10DE",
    "compute_mode": str.title,
    "persistence_mode": str.capitalize,
    "mig_mode": str.capitalize,
    "ecc_enabled": lambda yes: "Enabled" if yes else "Disabled",
    "recovery_action": _recovery,
}


def _columns(reading: Reading) -> Iterator[QueryColumn]:
    """Yield a column for each name of a field of the readings, or else of the device."""
    unit, form = _UNITS.get(reading.unit, ("", _yes_or_value))
    form = _FORMS.get(reading.name, form)
    for name in reading.smi:
        yield _column(name, reading.name, form, unit)


def _column(name: str, field: str, form: Callable[[Any], Any], unit: str = "") -> QueryColumn:
    def value(row: Row) -> Any:
        has = row.readings if hasattr(row.readings, field) else row.device
        found = getattr(has, field)
        return None if found is None else form(found)

    return QueryColumn(name, value, field, unit)


def _yes_or_value(value: Any) -> Any:
    return ("No", "Yes")[value] if isinstance(value, bool) else value


def _stamp(row: Row) -> str:
    """Return the local time: `2025/11/20 12:00:00.000`."""
    milliseconds = round(row.sample.time * 1000)
    whole, part = divmod(milliseconds, 1000)
    return f"{moment(whole, '%Y/%m/%d %H:%M:%S')}.{part:03d}"


def _clock_reasons() -> Iterator[QueryColumn]:
    family = "clocks_event_reasons"
    yield _column(f"{family}.active", "clock_event_reasons", lambda x: f"0x{mask_of(x):016X}")
    for event in CLOCK_EVENTS:

        def held(reasons: tuple[str, ...], word: str = event.word) -> str:
            return "Active" if word in reasons else "Not Active"

        if event.smi:
            yield _column(f"{family}.{event.smi}", "clock_event_reasons", held)


def _asked(field: SmiField) -> QueryColumn:
    """Return the column of a value that is no reading, and is asked for by its name."""
    name = field.name
    value = attrgetter("readings.nvidia_smi")
    return QueryColumn(name, lambda row: value(row).get(name), unit=field.unit, question=name)


_ALL = (
    QueryColumn("timestamp", _stamp),
    QueryColumn("driver_version", attrgetter("inventory.driver_version")),
    QueryColumn("kmd_version", attrgetter("inventory.driver_version")),
    QueryColumn("count", lambda row: sum(d.parent_uuid is None for d in row.inventory.devices)),
    *(column for reading in CATALOGUE.values() for column in _columns(reading)),
    *_clock_reasons(),
    *(_asked(field) for field in smi_fields().values() if field.question),
)
_BEFORE_535 = "clocks_throttle_reasons."
"""Start of aliases under which the header has them, too: they were the names in older drivers."""
COLUMNS = {column.name: column for column in _ALL}
COLUMNS |= {
    alias: COLUMNS[field.name]._replace(name=alias)
    for field in smi_fields().values()
    for alias in field.aliases
    if alias.startswith(_BEFORE_535)
}
ALIASES = {
    alias: field.name
    for field in smi_fields().values()
    for alias in field.aliases
    if alias not in COLUMNS
}
"""Other names; the header has the name on the right."""


def _process_name(row: Row) -> str | None:
    """Return the command line's first word, which the driver takes for the process's name."""
    if row.process is None:
        return None
    if row.process.command:
        return row.process.command.split(" ")[0]
    hidden = row.process.absent.get("command") is Absence.NO_PERMISSION
    return MISSING[Absence.NO_PERMISSION] if hidden else "[Not Found]"


def _process_memory(row: Row) -> int | None:
    used = row.process.memory_used_bytes if row.process else None
    return None if used is None else _UNITS["bytes"][1](used)


APP_COLUMNS = {
    column.name: column
    for column in (
        COLUMNS["timestamp"],
        *(COLUMNS[ALIASES[n]]._replace(name=n) for n in ("gpu_name", "gpu_bus_id", "gpu_serial")),
        COLUMNS["uuid"]._replace(name="gpu_uuid"),
        QueryColumn("pid", lambda row: row.process and row.process.pid),
        QueryColumn("process_name", _process_name),
        QueryColumn("used_gpu_memory", _process_memory, "memory_used_bytes", "MiB"),
    )
}
"""Names of `nvidia-smi --query-compute-apps`."""
APP_COLUMNS |= {"name": APP_COLUMNS["process_name"], "used_memory": APP_COLUMNS["used_gpu_memory"]}


def parse_query(text: str) -> tuple[QueryColumn, ...]:
    """Parse names of a query of GPUs; raises `ValueError` with the closest names."""
    return _parsed(text, COLUMNS | {alias: COLUMNS[name] for alias, name in ALIASES.items()})


def parse_apps_query(text: str) -> tuple[QueryColumn, ...]:
    """Parse names of a query of processes; raises `ValueError` with the closest names."""
    return _parsed(text, APP_COLUMNS)


def _parsed(text: str, known: Mapping[str, QueryColumn]) -> tuple[QueryColumn, ...]:
    found = []
    for name in (word.strip() for word in text.split(",")):
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"Closest: {', '.join(near)}." if near else "Try `gputop stream --help`."
            raise ValueError(f"{name!r} cannot be queried. {hint}")
        found.append(known[name])
    return tuple(found)


@dataclass
class CsvLines:
    """Lines of CSV for a stream: a header, then one for each GPU and sample, or for each process.

    MIG instances have no line, as with nvidia-smi: their processes are those of the GPU.
    """

    columns: tuple[QueryColumn, ...]
    header: bool = True
    """True until it is written."""
    units: bool = True
    apps: bool = False
    unanswered: tuple[str, ...] = ()
    """Questions for which a device that answers has nothing, not even a reason."""
    inventory: Inventory | None = None

    @cached_property
    def questions(self) -> tuple[str, ...]:
        """nvidia-smi's names of values that are no readings, and have to be asked for."""
        return tuple(dict.fromkeys(c.question for c in self.columns if c.question))

    def lines_of(self, record: Record) -> Iterator[str]:
        """Yield the lines of a record."""
        if isinstance(record, Inventory):
            self.inventory = record
            return
        inventory = self.inventory
        if self.header and inventory and inventory.devices:
            self.header = False
            yield ", ".join(column.title for column in self.columns)
        for device in inventory.devices if inventory else ():
            readings = record.device(device.uuid)
            if inventory and readings and device.parent_uuid is None:
                row = Row(inventory, record, device, readings)
                self._look_for_answers(readings)
                for each in self._processes(row) if self.apps else (row,):
                    yield ", ".join(c.text(each, units=self.units) for c in self.columns)

    def _look_for_answers(self, readings: DeviceSample) -> None:
        if readings.state is DeviceState.OK and readings.age_seconds is not None:
            answers = readings.nvidia_smi
            without = (c.name for c in self.columns if c.question and c.question not in answers)
            self.unanswered = tuple(dict.fromkeys(without))

    def _processes(self, row: Row) -> Iterator[Row]:
        """Yield a row for each compute process of the GPU and its instances."""
        parts = {d.uuid for d in row.inventory.devices if d.parent_uuid == row.device.uuid}
        for process in row.sample.processes:
            of_gpu = process.device_uuid == row.device.uuid or process.device_uuid in parts
            if of_gpu and process.kind is not ProcessKind.GRAPHICS:
                yield replace(row, process=process)
