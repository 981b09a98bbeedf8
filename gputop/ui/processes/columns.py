"""Columns of the process table, and which of them fit. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from gputop.agent.device import Absence, Device
from gputop.agent.snapshot import Machine, Process, ProcessKind
from gputop.schema.values import unseen
from gputop.text import ABSENT, cells, fit_columns, quantity, size, visible

MARK_WIDTH = 1
"""Cells for the mark of the selected row, before the first column."""
GAP = 1
"""Cells before each column."""
LEAST_COMMAND, ENOUGH_COMMAND = 8, 32
"""Cells that the command always keeps, and those it keeps before less useful columns show."""
SIDE_CELLS = 16
"""Characters that the command scrolls to the side at once."""
WIDE_FROM = 180
"""Width of the table from which columns have their larger width."""
LONGEST_TEXT = 64
"""Characters of a user, host, pod, job or container."""
SEARCHED_CHARACTERS = 1024
"""Characters of a command that are searched and sorted by."""

KINDS = dict(zip(ProcessKind, ("compute", "graphics", "comp+gfx", "MPS"), strict=True))


class DevicePlace(NamedTuple):
    """Position of a device in the list, and its label on its machine."""

    position: int | None = None
    label: str = ABSENT


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """Data that columns need besides the process: sample times, and devices by UUID."""

    time: float = 0.0
    places: Mapping[str, DevicePlace] = field(default_factory=dict)
    times: Mapping[str | None, float] = field(default_factory=dict)
    """Sample time of each machine by its own clock, where there are several."""

    def place(self, process: Process) -> DevicePlace:
        """Return the place of the process's device; blank if the device is unknown."""
        return self.places.get(process.device_uuid, DevicePlace())

    @classmethod
    def for_sample(
        cls, time: float, devices: Sequence[Device], machines: Sequence[Machine] = ()
    ) -> ProcessContext:
        """Return the context for a sample taken at `time`, with the devices in list order."""
        places = {d.uuid: DevicePlace(n, d.number) for n, d in enumerate(devices)}
        return cls(
            time, places, {m.name: m.time for m in machines if m.time is not None}
        )


class ProcessColumn(NamedTuple):
    """Column of the process table. `value` is the sort key, or None if unknown."""

    title: str
    about: str
    """Explanation for the help."""
    width: int
    """Cells; 0 for the command, which gets the rest."""
    value: Callable[[Process, ProcessContext], Any]
    text: Callable[[Process, ProcessContext], str]
    right: bool = True
    largest_first: bool = False
    """True if the first sort is descending."""
    wide: int = 0
    """Cells on a wide terminal, if more."""
    reading: str = ""
    """Field of the process that it shows, if that may have no data yet."""
    read: Callable[[Process], str] | None = None
    """Text of a process, as it is."""

    def cells(self, table_width: int) -> int:
        return max(self.width, self.wide if table_width >= WIDE_FROM else 0)

    def is_empty(self, processes: Iterable[Process], context: ProcessContext) -> bool:
        """Return True if it has nothing to show for any of them, now and at the next sample."""
        return all(
            self.value(p, context) is None
            and p.absent.get(self.reading) is not Absence.NO_DATA_YET
            for p in processes
        )


def command_of(process: Process, room: int, skipped: int = 0) -> str:
    """Return the command in visible characters, cut to about `room` cells, or why it is unknown.

    Where it does not fit, the folder of the program is left out first, then `skipped` characters.
    """
    command = process.command
    if command is None:
        return unseen(process, room)
    if len(command) > room and command.startswith("/"):
        program, _, arguments = command.partition(" ")
        command = f"{program.rpartition('/')[2] or program} {arguments}"
    # Each character takes at least one cell.
    return visible(command, skipped + room + 1)[skipped:]


def process_age(seconds: float) -> str:
    """Return `42s`, `9m05s`, `59m`, `7h59m`, `47h`, `7d23h`, `120d`: coarse, to change seldom."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if not minutes:
        return f"{whole}s"
    if not hours:
        return f"{minutes}m{whole % 60:02d}s" if minutes < 10 else f"{minutes}m"
    if days < 2:
        return f"{hours}h{minutes % 60:02d}m" if hours < 10 else f"{hours}h"
    return f"{days}d{hours % 24:02d}h" if days < 10 else f"{days}d"


def where(process: Process) -> str:
    """Return the pod, job or container of a process by name; empty if it is in none."""
    names = {"pod": process.pod, "job": process.slurm_job, "ctr": process.container}
    for kind, name in names.items():
        if name is not None:
            return f"{kind} {name}"
    unknown = process.absent.keys() & {"pod", "slurm_job", "container"}
    return ABSENT if unknown else ""


def _age_seconds(process: Process, context: ProcessContext) -> float | None:
    now = context.times.get(process.machine, context.time)
    return None if process.start_time is None else now - process.start_time


def _age(process: Process, context: ProcessContext) -> str:
    seconds = _age_seconds(process, context)
    return ABSENT if seconds is None else process_age(seconds)


def _sort_text(text: str | None) -> str | None:
    return text.casefold() if text and text != ABSENT else None


def _number(
    title: str, about: str, name: str, width: int, text: Callable[[float | None], str]
) -> ProcessColumn:
    read = attrgetter(name)
    return ProcessColumn(
        title,
        about,
        width,
        value=lambda process, _: read(process),
        text=lambda process, _: text(read(process)),
        largest_first=True,
        reading=name,
    )


def _text(
    title: str, about: str, read: Callable[[Process], str], width: int, wide: int = 0
) -> ProcessColumn:
    return ProcessColumn(
        title,
        about,
        width,
        value=lambda process, _: _sort_text(read(process)),
        text=lambda process, _: visible(read(process), LONGEST_TEXT),
        right=False,
        wide=wide,
        read=read,
    )


def _percent(title: str, about: str, name: str) -> ProcessColumn:
    return _number(
        title, about, name, len(title) + 1, lambda value: quantity(value, "")
    )


HOST = _text(
    "HOST",
    "host that it runs on, if there are several",
    lambda p: p.machine or ABSENT,
    12,
    20,
)
GPU = ProcessColumn(
    "GPU",
    "device; 3:1 is MIG instance 1 of GPU 3",
    4,
    value=lambda p, context: context.place(p).position,
    text=lambda p, context: context.place(p).label,
)
PID = ProcessColumn("PID", "process ID", 7, lambda p, _: p.pid, lambda p, _: str(p.pid))
USER = _text("USER", "owner", lambda p: p.user or ABSENT, 10, 16)
TYPE = _text(
    "TYPE",
    "compute, graphics, both, or compute through MPS",
    lambda p: KINDS[p.kind],
    8,
)
GPU_MEMORY = _number("GPU MEM", "device memory in use", "memory_used_bytes", 8, size)
SM = _percent("SM%", "share of time that its kernels ran", "sm_utilization_percent")
MEMORY = _percent(
    "MEM%", "share of time that it accessed device memory", "memory_utilization_percent"
)
ENCODER = _percent(
    "ENC", "share of time of the video encoder", "encoder_utilization_percent"
)
DECODER = _percent(
    "DEC", "share of time of the video decoder", "decoder_utilization_percent"
)
CPU = _percent("CPU%", "of one core: several threads can exceed 100", "cpu_percent")
RESIDENT = _number("RES", "host memory in use", "memory_resident_bytes", 8, size)
AGE = ProcessColumn(
    "AGE", "time since it started", 6, _age_seconds, _age, largest_first=True
)
WHERE = _text("WHERE", "Kubernetes pod, Slurm job or container (ctr)", where, 12, 20)
COMMAND = ProcessColumn(
    "COMMAND",
    "command line",
    0,
    value=lambda p, _: _sort_text(
        p.command[:SEARCHED_CHARACTERS] if p.command else None
    ),
    text=lambda p, _: command_of(p, SEARCHED_CHARACTERS),
    right=False,
)
COLUMNS = (
    *(GPU, PID, USER, TYPE, GPU_MEMORY, SM, MEMORY, ENCODER, DECODER),
    *(CPU, RESIDENT, AGE, WHERE, COMMAND),
)
"""Columns for one machine, in screen order."""

FIXED = (HOST, GPU, PID)
"""Columns that stay where the others are scrolled."""

_NEEDED = (GPU, PID, GPU_MEMORY, USER, SM)
_BY_USE = (HOST, *_NEEDED, CPU, AGE, WHERE, RESIDENT, TYPE, MEMORY, ENCODER, DECODER)
"""Columns by usefulness: the last ones are dropped first."""


NO_TEXTS: Mapping[ProcessColumn, int] = {}


class ShownColumn(NamedTuple):
    """Column on screen, and its cells after the gap."""

    column: ProcessColumn
    cells: int
    skipped: int = 0
    """Characters that it is scrolled by; only the command is."""


def longest_texts(processes: Sequence[Process]) -> dict[ProcessColumn, int]:
    """Return the cells of the longest text of each column that grows where there is room.

    Identifiers of pods and containers do not: the command says more than their ends.
    """
    found = {}
    for column in (USER, HOST):
        assert column.read is not None
        texts = {column.read(process)[:LONGEST_TEXT] for process in processes}
        found[column] = cells(visible(max(texts, key=cells, default=""), LONGEST_TEXT))
    return found


def shown_columns(
    width: int,
    sorted_by: ProcessColumn,
    among: Sequence[ProcessColumn] = COLUMNS,
    steps: int = 0,
    longest: Mapping[ProcessColumn, int] = NO_TEXTS,
) -> list[ShownColumn]:
    """Return the columns that fit into that width, the most useful ones and the sort column.

    Scrolled to the right by some steps, it is those that follow the first `steps`, and after the
    last of them the command is scrolled. Columns grow to their `longest` texts, the most useful
    first, as far as the command has more room than is enough.
    """
    ranked = [
        c
        for c in dict.fromkeys((sorted_by, *_BY_USE))
        if c in among and c is not COMMAND
    ]
    least = dict.fromkeys((HOST, *_NEEDED), LEAST_COMMAND) | {sorted_by: -math.inf}
    skipped = 0
    if steps:
        moving = [column for column in among if column not in (*FIXED, COMMAND)]
        ranked = [*(column for column in FIXED if column in among), *moving[steps:]]
        least = dict.fromkeys(ranked, LEAST_COMMAND)
        skipped = max(0, steps - len(moving)) * SIDE_CELLS
    enough = max(ENOUGH_COMMAND, width // 3)
    room = width - MARK_WIDTH - GAP
    shown = fit_columns(
        ranked, room, lambda c: GAP + c.cells(width), lambda c: least.get(c, enough)
    )
    widths = {column: column.cells(width) for column in shown}
    left = max(0, room - sum(GAP + taken for taken in widths.values()))
    for column in ranked:
        if column in widths:
            grown = max(0, min(longest.get(column, 0) - widths[column], left - enough))
            widths[column] += grown
            left -= grown
    slots = [
        ShownColumn(column, widths[column]) for column in among if column in widths
    ]
    return [*slots, ShownColumn(COMMAND, left, skipped)]


def search_text(process: Process, context: ProcessContext) -> str:
    """Return all text that a filter matches, lower-case, one item per line; `gpu3` is a device.

    The text is raw: it differs from the screen only in characters that cannot be typed, and
    escaping the commands of a thousand processes takes longer than a key press may.
    """
    label, kind = context.place(process).label, process.kind
    command = unseen(process) if process.command is None else process.command
    within = (
        where(process),
        process.container,
        process.pod,
        process.slurm_job,
        process.machine,
    )
    texts = (
        f"gpu{label}",
        str(process.pid),
        process.user,
        kind.value,
        KINDS[kind],
        *within,
    )
    return "\n".join([*filter(None, texts), command[:SEARCHED_CHARACTERS]]).casefold()
