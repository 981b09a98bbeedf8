"""State of the fleet screen: the newest fleet, its groups, the cursor, and the user's choices."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from gputop.fleet.identities import natural_key
from gputop.fleet.model import BUSY, Fleet, Gpu, totals
from gputop.health.findings import Finding, Severity
from gputop.text import short_name
from gputop.ui.drawing.list_state import ListState

LATE_INTERVALS = 3
"""Intervals without an answer after which readings count as old."""
HOST, MODEL = "host", "model"
"""Groupings that need no label."""


EXAMPLE = "rack=r3 pod~train host!=node7"
OWN = {"host": "host", "gpu": "index", "model": "name", "uuid": "uuid"}
"""Names of a GPU's fields, which work like labels."""
_WORD = re.compile(r"([^\s=!~]+)(!?)([=~])(\S*)")
Test = Callable[[Gpu], bool]


def parse_filter(text: str, names: Collection[str]) -> list[Test]:
    """Return the tests of a filter over the labels `names`. A GPU must pass all of them.

    Raises `ValueError` with the correct syntax.
    """
    return [_test(word, names) for word in text.split()]


def _test(word: str, names: Collection[str]) -> Test:
    match = _WORD.fullmatch(word)
    if match is None:
        if re.search("[=!~]", word):
            raise ValueError(f"{word} is not a filter. Try {EXAMPLE}")
        anywhere = word.casefold()
        return lambda gpu: (
            anywhere
            in " ".join((gpu.host, gpu.name, *gpu.labels.values())).casefold()
        )
    name, denied, sign, value = match.groups()
    if name not in names and name not in OWN:
        known = ", ".join((*sorted(names), *OWN))
        raise ValueError(f"No label {name}. Labels: {known}")
    # An empty value means that the user is still typing.
    pattern = re.escape(value) if sign == "~" else translate(value or "*")
    search = re.compile(pattern, re.IGNORECASE if sign == "~" else 0).search

    def test(gpu: Gpu) -> bool:
        own = getattr(gpu, OWN.get(name, "key"))
        found = search(own if name in OWN else gpu.labels.get(name, ""))
        return (found is None) == bool(denied)

    return test


@dataclass
class GpuGroup:
    """GPUs with the same value of a label."""

    name: str
    """Value of the label, which is foreign text; "" for GPUs without it."""
    gpus: list[Gpu] = field(default_factory=list)


def group_gpus(gpus: Sequence[Gpu], by: str) -> list[GpuGroup]:
    """Return the groups in natural order. The unnamed one comes last."""
    found: dict[str, GpuGroup] = {}
    for gpu in gpus:
        own = {HOST: gpu.host, MODEL: short_name(gpu.name)}
        name = own.get(by) or gpu.labels.get(by, "")
        found.setdefault(name, GpuGroup(name)).gpus.append(gpu)
    return sorted(
        found.values(), key=lambda g: (not g.name, natural_key(g.name))
    )


class Problems(ListState[Finding]):
    """List of findings. The selection stays on its finding."""

    def identity(self, item: Finding) -> Hashable:
        return item.device_uuid, item.rule


class FleetState:
    """The fleet, its groups, and the cursor that map and list share."""

    def __init__(
        self,
        interval: float = 10.0,
        where: str = "",
        match: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show a fleet that is refreshed every `interval` seconds.

        `where` is the server, and `match` the selector in its queries.
        """
        self.interval = interval
        self.where = where
        self.match = match
        self._clock = clock
        self._taken_at: float | None = None
        self.fleet = Fleet(time=0.0)
        """The newest fleet; an empty fleet before the first answer."""
        self.metric = BUSY
        self.by = ""
        """Label that the map is grouped by; "" for an automatic choice."""
        self.typed = ""
        self.refused = ""
        """Message with the correct syntax if the filter is invalid."""
        self.on_list = False
        """True while the list of problems has the focus."""
        self._key = ""
        """Key of the GPU under the cursor, if the cursor was moved."""
        self.problems = Problems()
        """List of problems of the visible GPUs, worst first."""
        self._look()

    def update(self, fleet: Fleet) -> None:
        """Replace the previous answer by a new one."""
        self.fleet = fleet
        if fleet.fresh or self._taken_at is None:
            self._taken_at = self._clock()
        self._look()

    def type(self, text: str) -> None:
        """Show the GPUs that pass the filter text, or all while it is invalid."""
        self.typed = text
        self._look()

    def _look(self) -> None:
        """Apply the filter to everything that is shown."""
        fleet = self.fleet
        self.refused = ""
        self.gpus: Sequence[Gpu] = fleet.gpus
        try:
            labels = fleet.gpus[0].labels if fleet.gpus else {}
            tests = parse_filter(self.typed, {*fleet.label_names, *labels})
            if tests:
                self.gpus = [
                    g for g in fleet.gpus if all(test(g) for test in tests)
                ]
        except ValueError as error:
            self.refused = str(error)
        self.by_key = {gpu.key: gpu for gpu in self.gpus}
        findings = [f for f in fleet.findings if f.device_uuid in self.by_key]
        self.worst: dict[str, Severity] = {}
        """Severity of the gravest finding, by the key of a GPU."""
        # The gravest finding comes first.
        for finding in findings:
            self.worst.setdefault(finding.device_uuid, finding.severity)
        self.problems.fill(findings)
        self.totals = totals(self.gpus, findings)

    @property
    def age_seconds(self) -> float | None:
        """Seconds since the newest answer, or None before the first."""
        return (
            None if self._taken_at is None else self._clock() - self._taken_at
        )

    @property
    def is_old(self) -> bool:
        """True if the screen may be out of date."""
        late = (self.age_seconds or 0.0) > LATE_INTERVALS * self.interval
        return late or not self.fleet.fresh

    def choices(self) -> list[str]:
        """Return the labels to group the fleet by."""
        return [*dict.fromkeys((HOST, *self.fleet.label_names, MODEL))]

    @property
    def cursor(self) -> Gpu | None:
        """GPU under the cursor: that of the first problem, until the cursor is moved."""
        key = self._key
        if key not in self.by_key and self.problems.selected is not None:
            key = self.problems.selected.device_uuid
        return self.by_key.get(key) or next(iter(self.gpus), None)

    def move_to(self, gpu: Gpu) -> None:
        """Move the cursor to a GPU, and in the list to its problem, if it has one."""
        self._key = gpu.key
        for number, finding in enumerate(self.problems.lines):
            if finding.device_uuid == gpu.key:
                self.problems.select(number)
                return

    def move_to_problem(self) -> None:
        """Move the cursor to the GPU of the selected problem."""
        if self.problems.selected is not None:
            self._key = self.problems.selected.device_uuid
