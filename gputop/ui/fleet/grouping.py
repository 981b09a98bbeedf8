"""The GPUs that pass a filter such as `rack=r3 pod~train`, in groups."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import translate
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from gputop.fleet.distributions import BUSY, MapMetric, distribution, distributions
from gputop.fleet.fleet_findings import job_of
from gputop.fleet.model import Fleet, Gpu, devices, totals
from gputop.fleet.page import SEVERITIES
from gputop.fleet.parse import natural_key
from gputop.health.findings import Severity
from gputop.text import cells, short_name
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, WARN
from gputop.ui.fleet.map_layout import Labels, MapDensity, arrange

GRAVEST_FIRST = tuple(SEVERITIES)
SIGNS = dict(zip(GRAVEST_FIRST, "!?▲i", strict=True))
"""Sign in the cell of a GPU with a finding; in ASCII `▲` is `^`."""
SIGN_STYLES = dict(zip(GRAVEST_FIRST, (FAULT, DIM, WARN, ACCENT), strict=True))


_WORD = re.compile(r"([^\s=!~]*)(!=|!~|=|~)(\S*)")
_FIELDS = {
    "host": "host",
    "gpu": "index",
    "index": "index",
    "model": "name",
    "uuid": "uuid",
}
_OWN: Mapping[str, Callable[[Gpu], str]] = {
    n: attrgetter(f) for n, f in _FIELDS.items()
}
"""Fields of a GPU that a filter knows besides its labels."""
EXAMPLE = "rack=r3 pod~train host!=node7"


class GpuFilter:
    """A filter as it was typed: every valid word must be true. Without words every GPU passes."""

    def __init__(
        self, text: str, names: Collection[str], *, unfinished: bool = False
    ) -> None:
        """Read a filter over the labels `names`.

        While it is `unfinished`, a last word that may become the name of a label excludes no GPU.
        """
        self.refused = ""
        """Message about the first invalid word, with the right form, or ""."""
        self.tests: list[Callable[[Gpu], bool]] = []
        words = text.split()
        if (
            unfinished
            and words
            and any(name.startswith(words[-1]) for name in (*names, *_OWN))
        ):
            words.pop()
        for word in words:
            try:
                self.tests.append(_test(word, names))
            except ValueError as error:
                self.refused = self.refused or str(error)

    def passing(self, gpus: Sequence[Gpu]) -> list[int]:
        return [
            n for n, gpu in enumerate(gpus) if all(test(gpu) for test in self.tests)
        ]


def _test(word: str, names: Collection[str]) -> Callable[[Gpu], bool]:
    """Return the test of one word; raise `ValueError` with the right form."""
    match = _WORD.fullmatch(word)
    if match is None:
        if any(sign in word for sign in "=!~"):
            raise ValueError(f"{word} is not a filter. Try {EXAMPLE}")
        anywhere = word.casefold()  # one joined text is three times as fast as many
        return lambda gpu: (
            anywhere
            in "\n".join(
                (gpu.host, gpu.name, gpu.uuid, *gpu.labels.values())
            ).casefold()
        )
    name, sign, value = match.groups()
    if not name:
        raise ValueError(f"{word} names no label. Try {EXAMPLE}")
    if name not in _OWN and name not in names:
        known = [*sorted(names), *_OWN]
        near = get_close_matches(name, known, 1)
        rest = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"No label {name}: {rest}")
    if not value:  # it is still being typed
        return lambda _: True
    wanted, pattern = (
        value.casefold(),
        re.compile(translate(value)),
    )  # `*` is a wildcard

    def passes(text: str) -> bool:
        return (
            wanted in text.casefold()
            if "~" in sign
            else pattern.match(text) is not None
        )

    denied = sign.startswith("!")
    of = _OWN.get(name) or (lambda gpu: gpu.labels.get(name, ""))
    return lambda gpu: passes(of(gpu)) != denied


HOST, MODEL = "host", "model"
"""Groupings that need no label."""


class GpuGroup(NamedTuple):
    """GPUs with the same value of a label."""

    name: str
    """Value of the label, which is foreign text; "" if the GPUs lack it."""
    members: list[int]
    """Numbers of GPUs in the fleet, in its order."""


def choices(fleet: Fleet) -> list[str]:
    """Return the labels that a fleet can be grouped by, from the smallest unit on."""
    labels = [name for name in fleet.label_names if name not in (HOST, MODEL)]
    return [HOST, *labels, MODEL]


def group_gpus(gpus: Sequence[Gpu], shown: Iterable[int], by: str) -> list[GpuGroup]:
    """Return the groups of the GPUs `shown`, in natural order; the unnamed one comes last."""
    of = name_of(by)
    found: dict[str, list[int]] = {}
    for number in shown:
        found.setdefault(of(gpus[number]), []).append(number)
    names = sorted(found, key=lambda name: (not name, natural_key(name)))
    return [GpuGroup(name, found[name]) for name in names]


def name_of(by: str) -> Callable[[Gpu], str]:
    """Return the function from a GPU to the name of its group."""
    if by == HOST:
        return lambda gpu: gpu.host
    if by == MODEL:
        return lambda gpu: short_name(gpu.name)
    return lambda gpu: gpu.labels.get(by, "")


LONGEST_NAME = 18
LONGEST_INDEX = 4
VALUE, SHAPE = 5, len(BUSY.edges) + 1
"""Cells of a group's median, and of its distribution."""


class FilteredGpus:
    """GPUs that pass the filter, by their numbers in the fleet."""

    def __init__(
        self, fleet: Fleet, numbers: Mapping[str, int], passing: GpuFilter
    ) -> None:
        """Filter a fleet, whose GPUs have these `numbers` by their keys."""
        self.fleet, self.filtered = fleet, bool(passing.tests)
        self.numbers = passing.passing(fleet.gpus)
        shown = set(self.numbers)
        self.wrong = [w for w in fleet.findings if numbers.get(w.device_uuid) in shown]
        self.health: dict[int, Severity] = {}
        """Gravest severity by the number of a GPU."""
        for wrong in self.wrong:
            number = numbers[wrong.device_uuid]
            self.health[number] = max(
                wrong.severity, self.health.get(number, Severity.OK)
            )
        gpus = [fleet.gpus[number] for number in self.numbers]
        self.totals = totals(gpus, self.wrong)
        self.all_gpus = len(devices(fleet.gpus)) if self.filtered else self.totals.gpus
        """Number of GPUs, whether they pass the filter or not."""
        self.index_cells = min(
            LONGEST_INDEX, max(map(len, {gpu.index for gpu in gpus}), default=1)
        )
        """Cells of the longest index of a GPU on its host, within a limit."""
        self.summary = [*distributions(gpus)]

    @cached_property
    def jobs(self) -> dict[str, list[Gpu]]:
        """GPUs of each job, whether they pass the filter or not."""
        found: dict[str, list[Gpu]] = {}
        for gpu in self.fleet.gpus:
            found.setdefault(job_of(gpu), []).append(gpu)
        return found


class Grouping:
    """The GPUs that pass the filter, in groups."""

    def __init__(self, view: FilteredGpus, by: str) -> None:
        self.by, self._view = by, view
        self.groups = group_gpus(view.fleet.gpus, view.numbers, by)
        self.sizes = tuple(len(group.members) for group in self.groups)
        self._medians: dict[tuple[int, str], float | None] = {}

    @cached_property
    def where(self) -> dict[int, tuple[int, int]]:
        """Group of each GPU, and its index in the group."""
        return {
            number: (group, member)
            for group, each in enumerate(self.groups)
            for member, number in enumerate(each.members)
        }

    @cached_property
    def wrong(self) -> dict[int, Counter[Severity]]:
        """Number of GPUs by severity, for each group with problems."""
        found: dict[int, Counter[Severity]] = defaultdict(Counter)
        for number, health in self._view.health.items():
            found[self.where[number][0]][health] += 1
        return found

    @cached_property
    def labels(self) -> Labels:
        """Room that names and figures take."""
        names = [cells(group.name or self.unnamed) for group in self.groups]
        name = min(LONGEST_NAME, max(names, default=1))
        figures = self.count_cells + 1 + VALUE + 1 + self.count_cells + 1
        return Labels(
            name + 1 + figures, max(name, figures), name + 1 + figures + 1 + SHAPE
        )

    @cached_property
    def count_cells(self) -> int:
        """Cells of the number of GPUs in a group."""
        return len(str(max(self.sizes, default=0)))

    @property
    def unnamed(self) -> str:
        """Name of the group of GPUs that lack the label."""
        return f"(no {self.by})"

    def median(self, group: int, metric: MapMetric) -> float | None:
        """Return the median of a group, or None if no GPU in it reports the value."""
        asked = group, metric.name
        if asked not in self._medians:
            gpus = (
                self._view.fleet.gpus[number] for number in self.groups[group].members
            )
            self._medians[asked] = distribution(gpus, metric).median
        return self._medians[asked]


def find_grouping(
    view: FilteredGpus, space: tuple[int, int], wide: int, *, halves: bool
) -> tuple[Grouping, str]:
    """Return the grouping that suits, and the label with the most values among common ones, or "".

    It is the smallest unit with a cell for every GPU, or else one with a line for every group.
    `wide` is the width of a GPU with its number and value.
    """
    made = [Grouping(view, name) for name in choices(view.fleet)]
    # A label with as many values as there are hosts is only another name for them.
    made = [
        each for each in made if each.by == HOST or len(each.groups) < view.totals.hosts
    ]
    # Hosts first, then labels that all GPUs have, the most groups first.
    made.sort(
        key=lambda g: (
            g.by != HOST,
            "" in (each.name for each in g.groups),
            -len(g.groups),
        )
    )
    labels = [each.by for each in made if each.by not in (HOST, MODEL)]
    layouts = [
        arrange(each.sizes, each.labels, wide, space, -1, halves=halves)
        for each in made
    ]
    rows = [layout.height for layout in layouts]
    fitting = [
        n for n, layout in enumerate(layouts) if layout.density is not MapDensity.FOLDED
    ]
    lines = [
        n for n, each in enumerate(made) if rows[n] <= space[1] and len(each.groups) > 1
    ]
    best = (fitting or lines or [rows.index(min(rows))])[0]
    return made[best], labels[0] if labels else ""
