"""Samples as CSV: a header, then a line for each GPU and sample.

Every reading of the catalogue is a column. A value is that of the JSON, and an empty cell is a
missing one.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gputop.agent.device import GPM_READINGS, Device, DeviceSample
from gputop.agent.lines import json_value
from gputop.agent.snapshot import Inventory, Record, Sample
from gputop.schema.catalogue import CATALOGUE
from gputop.text import csv_field, visible

COLUMNS = ("time", "state", *CATALOGUE)
"""Names of the columns: the sample's time, the device's state, and all readings."""
DEFAULT_QUERY = (
    "time,index,name,uuid,gpu_utilization_percent,memory_utilization_percent,memory_used_bytes,"
    "memory_total_bytes,temperature_celsius,power_watts,power_limit_watts,sm_clock_mhz,"
    "memory_clock_mhz,performance_state,fan_percent"
)


def parse_query(text: str) -> tuple[str, ...]:
    """Parse the names of columns. Raises `ValueError` with a suggestion for an unknown name."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in COLUMNS:
            raise ValueError(_unknown(name))
    return tuple(names)


def _unknown(name: str) -> str:
    text = f"There is no column {name!r}."
    near = [known for known in COLUMNS if name and known.startswith(name)]
    near = near or get_close_matches(name, COLUMNS, cutoff=0.8)
    if near:
        text += f" Did you mean {near[0]}?"
    if "." in name:
        text += " Names with dots are those of `nvidia-smi --query-gpu`."
    return text


@dataclass
class CsvLines:
    """Lines of CSV for a stream: a header, then one for each GPU and sample.

    MIG instances have no line, because sums over the lines would count their GPU twice.
    """

    columns: Sequence[str]
    inventory: Inventory | None = None
    has_header: bool = False
    """True after the header is written."""

    @property
    def needs_gpm(self) -> bool:
        """True if a column is a profiling counter."""
        return not set(self.columns).isdisjoint(GPM_READINGS)

    def lines_of(self, record: Record) -> Iterator[str]:
        """Yield the lines of a record."""
        if isinstance(record, Inventory):
            self.inventory = record
            return
        inventory = self.inventory
        if inventory is None:
            return
        if inventory.devices and not self.has_header:
            self.has_header = True
            yield _line(self.columns)
        for device in inventory.devices:
            readings = record.device(device.uuid)
            if readings is None or device.parent_uuid is not None:
                continue
            yield _line(
                _cell(_value(name, record, device, readings))
                for name in self.columns
            )


def _value(
    name: str, sample: Sample, device: Device, readings: DeviceSample
) -> Any:
    if name == "time":
        return json_value(sample.time)
    for holder in (readings, device):
        if hasattr(holder, name):
            return json_value(getattr(holder, name))
    raise KeyError(name)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return csv_field(visible(value))
    return json.dumps(value)


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
