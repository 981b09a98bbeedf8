"""GPUs of a fleet that pass a filter such as `rack=r3 pod~train`, grouped by host, model or label."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fnmatch import translate
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gputop.fleet.places import natural
from gputop.fleet.spread import OF_DEVICE, devices, totals
from gputop.text import cells, short_name
from gputop.ui.fleet.map_layout import Density, Labels, arrange
from gputop.ui.fleet.map_metrics import BUSY, GRAVEST_FIRST, SUMMARISED, distribution

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from gputop.fleet.model import Fleet, Gpu, Health
    from gputop.ui.fleet.map_metrics import Metric

    Test = Callable[[str], bool]

_WORD = re.compile(r"([^\s=!~]*)(!=|!~|=|~)(\S*)")
_OWN: Mapping[str, Callable[[Gpu], str]] = {
    "host": lambda gpu: gpu.host,
    "gpu": lambda gpu: gpu.index,
    "index": lambda gpu: gpu.index,
    "model": lambda gpu: gpu.name,
    "uuid": lambda gpu: gpu.uuid,
}
"""What can be asked of a GPU besides its labels."""
EXAMPLE = "rack=r3 pod~train host!=node7"


class Filter:
    """What was typed, as far as it is understood; without a word every GPU passes."""

    def __init__(self, text: str, names: Collection[str], *, unfinished: bool = False) -> None:
        """`names` are the labels that there are; `unfinished` is while it is being typed.

        Then a last word that may become the name of a label leaves nobody out yet.
        """
        self.refused = ""
        """What is wrong with the first word that is no filter, and what is right."""
        self._tests: list[Callable[[Gpu], bool]] = []
        words = text.split()
        if unfinished and words and any(name.startswith(words[-1]) for name in (*names, *_OWN)):
            words.pop()
        for word in words:
            try:
                self._tests.append(_test(word, names))
            except ValueError as error:
                self.refused = self.refused or str(error)

    @property
    def leaves_out(self) -> bool:
        """Whether there may be GPUs that do not pass."""
        return bool(self._tests)

    def passing(self, gpus: Sequence[Gpu]) -> list[int]:
        """The numbers of those that pass."""
        if not self._tests:
            return [*range(len(gpus))]
        return [n for n, gpu in enumerate(gpus) if all(test(gpu) for test in self._tests)]


def _test(word: str, names: Collection[str]) -> Callable[[Gpu], bool]:
    """Of one word; raises `ValueError` with what is right."""
    match = _WORD.fullmatch(word)
    if match is None:
        if any(sign in word for sign in "=!~"):
            raise ValueError(f"{word} is no filter. Right is {EXAMPLE}")
        return _anywhere(word.casefold())
    name, sign, value = match.groups()
    if not name:
        raise ValueError(f"{word} names no label. Right is {EXAMPLE}")
    if name not in _OWN and name not in names:
        known = [*sorted(names), *_OWN]
        near = get_close_matches(name, known, 1)
        rest = f"is it {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"No label {name}: {rest}")
    if not value:  # it is still being typed
        return lambda _: True
    passes = _contains(value) if sign in ("~", "!~") else _is(value)
    denied = sign.startswith("!")
    of = _OWN.get(name) or (lambda gpu: gpu.labels.get(name, ""))
    return lambda gpu: passes(of(gpu)) != denied


def _anywhere(wanted: str) -> Callable[[Gpu], bool]:
    """In one text of all: of ten thousand GPUs each by itself takes three times as long."""

    def passes(gpu: Gpu) -> bool:
        texts = (gpu.host, gpu.name, gpu.uuid, *gpu.labels.values())
        return wanted in "\n".join(texts).casefold()

    return passes


def _contains(value: str) -> Test:
    wanted = value.casefold()
    return lambda text: wanted in text.casefold()


def _is(value: str) -> Test:
    """As it is, or with `*` for anything."""
    if not any(sign in value for sign in "*?["):
        return lambda text: text == value
    pattern = re.compile(translate(value))
    return lambda text: pattern.match(text) is not None


HOST, MODEL, NONE = "host", "model", "none"
"""What can be grouped by without a label; `none` is all in one."""


class Group(NamedTuple):
    """GPUs that have the same in common."""

    name: str
    """Foreign text; "" where its GPUs do not say."""
    members: list[int]
    """Numbers of GPUs in the fleet, in its order."""


def choices(fleet: Fleet) -> list[str]:
    """By what the GPUs of a fleet can be grouped: from the smallest unit on."""
    labels = [name for name in fleet.label_names if name not in (HOST, MODEL, NONE)]
    return [HOST, *labels, MODEL, NONE]


def grouped(gpus: Sequence[Gpu], shown: Iterable[int], by: str) -> list[Group]:
    """The groups of those that are shown, in natural order; who does not say comes last."""
    of = name_of(by)
    found: dict[str, list[int]] = {}
    for number in shown:
        found.setdefault(of(gpus[number]), []).append(number)
    names = sorted(found, key=lambda name: (not name, natural(name)))
    return [Group(name, found[name]) for name in names]


def name_of(by: str) -> Callable[[Gpu], str]:
    """The name of the group of a GPU."""
    if by == HOST:
        return lambda gpu: gpu.host
    if by == MODEL:
        return lambda gpu: short_name(gpu.name)
    if by == NONE:
        return lambda _: "all"
    return lambda gpu: gpu.labels.get(by, "")


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
