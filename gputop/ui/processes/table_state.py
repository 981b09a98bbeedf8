"""State of the process table: order, filter, tree, selection and scrolling. No widget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from gputop.agent.device import Device
from gputop.agent.snapshot import Process, Sample
from gputop.ui.processes import columns
from gputop.ui.processes.columns import ProcessColumn, ProcessContext, search_text

Identity = tuple[int, float | None, str]


class ProcessLine(NamedTuple):
    """Row of the list: a process, and the tree branch that leads to it."""

    process: Process
    branch: str = ""


def identity(process: Process) -> Identity:
    """Return the identity of a row: a pid alone may later mean another process."""
    return process.pid, process.start_time, process.device_uuid


def rows_of(process: Process, processes: Iterable[Process]) -> list[Process]:
    """Return the rows of the same process, one for each of its devices."""
    same = process.pid, process.start_time, process.machine
    return [
        each for each in processes if (each.pid, each.start_time, each.machine) == same
    ]


def _passes(process: Process, text: str, word: str) -> bool:
    """Return True if the word is in the text, or is `user:ada,bob` or `pid:1,2` with its value."""
    name, _, values = word.partition(":")
    fields = {"user": process.user or "", "pid": str(process.pid), "kind": process.kind}
    has = fields[name].casefold() if name in fields else None
    return word in text if has is None or not values else has in values.split(",")


class ProcessTable:
    """Order, filter, selection and visible part of the list of processes.

    Results are computed on first use after a change: the order once per sample, a filter
    without sorting again.
    """

    def __init__(self) -> None:
        self.context = ProcessContext()
        self.several = False
        """True if processes of several machines are listed."""
        self.sorted_by: ProcessColumn = columns.GPU
        self.descending = False
        self.tree = False
        self.hidden: frozenset[str] = frozenset()
        """Titles of columns that the user hides."""
        self.filter = ""
        """Words that a row must all contain."""
        self.first = 0
        self._sample: Sample | None = None
        self._devices: Sequence[Device] = ()
        self._only: str | None = None
        self._processes: Sequence[Process] = ()
        self._identity: Identity | None = None
        self._at = 0

    def update(
        self, sample: Sample | None, devices: Sequence[Device], only: str | None = None
    ) -> None:
        """List the processes of the sample, or only those on the device with the UUID `only`."""
        if sample is self._sample and devices is self._devices and only == self._only:
            return
        self._sample, self._devices, self._only = sample, devices, only
        machines = sample.machines if sample else ()
        self.several = len(machines) > 1 and only is None
        if self.sorted_by is columns.HOST and sample is not None and not self.several:
            self.sorted_by = columns.GPU
        self.context = ProcessContext.for_sample(
            sample.time if sample else 0.0, devices, machines
        )
        last = len(self.context.places)

        def tie_break(process: Process) -> tuple[int, int]:
            position = self.context.place(process).position
            return process.pid, last if position is None else position

        listed = sample.processes if sample else ()
        if only is not None:
            listed = tuple(p for p in listed if p.device_uuid == only)
        self._processes = sorted(listed, key=tie_break)
        self._changed()

    @property
    def total(self) -> int:
        """Number of processes before filtering."""
        return len(self._processes)

    @cached_property
    def columns(self) -> Sequence[ProcessColumn]:
        """Columns with something to show for any process that are not hidden.

        The command and the one that they are sorted by are always among them.
        """
        among = (columns.HOST, *columns.COLUMNS) if self.several else columns.COLUMNS
        empty = {c for c in among if c.is_empty(self._processes, self.context)} - {
            *columns.FIXED
        }
        always = (columns.COMMAND, self.sorted_by)
        return [
            c
            for c in among
            if c in always or not (c in empty or c.title in self.hidden)
        ]

    @cached_property
    def longest_texts(self) -> Mapping[ProcessColumn, int]:
        """Cells of the longest text of the columns that can grow, of all processes."""
        return columns.longest_texts(self._processes)

    @cached_property
    def lines(self) -> Sequence[ProcessLine]:
        """Lines that match the filter, in order."""
        words, found = self.filter.casefold().split(), self._in_order
        if words:
            texts = ((process, search_text(process, self.context)) for process in found)
            found = [
                p for p, text in texts if all(_passes(p, text, word) for word in words)
            ]
        lines = branches(found) if self.tree else [*map(ProcessLine, found)]
        self._follow(lines)
        return lines

    @cached_property
    def _in_order(self) -> Sequence[Process]:
        column, context = self.sorted_by, self.context
        processes = self._processes
        if column is columns.GPU:  # the largest first on each device
            processes = sorted(
                processes, key=lambda p: p.memory_used_bytes or 0, reverse=True
            )
        values = [(column.value(process, context), process) for process in processes]
        known = [pair for pair in values if pair[0] is not None]
        known.sort(key=itemgetter(0), reverse=self.descending)
        unknown = (pair for pair in values if pair[0] is None)
        return [process for _, process in chain(known, unknown)]

    def _changed(self, *, order: bool = True) -> None:
        for name in (
            ("lines", "_in_order", "columns", "longest_texts") if order else ("lines",)
        ):
            self.__dict__.pop(name, None)

    def apply_settings(self, title: str, reverse: bool, tree: bool) -> None:
        """Apply the settings: sort by the column of that title, if it exists."""
        column = next(
            (c for c in (columns.HOST, *columns.COLUMNS) if c.title == title), None
        )
        self.sorted_by = column or self.sorted_by
        self.descending = self.sorted_by.largest_first is not reverse
        self.tree = tree
        self._changed()

    @property
    def reversed(self) -> bool:
        """True if the order is opposite to the column's default."""
        return self.descending is not self.sorted_by.largest_first

    def sort_by(self, column: ProcessColumn) -> None:
        """Sort by that column in its default order, or reverse if it is the current one."""
        if column is self.sorted_by:
            self.reverse()
            return
        self.sorted_by, self.descending = column, column.largest_first
        self._changed()

    def sort_by_next(self, step: int) -> None:
        """Sort by the column `step` places further on, wrapping around."""
        columns = self.columns
        self.sort_by(columns[(columns.index(self.sorted_by) + step) % len(columns)])

    def reverse(self) -> None:
        """Reverse the order; unknown values stay at the end."""
        self.descending = not self.descending
        self._changed()

    def toggle_tree(self) -> None:
        self.tree = not self.tree
        self._changed(order=False)

    def set_filter(self, text: str) -> None:
        """List only rows that contain all words of `text`."""
        if text != self.filter:
            self.filter = text
            self._changed(order=False)

    @property
    def at(self) -> int:
        """Index of the selected line."""
        return self._at if self.lines else 0

    @property
    def selected(self) -> Process | None:
        lines = self.lines
        return lines[self._at].process if lines else None

    def _follow(self, lines: Sequence[ProcessLine]) -> None:
        """Keep the selection on its process, or at its position if the process is gone."""
        if self._identity is None:
            self._at = 0
        elif lines:
            same = (
                n
                for n, each in enumerate(lines)
                if identity(each.process) == self._identity
            )
            self._select(next(same, self._at), lines)

    def select(self, number: int) -> None:
        """Select the line of that index, or the nearest one."""
        self._select(number, self.lines)

    def _select(self, number: int, lines: Sequence[ProcessLine]) -> None:
        if lines:
            self._at = max(0, min(len(lines) - 1, number))
            self._identity = identity(lines[self._at].process)

    def move(self, step: int) -> None:
        self.select(self.at + step)

    def window(self, room: int) -> Sequence[ProcessLine]:
        """Return the visible lines for that room, with the selected one among them."""
        lines, at = self.lines, self.at
        self.first = max(at - room + 1, min(self.first, at, max(0, len(lines) - room)))
        return lines[self.first : self.first + room]


def branches(processes: Sequence[Process]) -> list[ProcessLine]:
    """Return the processes with children under their parents, siblings in the order given.

    A process on several devices has several rows: each is under its parent's row on the same
    device, or else under the first one. A cycle begins at its first row.
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
    lines: list[ProcessLine] = []
    placed: set[int] = set()
    for root in chain(children.get(None, ()), range(len(processes))):
        stack = [(root, "", "")] if root not in placed else []
        while stack:
            number, branch, below = stack.pop()
            placed.add(number)
            lines.append(ProcessLine(processes[number], branch))
            kids = [n for n in children.get(number, ()) if n not in placed]
            for kid in reversed(kids):
                turn, rest = ("└─ ", "   ") if kid == kids[-1] else ("├─ ", "│  ")
                stack.append((kid, below + turn, below + rest))
    return lines
