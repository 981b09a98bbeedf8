"""State of the fleet screen: the newest fleet, its groups, the cursor, and what the user chose."""

from __future__ import annotations

import time
from collections.abc import Callable

from gputop.fleet.distributions import BUSY, METRICS
from gputop.fleet.model import Fleet, Gpu
from gputop.health.findings import Finding
from gputop.ui.fleet import grouping
from gputop.ui.fleet.map_layout import AROUND_VALUE, VALUE_CELLS, MapLayout, arrange

LATE_INTERVALS = 3
"""Intervals without an answer after which the readings are old."""


class FleetState:
    """The fleet, its groups, and the cursor that map and list share."""

    def __init__(
        self, interval: float = 10.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.interval, self._clock = interval, clock
        self.halves = True
        """True to draw two GPUs in a cell, which needs enough colours."""
        self.began_at = clock()
        self._taken_at: float | None = None
        self.fleet = Fleet(time=0.0)
        """The newest fleet; an empty one before the first answer."""
        self.metric = BUSY
        self.levels: list[int] = []
        """Level of that metric, by the number of a GPU."""
        self._group_by: str | None = None
        """Chosen label, or None for the one that suits."""
        self._unit = ""
        """Label with the most values among those that all GPUs have."""
        self._suits: object = None
        """Conditions that the grouping was chosen for, if the user did not choose it."""
        self.filter = grouping.GpuFilter("", ())
        self.typed = ""
        self._unfinished = False
        """True while the filter is being typed."""
        self.on_list = False
        """True while keys go to the list of problems."""
        self._key: str | None = None
        """Key of the GPU under the cursor."""
        self._kind: str | None = None
        """Kind of the problem under the cursor, where that GPU has several."""
        self._numbers: dict[str, int] = {}
        self._space = (0, 0)
        self.view = grouping.FilteredGpus(self.fleet, {}, self.filter)
        self.grouping = grouping.Grouping(self.view, grouping.HOST)

    # Data.

    def update(self, fleet: Fleet) -> None:
        """Show a new answer in place of the one before."""
        self.fleet = fleet
        if fleet.fresh or self._taken_at is None:
            self._taken_at = self._clock()
        self._numbers = {gpu.key: n for n, gpu in enumerate(fleet.gpus)}
        self.levels = self.metric.levels(fleet.gpus)
        self._look()

    def _look(self) -> None:
        names = {name for gpu in self.fleet.gpus[:1] for name in gpu.labels}
        names.update(self.fleet.label_names)
        self.filter = grouping.GpuFilter(self.typed, names, unfinished=self._unfinished)
        self.view = grouping.FilteredGpus(self.fleet, self._numbers, self.filter)
        self.grouping = grouping.Grouping(self.view, self.by)

    @property
    def age_seconds(self) -> float | None:
        """Seconds since the newest answer, or None before the first."""
        return None if self._taken_at is None else self._clock() - self._taken_at

    @property
    def waiting_seconds(self) -> float:
        return self._clock() - self.began_at

    @property
    def is_old(self) -> bool:
        """True if what is shown may be out of date."""
        age = self.age_seconds
        late = age is not None and age > LATE_INTERVALS * self.interval
        return late or not self.fleet.fresh

    # Choices of the user.

    @property
    def by(self) -> str:
        """Label that the map is grouped by."""
        return self._group_by or self.grouping.by

    def next_metric(self, step: int) -> None:
        place = METRICS.index(self.metric) + step
        self.metric = METRICS[place % len(METRICS)]
        self.levels = self.metric.levels(self.fleet.gpus)

    def next_group(self, step: int) -> None:
        names = grouping.choices(self.fleet)
        at = names.index(self.by) if self.by in names else 0
        self._group_by = names[(at + step) % len(names)]
        self.grouping = grouping.Grouping(self.view, self._group_by)

    def type(self, text: str, *, unfinished: bool = False) -> None:
        """Show the GPUs that pass the text, as far as it is valid."""
        self.typed, self._unfinished = text, unfinished
        self._look()

    # Cursor.

    @property
    def cursor(self) -> int | None:
        """Number of the GPU under the cursor: that of the first problem, until it is moved."""
        number = self._numbers.get(self._key or "")
        if number in self.grouping.where:
            return number
        if self.view.wrong:
            return self._numbers[self.view.wrong[0].device_uuid]
        return next(iter(self.view.numbers), None)

    @property
    def selected(self) -> Gpu | None:
        number = self.cursor
        return None if number is None else self.fleet.gpus[number]

    @property
    def place(self) -> tuple[int, int]:
        """Group of the cursor, and its index in the group; (0, 0) if there is no cursor."""
        number = self.cursor
        return (0, 0) if number is None else self.grouping.where[number]

    @property
    def row(self) -> int | None:
        """Row of the list under the cursor, or None if its GPU has no problem."""
        gpu = self.selected
        if gpu is None:
            return None
        wrong = enumerate(self.view.wrong)
        rows = [(w.rule != self._kind, n) for n, w in wrong if w.device_uuid == gpu.key]
        return min(rows)[1] if rows else None

    def move_to(self, group: int, member: int) -> None:
        """Move the cursor to a GPU of a group; -1 is the last, as in a list."""
        self._key = self.fleet.gpus[self.grouping.groups[group].members[member]].key

    def move_to_row(self, row: int) -> None:
        if self.view.wrong:
            wrong = self.view.wrong[max(0, min(len(self.view.wrong) - 1, row))]
            self._key, self._kind = wrong.device_uuid, wrong.rule

    # Drawing.

    def gpu_of(self, wrong: Finding) -> Gpu:
        return self.fleet.gpus[self._numbers[wrong.device_uuid]]

    def place_of(self, gpu: Gpu) -> str:
        """Return where a GPU is besides its host: its group, or the smallest unit above hosts."""
        by = self._unit if self.by in (grouping.HOST, grouping.MODEL) else self.by
        name = grouping.name_of(by)(gpu) if by else ""
        return f"{by} {name}" if name else ""

    def fit(self, width: int, height: int) -> None:
        """Set the size of the map; group anew unless the user chose a label."""
        self._space = width, height
        free = (
            self._group_by is None and not self._unfinished
        )  # while one types all stays
        if free and self.age_seconds is not None:
            room = self._space, self._wide()
            conditions = (
                room,
                self.halves,
                self.fleet.label_names,
                len(self.view.numbers),
            )
            if conditions != self._suits:
                self._suits = conditions
                found = grouping.find_grouping(self.view, *room, halves=self.halves)
                self.grouping, self._unit = found

    @property
    def layout(self) -> MapLayout | None:
        """Layout of the map in its room, or None if there is no GPU to show."""
        shown = self.grouping
        if not shown.groups or min(self._space) < 1:
            return None
        room = shown.sizes, shown.labels, self._wide(), self._space
        return arrange(*room, self.place[0], halves=self.halves)

    def _wide(self) -> int:
        """Return the cells of a GPU with its number and value."""
        return self.view.index_cells + VALUE_CELLS + AROUND_VALUE
