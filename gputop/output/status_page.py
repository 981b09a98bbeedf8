"""The page of `gputop status`: a heading, a table of the devices, and problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from rich.console import RenderableType
from rich.text import Text

from gputop.agent.device import (
    GPM_READINGS,
    Absence,
    Device,
    DeviceSample,
    DeviceState,
)
from gputop.agent.lines import to_plain
from gputop.agent.snapshot import DriverState, Inventory, Sample, Source
from gputop.health import thresholds as t
from gputop.health.causes import find_causes, title_of
from gputop.health.conditions import STATE_NAMES, machine_findings
from gputop.health.findings import Severity
from gputop.output import pages
from gputop.output.pages import cell, reading
from gputop.output.process_tables import (
    Holders,
    SortKey,
    process_table,
    user_table,
)
from gputop.schema.derived import gpus_text, label_of, model_of
from gputop.schema.labels import ROWS, DetailRow, value_of
from gputop.schema.values import degrees_to_slowdown
from gputop.text import (
    ABSENT,
    cells,
    moment,
    percentage,
    quantity,
    size,
    used_of,
    visible,
    watts_of,
)

if TYPE_CHECKING:
    from gputop.health.findings import BoundBy

Pair = tuple[Device, DeviceSample]


@dataclass(frozen=True)
class TableColumn:
    """A column of the table, and of `--columns`."""

    name: str
    cell: Callable[[Device, DeviceSample], Text]
    sources: tuple[str, ...] = ()
    left: bool = False
    """True for text, which is aligned to the left."""

    @property
    def needs_gpm(self) -> bool:
        """True if the column needs GPM readings."""
        return not set(self.sources).isdisjoint(GPM_READINGS)

    def waits(self, device: Device, readings: DeviceSample) -> bool:
        """Return True if the next sample will fill the cell: a rate needs two readings."""
        if (
            readings.state is not DeviceState.OK
            or readings.age_seconds is None
        ):
            return False
        return any(
            value_of(name, device, readings) is Absence.NO_DATA_YET
            for name in self.sources
        )


def _busy(_: Device, readings: DeviceSample) -> Text:
    percent = readings.gpu_utilization_percent
    if not percent:
        return reading(percentage(percent))
    return reading(percentage(percent), pages.GREEN)


def _memory(device: Device, readings: DeviceSample) -> Text:
    """Return the memory in use. If the device shares the host's, return what processes hold."""
    if device.memory_is_shared:
        held = readings.memory_attributed_bytes
        if held is None:
            return cell("the host's", pages.YELLOW)
        return cell(f"{size(held)} of the host's", pages.YELLOW)
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    return reading(used_of(used, total), pages.YELLOW)


def _temperature(device: Device, readings: DeviceSample) -> Text:
    text = quantity(readings.temperature_celsius, "°C")
    margin = degrees_to_slowdown(device, readings)
    if margin is None or margin > t.WARM_MARGIN:
        return reading(text)
    if margin > t.HOT_MARGIN:
        return reading(text, pages.YELLOW)
    return reading(text, pages.LOUD_RED)


def _power(_: Device, readings: DeviceSample) -> Text:
    text = watts_of(readings.power_watts, readings.power_limit_watts)
    return reading(text, pages.MAGENTA)


def _state(_: Device, readings: DeviceSample) -> Text:
    if readings.state is not DeviceState.OK:
        return cell(STATE_NAMES[readings.state], pages.LOUD_RED)
    if readings.age_seconds is None:
        return cell("no answer yet", pages.YELLOW)
    return cell("")


BOUND_BY = TableColumn(
    "bound-by",
    lambda *_: cell(""),
    GPM_READINGS,
    left=True,
)
"""Column of the bottleneck of each device. `_columns` fills its cells from `View.bound_by`."""
STATE = TableColumn("state", _state, left=True)
PROCESSES = TableColumn("processes", lambda *_: cell(""), left=True)
"""Column of processes. `_columns` fills its cells."""
OWN = (
    TableColumn("GPU", lambda device, _: cell(label_of(device)), ("index",)),
    TableColumn(
        "name",
        lambda device, _: cell(model_of(device)),
        ("name",),
        left=True,
    ),
    TableColumn("busy", _busy, ("gpu_utilization_percent",)),
    TableColumn("memory", _memory, ("memory_used_bytes",)),
    TableColumn("temp", _temperature, ("temperature_celsius",)),
    TableColumn("power", _power, ("power_watts",)),
    TableColumn(
        "clock",
        lambda _, readings: reading(quantity(readings.sm_clock_mhz, " MHz")),
        ("sm_clock_mhz",),
    ),
    TableColumn(
        "fan",
        lambda _, readings: reading(percentage(readings.fan_percent)),
        ("fan_percent",),
    ),
    BOUND_BY,
    STATE,
    PROCESSES,
)
MOST_USEFUL = (
    *(
        "busy",
        "memory",
        "processes",
        "temp",
        "name",
        "power",
        "bound-by",
        "clock",
    ),
    "fan",
)
"""The default columns, the most useful first. The last are left out first."""


def slug(label: str) -> str:
    """Return a label in the form for the command line: `SM active` → `sm-active`."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def _column_for(row: DetailRow) -> TableColumn:
    """Return a column for a row of the device page. Texts are aligned to the left."""
    first = row.names[0]
    is_text = False
    for each in (*fields(Device), *fields(DeviceSample)):
        if each.name == first and "str" in str(each.type):
            is_text = True

    def of_row(device: Device, readings: DeviceSample) -> Text:
        return reading(row.text(device, readings))

    return TableColumn(slug(row.label), of_row, row.names, is_text)


def _columns_by_name() -> dict[str, TableColumn]:
    found = {}
    by_source = {}
    for column in OWN:
        found[column.name.lower()] = column
        # Its sources have columns of their own.
        if column != BOUND_BY:
            by_source.update(dict.fromkeys(column.sources, column))
    for row in ROWS:
        of_row = by_source.get(row.names[0]) or _column_for(row)
        # Accept the label on the device page and the name of the JSON field,
        # too.
        found.setdefault(slug(row.label), of_row)
        found.setdefault(row.names[0], of_row)
    return found


COLUMNS: Mapping[str, TableColumn] = _columns_by_name()
"""Columns by every accepted name."""
NAMES = tuple(dict.fromkeys(column.name for column in COLUMNS.values()))


def parse_columns(text: str) -> tuple[TableColumn, ...]:
    """Parse names separated by commas. Raises `ValueError` with a list of the columns."""
    columns = []
    for name in text.split(","):
        typed = name.strip()
        column = COLUMNS.get(typed) or COLUMNS.get(slug(typed))
        if column is None:
            raise ValueError(
                f"{typed!r} is not a column. There are: {', '.join(NAMES)}."
            )
        columns.append(column)
    return tuple(dict.fromkeys(columns))


Processes = Literal["beside", "below", "none"]
"""Place of the processes: on the device's line, in a separate table, or nowhere."""


@dataclass(frozen=True)
class View:
    """Options of a page. If `width` is None, lines are not broken."""

    columns: tuple[TableColumn, ...] = OWN
    processes: Processes = "beside"
    width: int | None = None
    colour: bool = False
    chosen: str = ""
    """Description of the chosen processes; empty for all."""
    sort: SortKey | None = None
    top: int | None = None
    """Maximum number of processes in the table; None for all."""
    bound_by: Mapping[str, BoundBy] = field(default_factory=dict)
    """Bottleneck of each device, by UUID. If empty, the column is left out."""


PLAIN = View()


def bounds_of(inventory: Inventory, sample: Sample) -> Mapping[str, BoundBy]:
    """Return the current bottleneck of each device. `sample` must have all processes."""
    from gputop.health.judge import judge_snapshot

    return judge_snapshot(inventory, sample).bound_by


def document(
    inventory: Inventory,
    sample: Sample,
    bound_by: Mapping[str, BoundBy] | None = None,
) -> dict[str, Any]:
    """Return the snapshot as one JSON document with the fields of the stream."""
    made: dict[str, Any] = {
        "inventory": to_plain(inventory),
        "sample": to_plain(sample),
    }
    if bound_by is not None:
        made["bound_by"] = {
            uuid: each.plain for uuid, each in bound_by.items()
        }
    return made


def gpu_list(inventory: Inventory, sample: Sample) -> str:
    """Return a line for each GPU and MIG instance with its UUID, in the format of `nvidia-smi -L`.

    A device with an unknown UUID has its state instead.
    """
    lines = []
    for device in inventory.devices:
        readings = sample.device(device.uuid)
        if "uuid" in device.absent and readings is not None:
            state = _state(device, readings).plain.lower()
            lines.append(f"GPU {device.index}: {state}")
            continue
        start = f"GPU {device.index}: {visible(device.name)}"
        if device.mig_index is not None:
            profile = visible(device.name.rpartition(" MIG ")[2])
            start = f"  MIG {profile:<11} Device {device.mig_index:>2}:"
        lines.append(f"{start} (UUID: {visible(device.uuid)})")
    return "\n".join(lines)


def page(
    inventory: Inventory,
    sample: Sample,
    view: View = PLAIN,
) -> str:
    """Return the snapshot as text: a heading, a line for each device, and problems.

    No line is longer than the width, and no number is cut.
    """
    parts: list[RenderableType] = [heading(inventory, sample, view)]
    parts += _device_table(inventory, sample, view)
    parts += _remarks(inventory, sample)
    if view.processes == "below" and sample.processes:
        parts.append("")
        parts.append(
            process_table(inventory, sample, view.width, view.sort, view.top)
        )
    return pages.rendered(*parts, width=view.width, colour=view.colour)


def users_page(
    inventory: Inventory,
    sample: Sample,
    view: View = PLAIN,
) -> str:
    """Return totals for each user as text."""
    parts: list[RenderableType] = [heading(inventory, sample, view)]
    if sample.processes:
        parts.append(user_table(inventory, sample))
    else:
        parts.append(cell("No process uses a GPU", pages.DIM))
    return pages.rendered(*parts, width=view.width, colour=view.colour)


def heading(
    inventory: Inventory,
    sample: Sample,
    view: View,
) -> Text:
    """Return the heading. Last parts are left out if they do not fit."""
    host = sample.host
    used = used_of(host.memory_used_bytes, host.memory_total_bytes, " of ")
    parts = [
        cell(visible(inventory.hostname), pages.BOLD),
        pages.simulated(is_so=inventory.source is Source.SIMULATED),
        cell(gpus_text(inventory) if inventory.devices_left_out else ""),
        cell(visible(view.chosen), pages.YELLOW),
        cell(moment(sample.time, "%Y-%m-%d %H:%M:%S")),
        cell(_version("driver", inventory.driver_version)),
        cell(_version("CUDA", inventory.cuda_version)),
        cell(f"CPU {percentage(host.cpu_percent)}"),
        cell(f"memory {used}"),
    ]
    return pages.joined(parts, view.width)


def _version(name: str, version: str | None) -> str:
    if version:
        return f"{name} {visible(version)}"
    return ""


def _device_table(
    inventory: Inventory, sample: Sample, view: View
) -> Iterator[RenderableType]:
    """Yield the table, and a line that names chosen columns that do not fit.

    The first column and the state are always shown. If there is too little room, the least useful
    default columns are left out, or the last chosen columns.
    """
    columns = list(_columns(inventory, sample, view))
    if not columns or not columns[0].cells:
        return
    ranked = [
        column.name for column in columns[1:] if column.name != STATE.name
    ]
    if view.columns == OWN:
        ranked = list(MOST_USEFUL)
    kept = pages.fitting(columns, ranked, view.width)
    yield pages.table_of(kept)
    missing = [column.name for column in columns if column not in kept]
    if missing and view.columns != OWN:
        yield cell(f"no room for {', '.join(missing)}", pages.DIM)


def _columns(
    inventory: Inventory, sample: Sample, view: View
) -> Iterator[pages.Column]:
    """Yield the columns with their cells. The state is included if a device has one to show."""
    pairs: list[Pair] = []
    for device in inventory.devices:
        readings = sample.device(device.uuid)
        if readings is not None:
            pairs.append((device, readings))
    held = sample.processes_by_device()
    for column in dict.fromkeys((*view.columns, STATE)):
        texts = [column.cell(*pair) for pair in pairs]
        if column == BOUND_BY and view.bound_by:
            texts = [
                _word(view.bound_by.get(device.uuid)) for device, _ in pairs
            ]
        if column == PROCESSES and view.processes == "beside":
            holders = [Holders(held[device.uuid]) for device, _ in pairs]
            least = max(
                [cells(column.name), *(each.least for each in holders)]
            )
            yield pages.Column(
                column.name,
                holders,
                left=True,
                least=least,
            )
        elif column not in (BOUND_BY, STATE, PROCESSES) or any(texts):
            yield pages.Column(column.name, texts, column.left)


def _word(bound_by: BoundBy | None) -> Text:
    known = "" if bound_by is None else bound_by.bound.known
    return reading(known or ABSENT)


def _remarks(inventory: Inventory, sample: Sample) -> Iterator[Text]:
    """Yield problems, except device states, which are on the lines of the devices."""
    if inventory.driver_state is DriverState.STARTING:
        yield cell("The driver has not answered yet", pages.YELLOW)
    from gputop.health.judge import judge_snapshot

    found = judge_snapshot(inventory, sample).findings
    machines = machine_findings(sample, inventory)
    causes = find_causes([*machines, *found])
    for cause in sorted(causes, key=lambda cause: -cause[0].severity):
        style = pages.LOUD_YELLOW
        if cause[0].severity is Severity.FAULT:
            style = pages.LOUD_RED
        yield Text.assemble((visible(title_of(cause)), style))
