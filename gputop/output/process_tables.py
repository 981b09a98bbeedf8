"""Processes as text: on the line of their device, in a separate table, and by user."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

from gputop.agent.snapshot import Inventory, Process, Sample
from gputop.output import pages
from gputop.output.pages import Column, cell, reading
from gputop.schema.derived import label_of
from gputop.schema.values import unseen
from gputop.text import ABSENT, cells, duration, percentage, size, visible

LONGEST_USER, LONGEST_COMMAND = 64, 200
"""Maximum number of characters shown."""


def process_texts(processes: Sequence[Process]) -> Iterator[str]:
    """Yield shorter and shorter texts for the processes. The last ones have only a count.

    Numbers are never cut.
    """
    ordered = sorted_processes(processes, SORT_KEYS["memory"], None)
    full, short, brief = [], [], []
    for process in ordered:
        user, held = _user(process), f"({size(process.memory_used_bytes)})"
        full.append(f"{user}:{_program(process)}/{process.pid}{held}")
        short.append(f"{user}/{process.pid}{held}")
        brief.append(f"{user}{held}")
    yield " ".join(full)
    yield " ".join(short)
    yield " ".join(brief)
    for shown in range(len(brief) - 1, 0, -1):
        yield f"{' '.join(brief[:shown])} +{len(brief) - shown}"
    if ordered:
        yield f"{len(ordered)} proc."


def processes_text(processes: Sequence[Process], room: int | None) -> str:
    """Return the longest text that fits, or else the shortest."""
    text = ""
    for text in process_texts(processes):
        if room is None or cells(text) <= room:
            break
    return text


class Holders:
    """A cell with the processes of a device. Its text adapts to the available width."""

    LEAST = 24
    """Width of `ada(70.0 GiB) bo(2.00 GiB)`."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    @property
    def least(self) -> int:
        """Minimum width of the cell."""
        return cells(processes_text(self._processes, self.LEAST))

    def __rich_measure__(
        self, console: Console, options: ConsoleOptions
    ) -> Measurement:
        return Measurement(
            self.least, cells(processes_text(self._processes, None))
        )

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        yield cell(processes_text(self._processes, options.max_width))


def _user(process: Process) -> str:
    return visible(process.user or ABSENT, LONGEST_USER)


def _program(process: Process) -> str:
    """Return the program's name without its folder and arguments."""
    words = (process.command or "").split()
    if not words:
        return ABSENT
    return visible(PurePosixPath(words[0]).name, 40) or ABSENT


class SortKey(NamedTuple):
    """An order of processes. Processes without the value come last."""

    value: Callable[[Process], Any]
    descending: bool = True


SORT_KEYS: Mapping[str, SortKey] = {
    "memory": SortKey(lambda process: process.memory_used_bytes),
    "gpu": SortKey(lambda process: process.sm_utilization_percent),
    "cpu": SortKey(lambda process: process.cpu_percent),
    # Ascending, so that the longest running process is first.
    "time": SortKey(lambda process: process.start_time, descending=False),
    "pid": SortKey(lambda process: process.pid, descending=False),
    "user": SortKey(lambda process: process.user, descending=False),
}
"""Orders by the names of `--sort`."""


def sorted_processes(
    processes: Sequence[Process], sort: SortKey | None, top: int | None
) -> list[Process]:
    """Return at most `top` processes in this order, or in the given order if `sort` is None."""
    if sort is None:
        return list(processes[:top])
    known, unknown = [], []
    for process in processes:
        if sort.value(process) is None:
            unknown.append(process)
        else:
            known.append(process)
    known.sort(key=sort.value, reverse=sort.descending)
    return [*known, *unknown][:top]


def _time(process: Process, sample: Sample) -> str:
    if process.start_time is None:
        return ABSENT
    return duration(sample.time - process.start_time)


def _command(process: Process) -> str:
    return visible(process.command or f"({unseen(process)})", LONGEST_COMMAND)


MOST_USEFUL = (
    "PID",
    "user",
    "memory",
    "command",
    "container",
    "busy",
    "CPU",
    "time",
)
"""Columns of the process table after `GPU`, the most useful first. The last are left out first."""
LEAST_COMMAND = 16
"""Minimum width of a command."""


def process_table(
    inventory: Inventory,
    sample: Sample,
    width: int | None,
    sort: SortKey | None = None,
    top: int | None = None,
) -> Table:
    """Return a table with a line for each process, ordered by `sort` or else by GPU.

    If there is too little room, the least useful columns are left out.
    """
    labels = {device.uuid: label_of(device) for device in inventory.devices}
    held = sample.processes_by_device()
    processes: list[Process] = []
    for uuid in labels:
        processes += held[uuid]
    processes = sorted_processes(processes, sort, top)

    def column(
        name: str,
        text: Callable[[Process], str],
        *,
        left: bool = False,
        least: int | None = None,
    ) -> Column:
        shown = [reading(text(process)) for process in processes]
        return Column(name, shown, left, least)

    columns = [
        column("GPU", lambda process: labels[process.device_uuid]),
        column("PID", lambda process: str(process.pid)),
        column("user", _user, left=True),
        column("memory", lambda process: size(process.memory_used_bytes)),
        column(
            "busy", lambda process: percentage(process.sm_utilization_percent)
        ),
        column("CPU", lambda process: percentage(process.cpu_percent)),
        column("time", lambda process: _time(process, sample)),
    ]
    if any(process.container for process in processes):
        columns.append(column("container", _container, left=True))
    columns.append(
        column(
            "command",
            _command,
            left=True,
            least=LEAST_COMMAND,
        )
    )
    return pages.table_of(pages.fitting(columns, MOST_USEFUL, width))


def _container(process: Process) -> str:
    return visible(process.container or ABSENT, 64)


@dataclass(frozen=True)
class UserTotals:
    """Totals of the processes of a user. The fields are those of the JSON."""

    user: str | None
    devices: tuple[str, ...]
    """UUIDs in the order of the inventory."""
    processes: int
    memory_used_bytes: int | None
    """Sum over the processes whose memory is known."""
    memory_is_partial: bool
    """True if the memory of a process is unknown."""
    busiest_device: str | None
    busiest_percent: int | None


def totals_by_user(inventory: Inventory, sample: Sample) -> list[UserTotals]:
    """Return totals for each user, the users with the most memory first."""
    held = sample.processes_by_device()
    by_user: dict[str | None, list[Process]] = defaultdict(list)
    for device in inventory.devices:
        for process in held[device.uuid]:
            by_user[process.user].append(process)
    found = [_totals(user, own, sample) for user, own in by_user.items()]
    return sorted(found, key=lambda totals: -(totals.memory_used_bytes or 0))


def _totals(
    user: str | None,
    own: Sequence[Process],
    sample: Sample,
) -> UserTotals:
    uuids: dict[str, None] = {}
    pids = set()
    memory: int | None = None
    is_partial = False
    for process in own:
        uuids[process.device_uuid] = None
        pids.add(process.pid)
        if process.memory_used_bytes is None:
            is_partial = True
        else:
            memory = (memory or 0) + process.memory_used_bytes
    busiest: str | None = None
    most: int | None = None
    for uuid in uuids:
        readings = sample.device(uuid)
        percent = (
            None if readings is None else readings.gpu_utilization_percent
        )
        if percent is not None and (most is None or percent > most):
            busiest, most = uuid, percent
    return UserTotals(
        user, tuple(uuids), len(pids), memory, is_partial, busiest, most
    )


def user_table(inventory: Inventory, sample: Sample) -> Table:
    """Return a table with a line for each user."""
    labels = {device.uuid: label_of(device) for device in inventory.devices}
    table = pages.table()
    pages.add_column(table, "user", left=True)
    for name in ("GPUs", "processes", "memory", "busiest"):
        pages.add_column(table, name)
    for totals in totals_by_user(inventory, sample):
        memory, busiest = size(totals.memory_used_bytes), ABSENT
        if totals.memory_is_partial and totals.memory_used_bytes is not None:
            memory = f"at least {memory}"
        if totals.busiest_device is not None:
            label = labels[totals.busiest_device]
            busiest = f"GPU {label} {percentage(totals.busiest_percent)}"
        table.add_row(
            reading(visible(totals.user or ABSENT, LONGEST_USER)),
            cell(str(len(totals.devices))),
            cell(str(totals.processes)),
            reading(memory, pages.YELLOW),
            reading(busiest),
        )
    return table


def users_document(inventory: Inventory, sample: Sample) -> dict[str, Any]:
    """Return the totals of all users as JSON values."""
    return {
        "hostname": inventory.hostname,
        "time": sample.time,
        "users": list(map(asdict, totals_by_user(inventory, sample))),
    }
