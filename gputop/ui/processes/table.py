"""The process table's state: order, filter, tree, selection and window. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from gputop.ui.processes.columns import GPU, HOST, Around, Column, columns_of, searched

if TYPE_CHECKING:
    from gputop.schema.device import Device
    from gputop.schema.snapshot import Process, Sample

Identity = tuple[int, float | None, str]


class Line(NamedTuple):
    """A process where it is listed, with the branch of the tree that leads to it."""

    process: Process
    branch: str = ""


def identity(process: Process) -> Identity:
    """What a row is known by: a pid may come to mean another process."""
    return process.pid, process.start_time, process.device_uuid


class ProcessTable:
    """Which processes are listed in which order, which is selected, and which part shows.

    What is asked for is worked out when it is asked for the first time after a change: an order
    once for every sample, a filter without ordering again.
    """

    def __init__(self) -> None:
        self.around = Around()
        self.several = False
        """Whether processes of several machines are listed."""
        self.sorted_by: Column = GPU
        self.descending = False
        self.tree = False
        self.filter = ""
        """Words that must all occur in a row."""
        self.first = 0
        """The first line that shows."""
        self._sample: Sample | None = None
        self._devices: Sequence[Device] = ()
        self._only: str | None = None
        self._processes: Sequence[Process] = ()
        self._ordered: Sequence[Process] | None = None
        self._lines: Sequence[Line] | None = None
        self._identity: Identity | None = None
        self._at = 0

    def take(
        self, sample: Sample | None, devices: Sequence[Device], only: str | None = None
    ) -> None:
        """Lists the processes of that sample on those devices, or on the one of a UUID `only`."""
        if sample is self._sample and devices is self._devices and only == self._only:
            return
        self._sample, self._devices, self._only = sample, devices, only
        machines = sample.machines if sample else ()
        self.several = len(machines) > 1 and only is None
        if self.sorted_by is HOST and sample is not None and not self.several:
            self.sorted_by = GPU
        self.around = Around.of(sample.time if sample else 0.0, devices, machines)
        last = len(self.around.places)

        def tie_break(process: Process) -> tuple[int, int]:
            place = self.around.places.get(process.device_uuid)
            return process.pid, place.position if place else last

        listed = sample.processes if sample else ()
        if only is not None:
            listed = tuple(p for p in listed if p.device_uuid == only)
        self._processes = sorted(listed, key=tie_break)
        self._changed()

    @property
    def total(self) -> int:
        """How many there are, whatever the filter says."""
        return len(self._processes)

    @property
    def lines(self) -> Sequence[Line]:
        """All that match the filter, in order."""
        if self._lines is None:
            words = self.filter.casefold().split()
            found = self._in_order()
            if words:
                texts = ((process, searched(process, self.around)) for process in found)
                found = [p for p, text in texts if all(word in text for word in words)]
            self._lines = branches(found) if self.tree else [Line(process) for process in found]
            self._follow()
        return self._lines

    def _in_order(self) -> Sequence[Process]:
        if self._ordered is None:
            column, around = self.sorted_by, self.around
            processes = self._processes
            if column is GPU:  # on one device the largest first
                processes = sorted(processes, key=lambda p: p.memory_used_bytes or 0, reverse=True)
            values = [(column.value(process, around), process) for process in processes]
            known = [pair for pair in values if pair[0] is not None]
            known.sort(key=itemgetter(0), reverse=self.descending)
            unknown = (pair for pair in values if pair[0] is None)
            self._ordered = [process for _, process in chain(known, unknown)]
        return self._ordered

    def _changed(self, *, order: bool = True) -> None:
        self._lines = None
        if order:
            self._ordered = None

    def arrange(self, title: str, reverse: bool, tree: bool) -> None:
        """As the settings say: sorted by the column of that title, if there is such a one."""
        column = next((c for c in columns_of(several=True) if c.title == title), None)
        if column is not None:
            self.sorted_by, self.descending = column, column.largest_first
        if reverse:
            self.descending = not self.descending
        self.tree = tree
        self._changed()

    @property
    def reversed(self) -> bool:
        """Whether it is sorted the other way than its column usually is."""
        return self.descending is not self.sorted_by.largest_first

    def sort_by(self, column: Column) -> None:
        """By that column, in its own direction; by the same again, in the other one."""
        if column is self.sorted_by:
            self.reverse()
            return
        self.sorted_by, self.descending = column, column.largest_first
        self._changed()

    def sort_by_next(self, step: int) -> None:
        """By the column `step` further on, round and round."""
        columns = columns_of(self.several)
        self.sort_by(columns[(columns.index(self.sorted_by) + step) % len(columns)])

    def reverse(self) -> None:
        """The other way round; what is unknown stays at the end."""
        self.descending = not self.descending
        self._changed()

    def toggle_tree(self) -> None:
        """Children under their parents, or all in one list."""
        self.tree = not self.tree
        self._changed(order=False)

    def look_for(self, text: str) -> None:
        """Lists those in which all words of `text` occur."""
        if text != self.filter:
            self.filter = text
            self._changed(order=False)

    @property
    def at(self) -> int:
        """The number of the selected line."""
        return self._at if self.lines else 0

    @property
    def selected(self) -> Process | None:
        """The selected process; None where none is listed."""
        lines = self.lines
        return lines[self._at].process if lines else None

    def _follow(self) -> None:
        """Keeps the selection on its process, and on its place where that has gone."""
        if not self._lines:
            return
        if self._identity is not None:
            for number, line in enumerate(self._lines):
                if identity(line.process) == self._identity:
                    self._at = number
                    return
            self.select(self._at)
        else:
            self._at = 0

    def select(self, number: int) -> None:
        """Selects the line of that number, or the nearest that there is."""
        lines = self.lines
        if lines:
            self._at = max(0, min(len(lines) - 1, number))
            self._identity = identity(lines[self._at].process)

    def move(self, step: int) -> None:
        """Selects the line `step` further down."""
        self.select(self.at + step)

    def scroll(self, step: int, room: int) -> None:
        """Moves the window of `room` lines; the selection stays where it can."""
        self.first = max(0, min(self.first + step, len(self.lines) - room))
        at = max(self.first, min(self.at, self.first + room - 1))
        if at != self.at:
            self.select(at)

    def window(self, room: int) -> Sequence[Line]:
        """The lines that show where there is room for so many: the selected one is among them."""
        lines, at = self.lines, self.at
        self.first = max(at - room + 1, min(self.first, at, max(0, len(lines) - room)))
        return lines[self.first : self.first + room]


def branches(processes: Sequence[Process]) -> list[Line]:
    """The same processes with children under their parents, siblings in the order given.

    On several devices a process has several rows: each is under its parent's row on the same
    device, or else under the first one. What leads back to itself begins at its first row.
    """
    rows: dict[tuple[str | None, int | None], list[int]] = {}
    for number, process in enumerate(processes):
        rows.setdefault((process.machine, process.pid), []).append(number)
    children: dict[int | None, list[int]] = {}
    for number, process in enumerate(processes):
        parent = None if process.parent_pid == process.pid else process.parent_pid
        above = rows.get((process.machine, parent), [])
        same = (n for n in above if processes[n].device_uuid == process.device_uuid)
        children.setdefault(next(same, above[0] if above else None), []).append(number)
    lines: list[Line] = []
    placed: set[int] = set()
    for root in chain(children.get(None, ()), range(len(processes))):
        stack = [(root, "", "")] if root not in placed else []
        while stack:
            number, branch, below = stack.pop()
            placed.add(number)
            lines.append(Line(processes[number], branch))
            kids = [n for n in children.get(number, ()) if n not in placed]
            for kid in reversed(kids):
                turn, rest = ("└─ ", "   ") if kid == kids[-1] else ("├─ ", "│  ")
                stack.append((kid, below + turn, below + rest))
    return lines
