"""State of the process list: order, filter, tree and selection. Not a widget."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from gputop.agent.device import Device
from gputop.agent.snapshot import Process, Sample
from gputop.ui.drawing.list_state import ListState
from gputop.ui.processes import columns
from gputop.ui.processes.columns import ProcessColumn, ProcessRow, ProcessSlot
from gputop.ui.processes.jobs import launcher_of, process_key


def rows_of(process: Process, processes: Iterable[Process]) -> list[Process]:
    """Return the rows of the same process, one per device."""
    same = process_key(process)
    return [each for each in processes if process_key(each) == same]


def process_rows(
    processes: Iterable[Process],
    sample: Sample,
    devices: Sequence[Device],
) -> list[ProcessRow]:
    """Return the rows of a sample's processes, ordered by pid and device."""
    places = {device.uuid: n for n, device in enumerate(devices)}
    times = {machine.name: machine.time for machine in sample.machines}
    rows = []
    for process in processes:
        now = times.get(process.machine or "") or sample.time
        place = places.get(process.device_uuid)
        row = ProcessRow(process, now=now)
        if place is not None:
            row = ProcessRow(process, place, devices[place].number, now)
        rows.append(row)
    return sorted(rows, key=_by_pid)


def _by_pid(row: ProcessRow) -> tuple[int, float]:
    if row.position is None:
        return row.process.pid, math.inf
    return row.process.pid, row.position


class ProcessTable(ListState[ProcessRow]):
    """List of processes. The monitor and the full list share one."""

    sorted_by: ProcessColumn

    def __init__(self) -> None:
        super().__init__(columns.GPU)
        self.several = False
        """True if processes of several machines are listed."""
        self.tree = False
        self._shown: tuple[object, ...] = ()
        """Sample and devices of the items."""
        self._columns: Sequence[ProcessColumn] | None = None

    def update(
        self,
        sample: Sample | None,
        devices: Sequence[Device],
        only: str | None = None,
        host: str | None = None,
    ) -> None:
        """List the sample's processes on the device with the UUID `only`, or of a `host`.

        Without either, list all processes.
        """
        shown = (sample, devices, only, host)
        if self._shown and sample is self._shown[0] and shown == self._shown:
            return
        self._shown = shown
        listed = []
        machines = set()
        for process in sample.processes if sample else ():
            on_device = only in (None, process.device_uuid)
            if on_device and host in (None, process.machine):
                listed.append(process)
                machines.add(process.machine)
        self.several = len(machines) > 1
        if self.sorted_by is columns.HOST and listed and not self.several:
            self.sorted_by = columns.GPU
        rows: list[ProcessRow] = []
        if sample is not None:
            rows = process_rows(listed, sample, devices)
        self.fill(rows)

    def changed(self, *, order: bool = True) -> None:
        super().changed(order=order)
        if order:
            self._columns = None

    def identity(self, item: ProcessRow) -> Hashable:
        process = item.process
        # A pid alone may later belong to another process.
        return (
            process.pid,
            process.start_time,
            process.device_uuid,
            process.machine,
        )

    def search_text(self, item: ProcessRow) -> str:
        return columns.search_text(item)

    def matches(self, item: ProcessRow, words: Sequence[str]) -> bool:
        text = columns.search_text(item)
        return all(_passes(item.process, text, word) for word in words)

    def arrange(self, items: Sequence[ProcessRow]) -> Sequence[ProcessRow]:
        if self.tree:
            return branches(with_parents(items))
        return items

    @property
    def columns(self) -> Sequence[ProcessColumn]:
        """Columns that have a value for at least one process.

        The command and the sort column are always included.
        """
        if self._columns is None:
            every: Sequence[ProcessColumn] = columns.COLUMNS
            if self.several:
                every = (columns.HOST, *every)
            self._columns = list(filter(self._is_shown, every))
        return self._columns

    def _is_shown(self, column: ProcessColumn) -> bool:
        if column in (columns.COMMAND, self.sorted_by, *columns.FIXED):
            return True
        return not column.is_empty(self._items)

    def slots(self, width: int, steps: int = 0) -> list[ProcessSlot]:
        """Return the columns that fit into that width, scrolled to the right by some steps."""
        return columns.process_slots(
            width,
            self.sorted_by,
            self.columns,
            steps,
        )

    def apply_settings(
        self,
        title: str,
        reverse: bool,
        tree: bool,
    ) -> None:
        """Apply the settings. Sort by the column with that title, if it exists."""
        for column in (columns.HOST, *columns.COLUMNS):
            if column.title == title:
                self.sorted_by = column
        self.descending = self.sorted_by.largest_first is not reverse
        self.tree = tree
        self.changed()

    @property
    def reversed(self) -> bool:
        """True if the order is the opposite of the column's default."""
        return self.descending is not self.sorted_by.largest_first

    def sort_by_next(self, step: int) -> None:
        """Sort by the column `step` places further on, wrapping around."""
        among = self.columns
        self.sort_by(among[(among.index(self.sorted_by) + step) % len(among)])


def _passes(
    process: Process,
    text: str,
    word: str,
) -> bool:
    """Return True if the text contains the word, or matches `user:ada,bob` or `pid:1,2`."""
    if word in text:
        return True
    name, _, values = word.partition(":")
    fields = {
        "user": process.user or "",
        "pid": str(process.pid),
        "kind": process.kind.value,
    }
    return name in fields and fields[name].casefold() in values.split(",")


def with_parents(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return the rows. A launcher that uses no device comes before the first of its processes."""
    known = {(row.process.machine, row.process.pid) for row in rows}
    found = []
    for row in rows:
        parent = launcher_of(row.process)
        if parent is not None and (parent.machine, parent.pid) not in known:
            known.add((parent.machine, parent.pid))
            found.append(
                ProcessRow(
                    parent,
                    label="",
                    now=row.now,
                    is_parent=True,
                ),
            )
        found.append(row)
    return found


def branches(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return the rows with children under their parents, siblings in the given order.

    A process on several devices has several rows. Each row is under the parent's row on the same
    device, or else under the parent's first row. A cycle begins at its first row.
    """
    children = _children(rows)
    lines: list[ProcessRow] = []
    placed: set[int] = set()
    for root in [*children.get(None, []), *range(len(rows))]:
        stack = [(root, "", "")]
        while stack:
            number, branch, below = stack.pop()
            if number in placed:
                continue
            placed.add(number)
            lines.append(rows[number]._replace(branch=branch))
            kids = [
                kid for kid in children.get(number, []) if kid not in placed
            ]
            for kid in reversed(kids):
                if kid == kids[-1]:
                    stack.append((kid, f"{below}└─ ", f"{below}   "))
                else:
                    stack.append((kid, f"{below}├─ ", f"{below}│  "))
    return lines


def _children(rows: Sequence[ProcessRow]) -> dict[int | None, list[int]]:
    """Return the indices of children by the index of their parent; None for roots."""
    places: dict[tuple[str | None, int | None, str | None], int] = {}
    for number, row in enumerate(rows):
        process = row.process
        places[process.machine, process.pid, process.device_uuid] = number
        places.setdefault((process.machine, process.pid, None), number)
    children: dict[int | None, list[int]] = {}
    for number, row in enumerate(rows):
        process = row.process
        parent = None
        if process.parent_pid != process.pid:
            anywhere = places.get((process.machine, process.parent_pid, None))
            beside = (process.machine, process.parent_pid, process.device_uuid)
            parent = places.get(beside, anywhere)
        children.setdefault(parent, []).append(number)
    return children
