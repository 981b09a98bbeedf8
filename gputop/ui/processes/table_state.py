"""State of the process list: order, filter, tree and selection. Not a widget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from gputop.agent.device import Device
from gputop.agent.snapshot import Process, Sample
from gputop.stream.process_history import key_of
from gputop.text import ABSENT
from gputop.ui.drawing.list_state import ListState
from gputop.ui.processes import columns
from gputop.ui.processes.columns import ProcessColumn, ProcessRow
from gputop.ui.processes.jobs import launcher_of


def process_rows(
    processes: Iterable[Process],
    sample: Sample,
    devices: Sequence[Device],
) -> list[ProcessRow]:
    """Return the rows of a sample's processes, ordered by pid."""
    places = {device.uuid: n for n, device in enumerate(devices)}
    times = {machine.name: machine.time for machine in sample.machines}
    rows = []
    for process in processes:
        now = times.get(process.machine or "") or sample.time
        place = places.get(process.device_uuid)
        label = ABSENT if place is None else devices[place].number
        rows.append(ProcessRow(process, place, label, now))
    return sorted(rows, key=lambda row: row.process.pid)


class ProcessTable(ListState[ProcessRow]):
    """List of processes. The monitor and the full list share one."""

    sorted_by: ProcessColumn

    def __init__(self) -> None:
        super().__init__(columns.GPU)
        self.tree = False
        self._shown: tuple[object, ...] = ()
        """Sample and devices of the items, and what is chosen from them."""

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
        if shown == self._shown:
            return
        self._shown = shown
        rows = []
        if sample is not None:
            listed = [
                process
                for process in sample.processes
                if only in (None, process.device_uuid)
                and host in (None, process.machine)
            ]
            rows = process_rows(listed, sample, devices)
        self.fill(rows)

    def identity(self, item: ProcessRow) -> Hashable:
        return key_of(item.process), item.process.device_uuid

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
        every = (columns.HOST, *columns.COLUMNS)
        return [column for column in every if self._is_shown(column)]

    def _is_shown(self, column: ProcessColumn) -> bool:
        if column in (columns.COMMAND, self.sorted_by):
            return True
        if column is columns.HOST:
            return len({row.process.machine for row in self._items}) > 1
        return not column.is_empty(self._items)

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
            found.append(ProcessRow(parent, now=row.now, is_parent=True))
        found.append(row)
    return found


def branches(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return the rows with children under their parents, siblings in the given order.

    A process on several devices has several rows, and children under the first one. A cycle begins
    at its first row.
    """
    places: dict[tuple[str | None, int | None], int] = {}
    for number, row in enumerate(rows):
        places.setdefault((row.process.machine, row.process.pid), number)
    children: dict[int | None, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        parent = places.get((row.process.machine, row.process.parent_pid))
        children[parent].append(number)
    lines: list[ProcessRow] = []
    placed: set[int] = set()
    for root in [*children[None], *range(len(rows))]:
        stack = [(root, "", "")]
        while stack:
            number, branch, below = stack.pop()
            if number in placed:
                continue
            placed.add(number)
            lines.append(rows[number]._replace(branch=branch))
            kids = children[number]
            for kid in reversed(kids):
                if kid == kids[-1]:
                    stack.append((kid, f"{below}└─ ", f"{below}   "))
                else:
                    stack.append((kid, f"{below}├─ ", f"{below}│  "))
    return lines
