"""The columns of the process table: what each says of a process, and which of them fit. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.frozen import dataclass
from gputop.schema.remedies import unseen
from gputop.schema.snapshot import Machine, Process, ProcessKind
from gputop.text import ABSENT, quantity, size, that_fit, visible

if TYPE_CHECKING:
    from gputop.schema.device import Device

MARK_WIDTH = 1
"""Cells before the first column, for the mark of the selected row."""
GAP = 1
"""Cells before each column."""
LEAST_COMMAND, ENOUGH_COMMAND = 8, 32
"""Cells that the command keeps in any case, and before it leaves some to columns of less use."""
WIDE_FROM = 180
"""Cells of the table from which on columns have their greater width."""
SEARCHED_CHARACTERS = 1024
"""How much of a command is searched, and sorted by."""

KINDS = {
    ProcessKind.COMPUTE: "compute",
    ProcessKind.GRAPHICS: "graphics",
    ProcessKind.BOTH: "comp+gfx",
    ProcessKind.MPS: "MPS",
}


class Place(NamedTuple):
    """A device: its position in the order of all, and how it is called on its machine."""

    position: int
    label: str


@dataclass(frozen=True, slots=True)
class Around:
    """What a process is seen against: the time of the sample, and the devices by UUID."""

    time: float = 0.0
    places: Mapping[str, Place] = field(default_factory=dict)
    times: Mapping[str | None, float] = field(default_factory=dict)
    """Of several machines, each by its own clock."""

    @classmethod
    def of(cls, time: float, devices: Sequence[Device], machines: Sequence[Machine] = ()) -> Around:
        """Of the sample taken at that time, and the devices in their order."""
        places = {d.uuid: Place(n, d.number) for n, d in enumerate(devices)}
        return cls(time, places, {m.name: m.time for m in machines if m.time is not None})


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `value` is what it is sorted by, None where that is unknown."""

    title: str
    about: str
    """What the number is, for the legend."""
    width: int
    """Cells; of the command it is what is left."""
    value: Callable[[Process, Around], Any]
    text: Callable[[Process, Around], str]
    right: bool = True
    largest_first: bool = False
    """How it is sorted to begin with."""
    wide: int = 0
    """Cells on a wide terminal, where that is more."""

    def cells(self, table_width: int) -> int:
        """Cells in a table of that width."""
        return max(self.width, self.wide if table_width >= WIDE_FROM else 0)


def command_of(process: Process, room: int) -> str:
    """The command, made inert, or why there is none; cut to hardly more than `room` cells.

    Where it does not fit, the folder of its program gives way first.
    """
    command = process.command
    if command is None:
        return unseen(process, room)
    if len(command) > room and command.startswith("/"):
        program, _, arguments = command.partition(" ")
        command = f"{program.rpartition('/')[2] or program} {arguments}"
    return visible(command, room + 1)  # each character takes a cell at least


def age(seconds: float) -> str:
    """`42s`, `9m05s`, `59m`, `7h59m`, `47h`, `7d23h`, `120d`: coarse, so that it changes seldom."""
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
    """The pod, job or container that a process is in, as it is called; empty where in none."""
    names = {"pod": process.pod, "job": process.slurm_job, "ctr": process.container}
    for kind, name in names.items():
        if name is not None:
            return f"{kind} {name}"
    unknown = process.absent.keys() & {"pod", "slurm_job", "container"}
    return ABSENT if unknown else ""


def _label(process: Process, around: Around) -> str:
    place = around.places.get(process.device_uuid)
    return place.label if place else ABSENT


def _position(process: Process, around: Around) -> int | None:
    place = around.places.get(process.device_uuid)
    return place.position if place else None


def _age_seconds(process: Process, around: Around) -> float | None:
    now = around.times.get(process.machine, around.time)
    return None if process.start_time is None else now - process.start_time


def _age(process: Process, around: Around) -> str:
    seconds = _age_seconds(process, around)
    return ABSENT if seconds is None else age(seconds)


def _folded(text: str | None) -> str | None:
    return text.casefold() if text else None


def _number(
    title: str, about: str, name: str, width: int, text: Callable[[float | None], str]
) -> Column:
    read = attrgetter(name)
    return Column(
        title,
        about,
        width,
        value=lambda process, _: read(process),
        text=lambda process, _: text(read(process)),
        largest_first=True,
    )


def _name(title: str, about: str, name: str, width: int, wide: int) -> Column:
    read = attrgetter(name)
    return Column(
        title,
        about,
        width,
        value=lambda process, _: _folded(read(process)),
        text=lambda process, _: visible(read(process) or ABSENT, 64),
        right=False,
        wide=wide,
    )


def _percent(title: str, about: str, name: str) -> Column:
    return _number(title, about, name, len(title) + 1, lambda value: quantity(value, ""))


HOST = _name("HOST", "the host that it runs on, where there are several", "machine", 12, 20)
GPU = Column("GPU", "the device; 3:1 is the MIG instance 1 on it", 4, _position, _label)
PID = Column("PID", "the process", 7, lambda p, _: p.pid, lambda p, _: str(p.pid))
USER = _name("USER", "who runs it", "user", 10, 16)
TYPE = Column(
    "TYPE",
    "compute, graphics, both, or compute through MPS",
    8,
    value=lambda p, _: KINDS[p.kind].casefold(),
    text=lambda p, _: KINDS[p.kind],
    right=False,
)
GPU_MEMORY = _number("GPU MEM", "device memory that it holds", "memory_used_bytes", 8, size)
SM = _percent("SM%", "time in which its kernels ran", "sm_utilization_percent")
MEMORY = _percent(
    "MEM%", "time in which it read or wrote device memory", "memory_utilization_percent"
)
ENCODER = _percent("ENC", "time of the video encoder", "encoder_utilization_percent")
DECODER = _percent("DEC", "time of the video decoder", "decoder_utilization_percent")
CPU = _percent("CPU%", "of one core: many threads have more than 100", "cpu_percent")
RESIDENT = _number("RES", "host memory that it holds", "memory_resident_bytes", 8, size)
AGE = Column("AGE", "time since it started", 6, _age_seconds, _age, largest_first=True)
WHERE = Column(
    "WHERE",
    "its Kubernetes pod, Slurm job or container (ctr)",
    12,
    value=lambda p, _: _folded(where(p).replace(ABSENT, "")),
    text=lambda p, _: visible(where(p), 64),
    right=False,
    wide=20,
)
COMMAND = Column(
    "COMMAND",
    "its command line",
    0,
    value=lambda p, _: _folded(p.command[:SEARCHED_CHARACTERS] if p.command else None),
    text=lambda p, _: command_of(p, SEARCHED_CHARACTERS),
    right=False,
)
COLUMNS = (
    *(GPU, PID, USER, TYPE, GPU_MEMORY, SM, MEMORY, ENCODER, DECODER),
    *(CPU, RESIDENT, AGE, WHERE, COMMAND),
)
"""All of one machine, in their order on screen."""


def columns_of(several: bool) -> tuple[Column, ...]:
    """All columns; of several machines, the host as well."""
    return (HOST, *COLUMNS) if several else COLUMNS


_NEEDED = (GPU, PID, GPU_MEMORY, USER, SM)
_BY_USE = (HOST, *_NEEDED, CPU, AGE, WHERE, RESIDENT, TYPE, MEMORY, ENCODER, DECODER)
"""The most telling first: the last give way first."""


class Slot(NamedTuple):
    """A column that is shown, and its cells after the gap."""

    column: Column
    cells: int


def fitting(width: int, sorted_by: Column, several: bool = False) -> tuple[Slot, ...]:
    """The columns for a table of that many cells: the one it is sorted by is always among them."""
    among = columns_of(several)
    ranked = [c for c in dict.fromkeys((sorted_by, *_BY_USE)) if c in among and c is not COMMAND]
    enough = max(ENOUGH_COMMAND, width // 3)
    least = dict.fromkeys((HOST, *_NEEDED), LEAST_COMMAND) | {sorted_by: -math.inf}
    room = width - MARK_WIDTH - GAP
    shown = that_fit(ranked, room, lambda c: GAP + c.cells(width), lambda c: least.get(c, enough))
    left = max(0, room - sum(GAP + column.cells(width) for column in shown))
    return tuple(
        Slot(column, left if column is COMMAND else column.cells(width))
        for column in among
        if column in (*shown, COMMAND)
    )


def searched(process: Process, around: Around) -> str:
    """All that a filter looks at, in lower case, one thing a line; `gpu3` finds a device.

    As the process gives it: only what cannot be typed looks otherwise on screen, and to make all
    of a thousand foreign commands inert takes longer than a key may.
    """
    label, kind = _label(process, around), process.kind
    command = unseen(process) if process.command is None else process.command
    within = (where(process), process.container, process.pod, process.slurm_job, process.machine)
    texts = (f"gpu{label}", str(process.pid), process.user, kind.value, KINDS[kind], *within)
    return "\n".join([*filter(None, texts), command[:SEARCHED_CHARACTERS]]).casefold()
