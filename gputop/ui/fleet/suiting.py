"""What a fleet is grouped by where nobody chose: the smallest unit of which all is seen at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.ui.fleet.grouping import HOST, MODEL, NONE, choices
from gputop.ui.fleet.layout import Density, arrange
from gputop.ui.fleet.view import Grouping

if TYPE_CHECKING:
    from gputop.fleet.model import Fleet
    from gputop.ui.fleet.view import View

CHANGED = 0.1
"""Share of GPUs that come or go, from which on another grouping may suit better."""


class Wanted(NamedTuple):
    """What a grouping is to suit."""

    width: int
    height: int
    wide: int
    """Cells of a GPU with its number and value."""
    halves: bool
    names: list[str]
    """What there is to group by."""
    gpus: int

    def is_as(self, other: Wanted | None) -> bool:
        """Whether what suits one suits the other, too: else it would change to and fro."""
        if other is None or self._replace(gpus=other.gpus) != other:
            return False
        return abs(self.gpus - other.gpus) <= CHANGED * other.gpus


def wanted(fleet: Fleet, view: View, space: tuple[int, int], wide: int, *, halves: bool) -> Wanted:
    """What a grouping of that view is to suit now."""
    return Wanted(*space, wide, halves, choices(fleet), len(view.numbers))


def suited(fleet: Fleet, view: View, to: Wanted) -> tuple[Grouping, str]:
    """The grouping, and the label with the most values of those that all GPUs have, or "".

    The smallest unit of which every GPU has a cell; else that of which every group has a line.
    """
    made = [Grouping(fleet.gpus, view, name) for name in to.names]
    # What has as many values as there are hosts is but another name of them.
    made = [each for each in made if each.by == HOST or len(each.groups) < view.totals.hosts]
    made.sort(key=lambda each: each.coarseness)
    labels = [each.by for each in made if each.by not in (HOST, MODEL, NONE)]
    layouts = [
        arrange(each.sizes, each.labels, to.wide, (to.width, to.height), -1, halves=to.halves)
        for each in made
    ]
    rows = [layout.height for layout in layouts]
    fitting = [n for n, layout in enumerate(layouts) if layout.density is not Density.FOLDED]
    lines = [n for n, each in enumerate(made) if rows[n] <= to.height and len(each.groups) > 1]
    best = (fitting or lines or [rows.index(min(rows))])[0]
    return made[best], labels[0] if labels else ""
