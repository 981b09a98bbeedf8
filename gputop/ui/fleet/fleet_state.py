"""What the fleet screen shows: the newest fleet, and how somebody looks at it.

It outlives the screen: a host is opened and left again with everything as it was.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gputop.ui.fleet.grouping import (
    HOST,
    MODEL,
    NONE,
    Filter,
    Grouping,
    View,
    Wanted,
    choices,
    name_of,
    suited,
)
from gputop.ui.fleet.map_layout import AROUND_VALUE, VALUE_CELLS, Density, Layout, arrange
from gputop.ui.fleet.map_metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.fleet.model import Fleet, Gpu, Wrong
    from gputop.ui.fleet.grouping import Group
    from gputop.ui.fleet.map_metrics import Metric

LATE_INTERVALS = 3
"""Without an answer, after which what is shown is of the past."""
LONGEST_FILTER = 200


class FleetState:
    """The fleet, its groups, and the cursor that map and list have in common."""

    def __init__(
        self,
        interval: float = 10.0,
        *,
        halves: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`halves` is whether there are colours enough for two GPUs in a cell."""
        self.interval, self.halves, self._clock = interval, halves, clock
        self.began_at = clock()
        self._taken_at: float | None = None
        self.fleet: Fleet | None = None
        self.view: View | None = None
        self.grouping: Grouping | None = None
        self.metric: Metric = METRICS[0]
        self.levels: list[int] = []
        """Of that metric, by the number of a GPU."""
        self.density: Density | None = None
        """Chosen by hand; None is what fits."""
        self._group_by: str | None = None
        """Chosen by hand; None is what suits."""
        self._unit = ""
        """The label with the most values of those that all GPUs have."""
        self._suits: Wanted | None = None
        """What the grouping was chosen for, where nobody chose it."""
        self._filter = Filter("", ())
        self.typed = ""
        self.typing = False
        self.on_list = False
        """Whether keys are for the list of what is wrong."""
        self._key: str | None = None
        """Of the GPU under the cursor."""
        self._kind: str | None = None
        """Which of several things that are wrong with it, in the list."""
        self._numbers: dict[str, int] = {}
        self._space = (0, 0)
        self._layout: tuple[object, Layout] | None = None

    # What comes.

    def update(self, fleet: Fleet) -> None:
        """Show a new answer in place of the one before."""
        before, shown = self.fleet, dict(zip(self._numbers, self.levels, strict=True))
        self.fleet = fleet
        if fleet.fresh or self._taken_at is None:
            self._taken_at = self._clock()
        self._numbers = {gpu.key: n for n, gpu in enumerate(fleet.gpus)}
        self.levels = self.metric.levels(fleet.gpus, [*map(shown.get, self._numbers)])
        if before is None or before.label_names != fleet.label_names:
            self._read_filter()
        self._look()

    def _look(self) -> None:
        if self.fleet is not None:
            self.view = View(self.fleet, self._numbers, self._filter)
            self.grouping = self._grouped(self.by)

    def _grouped(self, by: str) -> Grouping:
        assert self.fleet is not None
        assert self.view is not None
        return Grouping(self.fleet.gpus, self.view, by)

    @property
    def age_seconds(self) -> float | None:
        """Since the newest answer; None before the first."""
        return None if self._taken_at is None else self._clock() - self._taken_at

    @property
    def waiting_seconds(self) -> float:
        """Since it was started."""
        return self._clock() - self.began_at

    @property
    def is_old(self) -> bool:
        """Whether what is shown is perhaps no more so."""
        age = self.age_seconds
        late = age is not None and age > LATE_INTERVALS * self.interval
        return late or (self.fleet is not None and not self.fleet.fresh)

    # How it is looked at.

    @property
    def by(self) -> str:
        """What it is grouped by."""
        return self._group_by or (self.grouping.by if self.grouping else HOST)

    @property
    def groups(self) -> list[Group]:
        """None where there is no GPU to show."""
        return self.grouping.groups if self.grouping else []

    def next_metric(self, step: int) -> None:
        """Colours the map by another value."""
        self.metric = METRICS[(METRICS.index(self.metric) + step) % len(METRICS)]
        if self.fleet is not None:
            gpus = self.fleet.gpus
            self.levels = self.metric.levels(gpus, [None] * len(gpus))

    def next_group(self, step: int) -> None:
        """Groups the map by something else."""
        if self.fleet is not None:
            names = choices(self.fleet)
            at = names.index(self.by) if self.by in names else 0
            self._group_by = names[(at + step) % len(names)]
            self.grouping = self._grouped(self.by)

    def next_density(self) -> None:
        """More GPUs in less room; after the last, what fits."""
        known = [None, *(d for d in Density if self.halves or d is not Density.HALF)]
        at = known.index(self.density) if self.density in known else 0
        self.density = known[(at + 1) % len(known)]

    def type(self, text: str) -> None:
        """Shows the GPUs that pass what is typed, as far as that is understood."""
        self.typed = text[:LONGEST_FILTER]
        self._read_filter()
        self._look()

    @property
    def refused(self) -> str:
        """What is wrong with what is typed; its other words count."""
        return self._filter.refused

    def _read_filter(self) -> None:
        gpus = self.fleet.gpus if self.fleet else ()
        names = {name for gpu in gpus[:1] for name in gpu.labels}
        names.update(self.fleet.label_names if self.fleet else ())
        self._filter = Filter(self.typed, names, unfinished=self.typing)

    # Where the cursor is.

    @property
    def cursor(self) -> int | None:
        """The number of the GPU under it: the first of what is wrong, until it is moved."""
        if self.view is None or self.grouping is None:
            return None
        number = self._numbers.get(self._key or "")
        if number in self.grouping.where:
            return number
        if self.view.wrong:
            return self._numbers[self.view.wrong[0].key]
        return next(iter(self.view.numbers), None)

    @property
    def selected(self) -> Gpu | None:
        """The GPU under the cursor."""
        number = self.cursor
        return None if number is None or self.fleet is None else self.fleet.gpus[number]

    @property
    def place(self) -> tuple[int, int]:
        """The group of the cursor, and the number in it; (0, 0) where there is none."""
        number = self.cursor
        if number is None or self.grouping is None:
            return 0, 0
        return self.grouping.where[number]

    @property
    def row(self) -> int | None:
        """Of the list: that of the cursor, where something is wrong there."""
        gpu = self.selected
        if gpu is None or self.view is None:
            return None
        rows = [(n, each.kind) for n, each in enumerate(self.view.wrong) if each.key == gpu.key]
        same = [n for n, kind in rows if kind == self._kind]
        return next(iter(same or (n for n, _ in rows)), None)

    def go(self, group: int, member: int) -> None:
        """Puts the cursor on a GPU of the map."""
        if self.fleet is not None and group < len(self.groups):
            members = self.groups[group].members
            self._key = self.fleet.gpus[members[max(0, min(len(members) - 1, member))]].key

    def next_of_groups(self, step: int) -> None:
        """Puts the cursor on the first GPU of another group."""
        if self.groups:
            self.go(max(0, min(len(self.groups) - 1, self.place[0] + step)), 0)

    def go_row(self, row: int) -> None:
        """Puts the cursor on what is wrong in that row of the list."""
        if self.view is not None and self.view.wrong:
            wrong = self.view.wrong[max(0, min(len(self.view.wrong) - 1, row))]
            self._key, self._kind = wrong.key, wrong.kind

    # What is drawn of it.

    def gpu_of(self, wrong: Wrong) -> Gpu:
        """That something is wrong with."""
        assert self.fleet is not None
        return self.fleet.gpus[self._numbers[wrong.key]]

    def place_of(self, gpu: Gpu) -> str:
        """Where it is besides its host: what it is grouped by, or the smallest unit above hosts."""
        by = self._unit if self.by in (HOST, MODEL, NONE) else self.by
        name = name_of(by)(gpu) if by else ""
        return f"{by} {name}" if name else ""

    def fit(self, width: int, height: int) -> None:
        """Says how much room the map has; groups anew, where nobody chose how."""
        self._space = width, height
        free = self._group_by is None and not self.typing  # while one types all stays in place
        if free and self.fleet is not None and self.view is not None:
            names, gpus = choices(self.fleet), len(self.view.numbers)
            to = Wanted(*self._space, self._wide(), self.halves, names, gpus)
            if not to.is_as(self._suits):
                self._suits = to
                self.grouping, self._unit = suited(self.fleet, self.view, to)

    @property
    def layout(self) -> Layout | None:
        """Where everything is in that room; None where there is no GPU to show."""
        grouping = self.grouping
        if grouping is None or not grouping.groups or min(self._space) < 1:
            return None
        opened, density = self.place[0], self.density
        asked = (grouping.sizes, grouping.labels, self._wide(), self._space)
        if self._layout is None or self._layout[0] != (asked, opened, density):
            made = arrange(*asked, opened, halves=self.halves, density=density)
            self._layout = ((asked, opened, density), made)
        return self._layout[1]

    def _wide(self) -> int:
        """Cells of a GPU with its number and value."""
        return (self.view.index_cells if self.view else 1) + VALUE_CELLS + AROUND_VALUE
