"""What there is of a fleet after the filter: who, what is wrong, and sums; and that in groups."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from gputop.fleet.spread import OF_DEVICE, devices, totals
from gputop.text import cells
from gputop.ui.fleet.distribution import distribution
from gputop.ui.fleet.grouping import HOST, grouped
from gputop.ui.fleet.layout import Labels
from gputop.ui.fleet.metrics import BUSY, GRAVEST_FIRST, SUMMARISED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputop.fleet.model import Fleet, Gpu, Health
    from gputop.ui.fleet.filter import Filter
    from gputop.ui.fleet.metrics import Metric

LONGEST_NAME = 18
LONGEST_INDEX = 4
VALUE, SHAPE = 5, len(BUSY.edges) + 1
"""Cells of a group's median, and of its distribution."""


class View:
    """The GPUs that pass the filter, by their numbers in the fleet."""

    def __init__(self, fleet: Fleet, numbers: Mapping[str, int], passing: Filter) -> None:
        """`numbers` are those of the fleet's GPUs by their keys."""
        self.filtered = passing.leaves_out
        self.numbers = passing.passing(fleet.gpus)
        shown = set(self.numbers)
        self.wrong = [w for w in fleet.wrong if numbers.get(w.key) in shown]
        """Worst first."""
        self.health: dict[int, Health] = {}
        """The gravest that is wrong with a GPU."""
        for wrong in self.wrong:
            number = numbers[wrong.key]
            was = self.health.get(number, wrong.severity)
            self.health[number] = min(was, wrong.severity, key=GRAVEST_FIRST.index)
        gpus = [fleet.gpus[number] for number in self.numbers]
        self.totals = totals(gpus, self.wrong)
        self.all_gpus = len(devices(fleet.gpus)) if self.filtered else self.totals.gpus
        """How many GPUs there are, whether they pass the filter or not."""
        self.index_cells = min(LONGEST_INDEX, max(map(len, {gpu.index for gpu in gpus}), default=1))
        """Of the longest number of a GPU on its host, within reason."""
        physical = devices(gpus)
        self.summary = {
            metric.name: distribution(physical if metric.reading in OF_DEVICE else gpus, metric)
            for metric in SUMMARISED
        }


class Grouping:
    """A view in groups."""

    def __init__(self, gpus: tuple[Gpu, ...], view: View, by: str) -> None:
        self.by, self._gpus, self._health = by, gpus, view.health
        self.groups = grouped(gpus, view.numbers, by)
        self.sizes = tuple(len(group.members) for group in self.groups)
        self._medians: dict[tuple[int, str], float | None] = {}

    @property
    def coarseness(self) -> tuple[bool, bool, int]:
        """To sort by: hosts, then what all GPUs have, the most groups first."""
        return self.by != HOST, any(not group.name for group in self.groups), -len(self.groups)

    @cached_property
    def where(self) -> dict[int, tuple[int, int]]:
        """Of each GPU its group, and its number in it."""
        return {
            number: (group, member)
            for group, each in enumerate(self.groups)
            for member, number in enumerate(each.members)
        }

    @cached_property
    def wrong(self) -> dict[int, dict[Health, int]]:
        """In each group with such, how many GPUs are how."""
        found: dict[int, dict[Health, int]] = {}
        for number, health in self._health.items():
            counts = found.setdefault(self.where[number][0], {})
            counts[health] = counts.get(health, 0) + 1
        return found

    @cached_property
    def labels(self) -> Labels:
        """The room that names and figures take."""
        names = [cells(group.name or self.unnamed) for group in self.groups]
        name = min(LONGEST_NAME, max(names, default=1))
        figures = self.count_cells + 1 + VALUE + 1 + self.count_cells + 1
        return Labels(name + 1 + figures, max(name, figures), name + 1 + figures + 1 + SHAPE)

    @cached_property
    def count_cells(self) -> int:
        """Of the number of GPUs in a group."""
        return len(str(max(self.sizes, default=0)))

    @property
    def unnamed(self) -> str:
        """The group of those that do not say."""
        return f"(no {self.by})"

    def median(self, group: int, metric: Metric) -> float | None:
        """Of a group; None where none of its GPUs has that value."""
        asked = group, metric.name
        if asked not in self._medians:
            gpus = (self._gpus[number] for number in self.groups[group].members)
            self._medians[asked] = distribution(gpus, metric).median
        return self._medians[asked]
