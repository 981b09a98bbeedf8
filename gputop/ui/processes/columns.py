"""Columns of the process list, and the choice of those that fit. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from gputop.agent.device import Absence
from gputop.agent.snapshot import Process, ProcessKind
from gputop.schema.values import unseen
from gputop.text import ABSENT, quantity, size, visible
from gputop.ui.drawing.list_state import Column
from gputop.ui.drawing.list_view import Slot, fit_slots

LEAST_COMMAND, ENOUGH_COMMAND = 16, 32
"""Width that the command keeps before less useful columns are shown, on a narrow screen and others.
"""
SIDE_CELLS = 16
"""Characters of the command per step to the side."""
LONGEST_TEXT = 64
"""Most characters of a user, host, pod, job or container."""

KINDS = {
    ProcessKind.COMPUTE: "compute",
    ProcessKind.GRAPHICS: "graphics",
    ProcessKind.BOTH: "comp+gfx",
    ProcessKind.MPS: "MPS",
}


class ProcessRow(NamedTuple):
    """A process on one device, with the data of its columns."""

    process: Process
    position: int | None = None
    """Position of the device in the list; None if the device is unknown."""
    label: str = ABSENT
    """Label of the device on its machine, such as `3:1`."""
    now: float = 0.0
    """Time of the sample by the process's machine."""
    branch: str = ""
    """Its branch of the tree."""
    is_parent: bool = False
    """True for a launcher that uses no device. Only its host, pid and command are shown."""


@dataclass(frozen=True, eq=False)
class ProcessColumn(Column[ProcessRow]):
    """Column of the process list."""

    reading: str = ""
    """Field of the process, if the field may have no data yet."""

    def is_empty(self, rows: Sequence[ProcessRow]) -> bool:
        """Return True if it has no value for any row, now and at the next sample."""
        return all(
            self.value(row) is None
            and row.process.absent.get(self.reading) is not Absence.NO_DATA_YET
            for row in rows
        )


def without_folder(command: str) -> str:
    """Return the command with the base name of its program."""
    program, blank, arguments = command.partition(" ")
    name = program.rpartition("/")[2] or program
    return name + blank + arguments


def command_of(
    process: Process,
    room: int,
    skipped: int = 0,
) -> str:
    """Return the command after `skipped` characters, or why it is unknown.

    The text has only visible characters and is cut to about `room` cells. The program's folder is
    left out.
    """
    if process.command is None:
        return unseen(process, room)
    command = without_folder(process.command)
    # Each character takes at least one cell.
    return visible(command, skipped + room + 1)[skipped:]


def process_age(seconds: float | None) -> str:
    """Return `42s`, `59m`, `47h59m`, `9d23h`, `120d`. It rarely changes."""
    if seconds is None:
        return ABSENT
    whole = max(0, int(seconds))
    minutes, hours = whole // 60, whole // 3600
    if minutes < 1:
        return f"{whole}s"
    if hours < 1:
        return f"{minutes}m"
    if hours < 48:
        return f"{hours}h{minutes % 60:02d}m"
    if hours < 240:
        return f"{hours // 24}d{hours % 24:02d}h"
    return f"{hours // 24}d"


def places_of(process: Process) -> list[str]:
    """Return the pod, job and container of a process, each after its kind."""
    names = {
        "pod": process.pod,
        "job": process.slurm_job,
        "ctr": process.container,
    }
    return [f"{kind} {name}" for kind, name in names.items() if name]


def where(process: Process) -> str:
    """Return its pod, else its job, else its container; empty if it is in none."""
    for place in places_of(process):
        return place
    if process.absent.keys() & {"pod", "slurm_job", "container"}:
        return ABSENT
    return ""


def _age_seconds(row: ProcessRow) -> float | None:
    started = row.process.start_time
    return None if started is None else row.now - started


def _sort_text(text: str) -> str | None:
    if text in ("", ABSENT):
        return None
    return text.casefold()


def _number(
    title: str,
    about: str,
    name: str,
    width: int,
    text: Callable[[Any], str] = lambda value: quantity(value, ""),
) -> ProcessColumn:
    """Return the column for a number, given the name of its field in `Process`."""
    read = attrgetter(name)
    return ProcessColumn(
        title,
        width,
        lambda row: text(read(row.process)),
        lambda row: read(row.process),
        largest_first=True,
        about=about,
        reading=name,
    )


def _text(
    title: str,
    about: str,
    read: Callable[[Process], str],
    width: int,
    most: int = 0,
) -> ProcessColumn:
    """Return the column for a text, which another program may have chosen."""
    return ProcessColumn(
        title,
        width,
        lambda row: visible(read(row.process), LONGEST_TEXT),
        lambda row: _sort_text(read(row.process)),
        right=False,
        about=about,
        most=most,
    )


def _place(row: ProcessRow) -> tuple[int, int] | None:
    """Return the sort key of the device. The largest process on it comes first."""
    if row.position is None:
        return None
    return row.position, -(row.process.memory_used_bytes or 0)


def _command(process: Process) -> str:
    if process.command is None:
        return ABSENT
    return without_folder(process.command)


HOST = _text(
    "HOST",
    "host that it runs on, if there are several",
    lambda p: p.machine or ABSENT,
    12,
    24,
)
GPU = ProcessColumn(
    "GPU",
    4,
    lambda row: row.label,
    _place,
    about="device; 3:1 is MIG instance 1 of GPU 3",
)
PID = ProcessColumn(
    "PID",
    7,
    lambda row: str(row.process.pid),
    lambda row: row.process.pid,
    about="process ID",
)
USER = _text("USER", "owner", lambda p: p.user or ABSENT, 10, 20)
TYPE = _text(
    "TYPE",
    "compute, graphics, both, or compute through MPS",
    lambda p: KINDS[p.kind],
    8,
)
GPU_MEMORY = _number(
    "GPU MEM",
    "device memory in use",
    "memory_used_bytes",
    9,
    size,
)
SM = _number(
    "SM%",
    "share of time that its kernels ran",
    "sm_utilization_percent",
    4,
)
MEMORY = _number(
    "MEM%",
    "share of time that it accessed device memory",
    "memory_utilization_percent",
    5,
)
ENCODER = _number(
    "ENC",
    "share of time of the video encoder",
    "encoder_utilization_percent",
    4,
)
DECODER = _number(
    "DEC",
    "share of time of the video decoder",
    "decoder_utilization_percent",
    4,
)
CPU = _number(
    "CPU%",
    "of one core: several threads can exceed 100",
    "cpu_percent",
    5,
)
RESIDENT = _number(
    "RES",
    "host memory in use",
    "memory_resident_bytes",
    9,
    size,
)
AGE = ProcessColumn(
    "AGE",
    6,
    lambda row: process_age(_age_seconds(row)),
    _age_seconds,
    largest_first=True,
    about="time since it started",
)
WHERE = _text(
    "WHERE",
    "Kubernetes pod, Slurm job or container (ctr)",
    where,
    12,
    20,
)
COMMAND = _text("COMMAND", "command line", _command, 0)
COLUMNS = (
    GPU,
    PID,
    USER,
    TYPE,
    GPU_MEMORY,
    SM,
    MEMORY,
    ENCODER,
    DECODER,
    CPU,
    RESIDENT,
    AGE,
    WHERE,
    COMMAND,
)
"""Columns for one machine, in screen order."""

FIXED = (HOST, GPU, PID)
"""Columns that do not scroll to the side."""
PARENT_COLUMNS = (HOST, PID, COMMAND)
"""Columns that have values for a launcher."""

BY_USE = (
    *(HOST, GPU, PID, GPU_MEMORY, USER, SM, CPU, AGE, WHERE, RESIDENT),
    *(TYPE, MEMORY, ENCODER, DECODER),
)
"""Columns by usefulness. The last ones are dropped first."""

ProcessSlot = Slot[ProcessRow]


def process_slots(
    width: int,
    sorted_by: Column[ProcessRow],
    among: Sequence[ProcessColumn] = COLUMNS,
    steps: int = 0,
) -> list[ProcessSlot]:
    """Return the columns that fit into that width: the most useful ones and the sort column.

    `steps` is the number of columns to scroll over. Fixed columns stay.
    """
    ranked = [sorted_by, *BY_USE]
    if steps:
        ranked = [*FIXED, *moving_columns(among)[steps:]]
    shown = [column for column in dict.fromkeys(ranked) if column in among]
    if COMMAND in shown:
        shown.remove(COMMAND)
    enough = max(ENOUGH_COMMAND, width // 3)
    least = LEAST_COMMAND if width < 80 else enough
    return fit_slots(among, shown, width, lambda _: least, enough)


def moving_columns(among: Sequence[ProcessColumn]) -> list[ProcessColumn]:
    """Return the columns that scroll to the side."""
    return [column for column in among if column not in (*FIXED, COMMAND)]


def search_text(row: ProcessRow) -> str:
    """Return all text that a filter matches, in lower case, one item per line; `gpu3` is a device.

    The text is raw. It differs from the screen only in characters that cannot be typed, and
    escaping the commands of a thousand processes would delay a key press.
    """
    process = row.process
    command = process.command or unseen(process)
    texts = [
        f"gpu{row.label}",
        str(process.pid),
        process.user,
        process.kind.value,
        KINDS[process.kind],
        *places_of(process),
        process.machine,
        command,
    ]
    return "\n".join(filter(None, texts)).casefold()
