"""The page of `gputop status`: a heading, a table of the devices with processes, what is wrong."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from gputop.agent.device import GPM_READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.agent.lines import to_plain
from gputop.agent.snapshot import DriverState, Inventory, Process, Sample, Source
from gputop.health import thresholds as t
from gputop.health.conditions import STATE_NAMES, find_alerts, unlisted_alert
from gputop.health.findings import Severity, summarize
from gputop.output import ansi
from gputop.output.ansi import Line, Piece
from gputop.schema.derived import gpus_text, label_of, model_of
from gputop.schema.labels import ROWS, DetailRow, value_of
from gputop.schema.values import degrees_to_slowdown, unseen
from gputop.text import (
    ABSENT,
    cells,
    fit_columns,
    moment,
    percentage,
    quantity,
    size,
    used_of,
    visible,
    watts_of,
)


class TableColumn(NamedTuple):
    """A column of the table, and of `--columns`."""

    name: str
    span: Callable[[Device, DeviceSample], Piece]
    sources: tuple[str, ...] = ()
    left: bool = False
    """True for text, which is aligned to the left."""

    @property
    def needs_gpm(self) -> bool:
        """True if it is empty unless GPM is sampled."""
        return any(name in GPM_READINGS for name in self.sources)

    def waits(self, device: Device, readings: DeviceSample) -> bool:
        """Return True if another reading would fill it: a rate needs two."""
        answered = readings.state is DeviceState.OK and readings.age_seconds is not None
        return answered and any(
            value_of(name, device, readings) is Absence.NO_DATA_YET
            for name in self.sources
        )


def _absent(text: str, look: str = "") -> Piece:
    return Piece(text, ansi.DIM if text == ABSENT else look)


def _busy(_: Device, readings: DeviceSample) -> Piece:
    percent = readings.gpu_utilization_percent
    return _absent(percentage(percent), ansi.GREEN if percent else "")


def _memory(device: Device, readings: DeviceSample) -> Piece:
    """Return the memory in use, or what processes hold of the host's if it has none of its own."""
    if device.memory_is_shared:
        held = readings.memory_attributed_bytes
        return Piece(
            "the host's" if held is None else f"{size(held)} of the host's", ansi.YELLOW
        )
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    return _absent(used_of(used, total), ansi.YELLOW)


def _temperature(device: Device, readings: DeviceSample) -> Piece:
    text = quantity(readings.temperature_celsius, "°C")
    margin = degrees_to_slowdown(device, readings)
    if margin is None:  # no threshold is known
        return _absent(text)
    look = ansi.YELLOW if margin <= t.WARM_MARGIN else ""
    return _absent(text, ansi.LOUD_RED if margin <= t.HOT_MARGIN else look)


def _power(_: Device, readings: DeviceSample) -> Piece:
    return _absent(
        watts_of(readings.power_watts, readings.power_limit_watts), ansi.MAGENTA
    )


def _state(_: Device, readings: DeviceSample) -> Piece:
    if readings.state is not DeviceState.OK:
        return Piece(STATE_NAMES[readings.state], ansi.LOUD_RED)
    return Piece("no answer yet" if readings.age_seconds is None else "", ansi.YELLOW)


PROCESSES = TableColumn("processes", lambda *_: Piece(""), left=True)
"""The column of processes. `table_lines` fills its cells, because they depend on the width."""
OWN = (
    TableColumn("GPU", lambda device, _: Piece(label_of(device)), ("index",)),
    TableColumn(
        "name", lambda device, _: Piece(model_of(device)), ("name",), left=True
    ),
    TableColumn("busy", _busy, ("gpu_utilization_percent",)),
    TableColumn("memory", _memory, ("memory_used_bytes",)),
    TableColumn("temp", _temperature, ("temperature_celsius",)),
    TableColumn("power", _power, ("power_watts",)),
    TableColumn(
        "clock",
        lambda _, r: _absent(quantity(r.sm_clock_mhz, " MHz")),
        ("sm_clock_mhz",),
    ),
    TableColumn(
        "fan", lambda _, r: _absent(percentage(r.fan_percent)), ("fan_percent",)
    ),
    TableColumn("state", _state, left=True),
    PROCESSES,
)


def slug(label: str) -> str:
    """Return a label as it is typed: `SM active` → `sm-active`."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


_TEXTS = {
    f.name
    for cls in (Device, DeviceSample)
    for f in fields(cls)
    if "str" in str(f.type)
}


def _column_for(row: DetailRow) -> TableColumn:
    return TableColumn(
        slug(row.label),
        lambda device, readings: _absent(row.text(device, readings)),
        row.names,
        left=row.names[0] in _TEXTS,
    )


def _columns_by_name() -> dict[str, TableColumn]:
    found = {column.name.lower(): column for column in OWN}
    by_source = {name: column for column in OWN for name in column.sources}
    for row in ROWS:
        column = by_source.get(row.names[0]) or _column_for(row)
        # The label on the device page and the name of the JSON field work, too.
        found.setdefault(slug(row.label), column)
        found.setdefault(row.names[0], column)
    return found


COLUMNS: Mapping[str, TableColumn] = _columns_by_name()
"""Columns by every name that is understood."""
NAMES = tuple(dict.fromkeys(column.name for column in COLUMNS.values()))
STATE = COLUMNS["state"]


def parse_columns(text: str) -> tuple[TableColumn, ...]:
    """Parse names with commas between them; raises `ValueError`, which lists the columns."""
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


GAP = 2
"""Spaces between columns."""
ENOUGH, LEAST = 40, 16
"""Cells for processes: for `ada:python/48211(70.0 GiB)` and more, and for `ada(70.0 GiB) +2`."""
MOST_USEFUL = ("busy", "memory", "processes", "temp", "name", "power", "clock", "fan")
"""Columns in the order in which they get room."""
LONGEST_USER, LEAST_USER = 64, 8
"""Characters of a user's name, and the least width of the column of users."""
LUXURIES = ("clock", "fan")
"""Columns that get room only if the processes have enough."""


def table_lines(
    inventory: Inventory,
    sample: Sample,
    columns: Sequence[TableColumn],
    width: int | None,
) -> Iterator[tuple[str | None, Line]]:
    """Yield the heading, and a line for each device with its UUID.

    Columns that do not fit are left out: of the default ones the least useful first, of others the
    last first, and then a last line names them.
    """
    pairs = [
        (device, readings)
        for device in inventory.devices
        if (readings := sample.device(device.uuid)) is not None
    ]
    if not pairs:
        return
    held = sample.processes_by_device()
    everything = [
        *dict.fromkeys((*columns, STATE))
    ]  # the state is shown if a device has a fault
    spans = {column: [column.span(*pair) for pair in pairs] for column in everything}
    if PROCESSES in spans:
        spans[PROCESSES] = [
            Piece(processes_text(held[device.uuid], None)) for device, _ in pairs
        ]
    if not any(span.text for span in spans[STATE]):
        del spans[STATE]
    widths = {column: _width(column, each) for column, each in spans.items()}
    kept = _fitting(widths, width)
    if PROCESSES in kept and width is not None:
        room = width - sum(
            GAP + widths[column] for column in kept if column != PROCESSES
        )
        spans[PROCESSES] = [
            Piece(processes_text(held[device.uuid], room)) for device, _ in pairs
        ]
        widths[PROCESSES] = _width(PROCESSES, spans[PROCESSES])
    shown = [(column, widths[column]) for column in kept]
    yield None, _line([(*each, Piece(each[0].name, ansi.DIM)) for each in shown])
    for n, (device, _) in enumerate(pairs):
        yield device.uuid, _line([(*each, spans[each[0]][n]) for each in shown])
    missing = [
        column.name for column in columns if column in widths and column not in kept
    ]
    if missing and [*columns] != [column for column in OWN if column in columns]:
        yield None, [Piece(f"no room for {', '.join(missing)}", ansi.DIM)]


def _width(column: TableColumn, spans: Sequence[Piece]) -> int:
    return max(cells(column.name), *(cells(span.text) for span in spans))


def _fitting(widths: Mapping[TableColumn, int], width: int | None) -> list[TableColumn]:
    """Return the columns that fit. The first one and the state always do."""
    if width is None:
        return [*widths]
    usual = [*widths] == [column for column in OWN if column in widths]
    useful = MOST_USEFUL if usual else [column.name for column in [*widths][1:]]
    ranked = [c for name in useful for c in widths if c.name == name and c != STATE]
    always = [column for column in widths if column not in ranked]
    held = widths.get(PROCESSES, 0)

    def taken(column: TableColumn) -> int:
        return GAP + (min(LEAST, held) if column == PROCESSES else widths[column])

    def spare(column: TableColumn) -> int:
        return (
            min(ENOUGH, held) - min(LEAST, held)
            if usual and column.name in LUXURIES
            else 0
        )

    room = width + GAP - sum(map(taken, always))
    kept = fit_columns(ranked, room, taken, spare)
    return [column for column in widths if column in kept or column in always]


def _line(fields: Sequence[tuple[TableColumn, int, Piece]]) -> Line:
    line: Line = []
    for column, wide, span in fields:
        blanks = Piece(" " * (wide - cells(span.text)))
        line += [Piece(" " * GAP)] * bool(line)
        line += [span, blanks] if column.left else [blanks, span]
    return line


def process_texts(processes: Sequence[Process]) -> Iterator[str]:
    """Yield ever shorter texts for the processes: all of them, then the largest and a count.

    No number is cut.
    """
    ordered = sorted(processes, key=lambda p: -(p.memory_used_bytes or 0))
    parts = [(p.pid, _user(p), _program(p), size(p.memory_used_bytes)) for p in ordered]
    yield " ".join(
        f"{user}:{program}/{pid}({held})" for pid, user, program, held in parts
    )
    yield " ".join(f"{user}/{pid}({held})" for pid, user, _, held in parts)
    briefly = [f"{user}({held})" for _, user, _, held in parts]
    for shown in range(len(briefly), 0, -1):
        rest = len(briefly) - shown
        yield " ".join([*briefly[:shown], *([f"+{rest}"] if rest else [])])
    yield f"{len(ordered)} proc." if ordered else ""


def processes_text(processes: Sequence[Process], room: int | None) -> str:
    """Return the longest text that fits, or the shortest if none does."""
    texts = [*process_texts(processes)]
    return next(
        (text for text in texts if room is None or cells(text) <= room), texts[-1]
    )


def _program(process: Process) -> str:
    """Return the program's name without its folder and arguments."""
    words = (process.command or "").split()
    name = PurePosixPath(words[0]).name if words else ""
    return visible(name, 40) or ABSENT


Processes = Literal["beside", "below", "none"]
"""Where processes are shown: on the device's line, each on its own line, or nowhere."""


@dataclass(frozen=True, slots=True)
class View:
    """Options of a page; `width` is None if lines are not broken."""

    columns: tuple[TableColumn, ...] = OWN
    processes: Processes = "beside"
    width: int | None = None
    colour: bool = False
    chosen: str = ""
    """Which processes are shown, if not all."""


PLAIN = View()


def document(inventory: Inventory, sample: Sample) -> dict[str, Any]:
    """Return the snapshot as one JSON document with the fields of the stream."""
    return {"inventory": to_plain(inventory), "sample": to_plain(sample)}


def gpu_list(inventory: Inventory, sample: Sample) -> str:
    """Return a line for each GPU and MIG instance with its UUID, as `nvidia-smi -L` prints them.

    One that has not told its UUID has its state instead.
    """
    lines = []
    for device in inventory.devices:
        readings = sample.device(device.uuid)
        if "uuid" in device.absent and readings is not None:
            lines.append(f"GPU {device.index}: {_state(device, readings).text.lower()}")
            continue
        start = f"GPU {device.index}: {visible(device.name)}"
        if device.mig_index is not None:
            profile = visible(device.name.rpartition(" MIG ")[2])
            start = f"  MIG {profile:<11} Device {device.mig_index:>2}:"
        lines.append(f"{start} (UUID: {visible(device.uuid)})")
    return "\n".join(lines)


def page(inventory: Inventory, sample: Sample, view: View = PLAIN) -> str:
    """Return the snapshot as text: a heading, a line for each device, what is wrong.

    No line is longer than the width, and no number is cut.
    """
    lines: list[Line] = [_heading(inventory, sample, view)]
    held = sample.processes_by_device()
    users = max((cells(_user(process)) for process in sample.processes), default=0)
    users = max(users, LEAST_USER)
    beside = view.processes == "beside"
    columns = [column for column in view.columns if beside or column != PROCESSES]
    for uuid, line in table_lines(inventory, sample, columns, view.width):
        lines.append(line)
        if uuid is not None and view.processes == "below":
            lines += [_process(process, users) for process in held[uuid]]
    lines += _remarks(inventory, sample, view.width)
    return ansi.rendered(lines, view.width, colour=view.colour)


def _heading(inventory: Inventory, sample: Sample, view: View) -> Line:
    """Return the heading, without its last parts if they do not fit."""
    host = sample.host
    driver, cuda = inventory.driver_version, inventory.cuda_version
    first = Piece(visible(inventory.hostname), ansi.BOLD)
    spans = [
        Piece(
            "SIMULATED" if inventory.source is Source.SIMULATED else "",
            ansi.LOUD_YELLOW,
        ),
        Piece(gpus_text(inventory) if inventory.devices_left_out else ""),
        Piece(visible(view.chosen), ansi.YELLOW),
        Piece(moment(sample.time, "%Y-%m-%d %H:%M:%S")),
        Piece(f"driver {visible(driver)}" if driver else ""),
        Piece(f"CUDA {visible(cuda)}" if cuda else ""),
        Piece(f"CPU {percentage(host.cpu_percent)}"),
        Piece(
            f"memory {used_of(host.memory_used_bytes, host.memory_total_bytes, ' of ')}"
        ),
    ]
    rest = [span for span in spans if span.text]
    if view.width is not None:
        rest = fit_columns(
            rest, view.width - cells(first.text), lambda span: 3 + cells(span.text)
        )
    return ansi.with_dots([first, *rest])


def _user(process: Process) -> str:
    return visible(process.user or ABSENT, LONGEST_USER)


def _process(process: Process, users: int) -> Line:
    """Return the line of a process; `users` is the width of the column of users."""
    user = _user(process)
    user += " " * (users - cells(user))
    command = visible(process.command or f"({unseen(process)})", 200)
    memory = size(process.memory_used_bytes)
    return [Piece(f"     {process.pid:>7}  {user}  {memory:>9}  {command}")]


def _remarks(inventory: Inventory, sample: Sample, width: int | None) -> Iterator[Line]:
    """Yield what is wrong, except for device states: these are on the devices' lines."""
    if inventory.driver_state is DriverState.STARTING:
        yield [Piece("The driver has not answered yet", ansi.YELLOW)]
    readings = {device.uuid: device for device in sample.devices}
    found = find_alerts(
        inventory.devices, readings, sample.events, sample.time, sample.host_of
    )
    if inventory.unlisted_gpus:
        found.append(unlisted_alert(inventory.hostname, inventory.unlisted_gpus))
    for severity, text in summarize(
        alert for alert in found if alert.rule not in [*DeviceState]
    ):
        look = ansi.LOUD_RED if severity is Severity.FAULT else ansi.LOUD_YELLOW
        for part in textwrap.wrap(visible(text), width or len(text) + 1):
            yield [Piece(part, look)]
